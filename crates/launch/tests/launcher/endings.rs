//! The ends of jobs: their status, and that no process outlives them.

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::harness::{begin, ends_with, err, is_alive, launch_role, out, send, shell};
use hydrant_testing::running::{run, until};

pub(crate) fn first_failure() {
    // Rank 2 fails. Rank 0 fails after the launcher has noticed that.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("pid");
    let script = format!(
        "case $PMI_RANK in 2) echo $$ >{0}; exit 5;; 1) exit 0;; esac; \
         until [ -s {0} ] && ! kill -0 $(cat {0}) 2>/dev/null; do sleep 0.01; done; exit 6",
        file.display()
    );
    let output = ends_with(
        &mut shell(&["-n", "3", "--grace", "60"], &script),
        5,
        "rank 2 ended with status 5; it was the first to fail, and the job's status is 5",
    );
    assert!(
        err(&output).contains("rank 0 ended with status 6\n"),
        "{}",
        err(&output)
    );
    ends_with(&mut shell(&["-n", "3"], "exit 0"), 0, "");
}

/// The rank that failed first decides the status, even if it ends late.
pub(crate) fn late_failure() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let said = directory.path().join("said");
    let said = said.to_str().expect("UTF-8");
    let output = ends_with(
        &mut launch_role(&["-n", "2", "--grace", "60"], &["fail-late", said]),
        9,
        "rank 1 ended with status 9; it was the first to fail, and the job's status is 9",
    );
    let text = err(&output);
    assert!(text.contains("rank 0 ended with status 1\n"), "{text}");
    // A rank that does not end within the grace does not decide the status.
    let said = directory.path().join("said-again");
    let said = said.to_str().expect("UTF-8");
    ends_with(
        &mut launch_role(&["-n", "2", "--grace", "0.05"], &["fail-late", said]),
        1,
        "rank 0 ended with status 1; it was the first to fail",
    );
}

pub(crate) fn killed_rank() {
    let script = "[ $PMI_RANK = 1 ] && kill -9 $$; exit 0";
    let message = "rank 1 was killed by signal 9 (SIGKILL); it was the first to fail";
    ends_with(&mut shell(&["-n", "3"], script), 137, message);
    // Another rank notices the death before the launcher can, and fails. Rank 1 still decides the
    // status.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let fifo = directory.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo").success());
    let script = format!(
        "if [ $PMI_RANK = 1 ]; then exec 8>{0}; kill -9 $$; else cat {0}; exit 9; fi",
        fifo.display()
    );
    for _ in 0..20 {
        ends_with(&mut shell(&["-n", "2"], &script), 137, message);
    }
}

pub(crate) fn grace() {
    let script = "[ $PMI_RANK = 1 ] && exit 4; sleep 600";
    let output = ends_with(
        &mut shell(&["-n", "4", "--grace", "0.2"], script),
        4,
        "the job's status is 4",
    );
    assert!(
        err(&output).contains("SIGTERM to ranks 0, 2-3, still running"),
        "{}",
        err(&output)
    );
    // Ends that the launcher caused are not reported as failures.
    assert!(!err(&output).contains("SIGTERM)"), "{}", err(&output));
}

pub(crate) fn stubborn() {
    let script = "[ $PMI_RANK = 1 ] && exit 4; trap '' TERM; while :; do sleep 1; done";
    ends_with(
        &mut shell(&["-n", "2", "--grace", "0.1"], script),
        4,
        "SIGKILL to rank 0, still running",
    );
}

