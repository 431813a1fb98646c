//! The requests of one rank to the NIC of another: a queue in shared memory for each ordered pair.
//!
//! A request is one cache line, and its answer comes back in the same line. The word `turn` tells
//! which side owns the line. For request `n` it is `2n + 1` once requested, and `2n + 2` once
//! answered. The initiator reuses a line only after it read the answer. So neither side ever writes
//! to a line that the other side owns.

#![allow(unsafe_code)] // declares a type shareable

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use hydrant_smp::upon::{CopyDirection, Shareable};

/// Most requests in flight between two ranks.
pub(crate) const REQUESTS: usize = 32;

/// Bytes of a queue.
pub(crate) const BYTES: usize = size_of::<AccessQueue>();

/// The queue of one ordered pair of ranks.
#[repr(C, align(64))]
pub(crate) struct AccessQueue {
    /// Non-zero while the initiator has more to request than there was room for.
    pub(crate) more: AtomicU64,
    _spare: [AtomicU64; 7],
    lines: [QueueLine; REQUESTS],
}

// SAFETY: a struct of atomic integers, for which any bits are valid.
unsafe impl Shareable for AccessQueue {}

#[repr(C, align(64))]
struct QueueLine {
    turn: AtomicU64,
    /// The direction, a mark of the operation's last piece, and the bytes of the piece.
    bits: AtomicU64,
    key: AtomicU64,
    offset: AtomicU64,
    len: AtomicU64,
    at: AtomicU64,
    status: AtomicU64,
    /// The extent's length or the descriptor limit that belongs to the status.
    extent: AtomicU64,
}

/// A piece of an operation, as requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AccessPiece {
    pub(crate) way: CopyDirection,
    /// True for the operation's last piece.
    pub(crate) last: bool,
    /// The key of the extent at the NIC's side.
    pub(crate) key: u64,
    /// The address at which the whole operation begins. Keys are checked for all of the operation,
    /// so that a refused operation changes nothing.
    pub(crate) offset: u64,
    /// The length of the whole operation.
    pub(crate) len: u64,
    /// The offset of the piece in the operation.
    pub(crate) at: u64,
    pub(crate) bytes: usize,
}

/// The outcome of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PieceAnswer {
    Done,
    Revoked,
    /// Carries the length of the extent.
    OutOfExtent(u64),
    BadAddress,
    /// The NIC itself failed.
    Broken,
    /// The NIC could not take its ends of the pipes, because its process reached its limit on
    /// descriptors. Carries the limit.
    NoDescriptors(u64),
}

const READ: u64 = 1;
const LAST: u64 = 2;
const BYTES_SHIFT: u32 = 8;

impl AccessQueue {
    fn line(&self, n: u64) -> &QueueLine {
        &self.lines[(n % REQUESTS as u64) as usize]
    }

    /// Requests piece `n`. The answer to piece `n - REQUESTS` was read before.
    pub(crate) fn request(&self, n: u64, piece: &AccessPiece) {
        let line = self.line(n);
        let way = if piece.way == CopyDirection::In {
            READ
        } else {
            0
        };
        let last = if piece.last { LAST } else { 0 };
        line.bits
            .store(way | last | (piece.bytes as u64) << BYTES_SHIFT, Relaxed);
        line.key.store(piece.key, Relaxed);
        line.offset.store(piece.offset, Relaxed);
        line.len.store(piece.len, Relaxed);
        line.at.store(piece.at, Relaxed);
        line.turn.store(2 * n + 1, Release);
    }

    /// Returns whether piece `n` was requested.
    #[inline]
    pub(crate) fn is_requested(&self, n: u64) -> bool {
        self.line(n).turn.load(Acquire) == 2 * n + 1
    }

    /// Returns piece `n` once it was requested. Returns `Err` if the request is malformed.
    pub(crate) fn read_request(&self, n: u64, most: usize) -> Option<Result<AccessPiece, ()>> {
        if !self.is_requested(n) {
            return None;
        }
        let line = self.line(n);
        let bits = line.bits.load(Relaxed);
        let piece = AccessPiece {
            way: if bits & READ != 0 {
                CopyDirection::In
            } else {
                CopyDirection::Out
            },
            last: bits & LAST != 0,
            key: line.key.load(Relaxed),
            offset: line.offset.load(Relaxed),
            len: line.len.load(Relaxed),
            at: line.at.load(Relaxed),
            bytes: (bits >> BYTES_SHIFT) as usize,
        };
        let fits = piece.bytes <= most
            && (piece.at.checked_add(piece.bytes as u64)).is_some_and(|end| end <= piece.len);
        Some(if fits { Ok(piece) } else { Err(()) })
    }

