//! Signals that the launcher begins with, receives, and passes on.

use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use crate::harness::{begin, ends_with, err, is_alive, out, send, shell};
use crate::hosts::Shell;
use hydrant_testing::{
    roles::role,
    running::{run, until},
};

/// Returns a job whose launcher begins with these signals ignored.
fn ignoring(signals: &str, options: &[&str], script: &str) -> Command {
    let mut command = Command::new("env");
    command.arg(format!("--ignore-signal={signals}"));
    command.args(role(
        &[&["launcher"], options, &["sh", "-c", script]].concat(),
    ));
    command
}

fn without_prefix(output: &Output) -> String {
    out(output).replace("[0] ", "")
}

/// The kernel reaps the children of a process that ignores SIGCHLD, without notice.
pub(crate) fn ignored_ends() {
    let shell = Shell::new();
    let path = shell.path();
    for options in [
        &["-n", "2"][..],
        &["-n", "2", "--hosts", "a,b", "--rsh", &path],
    ] {
        ends_with(
            &mut ignoring("CHLD", options, "[ $PMI_RANK = 0 ] || exit 3"),
            3,
            "rank 1 ended with status 3",
        );
    }
    // The ranks ignore the same signals as without a launcher.
    let look = ["grep", "-E", "SigBlk|SigIgn", "/proc/self/status"];
    let ignore = ["--ignore-signal=CHLD"];
    let bare = run(Command::new("env").args(ignore).args(look));
    let launcher = role(&["launcher", "-n", "1"]);
    let under = run(Command::new("env").args(ignore).args(launcher).args(look));
    assert_eq!(without_prefix(&under), out(&bare));
}

/// An ignored signal, as under `nohup`, ends neither the launcher nor the ranks.
pub(crate) fn ignored_signals() {
    let script = "trap 'exit 0' USR1; echo ready; while :; do sleep 0.01; done";
    let options = ["-n", "2", "--grace", "0.1"];
    let (child, _) = begin(&mut ignoring("HUP,INT", &options, script), 2);
    let launcher = child.id().to_string();
    for signal in ["HUP", "INT", "INT"] {
        send(signal, &launcher);
    }
    // Longer than the ranks' grace.
    thread::sleep(Duration::from_secs(3));
    assert!(is_alive(&launcher));
    send("USR1", &launcher);
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
}

/// The script of ranks that ignore every request to end.
const DEAF: &str = "trap '' INT TERM HUP QUIT; echo ready; while :; do sleep 0.01; done";

pub(crate) fn deaf_to_the_end() {
    for signal in ["TERM", "HUP"] {
        let (child, _) = begin(&mut shell(&["-n", "2", "--grace", "0.1"], DEAF), 2);
        send(signal, &child.id().to_string());
        let output = child.wait_with_output().expect("an end");
        assert_eq!(
            output.status.code(),
            Some(137),
            "{signal}: {}",
            err(&output)
        );
        let message = "SIGKILL to ranks 0-1, still running";
        assert!(err(&output).contains(message), "{signal}: {}", err(&output));
    }
    // Ranks on hosts behave the same.
    let hosts = Shell::new();
    let mut command = hosts.script("a,b", 2, &["--grace", "0.1"], DEAF);
    let (child, _) = begin(&mut command, 2);
    send("TERM", &child.id().to_string());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(137), "{}", err(&output));
}

pub(crate) fn sent_twice() {
    for signal in ["TERM", "HUP", "QUIT"] {
        let (child, lines) = begin(
            &mut shell(
                &["-n", "1", "--grace", "600"],
                &format!("trap 'echo again >&2' {signal}; echo $$; while :; do sleep 0.01; done"),
            ),
            1,
        );
        let launcher = child.id().to_string();
        send(signal, &launcher);
        // The launcher has passed on the first signal by now, so the kernel does not merge the two.
        thread::sleep(Duration::from_millis(200));
        send(signal, &launcher);
        let output = child.wait_with_output().expect("an end");
        assert_eq!(
            output.status.code(),
            Some(137),
            "{signal}: {}",
            err(&output)
        );
        until(|| !is_alive(&lines[0]));
    }
}

/// Remote shells and their ranks do not inherit the signals that the launcher blocks. On many
/// systems the shell keeps an inherited mask; on others it clears the mask.
pub(crate) fn unblocked_on_hosts() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can put another shell in the place of /bin/sh");
        return;
    }
    let with_bash = "mount --bind \"$(command -v bash)\" \"$(readlink -f /bin/sh)\" && exec \"$@\"";
    let look = ["grep", "-E", "SigBlk", "/proc/self/status"];
    let rsh = "sh -c 'grep SigBlk /proc/self/status >&2; shift; exec sh -c \"$*\"' rsh";
    let job = role(&["launcher", "-n", "1", "--hosts", "a", "--rsh", rsh]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-c", with_bash, "bash"]);
    let under = run(command.args(job).args(look));
    let bare = out(&run(Command::new(look[0]).args(&look[1..])));
    assert!(under.status.success(), "{}", err(&under));
    assert_eq!(without_prefix(&under), bare, "the rank");
    assert_eq!(err(&under), bare, "the remote shell");
}
