//! Writes and reads: their checks, their request, and the polls for their end.

#![allow(unsafe_code)] // copies within local memory

use hydrant_conduit::{Error, Key, Posted, Rank, Remote, Ticket, memory::Place as Memory};

use crate::{
    conduit::Verbs,
    connection::{Opcode, RdmaAccess, RdmaOperation, RemoteRange},
    table,
};

/// Most bytes of an access that may use the fast path. The fast path holds the completion queue and
/// the connection, so it must be short.
const SHORT: u64 = 4096;

/// The ticket of an access that may end before it needs one.
const UNNAMED: Ticket = Ticket(0);

impl Verbs {
    /// Posts a write or a read. With `WAITS`, polls a moment for its end.
    ///
    /// # Safety
    /// As [`Conduit::post`](hydrant_conduit::Conduit::post):
    /// 1. Nobody writes to `local` for a write, and nobody else uses it for a read. This holds until
    ///    the operation is complete, or until this returns if the data is sent inline.
    /// 2. Under [`Key::ANY`] the peer bears the change of its memory at `remote`.
    #[inline(always)] // the whole path of a hit, in one function for each kind
    pub(crate) unsafe fn access<const WAITS: bool>(
        &self,
        peer: Rank,
        opcode: Opcode,
        remote: Remote,
        local: Memory,
        local_key: Key,
    ) -> Result<Posted, Error> {
        let shared = &*self.shared;
        shared.peers.standings().present(peer)?;
        if peer == shared.endpoint.rank() {
            return self.copy_own(opcode, remote, local, local_key);
        }
        let lkey = self.find_lkey(opcode, local, local_key)?;
        let copied = lkey.is_none();
        let rkey = match remote.key {
            Key::ANY if shared.endpoint.caps().any_address => {
                Some(shared.endpoint.addresses()[peer.index()].everything)
            }
            key => table::rkey_in(key),
        };
        let Some(rkey) = rkey else {
            let key = remote.key.0;
            return Err(Error::Revoked { peer, key });
        };
        if local.len == 0 {
            return Ok(Posted::Done);
        }
        let mut whole = RdmaAccess {
            ticket: UNNAMED,
            opcode,
            last: true,
            copied,
            addr: local.addr,
            len: local.len as u32,
            lkey: lkey.unwrap_or(0),
            remote: remote.offset,
            rkey,
            whole: RemoteRange {
                key: remote.key.0,
                addr: remote.offset,
                len: local.len,
            },
        };
        let connection = shared.peers.get(peer).connection();
        if WAITS
            && local.len <= SHORT
            // SAFETY: 1. `find_lkey` found the memory registered, or its data is sent inline. 2. and
            // 3. are the caller's conditions 1 and 2.
            && let Some(outcome) = unsafe {
                (shared.completions).post_fast(&shared.peers, peer, connection, &whole)
            }
        {
            return outcome;
        }
        whole.ticket = shared.peers.ticket();
        let id = if local.len <= shared.peers.pool().limits().longest {
            let mut connection = connection.lock();
            if connection.has_ended() {
                return Err(Error::PeerLost(peer));
            }
            // SAFETY: inline data is readable and unchanged until this returns, by the caller's
            // condition 1.
            let operation = unsafe { RdmaOperation::access(whole, shared.peers.pool()) };
            // SAFETY: 1. `find_lkey` found the memory registered, or the operation has a copy of it.
            // 2. and 3. are the caller's conditions 1 and 2.
            unsafe { (shared.peers).post(peer, &mut connection, operation) }
        } else {
            // SAFETY: 1. The access is too long to be inline, so `find_lkey` found its memory
            // registered. 2. and 3. are the caller's conditions 1 and 2.
            unsafe { self.post_in_parts(peer, whole)? };
            None
        };
        if WAITS
            && let Some(outcome) =
                shared
                    .completions
                    .poll_for(&shared.peers, connection, id, whole.ticket)
        {
            return outcome.map(|()| Posted::Done);
        }
        Ok(Posted::Pending(whole.ticket))
    }

