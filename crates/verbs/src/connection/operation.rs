//! What is asked of a peer's NIC, one thing at a time, and the request for it.

use hydrant_conduit::Ticket;

use super::{EndedOperation, SendPool};
use crate::{
    ffi,
    inline_copies::InlineCopy,
    message::Immediate,
    nic::{QueuePair, WorkRequest},
    result_words::ResultWord,
    slots::SendSlot,
};

/// One thing to be asked of the peer's NIC.
#[derive(Debug)]
pub(crate) enum RdmaOperation {
    /// A write or a read; and the data of one that [goes along](RdmaAccess::copied).
    Access(RdmaAccess, Option<InlineCopy>),
    Atomic(RdmaAtomic),
    Send {
        slot: SendSlot,
        len: u32,
        front: Immediate,
    },
}

/// An atomic operation.
#[derive(Debug)]
pub(crate) struct RdmaAtomic {
    pub(crate) ticket: Ticket,
    /// What is added; or what the word is expected to be, and what it is then.
    pub(crate) operands: [u64; 2],
    pub(crate) swaps: bool,
    pub(crate) remote: u64,
    pub(crate) key: u64,
    pub(crate) rkey: u32,
    /// The address at which the caller wants to know what the word was.
    pub(crate) was: usize,
    /// Where the NIC puts that, while it has the operation.
    pub(crate) word: Option<ResultWord>,
}

/// Which way data goes, as the NIC is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opcode {
    /// To the peer.
    Write,
    /// From the peer.
    Read,
}

/// A write or a read, or a part of one that is too long for the NIC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RdmaAccess {
    pub(crate) ticket: Ticket,
    pub(crate) opcode: Opcode,
    /// Whether it is the last part.
    pub(crate) last: bool,
    /// Whether its data goes along with the request, so that its own memory is not registered, and is
    /// the caller's again when it was asked for.
    pub(crate) copied: bool,
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
    pub(crate) remote: u64,
    pub(crate) rkey: u32,
    /// The whole operation, for the error it may end with.
    pub(crate) whole: RemoteRange,
}

/// The peer's memory that an operation was to touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteRange {
    pub(crate) key: u64,
    pub(crate) addr: u64,
    pub(crate) len: u64,
}

impl RdmaOperation {
    /// An access that may have to wait for its turn, or be posted again: with a copy of what goes along.
    ///
    /// # Safety
    /// 1. What goes along is readable.
    /// 2. Nobody writes to it meanwhile.
    #[allow(unsafe_code)] // has the caller's memory read
    #[inline(always)]
    pub(crate) unsafe fn access(access: RdmaAccess, pool: &SendPool) -> Self {
        let copied = access.copied.then(|| {
            // SAFETY: 1., 2.
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

    /// Whether the NIC can be given it: an atomic operation needs a word for its result.
    #[inline]
    pub(super) fn prepare(&mut self, pool: &SendPool) -> bool {
        let RdmaOperation::Atomic(atomic) = self else {
            return true;
        };
        atomic.word = pool.words().take();
        atomic.word.is_some()
    }

    /// As it was before the NIC had it.
    pub(super) fn reset(mut self, pool: &SendPool) -> Self {
        if let RdmaOperation::Atomic(atomic) = &mut self {
            atomic.release_word(pool);
        }
        self
    }

    /// What becomes of it when its connection broke, and the peer has done it or not.
    pub(super) fn recovery(&self, done: bool) -> Recovery {
        match self {
            _ if !done => Recovery::Resend,
            // What was read may not have come back: it is read again.
            RdmaOperation::Access(access, _) if access.opcode == Opcode::Read => Recovery::Resend,
            // Nothing is done twice.
            RdmaOperation::Atomic(_) => Recovery::ResultLost,
            RdmaOperation::Access(..) | RdmaOperation::Send { .. } => Recovery::Done,
        }
    }
}

/// What becomes of work whose connection broke.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    Done,
    Resend,
    ResultLost,
}

impl RdmaAccess {
    /// A write of no bytes, which touches nothing: when it is done, all before it is.
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

    #[inline(always)]
    pub(super) fn request(&self, id: u64, pair: &QueuePair) -> WorkRequest {
        WorkRequest {
            id,
            opcode: match self.opcode {
                Opcode::Write => ffi::IBV_WR_RDMA_WRITE,
                Opcode::Read => ffi::IBV_WR_RDMA_READ,
            },
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

/// Bytes of a word.
const WORD: u32 = size_of::<u64>() as u32;

impl RdmaAtomic {
    /// Leaves what the word was where the caller wants to know it.
    #[allow(unsafe_code)] // writes to the caller's memory
    fn store_result(&self, pool: &SendPool) {
        let Some(word) = &self.word else {
            return;
        };
        let was = std::ptr::with_exposed_provenance_mut::<u64>(self.was);
        // SAFETY: writable by nobody else until the operation is complete, said the caller of the
        // conduit; its end is handed up after this.
        unsafe { was.write(pool.words().value(word)) };
    }

    pub(super) fn release_word(&mut self, pool: &SendPool) {
        if let Some(word) = self.word.take() {
            pool.words().give_back(word);
        }
    }

    /// What it asked for, as a write that was refused.
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
        RdmaOperation::Send { slot, len, front } => WorkRequest {
            id,
            opcode: ffi::IBV_WR_SEND_WITH_IMM,
            addr: pool.slots().address(slot).expose_provenance() as u64,
            len: *len,
            lkey: pool.slots().lkey(),
            remote: 0,
            rkey: 0,
            inline: *len as usize <= pair.inline,
            operands: None,
            immediate: front.0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_done_twice_that_cannot_bear_it() {
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
            "queues stay as narrow"
        );
    }
}
