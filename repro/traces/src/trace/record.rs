//! One record of a trace.

use hydrant_base::words::only;

use super::{HEADER_BYTES, RECORD_BYTES, TraceFault};
use hydrant_foresight::Time;

/// The kind of a record: an MPI call, or a peer's part of one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
#[allow(missing_docs)] // MPI's own names
pub enum MpiCall {
    Init = 1,
    Finalize = 2,
    Send = 3,
    Recv = 4,
    Isend = 5,
    Irecv = 6,
    Wait = 7,
    Waitall = 8,
    Barrier = 9,
    Bcast = 10,
    Reduce = 11,
    Allreduce = 12,
    AlltoallSend = 13,
    AlltoallReceive = 14,
    AlltoallvSend = 15,
    AlltoallvReceive = 16,
    SendrecvSend = 17,
    SendrecvReceive = 18,
    CommSplit = 19,
    CommDup = 20,
}

impl MpiCall {
    const ALL: [MpiCall; 20] = [
        MpiCall::Init,
        MpiCall::Finalize,
        MpiCall::Send,
        MpiCall::Recv,
        MpiCall::Isend,
        MpiCall::Irecv,
        MpiCall::Wait,
        MpiCall::Waitall,
        MpiCall::Barrier,
        MpiCall::Bcast,
        MpiCall::Reduce,
        MpiCall::Allreduce,
        MpiCall::AlltoallSend,
        MpiCall::AlltoallReceive,
        MpiCall::AlltoallvSend,
        MpiCall::AlltoallvReceive,
        MpiCall::SendrecvSend,
        MpiCall::SendrecvReceive,
        MpiCall::CommSplit,
        MpiCall::CommDup,
    ];

    fn of(kind: u16) -> Option<MpiCall> {
        let at = usize::from(kind).checked_sub(1)?;
        Self::ALL.get(at).copied()
    }

    /// True if it sends a message, or a peer's part, to one rank.
    pub fn sends(self) -> bool {
        use MpiCall::*;
        matches!(
            self,
            Send | Isend | AlltoallSend | AlltoallvSend | SendrecvSend
        )
    }

    /// True if it receives a message, or a peer's part, from one rank.
    pub fn receives(self) -> bool {
        use MpiCall::*;
        matches!(
            self,
            Recv | Irecv | AlltoallReceive | AlltoallvReceive | SendrecvReceive
        )
    }

    /// True if it begins a request.
    pub fn begins(self) -> bool {
        matches!(self, MpiCall::Isend | MpiCall::Irecv)
    }

    /// True if it completes requests.
    pub fn completes(self) -> bool {
        matches!(self, MpiCall::Wait | MpiCall::Waitall)
    }

    /// True if all ranks of a communicator call it.
    pub fn is_collective(self) -> bool {
        use MpiCall::*;
        matches!(
            self,
            Barrier | Bcast | Reduce | Allreduce | CommSplit | CommDup
        ) || self.is_exchange()
    }

    /// True if each rank sends to each.
    pub fn is_exchange(self) -> bool {
        use MpiCall::*;
        matches!(
            self,
            AlltoallSend | AlltoallReceive | AlltoallvSend | AlltoallvReceive
        )
    }

    /// True if it has a root, recorded as its peer.
    pub fn has_root(self) -> bool {
        matches!(self, MpiCall::Bcast | MpiCall::Reduce)
    }
}

/// One record of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceRecord {
    /// The index in the file, from 0 on.
    pub index: u64,
    /// The begin of the call on the wall clock, since MPI_Init.
    pub at: Time,
    /// The duration of the call.
    pub duration_ns: u64,
    /// The buffer; 0 is none.
    pub addr: u64,
    /// The bytes of the buffer.
    pub bytes: u64,
    /// A hash of the call stack; 0 is none.
    pub stack: u64,
    /// The request that it begins or completes; 0 is none.
    pub request: u64,
    /// The other rank, or the root; −1 is none.
    pub peer: i32,
    /// The tag, the root, or the colour; −1 is none.
    pub tag: i32,
    /// The kind of call.
    pub call: MpiCall,
    /// The communicator, by this rank's own count.
    pub comm: u16,
    /// The number of the call on this rank.
    pub sequence: u32,
    /// The computing time of the rank's thread before this call; use this clock.
    pub computed: Time,
}

impl TraceRecord {
    /// Parses a record, and checks the fields that one record alone can show wrong.
    pub(super) fn parse(index: u64, bytes: &[u8; RECORD_BYTES]) -> Result<Self, TraceFault> {
        let fields: ([u64; 6], [i32; 2], [u16; 2], u32, u64) =
            only(bytes).expect("the fields of a record are 72 bytes");
        let ([at, duration_ns, addr, len, stack, request], [peer, tag], ..) = fields;
        let (.., [kind, comm], sequence, computed) = fields;
        let call = MpiCall::of(kind).ok_or(TraceFault::Kind { kind })?;
        if addr.checked_add(len).is_none() {
            return Err(TraceFault::Buffer { addr, bytes: len });
        }
        if at.checked_add(duration_ns).is_none() {
            return Err(TraceFault::TimeOverflow);
        }
        Ok(Self {
            index,
            at: Time(at),
            duration_ns,
            addr,
            bytes: len,
            stack,
            request,
            peer,
            tag,
            call,
            comm,
            sequence,
            computed: Time(computed),
        })
    }

    /// The byte of the file where the record begins.
    pub fn position(&self) -> u64 {
        HEADER_BYTES as u64 + self.index * RECORD_BYTES as u64
    }

    /// True if the record names a buffer.
    pub fn has_buffer(&self) -> bool {
        self.addr != 0 && self.bytes != 0
    }
}
