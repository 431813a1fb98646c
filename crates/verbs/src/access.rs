//! Writes and reads: what is checked, the request, and the look for its end.

#![allow(unsafe_code)] // copies within own memory

use hydrant_conduit::{Error, Key, Posted, Rank, Remote, Ticket, memory::Place as Memory};

use crate::{
    conduit::Verbs,
    lane::{Access, State, Whole, Work},
    table,
};

/// Bytes of an access that takes so little time that nobody minds if completions and the lane are
/// left to it meanwhile.
const SHORT: u64 = 4096;

/// The ticket of what ends before anybody needs one.
const UNNAMED: Ticket = Ticket(0);

impl Verbs {
    /// A write or a read; `WATCHED`: and looks a moment whether it has ended.
    #[inline(always)] // all that a hit costs, in one function for each kind
    pub(crate) fn access<const WATCHED: bool>(
        &self,
        peer: Rank,
        write: bool,
        remote: Remote,
        local: Memory,
        local_key: Key,
    ) -> Result<Posted, Error> {
        let shared = &*self.shared;
        shared.standings.present(peer)?;
        if peer == shared.rank {
            return self.copy(write, remote, local, local_key);
        }
        let lkey = self.own_side(write, local, local_key)?;
        let rkey = match remote.key {
            Key::ANY if shared.caps.any_address => Some(shared.places[peer.index()].everything),
            key => table::remote(key),
        };
        let Some(rkey) = rkey else {
            let key = remote.key.0;
            return Err(Error::Revoked { peer, key });
        };
        if local.len == 0 {
            return Ok(Posted::Done);
        }
        let mut whole = Access {
            ticket: UNNAMED,
            write,
            last: true,
            addr: local.addr,
            len: local.len as u32,
            lkey,
            remote: remote.offset,
            rkey,
            whole: Whole {
                key: remote.key.0,
                addr: remote.offset,
                len: local.len,
            },
        };
        let lane = &shared.peer(peer).lane;
        if WATCHED
            && local.len <= SHORT
            && let Some(outcome) = shared.ask_alone(peer, lane, &whole)
        {
            return outcome;
        }
        whole.ticket = shared.ticket();
        let id = if local.len <= shared.roads.longest {
            let mut lane = lane.lock();
            if lane.state == State::Ended {
                return Err(Error::PeerLost(peer));
            }
            shared.ask(peer, &mut lane, Work::Access(whole))
        } else {
            self.in_parts(peer, whole)?;
            None
        };
        if WATCHED && let Some(outcome) = shared.watch(lane, id, whole.ticket) {
            return outcome.map(|()| Posted::Done);
        }
        Ok(Posted::Pending(whole.ticket))
    }

    /// Asks for what is too long for one request.
    #[cold]
    fn in_parts(&self, peer: Rank, access: Access) -> Result<(), Error> {
        let shared = &*self.shared;
        let mut lane = shared.peer(peer).lane.lock();
        if lane.state == State::Ended {
            return Err(Error::PeerLost(peer));
        }
        let (mut at, all) = (0, access.whole.len);
        while at < all {
            let len = shared.roads.longest.min(all - at);
            let part = Access {
                last: at + len == all,
                addr: access.addr + at,
                len: len as u32,
                remote: access.remote.wrapping_add(at),
                ..access
            };
            shared.ask(peer, &mut lane, Work::Access(part));
            at += len;
        }
        Ok(())
    }

    /// The NIC's key for the own side, if the extent covers it.
    #[inline]
    fn own_side(&self, write: bool, local: Memory, key: Key) -> Result<u32, Error> {
        let shared = &*self.shared;
        let inline = shared.roads.inline.into();
        if key == Key::ANY && write && local.len <= inline {
            return Ok(0);
        }
        if let (Key::ANY, Some(everything)) = (key, &self.everything) {
            return Ok(everything.lkey);
        }
        let (peer, word) = (shared.rank, key.0);
        let extent = (shared.table.find(key)).ok_or(Error::Revoked { peer, key: word })?;
        if !extent.covers(local.addr, local.len) {
            return Err(Error::OutOfExtent {
                peer,
                offset: local.addr,
                len: local.len,
                extent: extent.len,
            });
        }
        if !write && !extent.writable {
            let Memory { addr, len } = local;
            return Err(Error::BadAddress { peer, addr, len });
        }
        Ok(extent.lkey)
    }

    /// An access to own memory: a copy by the processor.
    fn copy(&self, write: bool, remote: Remote, local: Memory, key: Key) -> Result<Posted, Error> {
        let (peer, len, addr) = (self.shared.rank, local.len, remote.offset);
        if remote.key == Key::ANY {
            return self.copy_to(write, addr, local);
        }
        self.own_side(write, local, key)?;
        let key = remote.key.0;
        let copied = self.shared.table.with(remote.key, |extent| {
            if !extent.covers(addr, len) {
                return Err(Error::OutOfExtent {
                    peer,
                    offset: addr,
                    len,
                    extent: extent.len,
                });
            }
            if write && !extent.writable {
                return Err(Error::BadAddress { peer, addr, len });
            }
            self.copy_to(write, addr, local)
        });
        copied.unwrap_or(Err(Error::Revoked { peer, key }))
    }

    /// Whether peers, and so the own NIC, may write there.
    pub(crate) fn check_own(&self, at: Remote, len: u64) -> Result<(), Error> {
        let (peer, key, addr) = (self.shared.rank, at.key.0, at.offset);
        let extent = self.shared.table.find_remote(at.key);
        let extent = extent.ok_or(Error::Revoked { peer, key })?;
        if !extent.covers(addr, len) {
            return Err(Error::OutOfExtent {
                peer,
                offset: addr,
                len,
                extent: extent.len,
            });
        }
        if !extent.writable {
            return Err(Error::BadAddress { peer, addr, len });
        }
        Ok(())
    }

    fn copy_to(&self, write: bool, addr: u64, local: Memory) -> Result<Posted, Error> {
        let (peer, len) = (self.shared.rank, local.len);
        // SAFETY: an extent's owner, or for `Key::ANY` the caller, promised that the memory
        // bears it.
        let there = unsafe { Memory::new(addr, len) };
        let mut bytes = vec![0; len as usize];
        let copied = if write {
            local.load(&mut bytes) && there.store(&bytes)
        } else {
            there.load(&mut bytes) && local.store(&bytes)
        };
        if copied || len == 0 {
            Ok(Posted::Done)
        } else {
            Err(Error::BadAddress { peer, addr, len })
        }
    }
}
