//! One record of a trace.

use super::Fault;
use crate::time::Time;

/// "PMT2".
pub const MAGIC: u64 = 0x3254_4d50;

/// The bytes of a file's header.
pub const HEADER_BYTES: usize = 64;

/// The bytes of a record.
pub const RECORD_BYTES: usize = 72;

/// What a record is of: an MPI call, or a peer's part of one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
#[allow(missing_docs)] // MPI's own names
pub enum Call {
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

impl Call {
    const ALL: [Call; 20] = [
        Call::Init,
        Call::Finalize,
        Call::Send,
        Call::Recv,
        Call::Isend,
        Call::Irecv,
        Call::Wait,
        Call::Waitall,
        Call::Barrier,
        Call::Bcast,
        Call::Reduce,
        Call::Allreduce,
        Call::AlltoallSend,
        Call::AlltoallReceive,
        Call::AlltoallvSend,
        Call::AlltoallvReceive,
        Call::SendrecvSend,
        Call::SendrecvReceive,
        Call::CommSplit,
        Call::CommDup,
    ];

    fn of(kind: u16) -> Option<Call> {
        let at = usize::from(kind).checked_sub(1)?;
        Self::ALL.get(at).copied()
    }

    /// Whether it sends a message, or a peer's part, to one rank.
    pub fn sends(self) -> bool {
        use Call::*;
        matches!(
            self,
            Send | Isend | AlltoallSend | AlltoallvSend | SendrecvSend
        )
    }

    /// Whether it receives a message, or a peer's part, of one rank.
    pub fn receives(self) -> bool {
        use Call::*;
        matches!(
            self,
            Recv | Irecv | AlltoallReceive | AlltoallvReceive | SendrecvReceive
        )
    }

    /// Whether it begins a request.
    pub fn begins(self) -> bool {
        matches!(self, Call::Isend | Call::Irecv)
    }

    /// Whether it completes requests.
    pub fn completes(self) -> bool {
        matches!(self, Call::Wait | Call::Waitall)
    }

    /// Whether all ranks of a communicator call it.
    pub fn is_collective(self) -> bool {
        use Call::*;
        matches!(
            self,
            Barrier | Bcast | Reduce | Allreduce | CommSplit | CommDup
        ) || self.is_exchange()
    }

    /// Whether each rank sends to each in it.
    pub fn is_exchange(self) -> bool {
        use Call::*;
        matches!(
            self,
            AlltoallSend | AlltoallReceive | AlltoallvSend | AlltoallvReceive
        )
    }

    /// Whether it has a root, recorded as its peer.
    pub fn has_root(self) -> bool {
        matches!(self, Call::Bcast | Call::Reduce)
    }
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its place in the file, from 0 on.
    pub index: u64,
    /// When the call began, on the wall clock, since MPI_Init.
    pub at: Time,
    /// How long the call took.
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
    /// What was called.
    pub call: Call,
    /// The communicator, by this rank's own count.
    pub comm: u16,
    /// The number of the call on this rank.
    pub sequence: u32,
    /// The computing time of the rank's thread before this call: the clock to trust.
    pub computed: Time,
}

impl Record {
    /// Reads one, as far as it makes sense by itself.
    pub(super) fn parse(index: u64, bytes: &[u8; RECORD_BYTES]) -> Result<Self, Fault> {
        let mut rest = &bytes[..];
        let [at, duration_ns, addr, len, stack, request] =
            std::array::from_fn(|_| u64::from_le_bytes(take(&mut rest)));
        let [peer, tag] = std::array::from_fn(|_| i32::from_le_bytes(take(&mut rest)));
        let [kind, comm] = std::array::from_fn(|_| u16::from_le_bytes(take(&mut rest)));
        let sequence = u32::from_le_bytes(take(&mut rest));
        let computed = u64::from_le_bytes(take(&mut rest));
        let call = Call::of(kind).ok_or(Fault::Kind { kind })?;
        if addr.checked_add(len).is_none() {
            return Err(Fault::Buffer { addr, bytes: len });
        }
        if at.checked_add(duration_ns).is_none() {
            return Err(Fault::TimeOverflow);
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

    /// The byte of the file where it begins.
    pub fn position(&self) -> u64 {
        HEADER_BYTES as u64 + self.index * RECORD_BYTES as u64
    }

    /// Whether it says which memory was used.
    pub fn has_buffer(&self) -> bool {
        self.addr != 0 && self.bytes != 0
    }
}

/// The next bytes of a record.
fn take<const BYTES: usize>(rest: &mut &[u8]) -> [u8; BYTES] {
    let (first, after) = rest
        .split_first_chunk()
        .expect("the fields of a record are 72 bytes");
    *rest = after;
    *first
}
