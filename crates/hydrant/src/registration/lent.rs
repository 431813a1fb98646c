//! Own memory that peers may name: the segment, and exposed buffers.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock, RwLockReadGuard},
};

use hydrant_conduit::{Key, Rank, ReplyPort, Sent};
use hydrant_pinning::Refusal;
use hydrant_pinning::{Geometry, Run};
use rustc_hash::FxHashMap;

use super::{Registration, lock};
use crate::{
    Error, Result,
    am::kind,
    job::Core,
    memory::SYSTEM,
    progress::{For, On},
};

/// Where a buffer lies that does not.
const GONE: (u64, u64) = (u64::MAX, u64::MAX);

/// What peers may name here, and what of theirs is known here.
pub(super) struct Lent {
    segment: (u64, u64),
    /// Whether registrations follow what is mapped: then nothing of this matters.
    follows: bool,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    /// Allocated parts of the segment: where they begin, and their bytes.
    allocated: BTreeMap<u64, u64>,
    /// Exposed buffers, by key.
    exposed: BTreeMap<u64, Loan>,
    next: u64,
    /// Exposed buffers of peers.
    known: FxHashMap<(u32, u64), (u64, u64)>,
    /// Of which of them threads are asking the peer, and how many threads.
    asked: FxHashMap<(u32, u64), usize>,
    /// Peers that may name any address: their programs use the whole address space.
    anywhere: Vec<Rank>,
    /// Peers that were told that this one does.
    opened: Vec<Rank>,
}

/// An exposed buffer.
struct Loan {
    /// Where it lies, and its bytes.
    place: (u64, u64),
    /// Peers that know.
    told: Vec<Rank>,
}

impl State {
    /// A peer's buffer is gone: who asks for it is to hear so.
    fn forget(&mut self, name: (u32, u64)) {
        if self.asked.contains_key(&name) {
            self.known.insert(name, GONE);
        } else {
            self.known.remove(&name);
        }
    }

    /// A thread that asked for a peer's buffer has heard.
    fn heard(&mut self, name: (u32, u64)) {
        let Some(asking) = self.asked.get_mut(&name) else {
            return;
        };
        *asking -= 1;
        if *asking == 0 {
            self.asked.remove(&name);
            if self.known.get(&name) == Some(&GONE) {
                self.known.remove(&name);
            }
        }
    }

    fn exposes(&self, to: Rank, what: impl Fn((u64, u64)) -> bool) -> bool {
        self.anywhere.contains(&to) || self.exposed.values().any(|loan| what(loan.place))
    }
}

impl Lent {
    pub(super) fn new(base: u64, len: u64, follows: bool) -> Self {
        let lent = Self {
            segment: (base, len),
            follows,
            state: RwLock::default(),
        };
        // Hydrant's own part is there as long as the job.
        lent.allocate(base, (SYSTEM as u64).min(len));
        lent
    }

    /// A part of the segment is in use.
    pub(super) fn allocate(&self, addr: u64, len: u64) {
        self.change(|state| state.allocated.insert(addr, len));
    }

    /// A part of the segment goes.
    pub(super) fn free(&self, addr: u64) {
        self.change(|state| state.allocated.remove(&addr));
    }

    /// Whether own bytes go only after they were taken back: those of the segment do, for
    /// whoever has a buffer there has it of what is allocated.
    pub(super) fn lasts(&self, addr: u64, len: u64) -> bool {
        let (start, size) = self.segment;
        self.follows || (addr >= start && len <= size && addr - start <= size - len)
    }

