//! Sleep until something arrives, and wakes for sleepers.

use std::time::Duration;

#[cfg(doc)]
use crate::{Conduit, Sink};
use crate::{Rank, Word32};

/// The sleeping and waking of a rank's threads.
pub trait Sleep {
    /// Returns the wake word of `peer`, if its segment is mapped here.
    fn wake_word(&self, peer: Rank) -> Option<&WakeWord>;

    /// Blocks until a message arrives, `ready` returns true, somebody [wakes](Self::wake) this
    /// rank, or the timeout passes. It may return early. `ready` is called after peers can see the
    /// sleeper. Except for a [`Sleeper::Nap`], deliveries that other threads were passing to a
    /// [`Sink`] are complete by then, or else the sleep is brief. So no event is missed, whichever
    /// thread polls.
    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool);

    /// Wakes the sleepers of `peer` that its [`WakeWord`] shows. Called after a store to its
    /// memory.
    fn notify(&self, peer: Rank);

    /// Wakes every sleeper of `peer`, whatever its [`WakeWord`] shows. The peer may be this rank.
    fn wake(&self, peer: Rank);
}

/// The kinds of sleepers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleeper {
    /// The service thread, until a message arrives.
    Service,
    /// The service thread while the application polls for messages itself. Messages do not wake it,
    /// only [`Sleep::wake`] or the timeout.
    Nap,
    /// An application thread, until a message arrives, or until a peer that stored the awaited word
    /// [notifies](Sleep::notify) its rank.
    Application,
    /// Like [`Application`](Self::Application), but for any store to its memory. Its [`WakeWord`]
    /// asks all peers to notify it.
    Memory,
    /// Like [`Application`](Self::Application), or until a peer has taken requests. There may be
    /// room for another then, and [`Conduit::handled`] may have changed.
    Room,
}

/// The word of a rank that shows its sleepers. A peer that stores into the rank's mapped memory
/// reads the word afterwards. It [notifies](Sleep::notify) the rank if a bit asks for it.
#[derive(Debug)]
pub struct WakeWord {
    /// The bits below. The rank sets them before it sleeps and clears them when it is awake. Peers
    /// only read them.
    pub bits: Word32,
}

impl WakeWord {
    /// An application thread of the rank sleeps. A peer notifies the rank if it stored a word that
    /// serves only to be waited for.
    pub const APPLICATION: u32 = 2;
    /// A thread of the rank sleeps until its memory changes. A peer notifies the rank after any
    /// store.
    pub const MEMORY: u32 = 4;
}
