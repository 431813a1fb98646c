//! Runs `hydrant bench` with real ranks: every row that it prints has the agreed shape.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hydrant-bench"))
        .args(arguments)
        .output()
        .expect("the command starts")
}

/// The rows of a run that must succeed. Each is checked against the agreed shape.
fn rows(arguments: &[&str]) -> Vec<Value> {
    let output = bench(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{arguments:?}: {}\n{errors}",
        output.status
    );
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    assert!(!rows.is_empty(), "no rows\n{errors}");
    for row in &rows {
        check(row);
    }
    rows
}

fn check(row: &Value) {
    let keys = row.as_object().expect("an object").keys();
    // The keys of rivals and of hosts are present only where they were measured.
    let is_optional = |key: &str| OTHERS.contains(&key) || OF_HOSTS.contains(&key);
    let keys: Vec<&String> = keys.filter(|key| !is_optional(key.as_str())).collect();
    let mut expected = [
        "bench",
        "case",
        "bytes",
        "unit",
        "median",
        "reference",
        "ratio",
        "goal",
        "met",
    ];
    // The parser may sort keys; a test beside `Row` checks the order of the text.
    let mut sorted: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
    sorted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(sorted, expected, "{row}");
    assert!(
        row["bench"].is_string() && row["case"].is_string() && row["unit"].is_string(),
        "{row}"
    );
    assert!(row["bytes"].is_null() || row["bytes"].is_u64(), "{row}");
    let median = row["median"].as_f64().expect("a number");
    assert!(median.is_finite() && median >= 0.0, "{row}");
    match row["reference"].as_f64() {
        Some(reference) => {
            assert!(reference > 0.0, "{row}");
            let ratio = row["ratio"].as_f64().expect("a ratio beside a reference");
            assert!(
                (ratio - median / reference).abs() <= 1e-9 * ratio.abs(),
                "{row}"
            );
        }
        None => assert!(row["ratio"].is_null(), "{row}"),
    }
    assert!(row["goal"].is_null() || row["goal"].is_string(), "{row}");
    assert!(
        row["met"].is_null() || (row["met"].is_boolean() && row["goal"].is_string()),
        "{row}"
    );
}

/// The keys of the rivals.
const OTHERS: [&str; 2] = ["mpich", "open_mpi"];

/// The keys of rows between hosts.
const OF_HOSTS: [&str; 11] = [
    "min", "p50", "p90", "p99", "samples", "sampled", "version", "conduit", "ranks", "machine",
    "hosts",
];

fn cases(rows: &[Value]) -> Vec<&str> {
    rows.iter().filter_map(|row| row["case"].as_str()).collect()
}

#[test]
fn rma_prints_put_and_get_over_sizes_beside_their_references() {
    let rows = rows(&["rma", "-n", "2", "--quick", "--format", "json"]);
    for case in ["put", "get"] {
        let of_case: Vec<&Value> = rows.iter().filter(|row| row["case"] == case).collect();
        assert!(of_case.len() >= 3, "{case}: {of_case:?}");
        assert!(
            of_case.iter().all(|row| row["reference"].is_number()),
            "{of_case:?}"
        );
        assert!(
            of_case[0]["bytes"] == 8 && of_case[0]["goal"].is_string(),
            "{of_case:?}"
        );
    }
    for case in [
        "put bandwidth",
        "put_value",
        "put in a scope",
        "fill",
        "put_strided",
    ] {
        assert!(cases(&rows).contains(&case), "{case} is missing");
    }
}

#[test]
fn atomics_are_judged_by_their_fetch_add() {
    let rows = rows(&["atomics", "--quick", "--reps", "2", "--format", "json"]);
    let judged: Vec<&Value> = rows.iter().filter(|row| row["goal"].is_string()).collect();
    assert!(
        cases(&rows).contains(&"fetch_add, 2 ranks at once"),
        "{rows:?}"
    );
    assert!(
        judged.iter().all(|row| row["case"] == "fetch_add"),
        "{judged:?}"
    );
}

#[test]
fn every_other_bench_runs() {
    for (bench, case) in [
        ("am", "short round trip"),
        ("atomics", "fetch_add"),
        ("barrier", "barrier, 8 ranks"),
        ("collectives", "all_reduce"),
        ("armci", "put, 3-D, beside contiguous"),
        ("armci", "all_fence, 7 of 8 ranks spoken to, all call"),
        ("cost", "memory for each pair of ranks"),
    ] {
        let rows = rows(&[
            bench, "-n", "2", "--quick", "--reps", "2", "--format", "json",
        ]);
        assert!(rows.iter().all(|row| row["bench"] == bench), "{rows:?}");
        assert!(
            cases(&rows).contains(&case),
            "{case} is missing of {:?}",
            cases(&rows)
        );
    }
}

