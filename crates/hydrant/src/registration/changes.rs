//! Changes of own memory: heard from the monitor, and made known to the engine and to peers.
//!
//! Memory of the program may stay registered after its use if its changes are heard. The order keeps every use right:
//!
//! 1. Memory is watched before it is registered.
//! 2. The monitor counts a change in the word that each hit reads, before the call that changes memory returns. From then
//!    on operations go to the engine, until it [knows](hydrant_pinning::Engine::changed) of the change.
//! 3. An operation with own memory of the program first asks whether a change is under way that is not counted yet.
//!    Another thread may have unmapped what is mapped there by now. The question costs a system call. Blocks of a
//!    [`ReportingAllocator`] need none, because the thread that frees them tells before it does.
//! 4. Peers that reach changed memory are told to forget it, and no message leaves until they have answered. So nobody
//!    is told of the new memory at an address while a peer reaches the old. Where a handler sends, it cannot wait:
//!    its message follows those that tell peers.
//! 5. The kernel tells of removed pages before they go. With one page a bucket, a registration holds only pages that an
//!    operation has named. With several, it may hold [removed](super::watched) neighbours: then it ends at once.

use std::{sync::Arc, thread};

use hydrant_monitor::{ChangeListener, MemoryChange, Monitor, ReportingAllocator};
use hydrant_pinning::{Hot, RegionNumber, Run, wire::Need};
use smallvec::SmallVec;

use super::{Registration, persistent::AddressRange, watched::ChangedRanges};
use crate::{
    Error, Result, Settings,
    counters::Count,
    progress::{self, Backlog, For, On, Progress},
    settings::MonitorKind,
};

/// Notes changes as they begin, for one rank.
struct ChangeNote {
    hot: Arc<Hot>,
    progress: Arc<Progress>,
}

impl ChangeListener for ChangeNote {
    fn begins(&self) {
        self.hot.change_begins();
        self.progress.set_backlog(Backlog::Changes, true);
    }

    fn cancelled(&self) {
        self.hot.changes_known(1);
    }
}

/// Returns the monitor that tells a rank of changes of its memory. Registrations that follow the mapping need none.
///
/// # Errors
/// [`Error::Setting`] if a monitor is asked for that is absent.
pub(super) fn monitor(settings: &Settings, follows: bool) -> Result<Option<&'static Monitor>> {
    let is_of_use = !follows && !settings.conduit.is_virtual();
    if settings.monitor == MonitorKind::Off || !is_of_use {
        return Ok(None);
    }
    let refused = |why: &dyn std::fmt::Display| Error::Setting {
        name: "HYDRANT_MONITOR",
        value: settings.monitor.to_string(),
        expected: format!("another monitor: {why}"),
    };
    let monitor = Monitor::of_process();
    match (settings.monitor, monitor) {
        (MonitorKind::Allocator, _) if !ReportingAllocator::is_in_force() => Err(refused(
            &"the program's #[global_allocator] is no hydrant::ReportingAllocator",
        )),
        (MonitorKind::Userfaultfd, Ok(monitor)) => match monitor.source() {
            Ok(_) => Ok(Some(monitor)),
            Err(why) => Err(refused(&why)),
        },
        (_, Ok(monitor)) => Ok(Some(monitor)),
        (MonitorKind::Auto, Err(why)) => {
            tracing::debug!(%why, "memory of the program is registered for one operation at a time");
            Ok(None)
        }
        (_, Err(why)) => Err(refused(&why)),
    }
}

impl Registration {
    /// Begins to hear of changes.
    pub(super) fn hear_of_changes(&self, monitor: &'static Monitor) {
        let note = ChangeNote {
            hot: Arc::clone(&self.hot),
            progress: Arc::clone(&self.progress),
        };
        match monitor.subscribe(Arc::new(note)) {
            Ok(changes) => {
                self.progress.settle_by(Arc::clone(&self.hot));
                _ = self.changes.set(changes);
            }
            Err(why) => {
                tracing::debug!(%why, "memory of the program is registered for one operation at a time");
            }
        }
    }

    /// Returns whether memory of the program that peers name by its address may stay registered.
    pub(crate) fn hears(&self) -> bool {
        self.changes.get().is_some()
    }

    /// Returns whether changes of own memory of the program are heard from now on, so that it may stay registered. The
    /// changes before this call are known to the engine then. An operation names the memory.
    pub(crate) fn hears_of(&self, addr: u64, len: u64) -> bool {
        let named = whole_pages((addr, len));
        self.hears_of_buckets(self.whole_buckets(named), Some(named))
    }

