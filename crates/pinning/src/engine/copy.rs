//! Copying through messages: bounce buffers (Firehose §3.3; ARMCI §3, pipelined streaming).
//!
//! A put's chunks are copied into messages and out of them at the peer; a get's are asked for
//! one by one. Some are under way at once, so that copying on one side overlaps the wire and
//! copying on the other (ARMCI §3: two buffers fill the pipeline; one more hides the answer).

use super::{Engine, Leg};
use crate::{Action, Data, Message, Refusal, Region};

/// Chunks under way at once.
const WINDOW: u32 = 3;
/// Smaller chunks cost more in messages than they save in overlap (ARMCI §3: from 2 KB up).
const LEAST: u64 = 2 << 10;

/// How far the copying of a piece is.
#[derive(Debug, Default)]
pub(super) struct Copy {
    /// Bytes of a chunk; none while the piece is not copied.
    chunk: u64,
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

impl Engine {
    /// Gives up on registering for a piece, and copies it.
    pub(super) fn copy_instead(&mut self, id: u64, out: &mut Vec<Action>) {
        self.stats.refused += 1;
        self.let_go(id, out);
        self.start_copy(id, out);
    }

    pub(super) fn start_copy(&mut self, id: u64, out: &mut Vec<Action>) {
        self.stats.copies += 1;
        let most = self.most_of_a_chunk();
        self.with_piece(id, |piece| piece.copy.chunk = chunk(piece.len, most));
        self.copy_on(id, out);
    }

    /// Most bytes of data beside a message in the payload.
    fn most_of_a_chunk(&self) -> u64 {
        let most = self.config.max_payload.saturating_sub(Message::CHUNK_BYTES);
        most.clamp(1, u32::MAX as usize) as u64
    }

    fn copy_on(&mut self, id: u64, out: &mut Vec<Action>) {
        while let Some(piece) = self.pieces.get(&id)
            && piece.copy.under_way < WINDOW
            && piece.copy.next < piece.len
            && piece.failed.is_none()
        {
            let (peer, put, region) = (piece.peer, piece.put, piece.region);
            let at = piece.copy.next;
            let (addr, remote) = (piece.local + at, piece.remote + at);
            let len = piece.copy.chunk.min(piece.len - at) as u32;
            let leg = self.name();
            self.legs.insert(leg, Leg::Chunk { piece: id, at });
            self.with_piece(id, |piece| {
                piece.copy.next += u64::from(len);
                piece.copy.under_way += 1;
                piece.legs += 1;
            });
            let (message, data) = if put {
                let message = Message::Put {
                    id: leg,
                    region,
                    to: remote,
                    len,
                };
                (message, Data::Own { addr, len })
            } else {
                let message = Message::Get {
                    id: leg,
                    region,
                    from: remote,
                    len,
                };
                (message, Data::None)
            };
            self.send_with(peer, message, data, out);
        }
    }

    pub(super) fn stored(
        &mut self,
        from: u32,
        leg: u64,
        refused: Option<Refusal>,
        out: &mut Vec<Action>,
    ) -> Result<(), &'static str> {
        const WRONG: &str = "the end of a put that was not made";
        let (id, _) = self.chunk_of(from, leg, true).ok_or(WRONG)?;
        self.chunk_done(id, leg, refused, out);
        Ok(())
    }

    pub(super) fn fetched(
        &mut self,
        from: u32,
        leg: u64,
        refused: Option<Refusal>,
        len: u32,
        out: &mut Vec<Action>,
    ) -> Result<(), &'static str> {
        const WRONG: &str = "data that was not asked for";
        let (id, at) = self.chunk_of(from, leg, false).ok_or(WRONG)?;
        let piece = self.pieces.get(&id).ok_or(WRONG)?;
        let wanted = piece.copy.chunk.min(piece.len.saturating_sub(at));
        if refused.is_none() {
            if u64::from(len) != wanted {
                return Err("data of another length than asked for");
            }
            let to = piece.local + at;
            out.push(Action::Land { to, len });
        }
        self.chunk_done(id, leg, refused, out);
        Ok(())
    }

    /// The piece of a chunk that a peer's message names, and where in it.
    fn chunk_of(&self, from: u32, leg: u64, put: bool) -> Option<(u64, u64)> {
        match self.leg_of(from, leg)? {
            Leg::Chunk { piece, at } if self.pieces.get(&piece)?.put == put => Some((piece, at)),
            _ => None,
        }
    }

    fn chunk_done(&mut self, id: u64, leg: u64, refused: Option<Refusal>, out: &mut Vec<Action>) {
        self.legs.remove(&leg);
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
        self.copy_on(id, out);
        self.leg_done(id, Ok(()), out);
    }

    /// Answers with a copy of own memory.
    pub(super) fn serve_get(
        &mut self,
        from: u32,
        id: u64,
        (region, addr, len): (Region, u64, u32),
        verdict: Option<Refusal>,
        out: &mut Vec<Action>,
    ) {
        let too_long = u64::from(len) > self.most_of_a_chunk();
        let nowhere = self.limits.geometry.span(addr, u64::from(len)).is_err();
        let refused = verdict
            .or(too_long.then_some(Refusal::Exhausted))
            .or(nowhere.then_some(Refusal::NotMapped));
        let (len, data) = match refused {
            Some(_) => (0, Data::None),
            None => (len, Data::Asked { region, addr, len }),
        };
        self.send_with(from, Message::Fetched { id, refused, len }, data, out);
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
