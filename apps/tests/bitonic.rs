//! Bitonic sort as a user runs it: alone and under `hydrant run`.

mod support;

use std::fs;

use support::{
    Launcher::{Alone, HydrantRun},
    fails, job, report, texts,
};

const BITONIC: &str = env!("CARGO_BIN_EXE_bitonic");

#[test]
fn gives_the_serial_answer_on_every_hypercube() {
    for (ranks, steps) in [(1, 0), (2, 1), (4, 3), (8, 6), (16, 10)] {
        // The number of keys is divisible by no number of ranks but 1.
        for verify in ["full", "quick"] {
            let arguments = ["--n", "1001", "--verify", verify];
            let report = report(HydrantRun, ranks, BITONIC, &arguments).unwrap();
            assert_eq!(report["program"], "bitonic");
            assert_eq!(report["verified"], verify);
            assert_eq!(report["steps"], steps);
            assert_eq!(report["puts"], ranks * steps, "{report}");
        }
    }
}

#[test]
fn fewer_keys_than_ranks_are_sorted() {
    for n in ["1", "2", "15"] {
        report(HydrantRun, 16, BITONIC, &["--n", n]).unwrap();
    }
}

#[test]
fn the_number_of_puts_follows_the_granularity() {
    for (put, each) in [("block", 1), ("1", 25), ("7", 4), ("25", 1)] {
        let arguments = ["--n", "100", "--put-elements", put];
        let report = report(HydrantRun, 4, BITONIC, &arguments).unwrap();
        assert_eq!(report["puts"], 4 * 3 * each, "{report}");
    }
}

#[test]
fn a_job_of_one_prints_a_table() {
    let output = job(Alone, 1, BITONIC, &["--n", "1000"]).unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    assert!(out.starts_with("bitonic on 1 rank\n"), "{out}");
    for row in [
        "keys            1000 of 64 bits",
        "every key is that of the serial sort",
    ] {
        assert!(out.contains(row), "no `{row}` in {out}");
    }
}

#[test]
fn other_numbers_of_ranks_are_refused_with_the_nearest() {
    for (ranks, nearest) in [(3, "2 and 4"), (5, "4 and 8"), (9, "8 and 16")] {
        let message = format!(
            "bitonic: {ranks} ranks make no hypercube (a power of two of them): the nearest \
             numbers that do are {nearest}\n"
        );
        fails(HydrantRun, ranks, BITONIC, &[], 1, &message);
    }
}

#[test]
fn keys_come_from_files_and_go_into_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (text, raw, out) = (path("in.txt"), path("in.bin"), path("out.txt"));
    // The largest key is also the padding of runs.
    let keys = [
        3,
        i64::MAX,
        -7,
        i64::MIN,
        i64::MAX,
        0,
        3,
        i64::MAX,
        12,
        -7,
        5,
    ];
    let mut sorted = keys;
    sorted.sort_unstable();
    let lines = |keys: &[i64]| {
        keys.iter()
            .map(|key| format!("{key}\n"))
            .collect::<String>()
    };
    fs::write(&text, lines(&keys)).unwrap();
    let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
    fs::write(&raw, bytes).unwrap();
    for (input, verify) in [(&text, "full"), (&raw, "quick")] {
        for ranks in [1, 4, 8, 16] {
            let arguments = ["--input", input, "--out", &out, "--verify", verify];
            let report = report(HydrantRun, ranks, BITONIC, &arguments).unwrap();
            assert_eq!(report["n"], 11);
            assert_eq!(
                fs::read_to_string(&out).unwrap(),
                lines(&sorted),
                "{ranks} ranks"
            );
        }
    }
}

#[test]
fn files_that_cannot_be_used_are_refused_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = path("good.txt", b"1 2 3");
    let cases = [
        ("/no/such/keys".to_owned(), "cannot read /no/such/keys: "),
        (
            path("short.bin", &[0; 9]),
            "its 9 bytes are no multiple of 8",
        ),
        (path("garbage.txt", b"1\n2.5\n"), "line 2 of "),
        (
            path("empty.txt", b"\n"),
            "is empty: it must hold 64-bit integers",
        ),
    ];
    for (bad, message) in &cases {
        fails(HydrantRun, 4, BITONIC, &["--input", bad], 1, message);
    }
    let arguments = ["--input", &good, "--n", "4"];
    fails(
        HydrantRun,
        4,
        BITONIC,
        &arguments,
        1,
        "holds 3 keys, not the 4 of --n 4",
    );
}

#[test]
fn a_problem_too_large_for_memory_is_refused_once() {
    for n in ["100000000000000", "18446744073709551615"] {
        fails(
            HydrantRun,
            4,
            BITONIC,
            &["--n", n],
            1,
            "bitonic: no memory for ",
        );
    }
}

#[test]
fn arguments_are_judged_once() {
    fails(
        HydrantRun,
        4,
        BITONIC,
        &["--n", "-1"],
        2,
        "unexpected argument '-1'",
    );
    fails(
        HydrantRun,
        4,
        BITONIC,
        &["--put", "row"],
        2,
        "it is block or a number of keys",
    );
    let both = ["--seed", "1", "--input", "x"];
    fails(
        HydrantRun,
        4,
        BITONIC,
        &both,
        2,
        "'--seed <SEED>' cannot be used with '--input <FILE>'",
    );
}