    /// As [`hears_of`](Self::hears_of), for whole buckets. An operation has named some of their pages, if they are known.
    fn hears_of_buckets(&self, range: AddressRange, named: Option<AddressRange>) -> bool {
        let Some(changes) = self.changes.get() else {
            return false;
        };
        let watched = &self.lent.watched;
        let is_reported = self.begin_to_hear(range, changes.monitor());
        let watch =
            |fresh: &mut _| self.by_kernel && watched.watch(changes.monitor(), range, fresh);
        // The kernel watches blocks, too, where it can: the program may empty a part of one by itself.
        if !watched.has(range) && !self.begin_to_watch(watch) && !is_reported {
            return false;
        }
        if is_reported {
            self.learn_changes();
        } else if !self.learn_of_changes_under_way() {
            return false;
        }
        // After the changes are known: this memory is named as it is now.
        if let Some(named) = named {
            watched.name(named);
        }
        // A change may have ended what was watched.
        let is_watched = match is_reported {
            true => watched.is_reported(range),
            false => watched.has(range),
        };
        is_watched && watched.is_ready() && !watched.holds_removed(range)
    }

    /// Returns whether the program's allocator tells of changes of whole buckets from now on.
    fn begin_to_hear(&self, range: AddressRange, monitor: &Monitor) -> bool {
        let watched = &self.lent.watched;
        ReportingAllocator::is_in_force()
            && (watched.is_reported(range)
                || monitor.watch_block(range.0, range.1).is_some()
                    && self.begin_to_watch(|fresh| watched.watch_block(monitor, range, fresh)))
    }

    /// Has memory watched by `watch`, which says what is watched from then on.
    fn begin_to_watch(&self, watch: impl FnOnce(&mut ChangedRanges) -> bool) -> bool {
        let _unready = self.lent.watched.prepare();
        let mut fresh = ChangedRanges::new();
        let is_watched = watch(&mut fresh);
        // Whole mappings are watched. An earlier registration may hold what was there before, because nobody has told of
        // its changes.
        for (start, len) in fresh {
            if let Ok(run) = self.geometry.span(start, len) {
                self.step(&[], |engine, out| {
                    engine.unheard(run, &mut || self.name(), out)
                });
            }
        }
        is_watched
    }

    /// Notes that a peer's operation, which was copied, names own memory by its address.
    pub(super) fn note_named(&self, addr: u64, len: u64) {
        self.lent.watched.name(whole_pages((addr, len)));
    }

    /// Returns whether this thread may wait for a message: not in a handler or a task, nor in a room's own handling of a
    /// message, where the inbox is locked.
    fn may_wait(&self, what: &'static str) -> bool {
        progress::may_wait(what).is_ok() && !self.progress.is_polled_here()
    }

    /// Returns the range of the buckets that hold some bytes of a range.
    fn whole_buckets(&self, range: AddressRange) -> AddressRange {
        let geometry = self.geometry;
        geometry.span(range.0, range.1).map_or(range, |run| {
            let start = geometry.address_of(run.first);
            (start, geometry.address_of(run.end()) - start)
        })
    }

    /// Returns the number of times that removed pages were named, to be asked before a registration.
    pub(super) fn namings(&self) -> u64 {
        self.lent.watched.namings()
    }

    /// Returns whether a fresh registration may hold removed pages: no operation has named them since, or one has named
    /// them while the pages were registered. There were so many `namings` before.
    pub(super) fn may_hold_removed(&self, (start, end): (u64, u64), namings: u64) -> bool {
        let watched = &self.lent.watched;
        if self.changes.get().is_none() || !watched.remembers_removed() {
            return false;
        }
        self.learn_changes();
        let range = (start, end - start);
        watched.holds_removed(range) || watched.has_named_since(namings, range)
    }

    /// Notes a use of own memory of the program. Returns whether it was used before, as far as that is remembered.
    pub(crate) fn was_used(&self, addr: u64) -> bool {
        self.lent.watched.note_use(addr)
    }

    /// Returns whether own memory that a peer names may stay registered: it is persistent, or its changes are heard.
    pub(super) fn may_stay_registered(&self, region: RegionNumber, run: Run) -> bool {
        let geometry = self.geometry;
        if self.hears_of_shared {
            return self.hears_of_all(run);
        }
        let known = self.lent.persistent_until(geometry, run);
        if known == run.end() {
            return true;
        }
        if region.0 != hydrant_conduit::Key::ANY.0 {
            return false;
        }
        let (start, end) = (geometry.address_of(known), geometry.address_of(run.end()));
        // The message names buckets. So removed pages of those with several stay remembered.
        let range = (start, end - start);
        let hears = self.hears_of_buckets(range, (!self.shares_buckets()).then_some(range));
        if hears {
            self.progress.lends_watched();
        }
        hears
    }

    /// Returns whether all pages of a run of buckets are persistent, or their changes are heard.
    fn hears_of_all(&self, run: Run) -> bool {
        let Some(others) = self.lent.not_persistent(self.range_of(run)) else {
            return true;
        };
        // The message names buckets. So removed pages stay remembered.
        let hears = self.hears_of_buckets(others, None);
        if hears {
            self.progress.lends_watched();
        }
        hears
    }

