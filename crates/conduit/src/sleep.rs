//! Sleeping until something arrives, and waking who sleeps.

use std::time::Duration;

#[cfg(doc)]
use crate::{Conduit, Sink};
use crate::{Rank, Word32};

/// How the threads of a rank sleep and are woken.
pub trait Sleep {
    /// The wake word of `peer`, if its segment is mapped here.
    fn wake_word(&self, peer: Rank) -> Option<&WakeWord>;

    /// Blocks until something arrives, `ready` says yes, somebody [wakes](Self::wake) this
    /// rank or the time is over. It may return early. `ready` is asked after peers can see
    /// that somebody sleeps, and, but for a [`Sleeper::Nap`], after all that other threads were
    /// handing to a [`Sink`] by then has been handed over, or else the sleep is a brief one: so
    /// nothing can be missed, whoever polls.
    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool);

    /// Wakes the sleepers of `peer` that its [`WakeWord`] shows; called after a store to its
    /// memory.
    fn notify(&self, peer: Rank);

    /// Wakes every sleeper of `peer`, the own rank included, whatever its [`WakeWord`] shows.
    fn wake(&self, peer: Rank);
}

/// Who is about to sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleeper {
    /// The service thread, until a message comes.
    Service,
    /// The service thread while the application looks after messages itself: it is not
    /// called for each message, only by [`Sleep::wake`] or the end of the time.
    Nap,
    /// An application thread, until a message comes or a peer that stored what it waits for
    /// [notifies](Sleep::notify) its rank.
    Application,
    /// As [`Application`](Self::Application), but any store to its memory may be what it waits
    /// for: its [`WakeWord`] asks everybody to notify it.
    Memory,
    /// As [`Application`](Self::Application), or until a peer has taken requests: there may be
    /// room for another, and [`Conduit::handled`] may have changed.
    Room,
}

/// The word of a rank that shows who sleeps there. Whoever stores into the rank's memory, which is
/// mapped, reads the word afterwards and [notifies](Sleep::notify) the rank if a bit asks for it.
#[derive(Debug)]
pub struct WakeWord {
    /// The bits below. The rank sets them before it sleeps and clears them when it is awake; peers
    /// only read them.
    pub bits: Word32,
}

impl WakeWord {
    /// An application thread of the rank sleeps. Whoever stores a word that is only ever stored to
    /// be waited for notifies the rank then.
    pub const APPLICATION: u32 = 2;
    /// A thread of the rank sleeps until its memory changes. Whoever stores anything notifies the
    /// rank then.
    pub const MEMORY: u32 = 4;
}