    /// The first bucket of a run of which no byte goes only after it was taken back; its end, if
    /// there is none. Where a bucket is a page, one such byte keeps all of it where it is.
    pub(super) fn lasts_until(&self, geometry: Geometry, run: Run) -> u64 {
        if self.follows {
            return run.end();
        }
        let state = self.state();
        let allocated = state.allocated.iter().map(|(start, len)| (*start, *len));
        let exposed = state.exposed.values().map(|loan| loan.place);
        let mut lasting: Vec<Run> = (allocated.chain(exposed))
            .filter_map(|(start, len)| geometry.span(start, len).ok())
            .filter(|lasting| lasting.count > 0 && lasting.overlaps(run))
            .collect();
        lasting.sort_unstable();
        let mut end = run.first;
        for lasting in lasting {
            if lasting.first > end {
                break;
            }
            end = end.max(lasting.end());
        }
        end.min(run.end())
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a peer may name these bytes.
    pub(super) fn is_lent(&self, to: Rank, addr: u64, len: u64) -> bool {
        let within =
            |(start, size): (u64, u64)| addr >= start && len <= size && addr - start <= size - len;
        within(self.segment) || self.state().exposes(to, within)
    }

    /// Why a peer did not get to bytes that it named.
    pub(super) fn why_not(&self, to: Rank, addr: u64, len: u64) -> Refusal {
        if self.is_lent(to, addr, len) {
            Refusal::NotMapped
        } else {
            Refusal::NotLent
        }
    }

    /// Whether a peer may have these bytes registered: some of them are lent, and pages are
    /// registered as a whole.
    pub(super) fn is_near(&self, to: Rank, addr: u64, len: u64) -> bool {
        let meets = |(start, size): (u64, u64)| {
            addr < start.saturating_add(size) && start < addr.saturating_add(len)
        };
        meets(self.segment) || self.state().exposes(to, meets)
    }

    /// Does something that needs lent memory to stay lent meanwhile.
    pub(super) fn while_lent(
        &self,
        to: Rank,
        addr: u64,
        len: u64,
        act: impl FnOnce() -> bool,
    ) -> bool {
        let within =
            |(start, size): (u64, u64)| addr >= start && len <= size && addr - start <= size - len;
        if within(self.segment) {
            return act();
        }
        // The lock is held: a loan that ends waits for it.
        let state = self.state();
        state.exposes(to, within) && act()
    }
}

impl Core {
    /// Lends a buffer to peers: the key by which they name it.
    ///
    /// # Safety
    /// Until [`unlend`](Self::unlend) returns, the buffer stays allocated and is only accessed
    /// as shared memory.
    ///
    /// # Errors
    /// The conduit's.
    pub(crate) unsafe fn lend(&self, addr: *mut u8, len: usize) -> Result<Key> {
        let Some(registration) = &self.registration else {
            // SAFETY: handed on.
            return unsafe {
                (self.conduit).register(addr, len, hydrant_conduit::Access::ReadWrite)
            }
            .map_err(Error::from);
        };
        let place = (addr.expose_provenance() as u64, len as u64);
        self.begin_to_last(registration, place.0, place.1)?;
        Ok(registration.lent.change(|state| {
            state.next += 1;
            let loan = Loan {
                place,
                told: Vec::new(),
            };
            state.exposed.insert(state.next, loan);
            Key(state.next)
        }))
    }

    /// Ends a loan. `true`: no peer touches the buffer any more. `false`: that cannot be known
    /// here, in a handler, and the buffer must never be freed.
    #[must_use = "the buffer may still be in use"]
    pub(crate) fn unlend(&self, key: Key) -> bool {
        let Some(registration) = &self.registration else {
            // "Not in force" means that it was revoked before.
            let _ = self.conduit.deregister(key);
            return true;
        };
        let Some(loan) = registration
            .lent
            .change(|state| state.exposed.remove(&key.0))
        else {
            return true;
        };
        if crate::progress::may_wait("the end of an exposed buffer").is_err() {
            tracing::warn!("an exposed buffer was dropped in a handler: it is leaked");
            return false;
        }
        for peer in loan.told {
            // A peer that is gone needs to know nothing.
            let _ = self.send_resolve(peer, &[key.0, 0]);
        }
        self.take_back(registration, loan.place.0, loan.place.1)
    }

    /// Memory is about to be kept registered. Where a bucket is several pages, some of them may
    /// have been registered before they were what they are now: that is given up first.
    ///
    /// # Errors
    /// [`Error::InHandler`].
    pub(super) fn begin_to_last(
        &self,
        registration: &Registration,
        addr: u64,
        len: u64,
    ) -> Result<()> {
        if registration.shares_buckets() {
            crate::progress::may_wait("lending a buffer in buckets of several pages")?;
            self.take_back(registration, addr, len);
        }
        Ok(())
    }

    /// Takes own memory back from peers: they hold none of it when this returns, and none of it
    /// is registered.
    pub(super) fn take_back(&self, registration: &Registration, addr: u64, len: u64) -> bool {
        let id = registration.name();
        let run = match registration.geometry.span(addr, len) {
            Ok(run) if run.count > 0 => run,
            _ => return true,
        };
        self.step(registration, &[], |engine, out| engine.revoke(id, run, out));
        let over = || lock(&registration.revoked).remove(&id).is_some();
        self.wait(On::Nobody, For::Message, over).is_ok()
    }