    /// Answers piece `n`.
    pub(crate) fn answer(&self, n: u64, answer: PieceAnswer) {
        let (status, extent) = match answer {
            PieceAnswer::Done => (0, 0),
            PieceAnswer::Revoked => (1, 0),
            PieceAnswer::OutOfExtent(extent) => (2, extent),
            PieceAnswer::BadAddress => (3, 0),
            PieceAnswer::Broken => (4, 0),
            PieceAnswer::NoDescriptors(limit) => (5, limit),
        };
        let line = self.line(n);
        line.status.store(status, Relaxed);
        line.extent.store(extent, Relaxed);
        line.turn.store(2 * n + 2, Release);
    }

    /// Returns whether piece `n` was answered.
    #[inline]
    pub(crate) fn is_answered(&self, n: u64) -> bool {
        self.line(n).turn.load(Acquire) == 2 * n + 2
    }

    /// Returns the outcome of piece `n` once it was answered.
    pub(crate) fn read_answer(&self, n: u64) -> Option<PieceAnswer> {
        if !self.is_answered(n) {
            return None;
        }
        let line = self.line(n);
        Some(match line.status.load(Relaxed) {
            0 => PieceAnswer::Done,
            1 => PieceAnswer::Revoked,
            2 => PieceAnswer::OutOfExtent(line.extent.load(Relaxed)),
            3 => PieceAnswer::BadAddress,
            5 => PieceAnswer::NoDescriptors(line.extent.load(Relaxed)),
            _ => PieceAnswer::Broken,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty queue, as it is in the shared file at first.
    fn queue() -> AccessQueue {
        let zero = || AtomicU64::new(0);
        AccessQueue {
            more: zero(),
            _spare: std::array::from_fn(|_| zero()),
            lines: std::array::from_fn(|_| QueueLine {
                turn: zero(),
                bits: zero(),
                key: zero(),
                offset: zero(),
                len: zero(),
                at: zero(),
                status: zero(),
                extent: zero(),
            }),
        }
    }

    #[test]
    fn pieces_and_answers_arrive_as_sent() {
        let queue = queue();
        let answers = [
            PieceAnswer::Done,
            PieceAnswer::Revoked,
            PieceAnswer::OutOfExtent(77),
            PieceAnswer::BadAddress,
            PieceAnswer::Broken,
            PieceAnswer::NoDescriptors(1024),
        ];
        for n in 0..200 {
            let piece = AccessPiece {
                way: if n % 3 == 0 {
                    CopyDirection::In
                } else {
                    CopyDirection::Out
                },
                last: n % 2 == 0,
                key: n << 32 | 5,
                offset: u64::MAX - n,
                len: 1 << 40,
                at: n * 4096,
                bytes: 65536 - n as usize,
            };
            assert_eq!(queue.read_request(n, 65536), None);
            queue.request(n, &piece);
            assert_eq!(queue.read_request(n, 65536), Some(Ok(piece)));
            assert_eq!(queue.read_answer(n), None);
            let answer = answers[n as usize % answers.len()];
            queue.answer(n, answer);
            assert_eq!(
                queue.read_request(n, 65536),
                None,
                "an answered piece is not requested"
            );
            assert_eq!(queue.read_answer(n), Some(answer));
        }
    }

    #[test]
    fn malformed_requests_are_recognised() {
        let queue = queue();
        let piece = AccessPiece {
            way: CopyDirection::Out,
            last: true,
            key: 1,
            offset: 0,
            len: 100,
            at: 90,
            bytes: 10,
        };
        for (n, bad) in [
            AccessPiece { bytes: 11, ..piece },
            AccessPiece {
                at: u64::MAX,
                ..piece
            },
            AccessPiece {
                len: 9000,
                at: 0,
                bytes: 8193,
                ..piece
            },
        ]
        .into_iter()
        .enumerate()
        {
            queue.request(n as u64, &bad);
            assert_eq!(queue.read_request(n as u64, 8192), Some(Err(())), "{bad:?}");
        }
    }
}
