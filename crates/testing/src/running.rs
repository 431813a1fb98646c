//! A command under test: its output, line by line, and its exit.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::HANG;

/// A running command and its output.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    /// All lines so far, to be printed if a test fails.
    printed: Vec<String>,
}

impl Running {
    /// Starts a command without input.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let (sender, lines) = mpsc::channel();
        read_lines(child.stdout.take(), sender.clone());
        read_lines(child.stderr.take(), sender);
        Self {
            child,
            lines,
            printed: Vec::new(),
        }
    }

    /// Reads lines until `count` of them begin with `word`; returns the other words of each.
    ///
    /// # Panics
    /// If the lines do not come.
    pub fn expect(&mut self, word: &str, count: usize) -> Vec<Vec<String>> {
        let until = Instant::now() + HANG;
        let mut found = Vec::new();
        while found.len() < count {
            match self.next(until) {
                Some(line) => found.extend(fields(&line, word)),
                None => self.give_up(&format!(
                    "{} of {count} lines of `{word}` came",
                    found.len()
                )),
            }
        }
        found
    }

    /// Reads the next line.
    ///
    /// # Panics
    /// If none comes.
    pub fn expect_line(&mut self) -> String {
        let line = self.next(Instant::now() + HANG);
        line.unwrap_or_else(|| self.give_up("it printed no more"))
    }

    /// Kills the command, unless it has ended.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Reads to the end; returns the status and all lines.
    ///
    /// # Panics
    /// If the command hangs.
    pub fn end(mut self) -> (i32, Vec<String>) {
        let until = Instant::now() + HANG;
        while self.next(until).is_some() {}
        loop {
            match self.child.try_wait().expect("it is our child") {
                Some(status) => return (status.code().unwrap_or(-1), self.printed),
                None if Instant::now() > until => self.give_up("it did not end"),
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn next(&mut self, until: Instant) -> Option<String> {
        let left = until.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => {
                self.printed.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => self.give_up("it hangs"),
        }
    }

    /// Kills the command, and fails the test with the output.
    fn give_up(&mut self, why: &str) -> ! {
        self.kill();
        panic!("{why}; it printed:\n{}", self.printed.join("\n"));
    }
}

/// The words of a line after the first, if the first is `word`.
pub fn fields(line: &str, word: &str) -> Option<Vec<String>> {
    let mut words = line.split_whitespace().map(str::to_owned);
    (words.next().as_deref() == Some(word)).then(|| words.collect())
}

/// Forwards the lines of a pipe as they come.
pub(crate) fn read_lines(from: Option<impl Read + Send + 'static>, to: Sender<String>) {
    let from = BufReader::new(from.expect("a pipe was asked for"));
    thread::spawn(move || {
        for line in from.split(b'\n').map_while(Result::ok) {
            if to
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                break;
            }
        }
    });
}

/// Runs a command without input to its end, and returns its output.
///
/// # Panics
/// If it cannot be started, or hangs.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let pid = Pid::from_child(&child);
    let waiter = thread::spawn(move || child.wait_with_output());
    let begun = Instant::now();
    while !waiter.is_finished() {
        if begun.elapsed() > HANG {
            let _ = kill_process(pid, Signal::KILL);
            panic!("{command:?} hung");
        }
        thread::sleep(Duration::from_millis(5));
    }
    let ended = waiter.join().expect("the waiter does not panic");
    ended.expect("a child can be waited for")
}

/// Waits until a condition holds.
///
/// # Panics
/// If it never holds.
#[track_caller]
pub fn until(mut done: impl FnMut() -> bool) {
    assert!(within(HANG, &mut done), "it did not happen");
}

/// Waits until a condition holds, or the time is over; returns true if the condition holds.
pub(crate) fn within(time: Duration, mut done: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !done() {
        if begun.elapsed() > time {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    true
}

/// The host's clock, the same in every process.
///
/// # Panics
/// If the clock is before its epoch.
pub fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(now).expect("the clock is past zero")
}

/// Prints a whole line in one write, because the ranks of a job share the pipe.
pub fn say(line: &str) {
    let _ = std::io::stdout()
        .lock()
        .write_all(format!("{line}\n").as_bytes());
}