#[test]
fn table_names_the_machine_and_the_picture_is_drawn() {
    let picture = std::env::temp_dir().join(format!("hydrant-bench-{}.svg", std::process::id()));
    let path = picture.to_str().expect("a plain path");
    let output = bench(&["atomics", "--quick", "--reps", "2", "--plot", path]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.contains("Linux") && text.contains("fetch_add") && text.contains("reference:"),
        "{text}"
    );
    let drawn = std::fs::read_to_string(&picture).expect("the picture");
    std::fs::remove_file(&picture).expect("the picture can be removed");
    assert!(drawn.contains("</svg>") && drawn.contains("fetch_add"));
}

#[test]
fn without_an_mpi_nothing_is_measured() {
    let output = Command::new(env!("CARGO_BIN_EXE_hydrant-bench"))
        .args(["barrier", "--beside", "mpi", "--quick"])
        .env("PATH", "/no/such/folder")
        .output()
        .expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert!(errors.contains("there is no MPI to set beside"), "{errors}");
    assert!(output.stdout.is_empty());
}

#[test]
fn mpich_and_openmpi_have_figures_in_each_row_that_they_measure() {
    let is_here = |command: &str| std::path::Path::new("/usr/bin").join(command).exists();
    let commands = [
        "mpicc.mpich",
        "mpiexec.mpich",
        "mpicc.openmpi",
        "mpiexec.openmpi",
    ];
    let required = std::env::var("HYDRANT_TEST_REQUIRE").is_ok_and(|value| value == "1");
    if !commands.into_iter().all(is_here) && !required {
        eprintln!("skipped: not both of MPICH and Open MPI are here");
        return;
    }
    let options = [
        "--beside", "mpi", "--quick", "--reps", "2", "--format", "json",
    ];
    let by_libfabric: &[&str] =
        if hydrant::settings::fabric_endpoints(&hydrant::Settings::new()).is_ok() {
            &["rma", "--conduit", "ofi"]
        } else {
            eprintln!("skipped: one-sided accesses, because libfabric is not here");
            &["barrier"]
        };
    for bench in [
        &["barrier"][..],
        &["collectives"],
        &["messages"],
        by_libfabric,
    ] {
        let rows = rows(&[bench, &options].concat());
        for row in &rows {
            let case = row["case"].as_str().expect("a case");
            let figures: Vec<f64> = OTHERS.iter().filter_map(|key| row[key].as_f64()).collect();
            // MPI has no memory that others can read in place, and the program has not every access.
            let is_without = ["notify and wait", "put_", "get_"]
                .iter()
                .any(|it| case.starts_with(it))
                || ["symmetric memory", "computes"]
                    .iter()
                    .any(|it| case.ends_with(it))
                || case.contains("miss")
                || case.contains("each row");
            if is_without {
                assert!(figures.is_empty(), "{row}");
                continue;
            }
            assert_eq!(figures.len(), 2, "{row}");
            assert!(figures.iter().all(|figure| *figure > 0.0), "{row}");
            assert_eq!(row["goal"], "ahead of MPI", "{row}");
            let ours = row["median"].as_f64().expect("a number");
            let ahead = figures.iter().all(|figure| {
                if row["unit"] == "MB/s" {
                    ours > *figure
                } else {
                    ours < *figure
                }
            });
            assert_eq!(row["met"], ahead, "{row}");
        }
    }
}

/// Only ranks 0 and 1 have an end of the bare network, and yet all four measure the same.
#[test]
fn collectives_of_four_ranks_are_measured_over_libfabric() {
    if let Err(why) = hydrant::settings::fabric_endpoints(&hydrant::Settings::new()) {
        eprintln!("skipped: {why}");
        return;
    }
    let rows = rows(&[
        "collectives",
        "-n",
        "4",
        "--conduit",
        "ofi",
        "--quick",
        "--reps",
        "1",
        "--format",
        "json",
    ]);
    assert!(
        rows.iter().all(|row| row["reference"].as_f64().is_some()),
        "{rows:?}"
    );
}

/// No bare network exists here, so misses have no round trips as reference.
#[test]
fn puts_and_gets_are_measured_where_memory_is_registered() {
    for (conduit, ranks) in [("sim:ideal", "2"), ("sim:ideal", "4"), ("smp+pin", "2")] {
        let rows = rows(&[
            "rma",
            "-n",
            ranks,
            "--conduit",
            conduit,
            "--quick",
            "--reps",
            "2",
            "--format",
            "json",
        ]);
        let missed = |row: &&Value| row["case"] == "put, miss";
        let row = rows.iter().find(missed).expect("misses are measured");
        assert!(row["reference"].is_null(), "{row}");
    }
}

