//! Processes that escaped their launcher, and processes that only look like its own.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::endings::child_named;
use crate::harness::{begin, ends_with, err, is_alive, out, send, shell};
use crate::hosts::Shell;
use tempfile::TempDir;

use hydrant_testing::{
    HANG,
    roles::role,
    running::{run, until},
};

/// Starts a job whose rank 1 becomes another user when rank 0 fails. The launcher is root without
/// the right to end other users' processes, like an ordinary user. Returns the launcher and the
/// processes of its ranks.
fn with_another_user(before: &str) -> (Child, Vec<String>) {
    let script = "echo $$; [ $PMI_RANK = 0 ] && sleep 0.5 && exit 4; \
                  exec setpriv --reuid 65534 --clear-groups sleep 604";
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        &format!("{before}; exec \"$@\""),
        "sh",
    ]);
    command.args(["setpriv", "--bounding-set=-kill", "--inh-caps=-kill"]);
    command.args(role(&[
        "launcher", "-n", "2", "--grace", "0.1", "sh", "-c", script,
    ]));
    begin(&mut command, 2)
}

/// The launcher reports a rank that it may not signal, and does not wait for it.
pub(crate) fn another_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root becomes another user");
        return;
    }
    // Without control groups, nothing ends the rank.
    let (mut child, pids) = with_another_user("umount -a -l -t cgroup2");
    until(|| child.try_wait().expect("it is ours").is_some());
    let stray = pids
        .iter()
        .find(|pid| is_alive(pid))
        .expect("a rank is still alive");
    // The rank holds the launcher's output open.
    send("KILL", stray);
    let output = child.wait_with_output().expect("an end");
    let text = err(&output);
    assert_eq!(output.status.code(), Some(4), "{text}");
    let named = format!("rank 1 cannot be ended: process {stray} runs as user 65534");
    assert!(text.contains(&named), "{text}");
    assert!(!text.contains("left behind"), "{text}");
    // The control group of the job ends it.
    if has_groups() {
        let (child, pids) = with_another_user("true");
        let output = child.wait_with_output().expect("an end");
        let text = err(&output);
        assert_eq!(output.status.code(), Some(4), "{text}");
        assert!(!text.contains("cannot be ended"), "{text}");
        until(|| pids.iter().all(|pid| !is_alive(pid)));
    }
}

/// Starts a process in its own group with the free id `pid`.
fn stranger_with(pid: i32) -> Option<Child> {
    let begun = Instant::now();
    while begun.elapsed() < HANG {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let mut stranger = Command::new("sleep")
            .arg("605")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process");
        if stranger.id() as i32 == pid {
            return Some(stranger);
        }
        stranger.kill().expect("it is ours");
        stranger.wait().expect("an end");
    }
    None
}

/// Another process may have the id of an ended rank when the launcher is killed.
pub(crate) fn reused_number() {
    let script = "echo $PMI_RANK $$; [ $PMI_RANK = 1 ] && exit 0; exec sleep 606";
    let (mut child, lines) = begin(&mut shell(&["-n", "2"], script), 2);
    let pid_of = |rank: &str| -> i32 {
        let line = lines.iter().find_map(|line| line.strip_prefix(rank));
        line.expect("a line").trim().parse().expect("a pid")
    };
    let (running, ended) = (pid_of("0 "), pid_of("1 "));
    until(|| !PathBuf::from(format!("/proc/{ended}")).exists());
    let guard = child_named("hydrant-guard", child.id());
    let stranger = stranger_with(ended);
    child.kill().expect("it is ours");
    assert_eq!(child.wait().expect("an end").signal(), Some(9));
    until(|| !is_alive(&running.to_string()) && !is_alive(&guard));
    let Some(mut stranger) = stranger else {
        eprintln!("skipped: this user may not choose the numbers of processes");
        return;
    };
    let lives = stranger.try_wait().expect("it is ours").is_none();
    let _ = stranger.kill();
    stranger.wait().expect("an end");
    assert!(lives, "the guard killed a stranger");
}

/// Returns the processes that have `variable` in their environment.
fn with_variable(variable: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut words = environment.split(|&byte| byte == 0);
            words.any(|word| word == variable.as_bytes()) && is_alive(pid)
        })
        .collect()
}

