//! A command under test: what it prints, line by line, and how it ends.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

/// Longer than anything here takes on a busy machine: only a hang reaches it.
pub(crate) const HANG: Duration = Duration::from_secs(50);

/// A command that runs, and what it prints.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    /// Everything printed so far, for when a test fails.
    printed: Vec<String>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
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

    /// Reads on until `count` lines begin with `word`; what follows it in each.
    pub(crate) fn expect(&mut self, word: &str, count: usize) -> Vec<Vec<String>> {
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

    /// Reads to the end: the status, and every line.
    pub(crate) fn end(mut self) -> (i32, Vec<String>) {
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

    /// Ends the command and fails the test with what it printed.
    fn give_up(&mut self, why: &str) -> ! {
        let _ = self.child.kill();
        let _ = self.child.wait();
        panic!("{why}; it printed:\n{}", self.printed.join("\n"));
    }
}

/// The words of a line after its first, if that is `word`.
pub(crate) fn fields(line: &str, word: &str) -> Option<Vec<String>> {
    let mut words = line.split_whitespace().map(str::to_owned);
    (words.next().as_deref() == Some(word)).then(|| words.collect())
}

fn read_lines(from: Option<impl Read + Send + 'static>, to: Sender<String>) {
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

/// The host's clock, the same in every process.
pub(crate) fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(now).expect("the clock is past zero")
}

/// Prints a whole line in one write, for the ranks of a job share the pipe.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) fn say(line: &str) {
    let _ = std::io::stdout()
        .lock()
        .write_all(format!("{line}\n").as_bytes());
}
