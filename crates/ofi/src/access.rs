//! Writes and reads: their checks, and the accesses of a rank to itself.

#![allow(unsafe_code)] // copies within local memory

use hydrant_conduit::{Error, Key, Posted, Rank, Remote, memory::Place as Memory};

use crate::{
    conduit::Ofi,
    slots::{AccessDirection, AccessRecord, INLINE},
};

/// How the provider gets at the local memory of an access.
#[derive(Clone, Copy, Debug)]
enum LocalSource {
    /// By this descriptor of its registration.
    Registered(usize),
    /// By its address.
    Unregistered,
    /// The data is copied.
    Copied,
}

impl Ofi {
    /// Posts a write or a read.
    ///
    /// # Safety
    /// As [`Conduit::post`](hydrant_conduit::Conduit::post):
    /// 1. Nobody writes to `local` for a write, and nobody else uses it for a read. This holds until the operation is
    ///    complete, or until this returns if the data is copied.
    /// 2. The peer bears the change of its memory at `remote`, or the key forbids it.
    #[inline]
    pub(crate) unsafe fn access(
        &self,
        peer: Rank,
        direction: AccessDirection,
        remote: Remote,
        local: Memory,
        local_key: Key,
    ) -> Result<Posted, Error> {
        let shared = &*self.shared;
        shared.check_stall();
        shared.peers.standings.present(peer)?;
        if peer == shared.rank {
            return self.copy_own(direction, remote, local, local_key);
        }
        let source = self.find_local(direction, local, local_key)?;
        if remote.key == Key::ANY || remote.key == Key::SEGMENT {
            let key = remote.key.0;
            return Err(Error::Revoked { peer, key });
        }
        if local.len == 0 {
            return Ok(Posted::Done);
        }
        let to = shared.peer(peer)?;
        let ticket = shared.ticket();
        let record = AccessRecord {
            peer: peer.0,
            ticket,
            direction,
            local: local.addr as usize,
            len: local.len as usize,
            descriptor: match source {
                LocalSource::Registered(descriptor) => descriptor,
                LocalSource::Unregistered | LocalSource::Copied => 0,
            },
            key: remote.key,
            addr: remote.offset,
            number: 0,
            retries: 0,
        };
        let Some(index) = shared.accesses.take(record) else {
            return Err(Error::Exhausted {
                what: "accesses in flight",
                limit: 1 << 20,
                remedy: "wait for some before posting more",
            });
        };
        if matches!(source, LocalSource::Copied) {
            let from = std::ptr::with_exposed_provenance(local.addr as usize);
            // SAFETY: 1. The memory is readable, by the caller's condition 1, and `find_local` found it short. 2. The
            // entry was just taken.
            unsafe { shared.accesses.copy_in(index, from, local.len as usize) };
        }
        // SAFETY: 1. The caller's condition 1, or the data was copied. 2. The caller's condition 2.
        unsafe { shared.start_access(to, index)? };
        Ok(Posted::Pending(ticket))
    }

    /// Returns how the provider gets at the local memory.
    #[inline]
    fn find_local(
        &self,
        direction: AccessDirection,
        local: Memory,
        key: Key,
    ) -> Result<LocalSource, Error> {
        let shared = &*self.shared;
        if key == Key::ANY && !shared.fabric.registers_locally() {
            let is_short = direction == AccessDirection::Write && local.len <= INLINE as u64;
            return Ok(if is_short {
                LocalSource::Copied
            } else {
                LocalSource::Unregistered
            });
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
        if direction == AccessDirection::Read && !extent.writable {
            let Memory { addr, len } = local;
            return Err(Error::BadAddress { peer, addr, len });
        }
        Ok(LocalSource::Registered(
            extent.descriptor.expose_provenance(),
        ))
    }

    /// Performs an access of this rank to itself: a copy by the processor.
    fn copy_own(
        &self,
        direction: AccessDirection,
        remote: Remote,
        local: Memory,
        key: Key,
    ) -> Result<Posted, Error> {
        let (peer, len, addr) = (self.shared.rank, local.len, remote.offset);
        if remote.key == Key::ANY {
            return self.copy_bytes(direction, addr, local);
        }
        self.find_local(direction, local, key)?;
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
            if direction == AccessDirection::Write && !extent.writable {
                return Err(Error::BadAddress { peer, addr, len });
            }
            self.copy_bytes(direction, addr, local)
        });
        copied.unwrap_or(Err(Error::Revoked { peer, key }))
    }

    fn copy_bytes(
        &self,
        direction: AccessDirection,
        addr: u64,
        local: Memory,
    ) -> Result<Posted, Error> {
        let (peer, len) = (self.shared.rank, local.len);
        // SAFETY: the memory bears the access: its owner vouched for that when it registered the extent, or the caller
        // did for `Key::ANY`.
        let there = unsafe { Memory::new(addr, len) };
        let mut bytes = vec![0; len as usize];
        let copied = match direction {
            AccessDirection::Write => local.load(&mut bytes) && there.store(&bytes),
            AccessDirection::Read => there.load(&mut bytes) && local.store(&bytes),
        };
        if copied || len == 0 {
            Ok(Posted::Done)
        } else {
            Err(Error::BadAddress { peer, addr, len })
        }
    }
}