/// A launcher that is killed at any moment of the start leaves no process.
pub(crate) fn killed_at_the_start() {
    let hosts = Shell::new();
    let path = hosts.path();
    let forking = "sleep 607 & setsid sleep 608 & exec sleep 609";
    let slow = "sh -c 'sleep 610; exit 1' rsh";
    let on_hosts = ["-n", "4", "--hosts", "a,b", "--rsh", &path];
    let unreached = ["-n", "4", "--hosts", "a,b", "--rsh", slow];
    for round in 0..10_u64 {
        for options in [&["-n", "4"][..], &on_hosts, &unreached] {
            let value = format!("{}.{round}.{}", std::process::id(), options.len());
            let tag = format!(
                "HYDRANT_TEST_START={value}.{}",
                options.last().unwrap_or(&"")
            );
            let (name, value) = tag.split_once('=').expect("a variable");
            let mut child = shell(options, forking)
                .env(name, value)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("a launcher");
            let launcher = child.id();
            thread::sleep(Duration::from_millis(round * 15));
            child.kill().expect("it is ours");
            child.wait().expect("an end");
            let begun = Instant::now();
            while !with_variable(&tag).is_empty() {
                assert!(
                    begun.elapsed() < HANG,
                    "{:?} outlive a launcher with {options:?}, killed after {} ms",
                    with_variable(&tag),
                    round * 15
                );
                thread::sleep(Duration::from_millis(2));
            }
            if has_groups() {
                until(|| jobs_of(launcher).is_empty());
            }
        }
    }
}

/// The job's control group finds a process that left its session and its environment.
pub(crate) fn control_group() {
    if !has_groups() {
        eprintln!("skipped: this user may not make control groups (version 2) here");
        return;
    }
    let script = "(setsid env -i sh -c 'trap \"\" TERM HUP; echo $$; while :; do sleep 1; done' &); \
                  exec sleep 611";
    let (mut child, pids) = begin(&mut shell(&["-n", "2"], script), 2);
    let groups = groups_of(child.id());
    assert!(groups.iter().all(|group| group.is_dir()), "{groups:?}");
    child.kill().expect("it is ours");
    child.wait().expect("an end");
    until(|| pids.iter().all(|pid| !is_alive(pid)));
    until(|| groups.iter().all(|group| !group.exists()));
}

/// Returns this process's control group of version 2.
fn own_group() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let at = mounts.lines().find_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        tail.starts_with("cgroup2 ")
            .then(|| head.split(' ').nth(4))?
    })?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(PathBuf::from(at).join(group))
}

fn has_groups() -> bool {
    let Some(probe) = own_group().map(|own| own.join(format!("probe-{}", std::process::id())))
    else {
        return false;
    };
    let made = fs::create_dir(&probe).is_ok() && probe.join("cgroup.kill").exists();
    let _ = fs::remove_dir(&probe);
    made
}

/// Returns the groups of a launcher's job, of which there is at least one.
fn groups_of(launcher: u32) -> Vec<PathBuf> {
    let groups = jobs_of(launcher);
    assert!(!groups.is_empty(), "the job has no group");
    groups
}

/// Returns the groups of a launcher's jobs.
fn jobs_of(launcher: u32) -> Vec<PathBuf> {
    let own = own_group().expect("it was there");
    let head = format!("hydrant-{launcher}-");
    let entries = fs::read_dir(own).expect("a folder").flatten();
    let groups = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&head));
    groups.map(|entry| entry.path()).collect()
}

/// The launcher runs in a PID namespace with the `/proc` of another, where the same ids name
/// different processes. The launcher gets id 2. Process 2 of the enclosing namespace has children
/// with ids from 3 on. The bystanders in the launcher's own namespace have the same ids.
pub(crate) fn foreign_proc() {
    const AROUND: &str = "(n=60; while [ $n -gt 0 ]; do sleep 620 & n=$((n-1)); done; echo >$2/around; wait) & \
                          until [ -e $2/around ]; do sleep 0.01; done; \
                          exec unshare --pid --fork sh -c \"$@\"";
    const WITHIN: &str = "(until [ -e $0/go ]; do sleep 0.01; done; exec \"$@\") & launcher=$!; \
                          n=60; while [ $n -gt 0 ]; do sleep 621 & all=\"$all $!\"; n=$((n-1)); done; \
                          echo >$0/go; \
                          if [ $LEFT = killed ]; then \
                          until [ -s $0/0 ] && [ -s $0/1 ]; do sleep 0.01; done; kill -9 $launcher; fi; \
                          wait $launcher; echo launcher $launcher ended with $?; \
                          for rank in 0 1; do while kill -0 $(cat $0/$rank) 2>/dev/null; do sleep 0.01; done; done; \
                          left=0; for one in $all; do \
                          kill -0 $one 2>/dev/null && left=$((left+1)); done; echo $left bystanders";
    if !may_unshare() {
        return;
    }
    // Processes in a rank's group end with the job, visible or not.
    let leaves = "sleep 622 & echo $! >$0/$PMI_RANK";
    for (script, left, status) in [
        (leaves.to_owned(), "ended", 0),
        (
            format!("{leaves}; [ $PMI_RANK = 1 ] && exit 5; sleep 600"),
            "failed",
            5,
        ),
        (format!("{leaves}; exec sleep 600"), "killed", 137),
    ] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().to_str().expect("UTF-8");
        let options = ["-n", "2", "--grace", "0.1"];
        let launch = role(&[&["launcher"], &options[..], &["sh", "-c", &script, path]].concat());
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--fork", "--mount-proc", "sh", "-c", AROUND, "sh"])
            .args([WITHIN, path])
            .args(launch)
            .env("LEFT", left);
        let output = run(&mut command);
        let expected = format!("launcher 2 ended with {status}\n60 bystanders\n");
        assert_eq!(out(&output), expected, "{left}: {}", err(&output));
    }
}