    /// Posts an access that is too long for one request, in parts.
    ///
    /// # Safety
    /// 1., 2. and 3. as [`Connection::post_now`](crate::connection::Connection::post_now), for the
    /// whole access, which is not inline.
    #[cold]
    unsafe fn post_in_parts(&self, peer: Rank, access: RdmaAccess) -> Result<(), Error> {
        let shared = &*self.shared;
        let mut connection = shared.peers.get(peer).connection().lock();
        if connection.has_ended() {
            return Err(Error::PeerLost(peer));
        }
        let (mut at, all) = (0, access.whole.len);
        while at < all {
            let len = shared.peers.pool().limits().longest.min(all - at);
            let part = RdmaAccess {
                last: at + len == all,
                addr: access.addr + at,
                len: len as u32,
                remote: access.remote.wrapping_add(at),
                ..access
            };
            // SAFETY: the caller's conditions 1, 2 and 3: the part lies within the whole.
            unsafe {
                (shared.peers).post(peer, &mut connection, RdmaOperation::Access(part, None))
            };
            at += len;
        }
        Ok(())
    }

    /// Returns the lkey of the local memory, if a registered extent covers it. `None` means that
    /// the data is sent inline.
    #[inline]
    fn find_lkey(&self, opcode: Opcode, local: Memory, key: Key) -> Result<Option<u32>, Error> {
        let shared = &*self.shared;
        let inline = shared.peers.pool().limits().inline.into();
        if key == Key::ANY && opcode == Opcode::Write && local.len <= inline {
            return Ok(None);
        }
        if let (Key::ANY, Some(everything)) = (key, &self.everything) {
            return Ok(Some(everything.lkey));
        }
        let (peer, word) = (shared.endpoint.rank(), key.0);
        let extent = (shared.table.find(key)).ok_or(Error::Revoked { peer, key: word })?;
        if !extent.covers(local.addr, local.len) {
            return Err(Error::OutOfExtent {
                peer,
                offset: local.addr,
                len: local.len,
                extent: extent.len,
            });
        }
        if opcode == Opcode::Read && !extent.writable {
            let Memory { addr, len } = local;
            return Err(Error::BadAddress { peer, addr, len });
        }
        Ok(Some(extent.lkey))
    }

    /// Performs an access of this rank to itself: a copy by the processor.
    fn copy_own(
        &self,
        opcode: Opcode,
        remote: Remote,
        local: Memory,
        key: Key,
    ) -> Result<Posted, Error> {
        let (peer, len, addr) = (self.shared.endpoint.rank(), local.len, remote.offset);
        if remote.key == Key::ANY {
            return self.copy_bytes(opcode, addr, local);
        }
        self.find_lkey(opcode, local, key)?;
        let key = remote.key.0;
        let copied = self.shared.table.with_extent(remote.key, |extent| {
            if !extent.covers(addr, len) {
                return Err(Error::OutOfExtent {
                    peer,
                    offset: addr,
                    len,
                    extent: extent.len,
                });
            }
            if opcode == Opcode::Write && !extent.writable {
                return Err(Error::BadAddress { peer, addr, len });
            }
            self.copy_bytes(opcode, addr, local)
        });
        copied.unwrap_or(Err(Error::Revoked { peer, key }))
    }

    /// Checks that peers, and so the local NIC, may write to a range of this rank.
    pub(crate) fn check_own(&self, at: Remote, len: u64) -> Result<(), Error> {
        let (peer, key, addr) = (self.shared.endpoint.rank(), at.key.0, at.offset);
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

    fn copy_bytes(&self, opcode: Opcode, addr: u64, local: Memory) -> Result<Posted, Error> {
        let (peer, len) = (self.shared.endpoint.rank(), local.len);
        // SAFETY: the memory bears the access: its owner vouched for that when it registered the
        // extent, or the caller did for `Key::ANY`.
        let there = unsafe { Memory::new(addr, len) };
        let mut bytes = vec![0; len as usize];
        let copied = match opcode {
            Opcode::Write => local.load(&mut bytes) && there.store(&bytes),
            Opcode::Read => there.load(&mut bytes) && local.store(&bytes),
        };
        if copied || len == 0 {
            Ok(Posted::Done)
        } else {
            Err(Error::BadAddress { peer, addr, len })
        }
    }
}
