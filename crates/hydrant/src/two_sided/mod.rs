//! Two-sided messages: what one rank sends and another receives, matched by who sent it and by its tag.
//!
//! - [`matching`] says which receive gets which message; it knows nothing else.
//! - A short message goes [at once](send), as the payload of an active message, and is copied into the
//!   receiver's buffer, or into memory that [`credit`] bounds if nobody has asked for it (PM's
//!   asynchronous primitives, Tezuka §2).
//! - A long one is announced. When a receive was matched, the receiver lends its buffer and tells its
//!   key, and the sender [writes](carried) into it: each side registered by the strategy in force, whole or
//!   chunk by chunk under the transfer (Li §2 and §6). Under firehoses each side [registers its own](landing)
//!   instead, and the sender's NIC writes to the place that it is told. Where that fails, or
//!   [takes longer](choice), it is copied in parts.
//!
//! All that is decided is decided behind one lock, which is not held while anything is sent. What is copied under it is
//! a part of a long message, a short one that nobody has asked for or that waits for credit, and one whose scope failed.
//!
//! # Ends of requests
//!
//! A request ends once, and only when nobody uses its buffer any more. Its finisher has taken it out of its table
//! under the one lock, and has copied the data or ended the loan. Lost peers and the end of the job end all requests
//! that wait for them ([`ended`]). So a waiter needs no other way out.
//!
//! A send or a receive that is over when the call returns has no request. Such a receive takes messages of its kind
//! from the rings and runs no handler ([`direct`]). It leaves other messages in the rings, so it may do this only
//! for a while. If a message of another kind is first in a ring, a receive that waits polls instead. After 64 such
//! receives in a row, the thread looks at all that has arrived (`progress::taking`).

mod blocking;
mod carried;
mod chains;
mod choice;
mod come_to_end;
mod credit;
mod direct;
mod ended;
mod handles;
mod incoming;
mod landing;
mod long;
mod matching;
mod pattern;
mod persistent;
mod probe;
mod protocol;
mod receive;
mod request;
mod send;
mod told;
mod wire;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32},
    },
};

use hydrant_conduit::Key;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

pub(crate) use handles::Lent;
pub use handles::{ReceiveHandle, SendHandle, Transit};
pub use pattern::{AnySource, AnyTag, Source, Tag};
pub use persistent::{PersistentReceive, PersistentSend};
pub use probe::MatchedMessage;
pub use request::Status;
#[cfg(feature = "fuzzing")]
pub(crate) use wire::check_said;

use crate::{
    Error, Rank, Result, Settings,
    progress::{Progress, kind},
    transfer::Transfer,
};
use choice::{Begun, Choice};
use credit::{Account, Allowance};
use landing::Landing;
use matching::Matching;
use pattern::Envelope;
use protocol::Protocols;
use request::{Buffer, Request, UnderWay};
use wire::Said;

/// The highest tag that programs may use: those above are Hydrant's own.
pub const MAX_TAG: u64 = (1 << 63) - 1;

/// The two-sided messages of a rank.
pub(crate) struct TwoSided {
    progress: Arc<Progress>,
    transfer: Arc<Transfer>,
    protocols: Protocols,
    /// Whether the way of long messages is [chosen](choice) for each.
    chooses: bool,
    /// Messages on their way at once up to which buffers are lent, where each takes a place of a table.
    most_lent: usize,
    state: Mutex<State>,
    /// Unexpected messages may be kept. Stored under the lock; who looks without it looks again before it relies on
    /// that.
    keeps: AtomicBool,
    /// The programs of all ranks have [come to their ends](come_to_end), and no message is begun any more.
    all_refuse: AtomicBool,
    /// Threads that wait until a message comes that they do not receive.
    probing: AtomicU32,
    /// Sends, and receives whose messages have arrived.
    under_way: UnderWay,
    me: Weak<Self>,
}

/// What is under way.
struct State {
    matching: Matching<Posted, Unexpected>,
    /// Sends that wait for what their receivers say, by number.
    sends: FxHashMap<u64, Sending>,
    /// Receives of announced messages that are on their way, by number.
    receives: FxHashMap<u64, Receiving>,
    /// Receives that end once nobody writes to their buffers any more, by the key of the loan.
    unlending: FxHashMap<u64, Unlending>,
    /// By rank; those that this one has exchanged messages with.
    peers: Vec<Option<Box<Peer>>>,
    /// The number of the last send or receive that has one.
    last: u64,
    /// Which way long messages come, where that is chosen.
    choice: Option<Choice>,
    /// Messages that the program has taken out and not received, and whose senders wait for that: by sender and
    /// number.
    held: FxHashSet<(u32, u64)>,
    /// Sends that were refused, until the news of their receivers' ends counts.
    refused: Vec<(Arc<Request>, Rank)>,
    /// The program has [come to its end](come_to_end): it sends and receives nothing more.
    refuses: bool,
    /// The job is over.
    closed: bool,
}

/// How a rank stands with another.
#[derive(Default)]
struct Peer {
    allowance: Allowance,
    account: Account,
    /// Sends for which there was no credit, in order.
    waiting: VecDeque<Outgoing>,
    /// A thread sends these: nobody sends past it.
    draining: bool,
    /// Messages that the peer's program still has to send after its end.
    owed: u64,
    /// True if this rank, at its end, tells the peer how many such messages are left.
    tells_owed: bool,
}

/// A message to be sent.
struct Outgoing {
    tag: u64,
    buffer: Buffer,
    /// Bytes that were brought to the receiver.
    sent: usize,
    request: Arc<Request>,
    /// Its end is that it was received, not that it has left.
    delivered: bool,
}

