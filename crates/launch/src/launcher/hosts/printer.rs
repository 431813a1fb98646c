//! Writes the output of ranks of other hosts without delaying the launcher.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use super::frame::RankStream;
use crate::launcher::output;

/// The threads that write, one for each stream.
#[derive(Debug)]
pub(super) struct Printer {
    queues: [Sender<PrintJob>; 2],
    written: Receiver<Written>,
    bell: PipeReader,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// A text to write.
#[derive(Debug)]
struct PrintJob {
    agent: usize,
    /// The number of bytes that ranks printed for the text.
    printed: u64,
    text: Vec<u8>,
}

/// The result of a write.
#[derive(Debug)]
pub(super) enum Written {
    /// This many bytes of an agent are handled.
    Bytes { agent: usize, bytes: u64 },
    /// The stream has no reader any more, or writing to it fails.
    Deaf(RankStream),
}

impl Printer {
    pub(super) fn start() -> io::Result<Printer> {
        let (bell, ringer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&bell, true)?;
        rustix::io::ioctl_fionbio(&ringer, true)?;
        let (report, written) = mpsc::channel();
        let mut threads = Vec::new();
        let mut begin = |stream: RankStream| {
            let (queue, jobs) = mpsc::channel();
            let (report, ringer) = (report.clone(), ringer.try_clone()?);
            let thread = thread::Builder::new()
                .name(format!("hydrant-{stream:?}").to_lowercase())
                .spawn(move || write_all(stream, &jobs, &report, ringer))?;
            threads.push(thread);
            io::Result::Ok(queue)
        };
        Ok(Printer {
            queues: [begin(RankStream::Out)?, begin(RankStream::Err)?],
            written,
            bell,
            threads,
        })
    }

    /// Returns a descriptor that is readable when something was written.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Queues `text` for writing. `printed` counts the bytes that the agent's ranks printed for it.
    pub(super) fn print(&self, stream: RankStream, agent: usize, printed: u64, text: Vec<u8>) {
        let job = PrintJob {
            agent,
            printed,
            text,
        };
        // A thread that ended has reported its stream as deaf.
        let _ = self.queues[stream as usize].send(job);
    }

    /// Returns the results since the last call.
    pub(super) fn written(&mut self) -> Vec<Written> {
        let _ = self.bell.read(&mut [0; 256]);
        self.written.try_iter().collect()
    }

    /// Waits until all is written. A stream without a reader is no error.
    pub(super) fn finish(self) -> io::Result<()> {
        drop(self.queues);
        output::join(self.threads)
    }
}

fn write_all(
    stream: RankStream,
    jobs: &Receiver<PrintJob>,
    report: &Sender<Written>,
    mut bell: PipeWriter,
) -> io::Result<()> {
    let to = match stream {
        RankStream::Out => output::LauncherStream::Out,
        RankStream::Err => output::LauncherStream::Err,
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
        // A failed send means that the launcher is ending. A full pipe wakes the launcher too.
        let _ = report.send(said);
        let _ = bell.write(&[1]);
        done?;
    }
    Ok(())
}
