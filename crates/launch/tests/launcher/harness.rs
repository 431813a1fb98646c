//! Starts jobs from tests and watches them.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};

use hydrant_testing::{roles::role, running::run};

pub(crate) fn launch(options: &[&str], program: &[&str]) -> Command {
    let command = role(&[&["launcher"], options, program].concat());
    let mut launch = Command::new(&command[0]);
    launch.args(&command[1..]);
    launch
}

/// Returns a job whose ranks are a shell with `script`. A rank's number is `$PMI_RANK`.
pub(crate) fn shell(options: &[&str], script: &str) -> Command {
    launch(options, &["sh", "-c", script])
}

pub(crate) fn launch_role(options: &[&str], arguments: &[&str]) -> Command {
    let program = role(arguments);
    launch(
        options,
        &program.iter().map(String::as_str).collect::<Vec<_>>(),
    )
}

pub(crate) fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub(crate) fn ends_with(command: &mut Command, status: i32, message: &str) -> Output {
    let output = run(command);
    assert_eq!(
        output.status.code(),
        Some(status),
        "{}{}",
        out(&output),
        err(&output)
    );
    assert!(
        err(&output).contains(message),
        "no `{message}` in {}",
        err(&output)
    );
    output
}

/// Returns true if a process lives and is no zombie.
pub(crate) fn is_alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .starts_with(" Z")
    })
}

/// Starts a job and waits until all its `ranks` have printed a line.
pub(crate) fn begin(command: &mut Command, ranks: usize) -> (Child, Vec<String>) {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a launcher");
    let mut text = Vec::new();
    let pipe = child.stdout.as_mut().expect("a pipe");
    let mut byte = [0];
    while text.iter().filter(|&&b| b == b'\n').count() < ranks {
        pipe.read_exact(&mut byte).expect("ranks print");
        text.push(byte[0]);
    }
    let lines = String::from_utf8(text).expect("UTF-8");
    (
        child,
        lines
            .lines()
            .map(|l| l.split_once("] ").map_or(l, |(_, rest)| rest).to_owned())
            .collect(),
    )
}

pub(crate) fn send(signal: &str, pid: &str) {
    let status = Command::new("sh")
        .args(["-c", &format!("kill -{signal} {pid}")])
        .status();
    assert!(status.expect("a shell").success());
}
