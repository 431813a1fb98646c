//! The reports of rank 0 to the command that started it: lines of JSON through a pipe.
//!
//! The ranks' own standard output belongs to the launcher, which prefixes it. Ranks open the pipe
//! by its path under `/proc`, so it has no name that could be left behind.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};

use crate::place::RankPlace;
use crate::row::Row;

/// The reason why no process is found by its number.
pub(crate) const NOT_OURS: &str = "/proc is not there or is of another PID namespace, and processes of the bench find each other by it";

/// An event of a measurement.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum BenchEvent {
    /// The name of the next measurement.
    Next(String),
    /// The conduit of a job on several hosts, and the place of each rank.
    Place(String, Vec<RankPlace>),
    /// A measured row.
    Row(Box<Row>),
    /// The job is over; the receiver itself writes this event.
    Over,
}

/// The sending end, on rank 0.
#[derive(Debug)]
pub(crate) struct Sender(File);

/// The path of a pipe that is the rank's standard output: the launcher carries it from other hosts.
pub(crate) const STANDARD_OUTPUT: &str = "-";

impl Sender {
    /// Opens the pipe at the path of its [`Receiver`].
    pub(crate) fn open(path: &str) -> io::Result<Self> {
        if path == STANDARD_OUTPUT {
            let output = io::stdout().as_fd().try_clone_to_owned()?;
            return Ok(Sender(output.into()));
        }
        File::options().write(true).open(path).map(Sender)
    }

    /// Sends `event`.
    pub(crate) fn send(&self, event: &BenchEvent) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        // One write of at most a pipe's atomic size, so events of two ranks never mix.
        (&self.0).write_all(&line)
    }
}

/// The receiving end, in the command.
#[derive(Debug)]
pub(crate) struct Receiver {
    read: BufReader<File>,
    /// The writing end, kept open between jobs.
    write: OwnedFd,
}

impl Receiver {
    /// A new pipe.
    pub(crate) fn new() -> io::Result<Self> {
        // Otherwise ranks would write to a file of another process.
        if !hydrant_launch::proc_is_own() {
            return Err(io::Error::other(NOT_OURS));
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Receiver {
            read: BufReader::new(read.into()),
            write,
        })
    }

    /// The path for [`Sender::open`], valid while this process lives.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.write.as_raw_fd())
    }

    /// The writing end, for a launcher to print to.
    pub(crate) fn writing_end(&self) -> io::Result<OwnedFd> {
        self.write.try_clone()
    }

    /// The sender of the event that the job is over.
    pub(crate) fn own_sender(&self) -> io::Result<Sender> {
        Ok(Sender(self.write.try_clone()?.into()))
    }

    /// Waits for the next event.
    pub(crate) fn next(&mut self) -> io::Result<BenchEvent> {
        let mut line = String::new();
        self.read.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_arrive_in_order_through_the_path() {
        let mut receiver = Receiver::new().unwrap();
        let sender = Sender::open(&receiver.path()).unwrap();
        let events = [
            BenchEvent::Next("put, 8".to_owned()),
            BenchEvent::Row(Box::new(Row::new("rma", "put", "ns", 3.0))),
            BenchEvent::Next("two\nlines".to_owned()),
        ];
        for event in &events {
            sender.send(event).unwrap();
        }
        drop(sender);
        receiver
            .own_sender()
            .unwrap()
            .send(&BenchEvent::Over)
            .unwrap();
        for event in &events {
            assert_eq!(receiver.next().unwrap(), *event);
        }
        assert_eq!(receiver.next().unwrap(), BenchEvent::Over);
    }
}
