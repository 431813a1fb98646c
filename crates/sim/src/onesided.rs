//! One-sided writes and reads, which NICs carry out without the host.

use hydrant_conduit::{Error, Key, Rank, Remote, Ticket};
use hydrant_pinning::Use;

use crate::{
    event::SimEvent,
    memory::Place,
    pair::InboxItem,
    registry::KeyRefusal,
    state::{RankState, SimShared, SimState},
    transfer::{NicTransfer, OneSided, Payload},
    turns::News,
};

impl SimState {
    /// Page faults of the sender's NIC on the source of a transfer.
    pub(crate) fn source_faults(&mut self, fixed: &SimShared, id: u64) -> usize {
        let Some(transfer) = self.transfers.get(&id) else {
            return 0;
        };
        let place = match &transfer.payload {
            Payload::Write(op) if op.local_key == Key::ANY => Some(op.local),
            Payload::ReadResponse(op) => op.anywhere,
            _ => None,
        };
        let from = transfer.from;
        place.map_or(0, |place| self.touch_pages(fixed, from, place))
    }

    fn touch_pages(&mut self, fixed: &SimShared, rank: usize, place: Place) -> usize {
        let rank = &mut self.ranks[rank];
        let faults = rank.pages.touch(place, fixed.profile.nic().page_table);
        rank.statistics.page_faults += faults as u64;
        faults
    }

    /// The NIC has read the whole source of a write.
    pub(crate) fn complete_locally(&mut self, id: u64) {
        let Some(transfer) = self.transfers.get_mut(&id) else {
            return;
        };
        let from = transfer.from;
        if let Payload::Write(op) = &mut transfer.payload {
            op.outcome = self.ranks[from].still_open(from, op.local_key);
        }
        self.ranks[from]
            .inbox
            .push_back(InboxItem::Local(Ticket(id)));
        self.notify(from, News::Complete);
    }

    /// A transfer is complete at its receiver's NIC.
    pub(crate) fn land(&mut self, fixed: &SimShared, id: u64) {
        if self.page_in(fixed, id) {
            return;
        }
        let Some(transfer) = self.transfers.get(&id) else {
            return; // one of its ranks ended
        };
        let is_message = matches!(transfer.payload, Payload::Request(_) | Payload::Reply(_));
        if self.ranks[transfer.to].over.is_some() && !is_message {
            return; // no NIC answers; the news of the rank's end completes the operation
        }
        let Some(transfer) = self.transfers.remove(&id) else {
            return;
        };
        let NicTransfer { from, to, .. } = transfer;
        match transfer.payload {
            Payload::Request(message) => self.request_arrived(fixed, from, to, message),
            Payload::Reply(message) => self.reply_arrived(from, to, message),
            Payload::Write(mut op) => {
                if !fixed.profile.nic().early_local {
                    // Until now the sender's NIC might have had to read the source again.
                    op.outcome = self.ranks[from].still_open(from, op.local_key);
                }
                if op.outcome.is_ok() {
                    op.outcome = self
                        .remote_place(to, &op, Use::Write)
                        .and_then(|place| store(fixed, to, place, &op.data, Self::rank_of(to)));
                    self.notify(to, News::Memory);
                }
                self.answer_later(
                    fixed,
                    id,
                    NicTransfer {
                        payload: Payload::Write(op),
                        ..transfer
                    },
                );
            }
            Payload::ReadRequest(mut op) => {
                let len = op.local.len as usize;
                let mut data = vec![0; len];
                op.outcome = (self.remote_place(to, &op, Use::Read))
                    .and_then(|place| load(fixed, to, place, &mut data, Self::rank_of(to)));
                if op.outcome.is_err() {
                    data.clear();
                }
                op.data = data.into();
                op.paged = false;
                let back = NicTransfer {
                    from: to,
                    to: from,
                    bytes: op.data.len(),
                    payload: Payload::ReadResponse(op),
                };
                self.transfers.insert(id, back);
                self.launch(fixed, id);
            }
            Payload::ReadResponse(op) => {
                let own = Self::rank_of(to);
                let outcome = op.outcome.and_then(|()| {
                    self.ranks[to].still_open(to, op.local_key)?;
                    store(fixed, to, op.local, &op.data, own)
                });
                self.complete(to, id, outcome);
            }
        }
    }

    /// Pages in the destination, where the NIC pages. Returns true if that takes time; the transfer
    /// then lands again later.
    fn page_in(&mut self, fixed: &SimShared, id: u64) -> bool {
        let Some(transfer) = self.transfers.get_mut(&id) else {
            return false;
        };
        let to = transfer.to;
        let place = match &mut transfer.payload {
            Payload::Write(op) if !op.paged => {
                op.paged = true;
                op.anywhere
            }
            Payload::ReadResponse(op) if !op.paged && op.local_key == Key::ANY => {
                op.paged = true;
                Some(op.local)
            }
            _ => None,
        };
        let faults = place.map_or(0, |place| self.touch_pages(fixed, to, place));
        if faults > 0 {
            let time = self.now + fixed.profile.nic().page_fault.times(faults);
            self.events.at(time, SimEvent::Landed(id));
        }
        faults > 0
    }

