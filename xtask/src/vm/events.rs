//! What happens while a machine runs: its output is passed on, its end awaited.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::Error;
use super::folder::KERNEL_LOG;
use super::machine::Machine;

/// So many of the last lines of a kernel's log are shown when it failed.
const LINES_SHOWN: usize = 12;

/// Which of the command's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Out,
    Err,
}

enum Event {
    /// So much of this output was passed on by now.
    Passed(Output, u64),
    /// All that came through the status port, when nothing more can come.
    Status(String),
}

/// How the command ended, and how much it wrote to each output.
#[derive(Debug, PartialEq, Eq)]
struct Report {
    status: u8,
    out: u64,
    err: u64,
}

/// Boots the machine, passes on what its command writes, and gives back its status.
pub(crate) fn run(machine: &Machine, limit: Duration) -> Result<u8, Error> {
    let deadline = Instant::now() + limit;
    let mut running = machine.start()?;
    let (sender, events) = mpsc::channel();
    pass_on(&running.out, io::stdout(), Output::Out, &sender)?;
    pass_on(&running.err, io::stderr(), Output::Err, &sender)?;
    listen(&running.status, sender)?;

    let mut report: Option<Report> = None;
    let (mut out, mut err) = (0, 0);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match events.recv_timeout(left) {
            Ok(Event::Passed(Output::Out, bytes)) => out = bytes,
            Ok(Event::Passed(Output::Err, bytes)) => err = bytes,
            Ok(Event::Status(line)) => match parse(&line) {
                Some(told) => report = Some(told),
                None => return Err(died(running.end(), machine.folder)),
            },
            Err(RecvTimeoutError::Timeout) => return Err(Error::TimedOut(limit)),
            // Nothing can come any more: the report is all there is to wait for.
            Err(RecvTimeoutError::Disconnected) => {
                let status = report.map(|it| it.status);
                return status.ok_or_else(|| died(running.end(), machine.folder));
            }
        }
        if let Some(told) = &report
            && out >= told.out
            && err >= told.err
        {
            return Ok(told.status);
        }
    }
}

/// Starts a thread that copies what comes from `from` to `to` and says so.
fn pass_on(
    from: &UnixStream,
    mut to: impl Write + Send + 'static,
    which: Output,
    events: &Sender<Event>,
) -> Result<(), Error> {
    let events = events.clone();
    let mut from = from.try_clone().map_err(Error::system("copy a channel"))?;
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        let mut passed = 0;
        while let Ok(bytes @ 1..) = from.read(&mut buffer) {
            // Where nobody reads any more, the command still goes on to its end.
            let _ = to.write_all(&buffer[..bytes]).and_then(|()| to.flush());
            passed += bytes as u64;
            if events.send(Event::Passed(which, passed)).is_err() {
                break;
            }
        }
    });
    Ok(())
}

/// Starts a thread that waits for a line from the status port, or its end.
fn listen(status: &UnixStream, events: Sender<Event>) -> Result<(), Error> {
    let status = status
        .try_clone()
        .map_err(Error::system("copy a channel"))?;
    thread::spawn(move || {
        let mut line = String::new();
        // A line that cannot be read is one that did not come.
        let _ = io::BufRead::read_line(&mut io::BufReader::new(status), &mut line);
        // Where nobody waits any more, nobody misses it.
        let _ = events.send(Event::Status(line));
    });
    Ok(())
}

fn parse(line: &str) -> Option<Report> {
    let mut words = line.strip_suffix('\n')?.split(' ');
    let report = Report {
        status: words.next()?.parse().ok()?,
        out: words.next()?.parse().ok()?,
        err: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(report)
}

/// The error of a machine that ended by itself: what QEMU said, the end of the log.
fn died(complaint: String, folder: &Path) -> Error {
    let log = folder.join(KERNEL_LOG);
    let bytes = fs::read(&log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    let last = lines.len().saturating_sub(LINES_SHOWN);
    let shown = complaint.lines().chain(lines[last..].iter().copied());
    Error::Died {
        said: shown.map(|line| format!("\n{}", line.trim_end())).collect(),
        log,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_three_numbers_and_the_end_of_the_line() {
        let report = Report {
            status: 137,
            out: 5,
            err: 0,
        };
        assert_eq!(parse("137 5 0\n"), Some(report));
        for line in [
            "",
            "137 5 0",
            "137 5\n",
            "256 0 0\n",
            "0 0 0 0\n",
            "x 0 0\n",
        ] {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }
}
