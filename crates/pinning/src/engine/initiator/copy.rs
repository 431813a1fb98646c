//! Copies through messages: bounce buffers (Firehose §3.3; ARMCI §3, pipelined streaming).
//!
//! A put's chunks are copied into messages and out of them at the peer. A get's chunks are asked
//! for one by one. Several chunks are in flight at once, so that copying on one side overlaps the
//! wire and copying on the other side. Two buffers fill the pipeline (ARMCI §3), one more hides the
//! answer, and short chunks take as many as hide it.

use super::{Data, Initiator, StepContext, TransferKind};
use crate::engine::choice::PieceRoute;
use crate::{Action, Direction, EngineMessage, Refusal, Violation};

/// The chunks in flight at once, at least and at most.
const WINDOW: (u64, u64) = (3, 16);
/// The bytes of short chunks in flight together, which fill the round trip of the messages.
const IN_FLIGHT: u64 = 64 << 10;
/// Smaller chunks cost more in messages than they save in overlap (ARMCI §3: from 2 KB up).
const LEAST: u64 = 2 << 10;

/// The progress of a piece's copy.
#[derive(Debug, Default)]
pub(super) struct CopyProgress {
    /// The bytes of a chunk; zero while the piece is not copied.
    chunk: u64,
    /// The most chunks in flight at once.
    window: u32,
    next: u64,
    in_flight: u32,
}

/// The length of a chunk: a quarter of the piece, so that the pipeline is filled, within the
/// payload of a message.
fn chunk(len: u64, most: u64) -> u64 {
    if len <= LEAST {
        return len.min(most);
    }
    (len / 4)
        .next_power_of_two()
        .clamp(LEAST, most.max(LEAST))
        .min(most)
}

/// The length of the chunk that begins at `at` in a piece. The first chunks are shorter, so that
/// the network starts soon (ARMCI §3, "rebalancing the size and ordering chunks").
fn length(chunk: u64, at: u64, left: u64) -> u64 {
    let begins = match at {
        0 => chunk / 4,
        at if at < chunk / 2 => chunk / 2,
        _ => chunk,
    };
    begins.max(LEAST.min(chunk)).min(left)
}

/// The number of chunks in flight at once.
fn window(chunk: u64, len: u64) -> u32 {
    if len <= chunk {
        1
    } else {
        IN_FLIGHT.div_ceil(chunk).clamp(WINDOW.0, WINDOW.1) as u32
    }
}

impl Initiator {
    /// Copies a piece that could not be registered.
    pub(super) fn copy_instead(&mut self, id: u64, cx: &mut StepContext<'_>) {
        self.stats.refused += 1;
        // The piece took two routes.
        self.end_trial(id, false);
        self.release_sides(id, cx);
        self.start_copy(id, cx);
    }

    pub(super) fn start_copy(&mut self, id: u64, cx: &mut StepContext<'_>) {
        self.stats.copies += 1;
        self.set_route(id, PieceRoute::Copied);
        let most = cx.common.most_of_a_chunk();
        self.with_piece(id, |piece| {
            // Its head is in flight, or was copied already.
            piece.copy.next = piece.head;
            piece.copy.chunk = chunk(piece.len, most);
            piece.copy.window = window(piece.copy.chunk, piece.len);
        });
        self.send_chunks(id, cx);
    }

