//! The events while machines run: output is passed on, the command may ask for the end of another
//! host, and its own end is awaited.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::Error;
use super::control::FateRequest;
use super::folder::KERNEL_LOG;
use super::machine::{QemuMachine, RunningMachine};

/// The last lines of a kernel's log that are shown when it failed.
const LINES_SHOWN: usize = 12;

/// One of the command's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputStream {
    Out,
    Err,
}

enum MachineEvent {
    /// The number of bytes of this output that were passed on so far.
    Passed(OutputStream, u64),
    /// A line from the first host's status port.
    Status(String),
    /// The status port of this host is closed, so the host is gone.
    Gone(usize),
    /// A line from the control port.
    Asked(String),
}

/// The end of the command, and the number of bytes that it wrote to each output.
#[derive(Debug, PartialEq, Eq)]
struct CommandReport {
    status: u8,
    out: u64,
    err: u64,
}

/// Boots the machines and passes on the output of the first one's command. Returns the status of
/// the command.
pub(crate) fn run(machines: Vec<QemuMachine>, limit: Duration) -> Result<u8, Error> {
    let deadline = Instant::now() + limit;
    let (sender, events) = mpsc::channel();
    let mut hosts = Vec::new();
    for machine in machines {
        let host = machine.start()?;
        listen(
            &host.status,
            MachineEvent::Status,
            Some(MachineEvent::Gone(hosts.len())),
            &sender,
        )?;
        hosts.push(host);
    }
    let first = &hosts[0];
    pass_on(&first.out, io::stdout(), OutputStream::Out, &sender)?;
    pass_on(&first.err, io::stderr(), OutputStream::Err, &sender)?;
    listen(&first.control, MachineEvent::Asked, None, &sender)?;

    let mut report: Option<CommandReport> = None;
    let (mut out, mut err) = (0, 0);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match events.recv_timeout(left) {
            Ok(MachineEvent::Passed(OutputStream::Out, bytes)) => out = bytes,
            Ok(MachineEvent::Passed(OutputStream::Err, bytes)) => err = bytes,
            Ok(MachineEvent::Status(line)) => report = parse(&line),
            Ok(MachineEvent::Asked(line)) => answer(&mut hosts, &line)?,
            Ok(MachineEvent::Gone(host)) if hosts[host].was_asked_to_end => {}
            Ok(MachineEvent::Gone(host)) => return Err(died(host, &mut hosts[host])),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(Error::TimedOut(limit));
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

/// Does what the command asks, and answers when it is done.
fn answer(hosts: &mut [RunningMachine], line: &str) -> Result<(), Error> {
    let said = match FateRequest::parse(line, hosts.len()) {
        Ok(request) => {
            request.carry_out(hosts)?;
            format!("done: {line}\n")
        }
        Err(problem) => format!("refused: {problem}\n"),
    };
    // A command that killed its own host, or left after its request, gets no answer.
    let _ = (&hosts[0].control).write_all(said.as_bytes());
    Ok(())
}

/// Starts a thread that copies bytes from `from` to `to` and reports them.
fn pass_on(
    from: &UnixStream,
    mut to: impl Write + Send + 'static,
    which: OutputStream,
    events: &Sender<MachineEvent>,
) -> Result<(), Error> {
    let events = events.clone();
    let mut from = from.try_clone().map_err(Error::system("copy a channel"))?;
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        let mut passed = 0;
        while let Ok(bytes @ 1..) = from.read(&mut buffer) {
            // If nobody reads any more, the command still runs to its end.
            let _ = to.write_all(&buffer[..bytes]).and_then(|()| to.flush());
            passed += bytes as u64;
            if events.send(MachineEvent::Passed(which, passed)).is_err() {
                break;
            }
        }
    });
    Ok(())
}

/// Starts a thread that makes an event of each line, and one of the end.
fn listen(
    from: &UnixStream,
    line: fn(String) -> MachineEvent,
    end: Option<MachineEvent>,
    events: &Sender<MachineEvent>,
) -> Result<(), Error> {
    let events = events.clone();
    let from = from.try_clone().map_err(Error::system("copy a channel"))?;
    thread::spawn(move || {
        // A read error, or bytes that are no text, end the loop as well.
        for text in BufReader::new(from).lines().map_while(Result::ok) {
            // A send fails only if nobody waits any more.
            let _ = events.send(line(text));
        }
        let _ = end.map(|end| events.send(end));
    });
    Ok(())
}

fn parse(line: &str) -> Option<CommandReport> {
    let mut words = line.split(' ');
    let report = CommandReport {
        status: words.next()?.parse().ok()?,
        out: words.next()?.parse().ok()?,
        err: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(report)
}

/// The error of a machine that ended by itself: the output of QEMU and the end of the log.
fn died(host: usize, running: &mut RunningMachine) -> Error {
    let complaint = running.end();
    let log = running.folder.join(KERNEL_LOG);
    let bytes = fs::read(&log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    let last = lines.len().saturating_sub(LINES_SHOWN);
    let shown = complaint.lines().chain(lines[last..].iter().copied());
    Error::Died {
        host: host + 1,
        said: shown.map(|line| format!("\n{}", line.trim_end())).collect(),
        log,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_three_numbers() {
        let report = CommandReport {
            status: 137,
            out: 5,
            err: 0,
        };
        assert_eq!(parse("137 5 0"), Some(report));
        for line in ["", "137 5", "256 0 0", "0 0 0 0", "x 0 0"] {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }
}
