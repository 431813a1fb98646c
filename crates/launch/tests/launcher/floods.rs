//! Ranks and agents that send endlessly. The launcher keeps within its memory, and still reacts to
//! the user and the clock.

use std::io;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::harness::{begin, ends_with, err, launch, launch_role, send};
use crate::hosts::Shell;
use hydrant_testing::running::run;

/// The launcher's address space in KiB: many times its need, and less than a flood sends in a
/// second.
const SPACE: u32 = 400_000;

/// Returns the command with an address space of at most [`SPACE`].
fn bounded(command: &Command) -> Command {
    let mut bounded = Command::new("sh");
    let script = format!("ulimit -v {SPACE}; exec \"$@\"");
    bounded.args(["-c", &script, "sh"]);
    bounded.arg(command.get_program()).args(command.get_args());
    bounded
}

pub(crate) fn endless_command() {
    let flood = launch_role(&["-n", "2"], &["flood", "mcmd=spawn\\n", "\\n"]);
    ends_with(&mut bounded(&flood), 1, "bytes without endcmd");
    let flood = launch_role(&["-n", "2"], &["flood", "mcmd=spawn\\n", "a=b"]);
    ends_with(&mut bounded(&flood), 1, "bytes without a newline");
}

pub(crate) fn asking() {
    let ask = ["flood", "", "cmd=get_maxes\\n"];
    let flood = launch_role(&["-n", "2", "--timeout", "1"], &ask);
    ends_with(&mut bounded(&flood), 124, "longer than 1 s");
    let (child, _) = begin(&mut bounded(&launch_role(&["-n", "2"], &ask)), 2);
    send("INT", &child.id().to_string());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
}

/// Returns a job of a lying agent and an honest one, with a time limit in seconds.
fn lying(lie: &str, timeout: &str) -> Command {
    let shell = Shell::lying(lie);
    let path = shell.path();
    let hosts = ["--hosts", "liar,b", "--rsh", &path, "-n", "2"];
    let options = [&hosts[..], &["--timeout", timeout]].concat();
    let job = launch(&options, &["sh", "-c", "exec sleep 600"]);
    // The shell's files last as long as the job.
    std::mem::forget(shell);
    bounded(&job)
}

pub(crate) fn beats() {
    ends_with(&mut lying("beats", "1"), 124, "longer than 1 s");
}

pub(crate) fn lines() {
    let output = run(&mut lying("lines", "600"));
    let text = err(&output);
    assert!(text.contains("bytes unread"), "{text}");
    assert!(text.contains("host liar, of rank 0"), "{text}");
}

pub(crate) fn prints() {
    let (reader, writer) = io::pipe().expect("a pipe");
    let child = (lying("prints", "1").stdout(writer).stderr(Stdio::piped()))
        .spawn()
        .expect("a launcher");
    // While nobody reads, no output is lost. Then the reader closes.
    thread::sleep(Duration::from_secs(3));
    drop(reader);
    let output = child.wait_with_output().expect("an end");
    let text = err(&output);
    assert_eq!(output.status.code(), Some(124), "{text}");
}
