//! The registrations of a simulated rank: a plain list under a lock, which stands in for a driver's.

use std::sync::{Mutex, MutexGuard};

use hydrant_foresight::PageRun;

/// The index of a region in the list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EntryId(usize);

/// A registered region that a thread uses.
#[derive(Debug)]
pub(crate) struct HeldRegion {
    entry: EntryId,
    pub(crate) key: u64,
    pub(crate) region: PageRun,
}

/// The state of the region that contains a buffer.
#[derive(Debug)]
pub(crate) enum Acquired {
    /// Registered, and held from now on.
    Hit(HeldRegion),
    /// Being registered or deregistered.
    Busy,
    /// Known and not registered.
    Absent(EntryId),
    /// No known region contains the buffer.
    Unknown,
}

/// The answer to a request to deregister.
#[derive(Debug)]
pub(crate) enum Deregistration {
    /// The caller deregisters the key.
    Started {
        key: u64,
    },
    InUse,
    NotRegistered,
}

/// A registration would exceed the limit, or another thread was faster.
#[derive(Debug)]
pub(crate) struct NotStarted;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EntryState {
    Absent,
    Busy,
    Registered { key: u64, users: u32 },
    Forgotten,
}

#[derive(Debug, Default)]
struct RegistrationList {
    entries: Vec<(PageRun, EntryState)>,
    /// Registered bytes, registrations in progress included.
    bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Registrations {
    list: Mutex<RegistrationList>,
    limit_bytes: u64,
}

impl Registrations {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            list: Mutex::default(),
            limit_bytes,
        }
    }

    fn list(&self) -> MutexGuard<'_, RegistrationList> {
        self.list.lock().unwrap()
    }

    /// Finds a region that contains the buffer: a registered one first, then the largest absent one.
    pub(crate) fn acquire(&self, addr: u64, bytes: u64) -> Acquired {
        let mut list = self.list();
        let (mut absent, mut is_busy) = (None, false);
        for (at, (region, state)) in list.entries.iter_mut().enumerate() {
            if addr < region.addr || addr + bytes > region.addr + region.bytes {
                continue;
            }
            match state {
                EntryState::Registered { key, users } => {
                    *users += 1;
                    return Acquired::Hit(HeldRegion {
                        entry: EntryId(at),
                        key: *key,
                        region: *region,
                    });
                }
                EntryState::Absent => absent = absent.max(Some((region.bytes, EntryId(at)))),
                EntryState::Busy => is_busy = true,
                EntryState::Forgotten => {}
            }
        }
        match absent {
            Some((_, entry)) => Acquired::Absent(entry),
            None if is_busy => Acquired::Busy,
            None => Acquired::Unknown,
        }
    }

    /// Ends a use.
    pub(crate) fn release(&self, held: HeldRegion) {
        match &mut self.list().entries[held.entry.0].1 {
            EntryState::Registered { users, .. } => *users -= 1,
            state => panic!("{state:?}, though it is held"),
        }
    }

    /// The entry of exactly this region.
    pub(crate) fn find(&self, region: PageRun) -> Option<EntryId> {
        let list = self.list();
        let is_it = |it: &(PageRun, EntryState)| it.0 == region && it.1 != EntryState::Forgotten;
        list.entries.iter().position(is_it).map(EntryId)
    }

    /// Begins to register a new region.
    pub(crate) fn insert(&self, region: PageRun) -> Result<EntryId, NotStarted> {
        let mut list = self.list();
        self.reserve(&mut list, region)?;
        list.entries.push((region, EntryState::Busy));
        Ok(EntryId(list.entries.len() - 1))
    }

    /// Begins to register an absent region.
    pub(crate) fn claim(&self, id: EntryId) -> Result<PageRun, NotStarted> {
        let mut list = self.list();
        let (region, state) = list.entries[id.0];
        if state != EntryState::Absent {
            return Err(NotStarted);
        }
        self.reserve(&mut list, region)?;
        list.entries[id.0].1 = EntryState::Busy;
        Ok(region)
    }

    fn reserve(&self, list: &mut RegistrationList, region: PageRun) -> Result<(), NotStarted> {
        if list.bytes.saturating_add(region.bytes) > self.limit_bytes {
            return Err(NotStarted);
        }
        list.bytes += region.bytes;
        Ok(())
    }

    /// Ends a registration; nobody uses the region yet.
    pub(crate) fn publish(&self, id: EntryId, key: u64) {
        self.list().entries[id.0].1 = EntryState::Registered { key, users: 0 };
    }

    /// Ends a registration, with the caller as the first user.
    pub(crate) fn publish_held(&self, id: EntryId, key: u64) -> HeldRegion {
        let (region, state) = &mut self.list().entries[id.0];
        *state = EntryState::Registered { key, users: 1 };
        HeldRegion {
            entry: id,
            key,
            region: *region,
        }
    }

    /// Begins to deregister a region, if nobody uses it.
    pub(crate) fn begin_deregistering(&self, id: EntryId) -> Deregistration {
        let state = &mut self.list().entries[id.0].1;
        match *state {
            EntryState::Registered { key, users: 0 } => {
                *state = EntryState::Busy;
                Deregistration::Started { key }
            }
            EntryState::Registered { .. } => Deregistration::InUse,
            _ => Deregistration::NotRegistered,
        }
    }

    /// Ends a deregistration.
    pub(crate) fn deregistered(&self, id: EntryId) {
        let mut list = self.list();
        list.entries[id.0].1 = EntryState::Absent;
        list.bytes -= list.entries[id.0].0.bytes;
    }

    /// Forgets an absent region.
    pub(crate) fn forget(&self, id: EntryId) {
        let state = &mut self.list().entries[id.0].1;
        if *state == EntryState::Absent {
            *state = EntryState::Forgotten;
        }
    }

    pub(crate) fn registered_bytes(&self) -> u64 {
        self.list().bytes
    }
}