/// A launcher whose children would begin in another PID namespace starts none.
pub(crate) fn children_elsewhere() {
    if !may_unshare() {
        return;
    }
    let mut command = Command::new("unshare");
    command
        .arg("--pid")
        .args(role(&["launcher", "-n", "2", "true"]));
    ends_with(&mut command, 125, "unshare --pid --fork");
}

/// Returns true if this user may make PID namespaces. Root always may.
fn may_unshare() -> bool {
    let may = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "true"])
        .stderr(Stdio::null())
        .status();
    let may = may.is_ok_and(|status| status.success());
    assert!(
        may || !rustix::process::geteuid().is_root(),
        "root may not make PID namespaces here"
    );
    if !may {
        eprintln!("skipped: this user may not make PID namespaces");
    }
    may
}

/// Starts processes outside the job: a helper, and an orphan that the helper starts when ranks run.
/// The helper leaves the orphan to the process that this script becomes.
const HELPING: &str = "(echo $$; sleep 640 & echo $! >$DIR/helper.$who; \
                       until [ -e $DIR/go.$who ]; do sleep 0.01; done; \
                       sleep 641 & echo $! >$DIR/orphan.$who) >/dev/null 2>&1 &";

/// A rank that leaves a process behind, after the helpers have left theirs.
const LEAVING: &str = "setsid sleep 642 & echo $! >$DIR/left.$PMI_RANK; \
                       for who in local a b; do echo >$DIR/go.$who; [ ! -s $DIR/helper.$who ] || \
                       until [ -s $DIR/orphan.$who ]; do sleep 0.01; done; done";

/// Returns the process that the file `what` of `who` names.
fn noted(directory: &TempDir, what: &str, who: &str) -> String {
    let text = fs::read_to_string(directory.path().join(format!("{what}.{who}")));
    text.expect("its number").trim().to_owned()
}

/// Checks that the helpers of `who` still run.
#[track_caller]
fn helpers_live(directory: &TempDir, who: &str, text: &str) {
    for what in ["helper", "orphan"] {
        let one = noted(directory, what, who);
        assert!(is_alive(&one), "the {what} of {who} is gone: {text}");
        send("KILL", &one);
    }
}

/// A script with a helper of its own becomes the launcher.
pub(crate) fn exec_in_script() {
    for (rest, status) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("echo at it; exec sleep 600", -1),
    ] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let launch = shell(&["-n", "2"], &format!("{LEAVING}; {rest}"));
        let mut script = Command::new("sh");
        script
            .args(["-c", &format!("{HELPING} exec \"$@\""), "sh"])
            .arg(launch.get_program())
            .args(launch.get_args())
            .env("DIR", directory.path())
            .env("who", "local");
        let text = if status == -1 {
            let (mut child, _) = begin(&mut script, 2);
            child.kill().expect("it is ours");
            child.wait().expect("an end").to_string()
        } else {
            let output = run(&mut script);
            assert_eq!(output.status.code(), Some(status), "{}", err(&output));
            err(&output)
        };
        for rank in ["0", "1"] {
            until(|| !is_alive(&noted(&directory, "left", rank)));
        }
        helpers_live(&directory, "local", &text);
    }
}

/// On a host, a login shell starts processes before it becomes the agent.
pub(crate) fn exec_on_hosts() {
    let hosts = Shell::new();
    let rsh = hosts.path();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let options = ["-n", "2", "--hosts", "a,b", "--rsh", &rsh];
    let mut command = shell(&options, LEAVING);
    command
        .env("DIR", directory.path())
        .env("HYDRANT_TEST_LOGIN", HELPING);
    let output = run(&mut command);
    let text = err(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for rank in ["0", "1"] {
        until(|| !is_alive(&noted(&directory, "left", rank)));
    }
    helpers_live(&directory, "a", &text);
    helpers_live(&directory, "b", &text);
}
