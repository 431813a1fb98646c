//! Input and output of ranks.

use std::io::{Read, Write};
use std::process::Stdio;

use crate::harness::{err, out, shell};
use hydrant_testing::running::run;

pub(crate) fn input() {
    let mut child = shell(&["-n", "3", "--none"], "cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a launcher");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(b"one\ntwo\0\xff")
        .expect("rank 0 reads");
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success());
    assert_eq!(output.stdout, b"one\ntwo\0\xff");
}

pub(crate) fn prefixed() {
    let script = "i=0; while [ $i -lt 200 ]; do printf 'some'; printf ' words %s\\n' $i; i=$((i+1)); done; \
                  printf 'no newline'; echo complaint >&2";
    let output = run(&mut shell(&["-n", "5"], script));
    assert!(output.status.success());
    let text = out(&output);
    for rank in 0..5 {
        let head = format!("[{rank}] ");
        let lines: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix(&head))
            .collect();
        let mut expected: Vec<_> = (0..200).map(|i| format!("some words {i}")).collect();
        expected.push("no newline".into());
        assert_eq!(lines, expected);
    }
    assert_eq!(text.lines().count(), 5 * 201);
    assert_eq!(
        err(&output)
            .lines()
            .filter(|l| l.ends_with("] complaint"))
            .count(),
        5
    );
}

pub(crate) fn unprefixed() {
    let output = run(&mut shell(
        &["-n", "1", "--none"],
        "printf 'a\\0b\\377'; printf 'c' >&2",
    ));
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (&b"a\0b\xff"[..], &b"c"[..])
    );
}

pub(crate) fn nobody_reads() {
    let mut child = shell(
        &["-n", "2"],
        "while echo line; do :; done 2>/dev/null; exit 3",
    )
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .expect("a launcher");
    let mut line = [0; 9];
    child
        .stdout
        .take()
        .expect("a pipe")
        .read_exact(&mut line)
        .expect("a line");
    let output = child.wait_with_output().expect("an end");
    assert!(
        matches!(output.status.code(), Some(141 | 3)),
        "{:?} {}",
        output.status,
        err(&output)
    );
    assert!(
        line.ends_with(b"] line\n") || line.starts_with(b"["),
        "{line:?}"
    );
}
