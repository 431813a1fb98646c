//! Operations on a peer, and the work request for each.

use hydrant_conduit::{Permission, Ticket, memory::Place};

use super::{EndedOperation, SendPool};
use crate::{
    ffi,
    inline_copies::InlineCopy,
    message::Immediate,
    nic::{QueuePair, WorkRequest},
    result_words::ResultWord,
    slots::SendSlot,
};

/// An operation that the NIC performs.
#[derive(Debug)]
pub(crate) enum RdmaOperation {
    /// A write or a read, with a copy of its data if it is [copied](RdmaAccess::copied).
    Access(RdmaAccess, Option<InlineCopy>),
    Atomic(RdmaAtomic),
    Send {
        slot: SendSlot,
        len: u32,
        immediate: Immediate,
    },
}

/// An atomic operation.
#[derive(Debug)]
pub(crate) struct RdmaAtomic {
    pub(crate) ticket: Ticket,
    /// The value to add; or the expected and the new value.
    pub(crate) operands: [u64; 2],
    /// True if this is a compare-and-swap.
    pub(crate) swaps: bool,
    pub(crate) remote: u64,
    pub(crate) key: u64,
    pub(crate) rkey: u32,
    /// The address where the caller wants the old value of the word.
    pub(crate) was: usize,
    /// The registered word for the old value, while the NIC has the operation.
    pub(crate) word: Option<ResultWord>,
}

/// The operation of a request on a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opcode {
    /// Writes to the peer's memory.
    Write,
    /// Reads from the peer's memory.
    Read,
}

impl Opcode {
    /// Returns the opcode of libibverbs.
    #[inline(always)]
    pub(crate) const fn code(self) -> ffi::ibv_wr_opcode {
        match self {
            Self::Write => ffi::IBV_WR_RDMA_WRITE,
            Self::Read => ffi::IBV_WR_RDMA_READ,
        }
    }
}

/// A write or a read, or a part of one that is longer than a request may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RdmaAccess {
    pub(crate) ticket: Ticket,
    pub(crate) opcode: Opcode,
    /// True if this is the last part.
    pub(crate) last: bool,
    /// True if the operation keeps a copy of its data, which is sent inline. Then its local memory
    /// is not registered, and the caller may reuse it as soon as the access is posted.
    pub(crate) copied: bool,
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
    pub(crate) remote: u64,
    pub(crate) rkey: u32,
    /// The range of the whole access, for the error that it may end with.
    pub(crate) whole: RemoteRange,
}

/// A range of a peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteRange {
    pub(crate) key: u64,
    pub(crate) addr: u64,
    pub(crate) len: u64,
}

impl RdmaOperation {
    /// Makes the operation of an access that may wait in the queue, or be posted again. Copies its
    /// data if it is [copied](RdmaAccess::copied).
    ///
    /// # Safety
    /// 1. The data to copy is readable.
    /// 2. Nobody writes to it until this returns.
    #[allow(unsafe_code)] // copies the caller's memory
    #[inline(always)]
    pub(crate) unsafe fn access(access: RdmaAccess, pool: &SendPool) -> Self {
        let copied = access.copied.then(|| {
            // SAFETY: the caller's conditions 1 and 2.
            unsafe { pool.copies().copy(access.addr, access.len) }
        });
        Self::Access(access, copied)
    }

    #[inline(always)]
    pub(super) fn len(&self) -> u32 {
        match self {
            RdmaOperation::Access(access, _) => access.len,
            RdmaOperation::Atomic(_) => WORD,
            RdmaOperation::Send { len, .. } => *len,
        }
    }

    pub(super) fn succeed(self, pool: &SendPool, ended: &mut Vec<EndedOperation>) {
        match self {
            RdmaOperation::Send { slot, .. } => pool.slots().give_back(slot),
            RdmaOperation::Access(access, copied) => {
                if let Some(copied) = copied {
                    pool.copies().give_back(copied);
                }
                if access.last {
                    ended.push((access.ticket, Ok(())));
                }
            }
            RdmaOperation::Atomic(mut atomic) => {
                atomic.store_result(pool);
                atomic.release_word(pool);
                ended.push((atomic.ticket, Ok(())));
            }
        }
    }

    /// Takes the word that an atomic operation needs for its result. Returns `false` if none is
    /// free.
    #[inline]
    pub(super) fn prepare(&mut self, pool: &SendPool) -> bool {
        let RdmaOperation::Atomic(atomic) = self else {
            return true;
        };
        atomic.word = pool.words().take();
        atomic.word.is_some()
    }

    /// Returns the operation as it was before the NIC had it.
    pub(super) fn reset(mut self, pool: &SendPool) -> Self {
        if let RdmaOperation::Atomic(atomic) = &mut self {
            atomic.release_word(pool);
        }
        self
    }

    /// Returns what to do with the operation after its connection broke. `done`: whether the peer
    /// has done it.
    pub(super) fn recovery(&self, done: bool) -> Recovery {
        match self {
            _ if !done => Recovery::Resend,
            // The data of a read may not have come back, so it is read again.
            RdmaOperation::Access(access, _) if access.opcode == Opcode::Read => Recovery::Resend,
            // An atomic operation is never done twice.
            RdmaOperation::Atomic(_) => Recovery::ResultLost,
            RdmaOperation::Access(..) | RdmaOperation::Send { .. } => Recovery::Done,
        }
    }
}

/// The treatment of an operation whose connection broke.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    Done,
    Resend,
    ResultLost,
}

