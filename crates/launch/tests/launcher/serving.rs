//! Valid and invalid commands of ranks.

use std::fs;
use std::process::Command;

use crate::harness::{ends_with, err, launch, launch_role, out};
use crate::support::{check_exchange, need};
use hydrant_testing::{roles::role, running::run};

pub(crate) fn ranks_exchange() {
    for size in [1, 2, 7] {
        let output = run(&mut launch_role(&["-n", &size.to_string()], &["exchange"]));
        check_exchange(&output, "pmi1", size);
        assert_eq!(err(&output), "");
    }
}

pub(crate) fn many() {
    let output = run(&mut launch_role(&["-n", "64"], &["join"]));
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(out(&output).lines().count(), 64);
}

pub(crate) fn mpich_program() {
    mpich_program_with(&[]);
}

/// Like [`mpich_program`], with these options of the launcher.
pub(crate) fn mpich_program_with(options: &[&str]) {
    let start = |ranks: u32, program: &[&str]| {
        let ranks = ranks.to_string();
        launch(&[options, &["-n", &ranks]].concat(), program)
    };
    let Some(cc) = need("mpicc.mpich", "libmpich-dev") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (source, binary) = (directory.path().join("sum.c"), directory.path().join("sum"));
    let program = r#"
        #include <mpi.h>
        #include <stdio.h>
        int main(int argc, char **argv) {
            int rank, size, sum;
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            MPI_Comm_size(MPI_COMM_WORLD, &size);
            MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            printf("%d of %d: %d\n", rank, size, sum);
            fflush(stdout);
            if (argc > 1 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 17);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Finalize();
            return 0;
        }
    "#;
    fs::write(&source, program).expect("a file");
    let compiled = run(Command::new(cc).arg(&source).arg("-o").arg(&binary));
    assert!(compiled.status.success(), "{}", err(&compiled));
    let binary = binary.to_str().expect("UTF-8");
    for size in 1..=4 {
        let output = run(&mut start(size, &[binary]));
        assert!(output.status.success(), "{}", err(&output));
        let sum = size * (size - 1) / 2;
        for rank in 0..size {
            let line = format!("[{rank}] {rank} of {size}: {sum}\n");
            assert!(out(&output).contains(&line), "{}", out(&output));
        }
    }
    ends_with(
        &mut start(3, &[binary, "abort"]),
        17,
        "rank 1 ended the job with status 17",
    );
}

pub(crate) fn abort() {
    let message = "rank 1 ended the job with status 41: because the test says so";
    let output = ends_with(&mut launch_role(&["-n", "3"], &["abort"]), 41, message);
    assert!(!out(&output).contains("complete"), "{}", out(&output));
    // The launcher does not end a rank before it printed its reason.
    let mut command = launch_role(&["-n", "2"], &["last-words"]);
    ends_with(&mut command, 41, "[1] Error: at length\n");
    // A failure never becomes a success, even if the status is cut to eight bits.
    for (asked, given) in [(0, 0), (255, 255), (256, 1), (257, 1), (-1, 255), (512, 1)] {
        let command = format!("cmd=abort exitcode={asked}\\n");
        ends_with(
            &mut launch_role(&["-n", "2"], &["say", &command]),
            given,
            &format!("ended the job with status {given}"),
        );
    }
}

pub(crate) fn lost_in_fence() {
    let output = ends_with(
        &mut launch_role(&["-n", "3", "--grace", "600"], &["leave"]),
        1,
        "rank 1 ended before the fence",
    );
    assert!(out(&output).contains("[1] left"));
}

pub(crate) fn malformed() {
    for (text, why) in [
        ("hello\\n", "`hello` is not name=value"),
        ("\\n", "does not begin with cmd="),
        ("key=value\\n", "does not begin with cmd="),
        (
            "cmd=barrier_in\\ncmd=barrier_in\\n",
            "from within a barrier",
        ),
        (&"x".repeat(100_000), "without a newline"),
    ] {
        let output = ends_with(&mut launch_role(&["-n", "2"], &["say", text]), 1, why);
        assert!(
            err(&output).contains("broke the PMI-1 protocol"),
            "{}",
            err(&output)
        );
    }
    let output = ends_with(
        &mut launch_role(&["-n", "1"], &["say", "cmd=dance\\n"]),
        0,
        "",
    );
    assert!(
        out(&output).contains("cmd=dance_result rc=-1 msg=unknown_command"),
        "{}",
        out(&output)
    );
}

/// A job within a job: the inner launcher's ranks join the inner job.
pub(crate) fn nested() {
    let inner = role(&["launcher", "-n", "3"]);
    let exchange = role(&["exchange"]);
    let words: Vec<&str> = inner.iter().chain(&exchange).map(String::as_str).collect();
    let output = run(&mut launch(&["-n", "2"], &words));
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(
        out(&output).matches("] [2] pmi1 2 of 3").count(),
        2,
        "{}",
        out(&output)
    );
}
