//! The ranks' output, line by line with the rank before each line.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// A longer line is split into pieces, each with a line of its own.
const MAX_LINE: usize = 1 << 20;

/// One of the launcher's own streams.
#[derive(Clone, Copy, Debug)]
pub(super) enum LauncherStream {
    Out,
    Err,
}

/// The threads that copy the ranks' output, one for each stream.
#[derive(Debug)]
pub(super) struct OutputThreads {
    closing: PipeWriter,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl OutputThreads {
    /// Starts to copy the standard output and standard error of each rank.
    pub(super) fn carry(out: Vec<PipeReader>, err: Vec<PipeReader>) -> io::Result<OutputThreads> {
        let (closed, closing) = io::pipe()?;
        let mut threads = Vec::new();
        for (stream, pipes) in [(LauncherStream::Out, out), (LauncherStream::Err, err)] {
            let copier = StreamCopier::new(stream, pipes, closed.try_clone()?)?;
            let name = format!("hydrant-{stream:?}").to_lowercase();
            threads.push(
                thread::Builder::new()
                    .name(name)
                    .spawn(move || copier.run())?,
            );
        }
        Ok(OutputThreads { closing, threads })
    }

    /// Waits until all output is written. Every rank has ended before.
    ///
    /// Returns the first write error. A stream without a reader is no error: its ranks got SIGPIPE.
    pub(super) fn finish(self) -> io::Result<()> {
        drop(self.closing);
        join(self.threads)
    }
}

/// Waits for threads that write, and returns the first error. A stream without a reader is no
/// error.
pub(super) fn join(threads: Vec<JoinHandle<io::Result<()>>>) -> io::Result<()> {
    let mut result = Ok(());
    for thread in threads {
        let ended = thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
        if let Err(error) = ended
            && error.kind() != io::ErrorKind::BrokenPipe
            && result.is_ok()
        {
            result = Err(error);
        }
    }
    result
}

/// Copies one stream of all ranks.
struct StreamCopier {
    stream: LauncherStream,
    sources: Vec<RankPipe>,
    closing: PipeReader,
}

struct RankPipe {
    pipe: PipeReader,
    lines: Lines,
}

impl StreamCopier {
    fn new(
        stream: LauncherStream,
        pipes: Vec<PipeReader>,
        closing: PipeReader,
    ) -> io::Result<StreamCopier> {
        let mut sources = Vec::with_capacity(pipes.len());
        for (rank, pipe) in pipes.into_iter().enumerate() {
            rustix::io::ioctl_fionbio(&pipe, true)?;
            sources.push(RankPipe {
                pipe,
                lines: Lines::new(rank),
            });
        }
        Ok(StreamCopier {
            stream,
            sources,
            closing,
        })
    }

    /// An error drops the pipes, so that ranks that continue to print get SIGPIPE.
    fn run(mut self) -> io::Result<()> {
        while !self.sources.is_empty() {
            let mut fds: Vec<PollFd<'_>> = std::iter::once(self.closing.as_fd())
                .chain(self.sources.iter().map(|source| source.pipe.as_fd()))
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let closing = !fds[0].revents().is_empty();
            let mut ready = fds[1..]
                .iter()
                .map(|fd| closing || !fd.revents().is_empty())
                .collect::<Vec<_>>();
            let mut text = Vec::new();
            let mut ended = Vec::with_capacity(ready.len());
            for (source, ready) in self.sources.iter_mut().zip(ready.drain(..)) {
                ended.push(ready && source.take(closing, &mut text));
            }
            write_all(self.stream, &text)?;
            let mut ended = ended.into_iter();
            self.sources.retain(|_| !ended.next().unwrap_or(false));
            if closing {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl RankPipe {
    /// Adds the complete lines of the pipe to `text`. Returns true after the pipe's end.
    ///
    /// Reads once, so that no rank delays the others. With `all`, reads the bytes that the pipe
    /// holds, and no more: a process that ranks left behind may print for ever.
    fn take(&mut self, all: bool, text: &mut Vec<u8>) -> bool {
        let mut buffer = [0; 64 * 1024];
        let mut held = if all { capacity(&self.pipe) } else { 0 };
        loop {
            match self.pipe.read(&mut buffer) {
                Ok(n) if n > 0 => {
                    self.lines.feed(&buffer[..n], text);
                    if !all {
                        return false;
                    }
                    held = held.saturating_sub(n);
                    if held == 0 {
                        self.lines.finish(text);
                        return true;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && !all => return false,
                _ => {
                    self.lines.finish(text);
                    return true;
                }
            }
        }
    }
}

/// Returns the capacity of a pipe in bytes.
pub(super) fn capacity(pipe: &PipeReader) -> usize {
    // The default is the system's limit for unprivileged pipes.
    rustix::pipe::fcntl_getpipe_size(pipe).unwrap_or(1 << 20)
}

/// Splits bytes into lines and writes the rank before each.
#[derive(Debug)]
pub(super) struct Lines {
    prefix: Vec<u8>,
    partial: Vec<u8>,
}

impl Lines {
    pub(super) fn new(rank: usize) -> Lines {
        Lines {
            prefix: format!("[{rank}] ").into_bytes(),
            partial: Vec::new(),
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8], text: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() >= MAX_LINE {
                self.finish(text);
            }
        }
    }

    /// Writes the current line, even without its newline.
    pub(super) fn finish(&mut self, text: &mut Vec<u8>) {
        if self.partial.is_empty() {
            return;
        }
        text.extend_from_slice(&self.prefix);
        text.append(&mut self.partial);
        if !text.ends_with(b"\n") {
            text.push(b'\n');
        }
    }
}

pub(super) fn write_all(stream: LauncherStream, mut text: &[u8]) -> io::Result<()> {
    let (out, err) = (io::stdout(), io::stderr());
    let fd = match stream {
        LauncherStream::Out => out.as_fd(),
        LauncherStream::Err => err.as_fd(),
    };
    while !text.is_empty() {
        match rustix::io::write(fd, text) {
            Ok(n) => text = &text[n..],
            Err(Errno::INTR) => {}
            // The process that passed the stream on may have made it non-blocking.
            Err(Errno::AGAIN) => wait_for_room(fd)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn wait_for_room(fd: BorrowedFd<'_>) -> io::Result<()> {
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_complete_and_the_last_one_gets_a_newline() {
        let mut lines = Lines::new(12);
        let mut text = Vec::new();
        lines.feed(b"one\ntw", &mut text);
        assert_eq!(text, b"[12] one\n");
        lines.feed(b"o\n\nthr\xff", &mut text);
        lines.finish(&mut text);
        lines.finish(&mut text);
        assert_eq!(text, b"[12] one\n[12] two\n[12] \n[12] thr\xff\n");
    }

    #[test]
    fn an_endless_line_is_written_in_pieces() {
        let mut lines = Lines::new(0);
        let mut text = Vec::new();
        for _ in 0..3 {
            lines.feed(&vec![b'x'; MAX_LINE / 2], &mut text);
        }
        assert_eq!(text.len(), MAX_LINE + b"[0] \n".len());
        assert!(text.ends_with(b"x\n"));
    }
}
