//! Writing what ranks of other hosts print, without keeping the launcher waiting.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use super::frame::Stream;
use crate::launcher::output;

/// The threads that write, one for each stream.
#[derive(Debug)]
pub(super) struct Printer {
    queues: [Sender<Job>; 2],
    written: Receiver<Written>,
    bell: PipeReader,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// Something to write.
#[derive(Debug)]
struct Job {
    agent: usize,
    /// The bytes that ranks printed for it.
    printed: u64,
    text: Vec<u8>,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Written {
    /// So many bytes that an agent sent are dealt with.
    Bytes { agent: usize, bytes: u64 },
    /// Nobody reads the stream any more, or it cannot be written to.
    Deaf(Stream),
}

impl Printer {
    pub(super) fn start() -> io::Result<Printer> {
        let (bell, ringer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&bell, true)?;
        rustix::io::ioctl_fionbio(&ringer, true)?;
        let (report, written) = mpsc::channel();
        let mut threads = Vec::new();
        let mut begin = |stream: Stream| {
            let (queue, jobs) = mpsc::channel();
            let (report, ringer) = (report.clone(), ringer.try_clone()?);
            let thread = thread::Builder::new()
                .name(format!("hydrant-{stream:?}").to_lowercase())
                .spawn(move || write_all(stream, &jobs, &report, ringer))?;
            threads.push(thread);
            io::Result::Ok(queue)
        };
        Ok(Printer {
            queues: [begin(Stream::Out)?, begin(Stream::Err)?],
            written,
            bell,
            threads,
        })
    }

    /// Readable when something was written.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Takes on to write `text`, for so many bytes that ranks of an agent printed.
    pub(super) fn print(&self, stream: Stream, agent: usize, printed: u64, text: Vec<u8>) {
        let job = Job {
            agent,
            printed,
            text,
        };
        // A thread that ended said that its stream is deaf.
        let _ = self.queues[stream as usize].send(job);
    }

    /// What was written since the last time.
    pub(super) fn written(&mut self) -> Vec<Written> {
        let _ = self.bell.read(&mut [0; 256]);
        self.written.try_iter().collect()
    }

    /// Waits until all is written. An error, but not that nobody read.
    pub(super) fn finish(self) -> io::Result<()> {
        drop(self.queues);
        output::join(self.threads)
    }
}

fn write_all(
    stream: Stream,
    jobs: &Receiver<Job>,
    report: &Sender<Written>,
    mut bell: PipeWriter,
) -> io::Result<()> {
    let to = match stream {
        Stream::Out => output::Stream::Out,
        Stream::Err => output::Stream::Err,
    };
    for job in jobs {
        let done = output::write_all(to, &job.text);
        let said = match &done {
            Ok(()) => Written::Bytes {
                agent: job.agent,
                bytes: job.printed,
            },
            Err(_) => Written::Deaf(stream),
        };
        // Where nobody listens any more, the launcher is at its end. A full pipe rings, too.
        let _ = report.send(said);
        let _ = bell.write(&[1]);
        done?;
    }
    Ok(())
}
