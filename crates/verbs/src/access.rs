//! Writes and reads: what is checked, the request, and the look for its end.

#![allow(unsafe_code)] // copies within own memory

use hydrant_conduit::{Error, Key, Posted, Rank, Remote, Ticket, memory::Place as Memory};

use crate::{
    conduit::Verbs,
    connection::{Opcode, RdmaAccess, RdmaOperation, RemoteRange},
    table,
};

/// Bytes of an access that takes so little time that nobody minds if completions and the connection are
/// left to it meanwhile.
const SHORT: u64 = 4096;

/// The ticket of what ends before anybody needs one.
const UNNAMED: Ticket = Ticket(0);

impl Verbs {
    /// A write or a read; `WAITS`: and looks a moment whether it has ended.
    ///
    /// # Safety
    /// As [`Conduit::post`](hydrant_conduit::Conduit::post):
    /// 1. Until the operation is complete, or until this returns if it goes along with the request,
    ///    `local` stays as it is for a write, and is written to by nobody else for a read.
    /// 2. Under [`Key::ANY`] the peer bears the change of what is at `remote`.
    #[inline(always)] // all that a hit costs, in one function for each kind
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
            // SAFETY: the same contract, with memory that `find_lkey` found registered, or that is
            // taken along with the request.
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
            // SAFETY: what goes along is readable, and unchanged, until this returns.
            let operation = unsafe { RdmaOperation::access(whole, shared.peers.pool()) };
            // SAFETY: as above, but for what goes along: of that the operation has a copy.
            unsafe { (shared.peers).post(peer, &mut connection, operation) }
        } else {
            // SAFETY: as above.
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

    /// Asks for what is too long for one request.
    ///
    /// # Safety
    /// As [`Connection::post_now`](crate::connection::Connection::post_now), of the whole, which is too
    /// long to go along with a request.
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
            // SAFETY: the same contract: the part lies within the whole.
            unsafe {
                (shared.peers).post(peer, &mut connection, RdmaOperation::Access(part, None))
            };
            at += len;
        }
        Ok(())
    }

    /// The NIC's key for the own side, if the extent covers it; none for what goes along with the request.
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

    /// An access to own memory: a copy by the processor.
    fn copy_own(
        &self,
        opcode: Opcode,
        remote: Remote,
        local: Memory,
        key: Key,
    ) -> Result<Posted, Error> {
        let (peer, len, addr) = (self.shared.endpoint.rank(), local.len, remote.offset);
        if remote.key == Key::ANY {
            return self.copy_to(opcode, addr, local);
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
            self.copy_to(opcode, addr, local)
        });
        copied.unwrap_or(Err(Error::Revoked { peer, key }))
    }

    /// Whether peers, and so the own NIC, may write there.
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

    fn copy_to(&self, opcode: Opcode, addr: u64, local: Memory) -> Result<Posted, Error> {
        let (peer, len) = (self.shared.endpoint.rank(), local.len);
        // SAFETY: an extent's owner, or for `Key::ANY` the caller, promised that the memory
        // bears it.
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