impl RdmaAccess {
    /// A write of no bytes, which touches no memory. Its completion completes all requests before
    /// it.
    pub(crate) const NOTHING: Self = Self {
        ticket: Ticket(0),
        opcode: Opcode::Write,
        last: false,
        copied: false,
        addr: 0,
        len: 0,
        lkey: 0,
        remote: 0,
        rkey: 0,
        whole: RemoteRange {
            key: 0,
            addr: 0,
            len: 0,
        },
    };

    /// Returns whether the own memory is mapped, and permits the access.
    #[allow(unsafe_code)] // names memory by its address
    pub(super) fn own_memory_permits(&self) -> bool {
        // SAFETY: nothing is stored through this place.
        let memory = unsafe { Place::new(self.addr, self.len.into()) };
        memory.pin(match self.opcode {
            Opcode::Write => Permission::Read,
            Opcode::Read => Permission::ReadWrite,
        })
    }

    #[inline(always)]
    pub(super) fn request(&self, id: u64, pair: &QueuePair) -> WorkRequest {
        WorkRequest {
            id,
            opcode: self.opcode.code(),
            addr: self.addr,
            len: self.len,
            lkey: self.lkey,
            remote: self.remote,
            rkey: self.rkey,
            inline: self.opcode == Opcode::Write && self.len as usize <= pair.inline,
            operands: None,
            immediate: 0,
        }
    }
}

/// Bytes of the word of an atomic operation.
const WORD: u32 = size_of::<u64>() as u32;

impl RdmaAtomic {
    /// Stores the old value of the word where the caller wants it.
    #[allow(unsafe_code)] // writes to the caller's memory
    fn store_result(&self, pool: &SendPool) {
        let Some(word) = &self.word else {
            return;
        };
        let was = std::ptr::with_exposed_provenance_mut::<u64>(self.was);
        // SAFETY: until the operation is complete, the memory is writable and nobody else uses it,
        // by the condition of `Verbs::atomic`. The outcome is handed up after this.
        unsafe { was.write(pool.words().value(word)) };
    }

    pub(super) fn release_word(&mut self, pool: &SendPool) {
        if let Some(word) = self.word.take() {
            pool.words().give_back(word);
        }
    }

    /// The atomic operation as a write, to explain its refusal.
    pub(super) fn as_access(&self) -> RdmaAccess {
        let Self {
            ticket,
            remote,
            key,
            rkey,
            ..
        } = *self;
        RdmaAccess {
            ticket,
            opcode: Opcode::Write,
            last: true,
            copied: false,
            addr: 0,
            len: WORD,
            lkey: 0,
            remote,
            rkey,
            whole: RemoteRange {
                key,
                addr: remote,
                len: WORD.into(),
            },
        }
    }
}

#[inline(always)]
pub(super) fn request(
    id: u64,
    operation: &RdmaOperation,
    pool: &SendPool,
    pair: &QueuePair,
) -> WorkRequest {
    match operation {
        RdmaOperation::Access(access, None) => access.request(id, pair),
        RdmaOperation::Access(access, Some(copied)) => WorkRequest {
            addr: copied.address().expose_provenance() as u64,
            ..access.request(id, pair)
        },
        RdmaOperation::Atomic(atomic) => WorkRequest {
            id,
            opcode: if atomic.swaps {
                ffi::IBV_WR_ATOMIC_CMP_AND_SWP
            } else {
                ffi::IBV_WR_ATOMIC_FETCH_AND_ADD
            },
            addr: (atomic.word.as_ref()).map_or(0, |word| {
                pool.words().address(word).expose_provenance() as u64
            }),
            len: WORD,
            lkey: pool.words().lkey(),
            remote: atomic.remote,
            rkey: atomic.rkey,
            inline: false,
            operands: Some(atomic.operands),
            immediate: 0,
        },
        RdmaOperation::Send {
            slot,
            len,
            immediate,
        } => WorkRequest {
            id,
            opcode: ffi::IBV_WR_SEND_WITH_IMM,
            addr: pool.slots().address(slot).expose_provenance() as u64,
            len: *len,
            lkey: pool.slots().lkey(),
            remote: 0,
            rkey: 0,
            inline: *len as usize <= pair.inline,
            operands: None,
            immediate: immediate.0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_and_atomics_are_never_done_twice() {
        let access = |opcode| {
            let access = RdmaAccess {
                ticket: Ticket(1),
                opcode,
                last: true,
                ..RdmaAccess::NOTHING
            };
            RdmaOperation::Access(access, None)
        };
        let atomic = RdmaOperation::Atomic(RdmaAtomic {
            ticket: Ticket(2),
            operands: [1, 0],
            swaps: false,
            remote: 0,
            key: 0,
            rkey: 0,
            was: 0,
            word: None,
        });
        let fates = |operation: &RdmaOperation| [false, true].map(|done| operation.recovery(done));
        assert_eq!(
            fates(&access(Opcode::Write)),
            [Recovery::Resend, Recovery::Done]
        );
        assert_eq!(
            fates(&access(Opcode::Read)),
            [Recovery::Resend, Recovery::Resend]
        );
        assert_eq!(fates(&atomic), [Recovery::Resend, Recovery::ResultLost]);
        assert_eq!(
            size_of::<RdmaOperation>(),
            size_of::<(RdmaAccess, Option<InlineCopy>)>(),
            "an atomic operation does not make queue entries larger"
        );
    }
}
