//! Two-sided messages: one rank sends, another receives. Source and tag match the two.
//!
//! - [`matching`] decides which receive gets which message, and knows nothing else.
//! - A short message is [eager](send): it is the payload of an active message. The receiver copies
//!   it into the buffer of a receive, or into memory for unexpected messages, which [`credit`]
//!   bounds (PM's asynchronous primitives, Tezuka §2).
//! - On a network without pinning, a message of several payloads is eager, too: it is sent in
//!   [pieces].
//! - A long message is announced. Once it is matched, the receiver lends its buffer and sends the
//!   key, and the sender [writes](long_send) into the buffer. The strategy in force registers each
//!   side, as a whole or chunk by chunk during the transfer (Li §2 and §6).
//! - Under firehoses the receiver [registers](landing) a part of its buffer and tells its address,
//!   and the sender's NIC writes there. The message is copied in parts if registering fails, or if
//!   copies are [faster](choice).
//!
//! One lock guards all decisions, and nothing is sent under it. Three kinds of data are copied
//! under it: parts and pieces of messages, short messages without a receive or without credit, and
//! messages whose scope failed.
//!
//! # Ends of requests
//!
//! A request ends once, when nobody uses its buffer any more. The thread that ends it has taken it
//! out of its table under the one lock, and has copied the data or ended the loan. Lost peers and
//! the end of the job end all requests that wait for them ([`ended`]). So a waiter needs no other
//! way out.
//!
//! A send or a receive that is complete when the call returns has no request. Such a receive takes
//! messages of its kind from the rings and runs no handler ([`direct`]). It leaves other messages
//! in the rings, so it may do this only for a while. If a message of another kind is first in a
//! ring, a waiting receive polls instead. After 64 such receives in a row, the thread polls
//! everything that has arrived (`progress::taking`).

mod blocking;
mod choice;
mod come_to_end;
mod credit;
mod direct;
mod ended;
mod handles;
mod incoming;
mod landing;
mod long_receive;
mod long_send;
mod matching;
mod pattern;
mod pattern_queues;
mod persistent;
mod pieces;
mod probe;
mod protocol;
mod raw;
mod receive;
mod record_use;
mod request;
mod send;
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

pub(crate) use handles::ScopedMessage;
pub use handles::{ReceiveHandle, SendHandle, Transit};
pub use pattern::{AnySource, AnyTag, Source, Tag};
pub use persistent::{PersistentReceive, PersistentSend};
pub use probe::MatchedMessage;
pub use raw::RawMessage;
pub use request::Status;
#[cfg(feature = "fuzzing")]
pub(crate) use wire::check_message;

use crate::{
    Error, Rank, Result, Settings,
    progress::{Progress, kind},
    transfer::Transfer,
};
use choice::{LongRouteChoice, TimedRoute};
use credit::{Account, Allowance};
use landing::Landing;
use matching::Matching;
use pattern::Envelope;
use pieces::Assembly;
use protocol::Protocols;
use request::{InFlightCount, MessageRequest, RawBuffer};
use wire::WireMessage;

/// The highest tag that programs may use. Higher tags are Hydrant's own.
pub const MAX_TAG: u64 = (1 << 63) - 1;

/// The two-sided messages of a rank.
pub(crate) struct TwoSided {
    progress: Arc<Progress>,
    transfer: Arc<Transfer>,
    protocols: Protocols,
    /// True if the route of each long message is [chosen](choice) by measured times.
    chooses: bool,
    /// The limit of buffers lent at once, where each takes a slot of the conduit's table.
    most_lent: usize,
    state: Mutex<TwoSidedState>,
    /// True if unexpected messages may be kept. It is stored under the lock. A thread that reads it
    /// without the lock looks again under the lock before it relies on the value.
    keeps: AtomicBool,
    /// The programs of all ranks have [come to their ends](come_to_end). No message begins any
    /// more.
    all_refuse: AtomicBool,
    /// The number of threads that wait in a probe.
    probing: AtomicU32,
    /// Sends, and receives whose messages have arrived.
    in_flight: InFlightCount,
    me: Weak<Self>,
}

/// The state behind the lock: posted receives, kept messages, and requests in flight.
struct TwoSidedState {
    matching: Matching<PostedReceive, Unexpected>,
    /// Sends that wait for a message of their receivers, by number.
    sends: FxHashMap<u64, PendingSend>,
    /// Receives of announced messages in flight, by number.
    receives: FxHashMap<u64, Receiving>,
    /// Receives that end together with the loans of their buffers, by the key of the loan.
    unlending: FxHashMap<u64, Unlending>,
    /// By rank, for the peers that this rank has exchanged messages with.
    peers: Vec<Option<Box<PeerTraffic>>>,
    /// The last number given to a send or a receive.
    last: u64,
    /// The chooser of routes for long messages, where routes are chosen.
    choice: Option<LongRouteChoice>,
    /// Messages taken out by a matched probe and not received yet, whose senders wait for the
    /// receive: by sender and number.
    held: FxHashSet<(u32, u64)>,
    /// Refused sends, until the news of their receivers' ends counts.
    refused: Vec<(Arc<MessageRequest>, Rank)>,
    /// The program has [come to its end](come_to_end). It sends and receives nothing more.
    refuses: bool,
    /// The job is over.
    closed: bool,
}