pub(crate) fn signals() {
    for signal in ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"] {
        let script = format!(
            "trap 'echo got {signal}; exit 0' {signal}; echo ready; while :; do sleep 0.01; done"
        );
        let (child, _) = begin(&mut shell(&["-n", "2"], &script), 2);
        send(signal, &child.id().to_string());
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(0), "{signal}: {}", err(&output));
        let text = out(&output);
        assert_eq!(
            text.matches(&format!("got {signal}")).count(),
            2,
            "{signal}: {text}"
        );
    }
    // An untrapped signal is the status, and is reported once.
    let (child, _) = begin(&mut shell(&["-n", "3"], "echo ready; exec sleep 600"), 3);
    send("INT", &child.id().to_string());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(
        err(&output).matches("SIGINT").count(),
        1,
        "{}",
        err(&output)
    );
    // The launcher stops and continues with its ranks.
    let (child, pids) = begin(&mut shell(&["-n", "2"], "echo $$; exec sleep 600"), 2);
    let launcher = child.id().to_string();
    let state = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next())
    };
    send("TSTP", &launcher);
    until(|| state(&launcher) == Some('T') && pids.iter().all(|pid| state(pid) == Some('T')));
    send("CONT", &launcher);
    until(|| state(&launcher) != Some('T') && pids.iter().all(|pid| state(pid) == Some('S')));
    send("TERM", &launcher);
    assert_eq!(
        child.wait_with_output().expect("an end").status.code(),
        Some(143)
    );
}

pub(crate) fn second_interrupt() {
    let script = "trap 'echo again' INT; echo ready; while :; do sleep 0.01; done";
    let (mut child, _) = begin(&mut shell(&["-n", "1"], script), 1);
    let launcher = child.id().to_string();
    send("INT", &launcher);
    let mut answer = [0; 10];
    child
        .stdout
        .as_mut()
        .expect("a pipe")
        .read_exact(&mut answer)
        .expect("the trap prints");
    assert_eq!(&answer, b"[0] again\n");
    send("INT", &launcher);
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(137), "{}", err(&output));
}

pub(crate) fn timeout() {
    ends_with(
        &mut shell(&["-n", "2", "--timeout", "0.2"], "exec sleep 600"),
        124,
        "longer than 0.2 s",
    );
    ends_with(
        &mut shell(&["-n", "2", "--timeout", "600"], "exit 0"),
        0,
        "",
    );
}

/// Processes that ranks fork, in sessions and process groups of their own. Some end on SIGTERM and
/// some do not.
const FORKING: &str = "sleep 601 & setsid sleep 602 & (setsid sh -c 'trap \"\" TERM HUP; echo $$; \
                       while :; do sleep 1; done' &) ; echo $!";

pub(crate) fn nothing_left() {
    for (rest, status) in [
        ("wait_for_the_pids; exit 0", 0),
        ("exit 3", 3),
        ("kill -9 $$", 137),
    ] {
        let script = format!(
            "{FORKING}; {}",
            rest.replace("wait_for_the_pids", "sleep 0.2")
        );
        let output = run(&mut shell(&["-n", "2", "--grace", "0.1"], &script));
        assert_eq!(output.status.code(), Some(status), "{}", err(&output));
        assert!(
            err(&output).contains("left behind were ended"),
            "{}",
            err(&output)
        );
        for line in out(&output).lines() {
            let pid = line.split_once("] ").expect("a prefix").1;
            assert!(!is_alive(pid), "{pid} is alive");
        }
    }
}

pub(crate) fn killed_launcher() {
    let script = format!("{FORKING}; echo $$; exec sleep 603");
    let (mut child, pids) = begin(&mut shell(&["-n", "2"], &script), 6);
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    let guard = child_named("hydrant-guard", child.id());
    child.kill().expect("it is ours");
    assert_eq!(child.wait().expect("an end").signal(), Some(9));
    until(|| pids.iter().all(|pid| !is_alive(pid)) && !is_alive(&guard));
}

pub(crate) fn child_named(name: &str, parent: u32) -> String {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let head = format!("({name}) ");
    entries
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .find(|stat| stat.contains(&head) && stat.split(' ').nth(3) == Some(&parent.to_string()))
        .and_then(|stat| stat.split(' ').next().map(str::to_owned))
        .expect("the guard runs")
}
