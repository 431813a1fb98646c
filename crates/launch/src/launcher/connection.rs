//! The launcher's end of the socket to a rank.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// More than this without a newline is no command.
const MAX_UNREAD: usize = 64 * 1024;

/// A rank that lets this much of its answers lie does not read them.
const MAX_UNSENT: usize = 4 << 20;

/// A socket to a rank, with what is read of a line and what is not sent of the answers.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    unread: Vec<u8>,
    unsent: Vec<u8>,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            unread: Vec::new(),
            unsent: Vec::new(),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether something waits for room in the socket.
    pub(super) fn wants_to_send(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Reads what there is, and adds the lines that are whole to `lines`.
    ///
    /// False when the rank closed its end; an error is what the rank did wrong.
    pub(super) fn receive(&mut self, lines: &mut Vec<Vec<u8>>) -> Result<bool, String> {
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(n) => self.unread.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // A reset is the end of a rank that left answers unread.
                Err(_) => return Ok(false),
            }
            let whole = self
                .unread
                .iter()
                .rposition(|&b| b == b'\n')
                .map_or(0, |end| end + 1);
            let rest = self.unread.split_off(whole);
            lines.extend(
                self.unread
                    .split_inclusive(|&b| b == b'\n')
                    .map(|l| l[..l.len() - 1].to_vec()),
            );
            self.unread = rest;
            if self.unread.len() > MAX_UNREAD {
                return Err(format!("{} bytes without a newline", self.unread.len()));
            }
        }
    }

    /// Sends a line, or keeps what does not fit for later.
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

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // A rank that is gone needs no answer; its end is seen elsewhere.
                Err(_) => self.unsent.clear(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_however_they_come_in() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(ours).unwrap();
        let mut lines = Vec::new();
        theirs.write_all(b"one\ntw").unwrap();
        assert!(connection.receive(&mut lines).unwrap());
        assert_eq!(lines, [b"one"]);
        theirs.write_all(b"o\n\nthree").unwrap();
        drop(theirs);
        lines.clear();
        assert!(!connection.receive(&mut lines).unwrap());
        assert_eq!(lines, [&b"two"[..], b""]);
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(ours).unwrap();
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
        let mut connection = Connection::new(ours).unwrap();
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