#[test]
fn bad_requests_are_refused_before_anything_is_measured() {
    for (arguments, says) in [
        (&["rma", "-n", "1"][..], "1 is not in 2.."),
        (&["weather"], "weather"),
        (&["registration"], "needs no registration"),
        (&["rma", "--beside", "mpi"], "has nothing of MPI's"),
        (&["barrier", "--beside", "pigeons"], "pigeons"),
        (
            &["messages", "--beside", "mpi", "--conduit", "smp+pin"],
            "on shared memory",
        ),
        (&["am", "--conduit", "pigeons"], "pigeons"),
        (&["barrier", "--conduit", "sim:ideal"], "real time"),
        (&["all", "--conduit", "sim:ideal"], "real time"),
        (
            &["rma", "--plot", "/no/such/folder/a.svg"],
            "/no/such/folder/a.svg",
        ),
        (&["rma", "--plot", "a.png"], "written as .svg or .html"),
    ] {
        let output = bench(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(says),
            "{arguments:?}: {errors}"
        );
        assert!(output.stdout.is_empty());
    }
}

/// Runs a bench on named hosts, all of which are this machine. The network between them is played.
fn bench_on_hosts(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hydrant-bench"))
        .args(arguments)
        .env("HYDRANT_RSH", "sh -c 'shift; exec sh -c \"$*\"' rsh")
        .env("HYDRANT_INTER_NODE", "smp+pin")
        .env("HYDRANT_PRETEND_HOSTS", "2")
        .output()
        .expect("the command starts")
}

#[test]
fn rows_between_hosts_name_them_and_have_percentiles() {
    for (bench, ranks, case) in [
        ("rma", 2, "put, hit"),
        ("am", 2, "short round trip"),
        ("atomics", 2, "fetch_add, by a message"),
        // Ranks of both hosts take part, and no memory is shared with those of the other.
        ("barrier", 4, "barrier, 4 ranks"),
    ] {
        let number = ranks.to_string();
        let output = bench_on_hosts(&[
            bench, "-n", &number, "--hosts", "a,b", "--quick", "--reps", "2", "--format", "json",
        ]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{bench}: {errors}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let rows: Vec<Value> = (text.lines())
            .map(|line| serde_json::from_str(line).expect(line))
            .collect();
        assert!(cases(&rows).contains(&case), "{bench}: {:?}", cases(&rows));
        for row in &rows {
            check(row);
            // No reference through shared memory.
            assert!(row["reference"].is_null(), "{row}");
            let hosts = row["hosts"].as_array().expect("hosts");
            let names: Vec<&str> = hosts
                .iter()
                .filter_map(|host| host["host"].as_str())
                .collect();
            assert_eq!(names, ["a", "b"], "{row}");
            let of_hosts: u64 = hosts.iter().filter_map(|host| host["ranks"].as_u64()).sum();
            assert_eq!(
                (row["ranks"].as_u64(), of_hosts),
                (Some(ranks), ranks),
                "{row}"
            );
            assert!(
                row["conduit"]
                    .as_str()
                    .expect("a conduit")
                    .contains("smp+pin"),
                "{row}"
            );
            assert!(
                row["machine"] == hosts[0]["machine"] && row["version"].is_string(),
                "{row}"
            );
            // A share is a single figure.
            if row["unit"] == "%" {
                continue;
            }
            let figure = |key: &str| row[key].as_f64().expect(key);
            let rising = ["min", "p50", "p90", "p99"].map(figure);
            assert!(rising.is_sorted(), "{row}");
            assert_eq!(figure("p50"), figure("median"), "{row}");
        }
    }
}

#[test]
fn strategies_between_hosts_have_percentiles_over_all_rounds() {
    let output = bench_on_hosts(&[
        "strategies",
        "--strategies",
        "bounce",
        "--hosts",
        "a,b",
        "--quick",
        "--format",
        "json",
    ]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let rows = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect(line));
    for row in rows {
        assert!(
            row["p50"].as_f64() > Some(0.0) && row["sampled"] == "operation",
            "{row}"
        );
    }
}

#[test]
fn hosts_that_cannot_be_measured_are_named() {
    for (arguments, says) in [
        (&["rma", "--hosts", "a"][..], "1 host is named"),
        (
            &["cost", "--hosts", "a,b"],
            "measures nothing between hosts",
        ),
        (&["rma", "--rsh", "ssh"], "--hosts"),
        (
            &["rma", "--hosts", "a,b", "--conduit", "sim:ideal"],
            "a simulated network has no hosts",
        ),
        (
            // Either host may be the first whose shell ends.
            &["rma", "--hosts", "a,b", "--rsh", "false"],
            "could not be reached: its remote shell",
        ),
        (
            &["rma", "--hosts", "a,b", "--conduit", "smp"],
            "the named hosts are one host",
        ),
    ] {
        let output = bench_on_hosts(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(says),
            "{arguments:?}: {errors}"
        );
        assert!(output.stdout.is_empty());
    }
}