/// The messages between this rank and a peer.
#[derive(Default)]
struct PeerTraffic {
    allowance: Allowance,
    account: Account,
    /// Messages of which the peer has sent some pieces, by number.
    assemblies: FxHashMap<u64, Assembly>,
    /// Sends that wait for credit, in order.
    waiting: VecDeque<Outgoing>,
    /// A thread sends messages of `waiting`. No other thread may send past them.
    draining: bool,
    /// Messages that the peer's program still has to send after its end.
    owed: u64,
    /// True if this rank, at its end, tells the peer how many such messages are left.
    tells_owed: bool,
}

/// A message to be sent.
struct Outgoing {
    tag: u64,
    buffer: RawBuffer,
    /// Bytes that the receiver has.
    sent: usize,
    request: Arc<MessageRequest>,
    /// The request ends when the message was received, not when its source is free.
    delivered: bool,
}

/// A send that waits for a message of its receiver.
enum PendingSend {
    /// The message has left. Its sender wants to know that it was received.
    Sent(Rank, u64, usize, Arc<MessageRequest>),
    /// The message was announced.
    Announced(Rank, Outgoing),
}

/// A receive that waits for a message.
struct PostedReceive {
    /// The rank to receive from, or `None` for any rank.
    source: Option<u32>,
    buffer: RawBuffer,
    request: Arc<MessageRequest>,
}

/// A message without a posted receive.
enum Unexpected {
    /// The message is here. Data that came in arguments takes no allocation. `send` is the number
    /// of a send that waits for the receive, or 0.
    Here {
        data: SmallVec<[u8; wire::FEW_BYTES]>,
        send: u64,
    },
    /// The message is still at its sender.
    Announced { send: u64, len: u64, copied: bool },
    /// This rank sent it to itself.
    Own {
        data: Vec<u8>,
        request: Arc<MessageRequest>,
    },
}

/// A receive whose message is in flight.
struct Receiving {
    from: Rank,
    tag: u64,
    /// The message's number at its sender.
    send: u64,
    buffer: RawBuffer,
    /// Bytes of the message. The buffer has room for them.
    len: usize,
    /// Bytes that came by earlier clears.
    done: usize,
    /// Bytes copied in parts since the last clear.
    landed: u64,
    transport: Transport,
    /// The chosen route and its start, where routes are chosen.
    timed: Option<TimedRoute>,
    request: Arc<MessageRequest>,
}

/// The route of the cleared part of a message.
enum Transport {
    /// Copied in parts.
    Parts,
    /// The sender writes to the buffer, which is lent under this key.
    Loan(Key),
    /// The sender writes to a registered part of the buffer.
    Landing(Landing),
}

/// A receive whose loan is ending. The sender may still write to its buffer.
struct Unlending {
    /// The address and the length of the loan.
    place: (u64, u64),
    timed: Option<TimedRoute>,
    request: Arc<MessageRequest>,
}

impl Unexpected {
    /// Returns the number of the message at its sender, if the send waits for the receive.
    fn awaited(&self) -> Option<u64> {
        match self {
            Unexpected::Here { send: 0, .. } | Unexpected::Own { .. } => None,
            Unexpected::Here { send, .. } | Unexpected::Announced { send, .. } => Some(*send),
        }
    }

    /// Returns the bytes that the message takes in the memory for unexpected messages.
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

impl TwoSidedState {
    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Takes out a receive that is to end. A lent buffer may still be written to. Then the same
    /// step notes the loan, so that [`close`](TwoSided::close) finds it.
    fn take_receiving(&mut self, receive: u64) -> Option<Receiving> {
        let receiving = self.receives.remove(&receive)?;
        if let Transport::Loan(key) = receiving.transport {
            let start = receiving.buffer.at.expose_provenance() as u64;
            let unlending = Unlending {
                place: (start, receiving.len as u64),
                timed: receiving.timed,
                request: Arc::clone(&receiving.request),
            };
            self.unlending.insert(key.0, unlending);
        }
        Some(receiving)
    }

    #[inline]
    fn peer(&mut self, rank: Rank) -> &mut PeerTraffic {
        self.peers[rank.index()].get_or_insert_default()
    }
}

impl TwoSided {
    /// Composes the two-sided messages of a rank, and registers their handler with `progress`.
    pub(crate) fn new(transfer: &Arc<Transfer>, settings: &Settings) -> Arc<Self> {
        let progress = &transfer.progress;
        let caps = progress.conduit().caps();
        let protocols = Protocols::choose(settings, caps);
        let choice = protocol::copied_first(settings, caps).map(LongRouteChoice::new);
        let this = Arc::new_cyclic(|me| Self {
            progress: Arc::clone(progress),
            transfer: Arc::clone(transfer),
            protocols,
            chooses: choice.is_some(),
            most_lent: settings.extents.unwrap_or(hydrant_smp::DEFAULT_EXTENTS) / 4,
            state: Mutex::new(TwoSidedState {
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
            in_flight: InFlightCount::default(),
            me: Weak::clone(me),
        });
        let route = incoming::Incoming(Arc::downgrade(&this));
        progress.route(kind::TWO_SIDED, Arc::new(route));
        this
    }

    /// Sends a control message to a peer, now or when there is room. Requests that wait for a lost
    /// peer are [`ended`].
    fn tell(&self, to: Rank, message: WireMessage<'_>, payload: &[u8]) {
        let encoded = message.encode();
        if let Err(cause) = (self.progress).send_result(to, &encoded.message(payload)) {
            tracing::debug!(%to, %cause, "a two-sided message could not be sent");
            self.check_for_ended_peers();
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