    /// Removes from the preferred parts of a move what may not stay registered. A firehose on it could be hit by address.
    pub(super) fn clip_to_heard(&self, needs: &mut [Need]) {
        if !self.hears_of_shared {
            return;
        }
        for need in needs {
            let run = need.run;
            let after = Run {
                first: run.end(),
                count: need.preferred.end() - run.end(),
            };
            let other = self.lent.not_persistent(self.range_of(after));
            let end = other.map_or(after.end(), |(start, _)| self.geometry.bucket_of(start));
            need.preferred = Run {
                first: run.first,
                count: end - run.first,
            };
        }
    }

    /// Returns the range of a run of buckets.
    fn range_of(&self, run: Run) -> AddressRange {
        let start = self.geometry.address_of(run.first);
        (start, self.geometry.address_of(run.end()) - start)
    }

    /// Returns whether own memory that no operation has named may be registered ahead: its changes are heard already, and
    /// none of its pages may be on their way out.
    pub(super) fn is_heard(&self, range: AddressRange) -> bool {
        let watched = &self.lent.watched;
        (watched.has(range) || watched.is_reported(range))
            && self.learn_of_changes_under_way()
            && (watched.has(range) || watched.is_reported(range))
            && watched.is_ready()
            && !watched.holds_removed(range)
    }

    /// Makes changes of own memory known, before memory is used that an earlier registration may hold as it was.
    pub(crate) fn learn_before_use(&self, (addr, len): AddressRange) {
        if self.changes.get().is_none() {
            return;
        }
        let is_reported = ReportingAllocator::is_in_force()
            && (self.lent.watched).is_reported(self.whole_buckets(whole_pages((addr, len))));
        match is_reported {
            true => self.learn_changes(),
            false => _ = self.learn_of_changes_under_way(),
        }
    }

    /// Waits until changes under way are counted, and makes them known. Returns false if changes are not heard any more.
    fn learn_of_changes_under_way(&self) -> bool {
        let Some(changes) = self.changes.get() else {
            return false;
        };
        // Asked first: a change that is not under way any more is counted by now.
        loop {
            match changes.monitor().is_quiet() {
                Ok(true) => break,
                Ok(false) => {
                    self.learn_changes();
                    thread::yield_now();
                }
                Err(_) => {
                    self.forget_watched();
                    return false;
                }
            }
        }
        self.learn_changes();
        true
    }

    /// Takes all watched memory back, because nobody hears of its changes any more.
    #[cold]
    fn forget_watched(&self) {
        let all = (self.lent).apply(&MemoryChange::Anything);
        let spans = all
            .iter()
            .filter_map(|(start, len)| self.geometry.span(*start, *len).ok());
        let runs: Vec<(u64, Run)> = spans.map(|run| (self.name(), run)).collect();
        if !runs.is_empty() {
            self.step(&[], |engine, out| engine.changed(&runs, 0, out));
        }
    }

    /// Makes counted changes known to the engine, and sends what peers must be told.
    pub(crate) fn learn_changes(&self) {
        let Some(changes) = self.changes.get() else {
            return;
        };
        while self.hot.has_changes() {
            let (mut runs, mut count) = (SmallVec::<[(u64, Run); 8]>::new(), 0);
            while let Some(change) = changes.take() {
                count += 1;
                for (start, len) in self.lent.apply(&change) {
                    if let Ok(run) = self.geometry.span(start, len) {
                        runs.push((self.name(), run));
                    }
                }
            }
            if count == 0 {
                // The monitor reads it, or another thread makes it known.
                thread::yield_now();
                continue;
            }
            (self.progress.tally).add_each([(Count::MemoryChanges, u64::from(count))]);
            self.step(&[], |engine, out| engine.changed(&runs, count, out));
        }
    }

    /// Returns whether changes of own memory are not known yet to the engine, or to peers that reach the memory.
    #[inline]
    pub(crate) fn is_unsettled(&self) -> bool {
        self.hot.is_unsettled()
    }

    /// Makes changes known to the engine and to the peers that reach the memory. Waits for these peers, unless the
    /// caller is a handler or a task, or handles a message.
    #[cold]
    pub(crate) fn settle(&self) {
        if self.changes.get().is_none() {
            return;
        }
        self.learn_of_changes_under_way();
        while self.hot.is_unsettled() {
            self.learn_changes();
            if !self.may_wait("answers about changed memory") {
                return self.flush();
            }
            let settled = || !self.hot.is_unsettled() || self.hot.has_changes();
            // A rank that counts as lost has other errors to report.
            if (self.progress.wait(On::Nobody, For::Message, settled)).is_err() {
                return;
            }
        }
    }
}

/// Returns the range of the pages that hold some bytes.
fn whole_pages((addr, len): AddressRange) -> AddressRange {
    const PAGE: u64 = 4096;
    let start = addr & !(PAGE - 1);
    let end = addr.saturating_add(len).saturating_add(PAGE - 1) & !(PAGE - 1);
    (start, end - start)
}
