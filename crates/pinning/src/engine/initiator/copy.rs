//! Copying through messages: bounce buffers (Firehose §3.3; ARMCI §3, pipelined streaming).
//!
//! A put's chunks are copied into messages and out of them at the peer; a get's are asked for
//! one by one. Some are under way at once, so that copying on one side overlaps the wire and
//! copying on the other (ARMCI §3: two buffers fill the pipeline; one more hides the answer, and of
//! short ones as many as hide it).

use super::{Data, Initiator, StepContext, Transfer};
use crate::engine::choice::PieceRoute;
use crate::{Action, Direction, Message, Refusal, Violation};

/// Chunks under way at once, at least and at most.
const WINDOW: (u64, u64) = (3, 16);
/// Bytes of them together where chunks are so short that the messages' way there and back is longer.
const UNDER_WAY: u64 = 64 << 10;
/// Smaller chunks cost more in messages than they save in overlap (ARMCI §3: from 2 KB up).
const LEAST: u64 = 2 << 10;

/// How far the copying of a piece is.
#[derive(Debug, Default)]
pub(super) struct Copy {
    /// Bytes of a chunk; none while the piece is not copied.
    chunk: u64,
    /// Most chunks under way at once.
    window: u32,
    next: u64,
    under_way: u32,
}

/// A chunk is a quarter of the piece, so that the pipeline has something to fill it, within
/// what a message holds.
fn chunk(len: u64, most: u64) -> u64 {
    if len <= LEAST {
        return len.min(most);
    }
    (len / 4)
        .next_power_of_two()
        .clamp(LEAST, most.max(LEAST))
        .min(most)
}

/// Bytes of the chunk that begins so far in a piece: the first ones are shorter, so that the network has
/// something soon (ARMCI §3, "rebalancing the size and ordering chunks").
fn length(chunk: u64, at: u64, left: u64) -> u64 {
    let begins = match at {
        0 => chunk / 4,
        at if at < chunk / 2 => chunk / 2,
        _ => chunk,
    };
    begins.max(LEAST.min(chunk)).min(left)
}

/// Chunks under way at once.
fn window(chunk: u64, len: u64) -> u32 {
    match len <= chunk {
        true => 1,
        false => UNDER_WAY.div_ceil(chunk).clamp(WINDOW.0, WINDOW.1) as u32,
    }
}

impl Initiator {
    /// Gives up on registering for a piece, and copies it.
    pub(super) fn copy_instead(&mut self, id: u64, cx: &mut StepContext<'_>) {
        self.stats.refused += 1;
        // It took both ways.
        self.tried(id, false);
        self.let_go(id, cx);
        self.start_copy(id, cx);
    }

    pub(super) fn start_copy(&mut self, id: u64, cx: &mut StepContext<'_>) {
        self.stats.copies += 1;
        self.goes(id, PieceRoute::Copied);
        let most = cx.common.most_of_a_chunk();
        self.with_piece(id, |piece| {
            // Its head is on its way, or there.
            piece.copy.next = piece.head;
            piece.copy.chunk = chunk(piece.len, most);
            piece.copy.window = window(piece.copy.chunk, piece.len);
        });
        self.copy_on(id, cx);
    }

    fn copy_on(&mut self, id: u64, cx: &mut StepContext<'_>) {
        while let Some(piece) = self.pieces.get(&id)
            && piece.copy.under_way < piece.copy.window
            && piece.copy.next < piece.len
            && piece.failed.is_none()
        {
            let (peer, direction, region) = (piece.peer, piece.direction, piece.region);
            let at = piece.copy.next;
            let (addr, remote) = (piece.local + at, piece.remote + at);
            let len = length(piece.copy.chunk, at, piece.len - at) as u32;
            let transfer = cx.name();
            self.transfers
                .insert(transfer, Transfer::Chunk { piece: id, at });
            self.with_piece(id, |piece| {
                piece.copy.next += u64::from(len);
                piece.copy.under_way += 1;
                piece.transfers += 1;
            });
            let (message, data) = if direction == Direction::Put {
                let message = Message::Put {
                    id: transfer,
                    region,
                    to: remote,
                    len,
                };
                (message, Data::Own { addr, len })
            } else {
                let message = Message::Get {
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

    /// The put of which nothing is read any more but what was sent, if this piece's was the last of it:
    /// a chunk is sent once, and if the peer refuses it the put fails.
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

    /// The piece of a chunk that a peer's message names, and where in it.
    fn chunk_of(&self, from: u32, transfer: u64, direction: Direction) -> Option<(u64, u64)> {
        match self.transfer_of(from, transfer)? {
            Transfer::Chunk { piece, at } if self.pieces.get(&piece)?.direction == direction => {
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
            piece.copy.under_way = piece.copy.under_way.saturating_sub(1);
            if let Some(why) = refused {
                piece.failed.get_or_insert(crate::Error::Unreachable {
                    rank: piece.peer,
                    addr: piece.remote,
                    len: piece.len,
                    why,
                });
            }
        });
        self.copy_on(id, cx);
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
