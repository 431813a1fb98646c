//! The launcher's end of the socket to a rank.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The most bytes of one read.
pub(super) const READ: usize = 16 * 1024;

/// The most bytes without a newline. More is an error.
const MAX_UNREAD: usize = 64 * 1024;

/// The launcher stops reading from a rank that leaves this many bytes of answers unread. A rank
/// that waits for each answer, as PMI-1 demands, leaves none.
const MAX_UNTAKEN: usize = 64 * 1024;

/// A rank that leaves this many bytes unread is an error. The commands of one read ask for less.
const MAX_UNSENT: usize = 1 << 20;

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// Some bytes. There may be more.
    Something,
    /// No new bytes.
    Nothing,
    /// The rank closed its end.
    End,
}

/// A socket to a rank, with the part of a line read so far and the answers not yet sent.
#[derive(Debug)]
pub(super) struct RankConnection {
    stream: UnixStream,
    unread: Vec<u8>,
    unsent: Vec<u8>,
}

impl RankConnection {
    pub(super) fn new(stream: UnixStream) -> io::Result<RankConnection> {
        stream.set_nonblocking(true)?;
        Ok(RankConnection {
            stream,
            unread: Vec::new(),
            unsent: Vec::new(),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Returns true if bytes wait for room in the socket.
    pub(super) fn wants_to_send(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns true if the launcher may read from the rank: it has read most of its answers.
    pub(super) fn may_read(&self) -> bool {
        self.unsent.len() <= MAX_UNTAKEN
    }

    /// Reads once, and adds the complete lines to `lines`. A rank that writes without pause costs
    /// no more memory than one read, and delays no other rank.
    ///
    /// The error describes the rank's violation.
    pub(super) fn receive(&mut self, lines: &mut Vec<Vec<u8>>) -> Result<ReadOutcome, String> {
        let mut buffer = [0; READ];
        let count = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(ReadOutcome::End),
                Ok(count) => break count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(ReadOutcome::Nothing),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A reset is the end of a rank that left answers unread.
                Err(_) => return Ok(ReadOutcome::End),
            }
        };
        for piece in buffer[..count].split_inclusive(|&b| b == b'\n') {
            match piece.strip_suffix(b"\n") {
                Some(end) => {
                    self.unread.extend_from_slice(end);
                    lines.push(std::mem::take(&mut self.unread));
                }
                None => self.unread.extend_from_slice(piece),
            }
        }
        if self.unread.len() > MAX_UNREAD {
            return Err(format!("{} bytes without a newline", self.unread.len()));
        }
        Ok(ReadOutcome::Something)
    }

    /// Sends a line, or keeps the part that does not fit for later.
    pub(super) fn send(&mut self, line: &str) -> Result<(), String> {
        self.unsent.extend_from_slice(line.as_bytes());
        self.flush();
        if self.unsent.len() > MAX_UNSENT {
            return Err(format!(
                "it left {} bytes of answers unread",
                self.unsent.len()
            ));
        }
        Ok(())
    }

    /// Sends waiting bytes, as far as there is room.
    pub(super) fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // A dead rank needs no answer. The supervisor sees its end elsewhere.
                Err(_) => self.unsent.clear(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_complete_however_they_are_split() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = RankConnection::new(ours).unwrap();
        let mut lines = Vec::new();
        theirs.write_all(b"one\ntw").unwrap();
        assert_eq!(connection.receive(&mut lines), Ok(ReadOutcome::Something));
        assert_eq!(lines, [b"one"]);
        assert_eq!(connection.receive(&mut lines), Ok(ReadOutcome::Nothing));
        theirs.write_all(b"o\n\nthree").unwrap();
        drop(theirs);
        lines.clear();
        assert_eq!(connection.receive(&mut lines), Ok(ReadOutcome::Something));
        assert_eq!(lines, [&b"two"[..], b""]);
        assert_eq!(connection.receive(&mut lines), Ok(ReadOutcome::End));
    }

    #[test]
    fn a_rank_that_writes_without_pause_is_read_in_pieces() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut connection = RankConnection::new(ours).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = (&theirs).write(&[b'\n'; 4096]) {
            written += count;
        }
        let mut read = 0;
        loop {
            let mut lines = Vec::new();
            if connection.receive(&mut lines) == Ok(ReadOutcome::Nothing) {
                break;
            }
            assert!(lines.len() <= READ, "{} lines at once", lines.len());
            read += lines.len();
        }
        assert_eq!(read, written);
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = RankConnection::new(ours).unwrap();
        let writer = std::thread::spawn(move || theirs.write_all(&vec![b'x'; 2 * MAX_UNREAD]));
        let error = loop {
            if let Err(error) = connection.receive(&mut Vec::new()) {
                break error;
            }
            std::thread::yield_now();
        };
        assert!(error.contains("without a newline"));
        drop(connection);
        let _ = writer.join().unwrap();
    }

    #[test]
    fn answers_wait_for_room_up_to_a_limit() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut connection = RankConnection::new(ours).unwrap();
        let line = "x".repeat(1 << 16);
        let error = (0..1000)
            .find_map(|_| connection.send(&line).err())
            .unwrap();
        assert!(error.contains("unread"), "{error}");
        assert!(connection.wants_to_send());
        drop(theirs);
        connection.flush();
        assert!(!connection.wants_to_send());
    }
}