    /// The memory of `owner` that an operation accesses.
    fn remote_place(&self, owner: usize, op: &OneSided, used: Use) -> Result<Place, Error> {
        let peer = Self::rank_of(owner);
        if self.ranks[owner].over.is_some() {
            return Err(Error::PeerLost(peer));
        }
        if let Some(place) = op.anywhere {
            return Ok(place);
        }
        let (Remote { key, offset }, len) = (op.remote, op.local.len);
        (self.ranks[owner].registry.open(key.0, offset, len, used))
            .map_err(|refused| refused.error(peer, key, offset, len))
    }

    /// The target's NIC sends the outcome of a write back to the initiator's NIC.
    fn answer_later(&mut self, fixed: &SimShared, id: u64, transfer: NicTransfer) {
        let profile = &fixed.profile;
        let time = self.now + profile.nic().ack.0 + profile.link().latency.0;
        self.transfers.insert(id, transfer);
        self.events.at(time, SimEvent::Acked(id));
    }

    /// The initiator of a write learns its outcome.
    pub(crate) fn acked(&mut self, id: u64) {
        if let Some(transfer) = self.transfers.remove(&id)
            && let Payload::Write(op) = transfer.payload
        {
            self.complete(transfer.from, id, op.outcome);
        }
    }

    fn complete(&mut self, rank: usize, id: u64, outcome: Result<(), Error>) {
        (self.ranks[rank].inbox).push_back(InboxItem::Complete(Ticket(id), outcome));
        self.notify(rank, News::Complete);
    }

    /// True if a transfer of this rank is in flight to a rank that takes part.
    pub(crate) fn has_in_flight(&self, rank: usize) -> bool {
        let has_in_flight = |transfer: &NicTransfer| {
            transfer.from == rank
                && self.ranks[transfer.to].over.is_none()
                && !matches!(transfer.payload, Payload::ReadRequest(_))
        };
        self.transfers.values().any(has_in_flight)
    }

    /// Ends the transfers from and to a rank that is over.
    pub(crate) fn end_transfers(&mut self, rank: usize) {
        let mut ids: Vec<u64> = (self.transfers.iter())
            .filter(|(_, transfer)| transfer.from == rank || transfer.to == rank)
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        for id in ids {
            let Some(transfer) = self.transfers.get(&id) else {
                continue;
            };
            let lost = Error::PeerLost(Self::rank_of(rank));
            match transfer.payload {
                // Messages that the rank sent before its end are still delivered.
                Payload::Request(_) | Payload::Reply(_) if transfer.from == rank => continue,
                Payload::Request(_) => self.return_token(transfer.from),
                Payload::Reply(_) => {}
                // The data of the rank's own writes has left; no completion comes back.
                Payload::Write(_) if transfer.from == rank && transfer.to != rank => continue,
                // The initiator always gets a completion, even if it is the ended rank itself: its
                // handle may outlive the job and waits for nothing else.
                Payload::Write(_) | Payload::ReadRequest(_) => {
                    self.complete(transfer.from, id, Err(lost))
                }
                Payload::ReadResponse(_) => self.complete(transfer.to, id, Err(lost)),
            }
            self.transfers.remove(&id);
        }
    }
}

impl RankState {
    /// Fails if an operation's local registration was removed before its NIC was done.
    fn still_open(&self, rank: usize, key: Key) -> Result<(), Error> {
        let open = key == Key::ANY || self.registry.get(key.0).is_some();
        open.then_some(()).ok_or(Error::Revoked {
            peer: SimState::rank_of(rank),
            key: key.0,
        })
    }
}

impl KeyRefusal {
    pub(crate) fn error(self, peer: Rank, key: Key, offset: u64, len: u64) -> Error {
        match self {
            KeyRefusal::Revoked => Error::Revoked { peer, key: key.0 },
            KeyRefusal::Outside(extent) => Error::OutOfExtent {
                peer,
                offset,
                len,
                extent,
            },
            KeyRefusal::ReadOnly => Error::BadAddress {
                peer,
                addr: offset,
                len,
            },
        }
    }
}

/// The offset of a place in a rank's segment, if it lies there.
fn in_segment(fixed: &SimShared, rank: usize, place: Place) -> Option<usize> {
    let window = &fixed.segments[rank].window;
    let offset = place.addr.checked_sub(window.addr() as u64)?;
    let end = offset.checked_add(place.len)?;
    (end <= window.len() as u64).then_some(offset as usize)
}

pub(crate) fn store(
    fixed: &SimShared,
    rank: usize,
    place: Place,
    data: &[u8],
    peer: Rank,
) -> Result<(), Error> {
    let stored = match in_segment(fixed, rank, place) {
        Some(offset) => fixed.segments[rank].window.write(offset, data).is_ok(),
        None => data.is_empty() || place.store(data),
    };
    stored.then_some(()).ok_or(Error::BadAddress {
        peer,
        addr: place.addr,
        len: place.len,
    })
}

pub(crate) fn load(
    fixed: &SimShared,
    rank: usize,
    place: Place,
    data: &mut [u8],
    peer: Rank,
) -> Result<(), Error> {
    let loaded = match in_segment(fixed, rank, place) {
        Some(offset) => fixed.segments[rank].window.read(offset, data).is_ok(),
        None => data.is_empty() || place.load(data),
    };
    loaded.then_some(()).ok_or(Error::BadAddress {
        peer,
        addr: place.addr,
        len: place.len,
    })
}
