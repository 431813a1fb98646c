//! Cannon's multiplication as a user runs it: alone and under `hydrant run`.

mod support;

use std::fs;

use support::{
    Launcher::{Alone, HydrantRun},
    fails, job, report, texts,
};

const CANNON: &str = env!("CARGO_BIN_EXE_cannon");

/// The puts of blocks in one multiplication on a mesh of side `q`.
fn blocks_put(q: u64, accumulate: &str) -> u64 {
    let moves = 2 * (q - 1) * q * q;
    match accumulate {
        // A and B move to their first positions, except for the first row and the first column.
        "local" => moves + 2 * q * (q - 1),
        // B moves to its first position, except for one block that is already there.
        _ => moves + q * q - 1,
    }
}

#[test]
fn gives_the_serial_answer_on_every_mesh() {
    for accumulate in ["remote", "local"] {
        for q in [1, 2, 3, 4] {
            let ranks = u32::try_from(q * q).unwrap();
            // The side is divisible by no mesh but that of 1.
            let arguments = ["--n", "61", "--tile", "7", "--accumulate", accumulate];
            let report = report(HydrantRun, ranks, CANNON, &arguments).unwrap();
            assert_eq!(report["program"], "cannon");
            assert_eq!(report["verified"], "full");
            assert_eq!(report["mesh"], q);
            assert_eq!(report["accumulate"], accumulate);
            assert_eq!(report["puts"], blocks_put(q, accumulate), "{report}");
            assert!(report["counters"]["put_bytes"].is_u64());
        }
    }
}

#[test]
fn the_number_of_puts_follows_the_granularity() {
    for (put, each) in [
        ("block", 1),
        ("row", 10),
        ("1", 100),
        ("7", 15),
        ("1000", 1),
    ] {
        let arguments = ["--n", "20", "--put", put];
        let report = report(HydrantRun, 4, CANNON, &arguments).unwrap();
        assert_eq!(report["puts"], 11 * each, "{report}");
        assert_eq!(report["put_bytes"], 11 * 100 * 8, "{report}");
    }
}

#[test]
fn a_job_of_one_prints_a_table() {
    let output = job(Alone, 1, CANNON, &["--n", "32", "--verify", "quick"]).unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    assert!(out.starts_with("cannon on 1 rank\n"), "{out}");
    for row in ["matrices        32 x 32", "passed Freivalds' check"] {
        assert!(out.contains(row), "no `{row}` in {out}");
    }
    // Blocks of a rank to itself take no puts.
    let report = report(Alone, 1, CANNON, &["--n", "32", "--no-verify"]).unwrap();
    assert_eq!(
        (&report["puts"], &report["verified"]),
        (&0.into(), &"none".into())
    );
    assert!(report["mean_put_nanoseconds"].is_null());
}

#[test]
fn other_numbers_of_ranks_are_refused_with_the_nearest() {
    for (ranks, nearest) in [
        (2, "1 and 4"),
        (3, "1 and 4"),
        (5, "4 and 9"),
        (12, "9 and 16"),
    ] {
        let message = format!(
            "cannon: {ranks} ranks make no square mesh: the nearest numbers that do are {nearest}\n"
        );
        fails(HydrantRun, ranks, CANNON, &[], 1, &message);
    }
}

#[test]
fn matrices_come_from_files_and_go_into_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (a, b, raw, out) = (path("a.txt"), path("b.txt"), path("b.bin"), path("c.txt"));
    fs::write(&a, "1 2 3\n4 5 6\n7 8 9\n").unwrap();
    fs::write(&b, "0.5 0 0\n0 0.1 0\n0 0 -1e3\n").unwrap();
    let product = "0.5 0.2 -3000\n2 0.5 -6000\n3.5 0.8 -9000\n";

    let arguments = ["--a", &a, "--b", &b, "--out", &out];
    for ranks in [1, 4, 9, 16] {
        let report = report(HydrantRun, ranks, CANNON, &arguments).unwrap();
        assert_eq!(
            (&report["n"], &report["verified"]),
            (&3.into(), &"full".into())
        );
        assert_eq!(fs::read_to_string(&out).unwrap(), product);
    }

    let elements = [0.5, 0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, -1e3];
    let bytes: Vec<u8> = elements
        .iter()
        .flat_map(|x: &f64| x.to_le_bytes())
        .collect();
    fs::write(&raw, bytes).unwrap();
    fs::remove_file(&out).unwrap();
    let arguments = ["--a", &a, "--b", &raw, "--out", &out, "--verify", "quick"];
    report(HydrantRun, 4, CANNON, &arguments).unwrap();
    assert_eq!(fs::read_to_string(&out).unwrap(), product);
}

#[test]
fn files_that_cannot_be_used_are_refused_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = path("good.txt", b"1 2\n3 4\n");
    let small = path("small.txt", b"1");
    let cases = [
        (
            "/no/such/matrix".to_owned(),
            "cannot read /no/such/matrix: ",
        ),
        (
            path("short.bin", &[0; 20]),
            "its 20 bytes are no multiple of 8",
        ),
        (path("garbage.txt", b"1 2\n3 x4\n"), "line 2 of "),
        (
            path("empty.bin", b""),
            "is empty: it must hold finite numbers",
        ),
        (
            path("long.txt", b"1 2 3"),
            "which make no square matrix: the nearest has 2 x 2",
        ),
        (path("ragged.txt", b"1 2 3\n4\n"), "row 1 of "),
        (small, "small.txt holds 1 rows, not the 2 of "),
    ];
    for (bad, message) in &cases {
        fails(
            HydrantRun,
            4,
            CANNON,
            &["--a", &good, "--b", bad],
            1,
            message,
        );
    }
    let arguments = ["--a", &good, "--b", &good, "--n", "3"];
    fails(
        HydrantRun,
        4,
        CANNON,
        &arguments,
        1,
        "holds 2 rows, not the 3 of --n 3",
    );
    let arguments = ["--n", "4", "--out", "/no/such/folder/c"];
    fails(
        HydrantRun,
        4,
        CANNON,
        &arguments,
        1,
        "cannot write /no/such/folder/c: ",
    );
}

#[test]
fn a_problem_too_large_for_memory_is_refused_once() {
    for n in ["100000000", "18446744073709551615"] {
        fails(
            HydrantRun,
            4,
            CANNON,
            &["--n", n],
            1,
            "cannon: no memory for ",
        );
    }
}

#[test]
fn arguments_are_judged_once() {
    fails(
        HydrantRun,
        4,
        CANNON,
        &["--n", "0"],
        2,
        "it is a number from 1 on",
    );
    fails(
        HydrantRun,
        4,
        CANNON,
        &["--put", "0"],
        2,
        "it is block, row or a number of elements",
    );
    fails(
        HydrantRun,
        4,
        CANNON,
        &["--a", "x"],
        2,
        "arguments were not provided",
    );
    fails(
        Alone,
        1,
        CANNON,
        &["--sise", "3"],
        2,
        "unexpected argument '--sise'",
    );
    let help = job(HydrantRun, 4, CANNON, &["--help"]).unwrap();
    assert!(help.status.success());
    assert_eq!(texts(&help).0.matches("Usage: cannon").count(), 1);
}