    fn send_chunks(&mut self, id: u64, cx: &mut StepContext<'_>) {
        while let Some(piece) = self.pieces.get(&id)
            && piece.copy.in_flight < piece.copy.window
            && piece.copy.next < piece.len
            && piece.failed.is_none()
        {
            let (peer, direction, region) = (piece.peer, piece.direction, piece.region);
            let at = piece.copy.next;
            let (addr, remote) = (piece.local + at, piece.remote + at);
            let len = length(piece.copy.chunk, at, piece.len - at) as u32;
            let transfer = cx.name();
            self.transfers
                .insert(transfer, TransferKind::Chunk { piece: id, at });
            self.with_piece(id, |piece| {
                piece.copy.next += u64::from(len);
                piece.copy.in_flight += 1;
                piece.transfers += 1;
            });
            let (message, data) = if direction == Direction::Put {
                let message = EngineMessage::Put {
                    id: transfer,
                    region,
                    to: remote,
                    len,
                };
                (message, Data::Own { addr, len })
            } else {
                let message = EngineMessage::Get {
                    id: transfer,
                    region,
                    from: remote,
                    len,
                };
                (message, Data::None)
            };
            let last_of = self.is_last_read(id);
            cx.send_last_of(last_of, peer, message, data);
        }
    }

    /// The put that this piece's last chunk completes locally, if all its data is sent. A chunk is
    /// sent once, and if the peer refuses it the put fails.
    fn is_last_read(&self, id: u64) -> Option<u64> {
        let piece = self.pieces.get(&id)?;
        let is_last = piece.direction == Direction::Put
            && piece.copy.next == piece.len
            && self.ops.get(&piece.op)?.is_last_piece();
        is_last.then_some(piece.op)
    }

    pub(in crate::engine) fn on_stored(
        &mut self,
        from: u32,
        transfer: u64,
        refused: Option<Refusal>,
        cx: &mut StepContext<'_>,
    ) -> Result<(), Violation> {
        let (id, _) = self
            .chunk_of(from, transfer, Direction::Put)
            .ok_or(Violation::StoredUnasked)?;
        self.chunk_done(id, transfer, refused, cx);
        Ok(())
    }

    pub(in crate::engine) fn on_fetched(
        &mut self,
        from: u32,
        transfer: u64,
        refused: Option<Refusal>,
        len: u32,
        cx: &mut StepContext<'_>,
    ) -> Result<(), Violation> {
        let (id, at) = self
            .chunk_of(from, transfer, Direction::Get)
            .ok_or(Violation::FetchedUnasked)?;
        let piece = self.pieces.get(&id).ok_or(Violation::FetchedUnasked)?;
        let wanted = length(piece.copy.chunk, at, piece.len.saturating_sub(at));
        if refused.is_none() {
            if u64::from(len) != wanted {
                return Err(Violation::DataLength);
            }
            let to = piece.local + at;
            cx.out.actions.push(Action::Land { to, len });
        }
        self.chunk_done(id, transfer, refused, cx);
        Ok(())
    }

    /// The piece of a chunk that a peer's message names, and the chunk's place in it.
    fn chunk_of(&self, from: u32, transfer: u64, direction: Direction) -> Option<(u64, u64)> {
        match self.transfer_of(from, transfer)? {
            TransferKind::Chunk { piece, at }
                if self.pieces.get(&piece)?.direction == direction =>
            {
                Some((piece, at))
            }
            _ => None,
        }
    }

    fn chunk_done(
        &mut self,
        id: u64,
        transfer: u64,
        refused: Option<Refusal>,
        cx: &mut StepContext<'_>,
    ) {
        self.transfers.remove(&transfer);
        self.with_piece(id, |piece| {
            piece.copy.in_flight = piece.copy.in_flight.saturating_sub(1);
            if let Some(why) = refused {
                piece.failed.get_or_insert(crate::Error::Unreachable {
                    rank: piece.peer,
                    addr: piece.remote,
                    len: piece.len,
                    why,
                });
            }
        });
        self.send_chunks(id, cx);
        self.transfer_done(id, Ok(()), cx);
    }
}

#[cfg(test)]
mod tests {
    use super::chunk;

    #[test]
    fn chunks_fit_the_message_and_fill_the_pipeline() {
        assert_eq!(chunk(8, 1000), 8);
        assert_eq!(chunk(5000, 1000), 1000);
        assert_eq!(chunk(4096, 65536), 2048);
        assert_eq!(chunk(1 << 20, 65536), 65536);
        assert_eq!(chunk(40_000, 65536), 16384);
    }
}