    /// Where `len` bytes at `offset` of a peer's exposed buffer lie.
    ///
    /// # Errors
    /// [`Error::Revoked`], [`Error::Conduit`] with the extent's bounds, [`Error::PeerLost`].
    pub(super) fn exposed_at(
        &self,
        registration: &Registration,
        rank: Rank,
        key: u64,
        offset: u64,
        len: u64,
    ) -> Result<u64> {
        let (start, size) = self.exposed_place(registration, rank, key)?;
        if len > size || offset > size - len {
            return Err(Error::from(hydrant_conduit::Error::OutOfExtent {
                peer: rank,
                offset,
                len,
                extent: size,
            }));
        }
        Ok(start + offset)
    }

    fn exposed_place(
        &self,
        registration: &Registration,
        rank: Rank,
        key: u64,
    ) -> Result<(u64, u64)> {
        let revoked = || Error::Revoked { rank };
        if rank == self.rank {
            let state = registration.lent.state();
            let loan = state.exposed.get(&key).ok_or_else(revoked)?;
            return Ok(loan.place);
        }
        let known = || registration.lent.state().known.get(&(rank.0, key)).copied();
        if let Some(place) = known().filter(|place| *place != GONE) {
            return Ok(place);
        }
        crate::progress::may_wait("the first use of an exposed buffer")?;
        let name = (rank.0, key);
        (registration.lent).change(|state| *state.asked.entry(name).or_default() += 1);
        let mut place = None;
        let heard = self.send_resolve(rank, &[key]).and_then(|()| {
            self.wait(On::Rank(rank), For::Message, || {
                place = known();
                place.is_some()
            })
        });
        registration.lent.change(|state| state.heard(name));
        heard?;
        place.filter(|place| *place != GONE).ok_or_else(revoked)
    }

    /// Tells a peer, once and before anything else, that this program names any address of its.
    pub(crate) fn open_anywhere(&self, rank: Rank) -> Result<()> {
        let Some(registration) = &self.registration else {
            return Ok(());
        };
        if rank == self.rank || registration.lent.state().opened.contains(&rank) {
            return Ok(());
        }
        crate::progress::may_wait("the first use of a peer's address space")?;
        self.send_resolve(rank, &[])?;
        registration.lent.change(|state| state.opened.push(rank));
        Ok(())
    }

    fn send_resolve(&self, rank: Rank, args: &[u64]) -> Result<()> {
        let message = hydrant_conduit::Message {
            kind: kind::RESOLVE,
            tag: 0,
            args,
            payload: &[],
        };
        let mut sent = Ok(Sent::Full);
        self.wait(On::Rank(rank), For::Room, || {
            sent = self.conduit.send(rank, &message);
            !matches!(sent, Ok(Sent::Full))
        })?;
        sent.map(drop).map_err(Error::from)
    }

    /// A peer asks where an exposed buffer lies, says that one of its own is gone, or that it
    /// will name any address; `false` if it does none of these.
    pub(crate) fn where_exposed(&self, from: Rank, args: &[u64], port: &mut dyn ReplyPort) -> bool {
        let Some(registration) = &self.registration else {
            return false;
        };
        let key = match args {
            [] => {
                registration.lent.change(|state| state.anywhere.push(from));
                return true;
            }
            [key] => key,
            [key, 0] => {
                self.forget_exposed(from, *key);
                return true;
            }
            _ => return false,
        };
        let (start, len) = registration.lent.change(|state| {
            state.exposed.get_mut(key).map_or(GONE, |loan| {
                if !loan.told.contains(&from) {
                    loan.told.push(from);
                }
                loan.place
            })
        });
        let answer = hydrant_conduit::Message {
            kind: kind::RESOLVE,
            tag: 0,
            args: &[*key, start, len],
            payload: &[],
        };
        if let Err(cause) = port.reply(&answer) {
            tracing::error!(%cause, "a peer was not told where a buffer lies");
        }
        true
    }

    /// A peer says where its buffer lies, or that it is gone.
    pub(crate) fn is_exposed_at(&self, from: Rank, args: &[u64]) -> bool {
        let (Some(registration), [key, start, len]) = (&self.registration, args) else {
            return false;
        };
        let name = (from.0, *key);
        registration.lent.change(|state| {
            if state.asked.contains_key(&name) {
                // That it is gone by now may have been heard first.
                state.known.entry(name).or_insert((*start, *len));
            }
        });
        true
    }

    /// A peer's buffer is gone.
    fn forget_exposed(&self, from: Rank, key: u64) {
        if let Some(registration) = &self.registration {
            (registration.lent).change(|state| state.forget((from.0, key)));
        }
    }
}