/// A send that waits for what its receiver says.
enum Sending {
    /// It has left, and its sender wants to know that it was received.
    Sent(Rank, u64, usize, Arc<Request>),
    /// It was announced.
    Announced(Rank, Outgoing),
}

/// A receive that waits for a message.
struct Posted {
    /// From whom, if not from anybody.
    source: Option<u32>,
    buffer: Buffer,
    request: Arc<Request>,
}

/// A message that nobody has asked for.
enum Unexpected {
    /// It is here, without an allocation if it came in arguments. `send`: whom to tell that it was received.
    Here {
        data: SmallVec<[u8; wire::FEW_BYTES]>,
        send: u64,
    },
    /// It is at its sender.
    Announced { send: u64, len: u64, copied: bool },
    /// This rank sent it to itself.
    Own {
        data: Vec<u8>,
        request: Arc<Request>,
    },
}

/// A receive whose message is on its way.
struct Receiving {
    from: Rank,
    tag: u64,
    /// The message's number at its sender.
    send: u64,
    buffer: Buffer,
    /// Bytes of the message, which the buffer has.
    len: usize,
    /// Of these, bytes that have come by what was cleared before.
    done: usize,
    /// Bytes that were copied there since.
    landed: u64,
    by: By,
    /// Which way was chosen, and when.
    begun: Option<Begun>,
    request: Arc<Request>,
}

/// How that comes which was cleared of a message.
enum By {
    /// In parts.
    Parts,
    /// The sender writes to the buffer, which is lent under this key.
    Loan(Key),
    /// The sender writes to a place in the buffer that it was told.
    Landing(Landing),
}

/// A receive whose buffer is lent no more, but may still be written to.
struct Unlending {
    /// Where the buffer is, and how much of it was lent.
    place: (u64, u64),
    begun: Option<Begun>,
    request: Arc<Request>,
}

impl Unexpected {
    /// The number of the message at its sender, if the send waits until the message is received.
    fn awaited(&self) -> Option<u64> {
        match self {
            Unexpected::Here { send: 0, .. } | Unexpected::Own { .. } => None,
            Unexpected::Here { send, .. } | Unexpected::Announced { send, .. } => Some(*send),
        }
    }

    /// The bytes of it that lie in the memory for unexpected messages.
    fn held_bytes(&self) -> usize {
        match self {
            Unexpected::Here { data, .. } => data.len(),
            Unexpected::Own { .. } | Unexpected::Announced { .. } => 0,
        }
    }

    fn len(&self) -> u64 {
        match self {
            Unexpected::Here { data, .. } => data.len() as u64,
            Unexpected::Own { data, .. } => data.len() as u64,
            Unexpected::Announced { len, .. } => *len,
        }
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Takes out a receive that is to end. It is noted where [`close`](TwoSided::close) finds it, in the
    /// same step, for as long as its buffer may still be written to.
    fn part_with(&mut self, receive: u64) -> Option<Receiving> {
        let receiving = self.receives.remove(&receive)?;
        if let By::Loan(key) = receiving.by {
            let start = receiving.buffer.at.expose_provenance() as u64;
            let unlending = Unlending {
                place: (start, receiving.len as u64),
                begun: receiving.begun,
                request: Arc::clone(&receiving.request),
            };
            self.unlending.insert(key.0, unlending);
        }
        Some(receiving)
    }

    #[inline]
    fn peer(&mut self, rank: Rank) -> &mut Peer {
        self.peers[rank.index()].get_or_insert_default()
    }
}

impl TwoSided {
    /// Composes the two-sided messages of a rank, and hands them in to the rooms below.
    pub(crate) fn new(transfer: &Arc<Transfer>, settings: &Settings) -> Arc<Self> {
        let progress = &transfer.progress;
        let caps = progress.conduit().caps();
        let protocols = Protocols::choose(settings, caps);
        let choice = protocol::copied_first(settings, caps).map(Choice::new);
        let this = Arc::new_cyclic(|me| Self {
            progress: Arc::clone(progress),
            transfer: Arc::clone(transfer),
            protocols,
            chooses: choice.is_some(),
            most_lent: settings.extents.unwrap_or(hydrant_smp::DEFAULT_EXTENTS) / 4,
            state: Mutex::new(State {
                matching: Matching::new(),
                sends: FxHashMap::default(),
                receives: FxHashMap::default(),
                unlending: FxHashMap::default(),
                peers: (0..progress.size).map(|_| None).collect(),
                last: 0,
                choice,
                held: FxHashSet::default(),
                refused: Vec::new(),
                refuses: false,
                closed: false,
            }),
            keeps: AtomicBool::new(false),
            all_refuse: AtomicBool::new(false),
            probing: AtomicU32::new(0),
            under_way: UnderWay::default(),
            me: Weak::clone(me),
        });
        let route = incoming::Incoming(Arc::downgrade(&this));
        progress.route(kind::TWO_SIDED, Arc::new(route));
        this
    }

    /// Says something to a peer, now or when there is room. What becomes of a peer that is lost is told
    /// to [those that wait for it](ended).
    fn say(&self, to: Rank, said: Said<'_>, payload: &[u8]) {
        let encoded = said.encode();
        if let Err(cause) = (self.progress).send_result(to, &encoded.message(payload)) {
            tracing::debug!(%to, %cause, "a two-sided message found no way");
            self.look_for_change();
        }
    }

    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::ReservedTag`], [`Error::JobOver`].
    #[inline]
    fn check(&self, rank: Option<u32>, tag: Option<u64>) -> Result<()> {
        rank.map_or(Ok(()), |rank| self.progress.check_rank(Rank(rank)))?;
        match tag {
            Some(tag) if tag > MAX_TAG => Err(Error::ReservedTag {
                tag,
                limit: MAX_TAG,
            }),
            _ => self.progress.check_running(),
        }
    }
}
