//! A network whose NICs change words, by steps that a processor would come between: the played
//! one, with this above it. The ranks are threads of the test, so an address is one for all.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use hydrant::{Caps, Rank};
use hydrant_conduit::{
    Access, AccessKind, Atomic, Atomicity, Conduit, Error, Forward, Key, Permission, Posted,
    Remote, Sink, Sleeper, Standing, Ticket,
};

/// What all ranks share.
#[derive(Clone, Default)]
pub(crate) struct Nics {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// What is registered to be written: address and bytes, by rank and key.
    extents: BTreeMap<(u32, u64), (usize, usize)>,
    done: u64,
    /// Of so many operations on peers' words the result of one is lost; zero: of none.
    lossy: u64,
}

impl Nics {
    /// NICs of which one in so many results is lost.
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) fn lossy(every: u64) -> Self {
        let nics = Self::default();
        nics.state().lossy = every;
        nics
    }

    /// What stands between each rank and the network.
    pub(crate) fn layer(
        &self,
    ) -> impl Fn(Box<dyn Conduit>) -> Box<dyn Conduit> + Send + Sync + use<> {
        let nics = self.clone();
        move |inner| {
            let mut caps = inner.caps().clone();
            caps.atomics = Some(Atomicity::Network);
            let (nics, ended) = (nics.clone(), Mutex::default());
            Box::new(Layer {
                inner,
                caps,
                nics,
                ended,
                next: AtomicU64::new(1 << 61),
            })
        }
    }

    /// Operations that NICs did.
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) fn done(&self) -> u64 {
        self.state().done
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a word; `None` if no such memory is registered.
    fn change(&self, rank: Rank, word: Remote, operation: Atomic) -> Option<(u64, bool)> {
        let mut state = self.state();
        let (start, len) = *state.extents.get(&(rank.0, word.key.0))?;
        let at = usize::try_from(word.offset).ok()?;
        if at < start || at + 8 > start + len {
            return None;
        }
        state.done += 1;
        // In no order: ranks in step would have it hit the same operation of each round.
        let drawn = state.done.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let lost = state.lossy > 0 && drawn.is_multiple_of(state.lossy);
        // SAFETY: registered memory of a rank of this process, shared and aligned as the callers
        // of `Conduit::post` see to.
        let cell = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at)) };
        let was = cell.load(Relaxed);
        // Who else changes it now has done so in vain.
        if state.done.is_multiple_of(16) {
            thread::yield_now();
        }
        cell.store(
            match operation {
                Atomic::Add(value) => was.wrapping_add(value),
                Atomic::CompareSwap { expected, value } if was == expected => value,
                Atomic::CompareSwap { .. } => was,
            },
            Relaxed,
        );
        Some((was, lost))
    }
}

struct Layer {
    inner: Box<dyn Conduit>,
    caps: Caps,
    nics: Nics,
    /// Operations that ended and were not told of.
    ended: Mutex<Vec<(Ticket, Result<(), Error>)>>,
    next: AtomicU64,
}

impl Layer {
    fn ended(&self) -> MutexGuard<'_, Vec<(Ticket, Result<(), Error>)>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, sink: &mut dyn Sink) -> usize {
        let ended = std::mem::take(&mut *self.ended());
        let count = ended.len();
        for (ticket, outcome) in ended {
            sink.complete(ticket, outcome);
        }
        count
    }
}

// SAFETY: every call is handed on to a conduit that keeps the contract, but for atomic operations:
// those are done when their call returns, under tickets that no other operation has, and on words
// of extents in force alone.
unsafe impl Forward for Layer {
    fn inner(&self) -> &dyn Conduit {
        &*self.inner
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        permission: Permission,
    ) -> Result<Key, Error> {
        // SAFETY: the same contract.
        let key = unsafe { self.inner.register(addr, len, permission) }?;
        if permission == Permission::ReadWrite {
            let mut state = self.nics.state();
            let name = (self.inner.rank().0, key.0);
            state.extents.insert(name, (addr.expose_provenance(), len));
        }
        Ok(key)
    }

    fn deregister(&self, key: Key) -> Result<(), Error> {
        self.nics
            .state()
            .extents
            .remove(&(self.inner.rank().0, key.0));
        self.inner.deregister(key)
    }

    unsafe fn deregister_unused(&self, key: Key) -> Result<(), Error> {
        Forward::deregister(self, key)
    }

    fn poll(&self, sink: &mut dyn Sink) -> usize {
        self.tell(sink) + self.inner.poll(sink)
    }

    fn poll_past(&self, kind: u8, of: Option<Rank>, sink: &mut dyn Sink) -> usize {
        self.tell(sink) + self.inner.poll_past(kind, of, sink)
    }

    fn drain(&self, sink: &mut dyn Sink) -> usize {
        self.tell(sink) + self.inner.drain(sink)
    }

    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        // Another thread's operation may end meanwhile, and nobody rings for it.
        let timeout = timeout.map_or(UNHEARD, |timeout| timeout.min(UNHEARD));
        if self.ended().is_empty() {
            self.inner.wait(sleeper, Some(timeout), ready);
        }
    }

    unsafe fn post(&self, access: &Access) -> Result<Posted, Error> {
        let AccessKind::Atomic(operation) = access.kind else {
            // SAFETY: the same contract.
            return unsafe { self.inner.post(access) };
        };
        let (peer, word) = (access.peer, access.remote);
        if self.inner.standing(peer) != Standing::Present {
            return Err(Error::PeerLost(peer));
        }
        let key = word.key.0;
        let (found, lost) =
            (self.nics.change(peer, word, operation)).ok_or(Error::Revoked { peer, key })?;
        let own = peer == self.inner.rank();
        if own || !lost {
            // SAFETY: writable by nobody else, says the caller.
            unsafe { access.local.addr.cast::<u64>().write(found) };
        }
        if own {
            return Ok(Posted::Done);
        }
        let ticket = Ticket(self.next.fetch_add(1, Relaxed));
        let outcome = if lost {
            Err(Error::ResultLost { peer })
        } else {
            Ok(())
        };
        self.ended().push((ticket, outcome));
        Ok(Posted::Pending(ticket))
    }
}

/// How long who sleeps does so at most.
const UNHEARD: Duration = Duration::from_millis(2);
