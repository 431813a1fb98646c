//! Messages between engines: sending them with their data, and the judgment of their access.

use hydrant_pinning::{
    AccessVerdict, Data, Decisions, Direction, EngineMessage, Error, Refusal, RegionNumber, Use,
    wire::Move,
};

use super::{EngineWorld, WorldEvent, helper::AHEAD, model::KnownOperation};

impl EngineWorld {
    pub(super) fn send(&mut self, from: usize, to: usize, mut message: EngineMessage, data: Data) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert!(bytes.len() <= EngineMessage::MAX_BYTES, "{message:?}");
        match data {
            Data::None => {}
            Data::Own { addr, len } => {
                let known = self.book.known.values().any(|known| {
                    known.direction == Direction::Put
                        && known.rank == from
                        && known.local <= addr
                        && addr + u64::from(len) <= known.local + known.len
                });
                assert!(known, "{len} bytes at {addr:#x} sent for nobody");
                bytes.extend_from_slice(self.ranks[from].memory.bytes(addr, u64::from(len)));
            }
            Data::Asked { addr, len, .. } => {
                match self.ranks[from]
                    .memory
                    .may_peer(addr, u64::from(len), Use::Read)
                {
                    Ok(()) => {
                        let data = self.ranks[from].memory.bytes(addr, u64::from(len));
                        bytes.extend_from_slice(data);
                    }
                    Err(why) => {
                        message.refuse(why);
                        bytes.clear();
                        message.encode(&mut bytes);
                    }
                }
            }
        }
        assert!(
            bytes.len() <= self.plan.config(0).max_payload,
            "{message:?}"
        );
        if !self.ranks[to].lost {
            self.channels
                .entry((from, to))
                .or_default()
                .push_back(bytes);
        }
    }

    pub(crate) fn deliver(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let (message, data) = match EngineMessage::decode(bytes) {
            Ok(decoded) => decoded,
            Err(cause) => {
                assert_eq!(Some(from), self.hostile, "{cause:?}");
                self.offences += 1;
                return;
            }
        };
        self.note(&(from, to, &message));
        let verdict = self.judge(from, to, &message, data);
        let mut out = Decisions::default();
        let engine = &mut self.ranks[to].engine;
        let outcome = engine.message(from as u32, message.clone(), verdict, &mut out);
        if let Err(cause) = outcome {
            let named = matches!(cause, Error::Malformed { peer, .. } if peer == from as u32);
            assert!(
                named && Some(from) == self.hostile,
                "rank {to} about {message:?} of rank {from}: {cause}"
            );
            self.offences += 1;
            if self.strict && !self.ranks[to].knows_lost.contains(&(from as u32)) {
                self.events.push(WorldEvent::Lost {
                    rank: to,
                    who: from as u32,
                });
            }
        }
        self.perform(to, out, data);
    }

    /// Judges a message's access to own memory, and stores the data that it brings.
    fn judge(
        &mut self,
        from: usize,
        rank: usize,
        message: &EngineMessage,
        data: &[u8],
    ) -> AccessVerdict {
        if Some(from) != self.hostile {
            self.check_region(message, rank);
        }
        let memory = &mut self.ranks[rank].memory;
        let may = match message {
            EngineMessage::Move(wanted) => {
                match wanted.needs.iter().all(|need| memory.is_near(need.run)) {
                    true => Ok(()),
                    false => Err(Refusal::NotMapped),
                }
            }
            EngineMessage::Get { from, len, .. } => {
                memory.may_peer(*from, u64::from(*len), Use::Read)
            }
            EngineMessage::Pull { from, to, .. } => {
                let len = to
                    .iter()
                    .map(|place| place.len)
                    .fold(0, u64::saturating_add);
                memory.may_peer(*from, len, Use::Read)
            }
            EngineMessage::Ahead { from, len, .. } => memory.may_peer(*from, *len, Use::Read),
            _ => Ok(()),
        };
        let hostile = Some(from) == self.hostile;
        let may = may.and(match message.goes_to() {
            None => Ok(()),
            // A hostile rank must not spoil memory that other ranks check.
            Some(_) if hostile && !data.is_empty() => Err(Refusal::NotMapped),
            Some((_, to)) => memory.may_peer(to, data.len() as u64, Use::Write),
        });
        if let (Some((_, to)), Ok(())) = (message.goes_to(), may) {
            memory.store(to, data);
        }
        let lasts = match message {
            EngineMessage::Move(wanted) => {
                // The sender means memory that is gone, though other memory lasts in its bucket.
                // That must not be registered.
                let went = |known: &KnownOperation| {
                    (known.rank, known.peer) == (from, rank)
                        && !memory.lasts(known.remote, known.len)
                };
                let mut needs = wanted.needs.iter();
                (self.plan.pages == 1 || !self.book.known.values().any(went))
                    && needs.all(|need| memory.lasts_everywhere(need.run))
            }
            EngineMessage::Pull { from, to, .. } => {
                let len = to.iter().map(|place| place.len);
                memory.lasts(*from, len.fold(0, u64::saturating_add))
            }
            EngineMessage::Ahead { from, len, .. } => memory.lasts(*from, *len),
            _ => true,
        };
        match may {
            Err(why) => AccessVerdict::Refused(why),
            Ok(()) if self.plan.follows || lasts => AccessVerdict::Fine,
            Ok(()) => AccessVerdict::Copy,
        }
    }

    /// Checks that each access to own memory belongs to an operation, and asks for no bucket
    /// without any of its bytes.
    fn check_region(&self, message: &EngineMessage, rank: usize) {
        let geometry = *self.ranks[rank].engine.limits();
        let geometry = geometry.geometry;
        let means = |region: &RegionNumber, addr: u64, len: u64| {
            let known = self.book.known.get(&region.0);
            known.is_some_and(|known| {
                known.peer == rank && known.remote <= addr && addr + len <= known.remote + known.len
            })
        };
        let fine = match message {
            // Foreseen memory belongs to no operation.
            EngineMessage::Move(Move { region, .. }) if *region == AHEAD => true,
            EngineMessage::Move(Move { region, needs, .. }) => {
                let known = self.book.known.get(&region.0);
                let span = known.and_then(|known| geometry.span(known.remote, known.len).ok());
                span.is_some_and(|span| needs.iter().all(|need| span.contains(need.run)))
            }
            EngineMessage::Put {
                region, to, len, ..
            } => means(region, *to, u64::from(*len)),
            EngineMessage::Get {
                region, from, len, ..
            } => means(region, *from, u64::from(*len)),
            EngineMessage::Pull {
                region, from, to, ..
            } => means(region, *from, to.iter().map(|place| place.len).sum()),
            EngineMessage::Ahead { region, from, len } => means(region, *from, *len),
            _ => true,
        };
        assert!(fine, "{message:?} means memory that its operation does not");
    }
}
