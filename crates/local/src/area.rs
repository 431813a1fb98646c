//! The area: a small file that both processes of a connection map.
//!
//! Each side has a table of *grants*, which only the owner of the memory writes, and a table of *hazards*, which only
//! the initiator writes. A grant says where memory is and what the initiator may do there. A hazard says which grant
//! the initiator uses now.
//!
//! ```text
//! initiator                              owner
//! hazard = grant                         grant.state = ended
//! fence                                  fence
//! grant.state as it was told? copy       wait while a hazard names the grant
//! hazard = none
//! ```
//!
//! Both sides write before they read, and fence between. So either the initiator sees the end of the grant, or the
//! owner sees the hazard. When [`wait_unused`](SharedArea::wait_unused) has returned, nobody accesses the memory.
//!
//! All fields are atomics, and each side checks what it reads. A peer that writes nonsense harms accesses to its own
//! memory, or its own accesses. It has to be trusted anyway: the kernel lets it write to this process.

#![allow(unsafe_code)] // maps the file

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
        fence,
    },
    time::{Duration, Instant},
};

use hydrant_base::fixed;
use hydrant_conduit::Error;
use hydrant_smp::file_size;
use parking_lot::Mutex;
use rustix::{
    fs::{self, MemfdFlags, SealFlags},
    mm::{self, MapFlags, ProtFlags},
    thread::futex,
};

use crate::alive::AliveWord;

/// The most grants of one side at a time.
pub const GRANTS: u32 = 4096;
/// The most accesses of one side at a time. Others wait for a place.
const HAZARDS: usize = 64;
/// How long the owner of a grant spins for its last use, before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// How long the owner sleeps at most, until it looks whether the initiator still lives.
const NAP: Duration = Duration::from_millis(5);

/// Bits of a grant's state. The rest is the number of the grant's use.
const LIVE: u64 = 1;
const READ: u64 = 2;
const WRITE: u64 = 4;
/// The grant has ended because its time is over.
const EXPIRED: u64 = 8;
const NUMBER: u64 = 16;

/// Why a grant does not permit an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GrantRefusal {
    /// The owner has revoked the memory.
    #[error("the owner has revoked the memory")]
    Revoked,
    /// The time of the grant is over.
    #[error("the time for which the memory was lent is over")]
    Expired,
    /// The access leaves the memory.
    #[error("the access leaves the memory that was granted")]
    OutOfBounds,
    /// The grant does not permit reads, or writes.
    #[error("the grant does not permit that")]
    NotPermitted,
}

/// The kind of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrantUse {
    /// The initiator reads the owner's memory.
    Read,
    /// The initiator writes it.
    Write,
}

/// The memory that a grant names, and what it permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantTerms {
    /// The address in the owner's process.
    pub addr: usize,
    /// The number of bytes.
    pub len: usize,
    /// True if the initiator may read.
    pub read: bool,
    /// True if the initiator may write.
    pub write: bool,
    /// When the grant ends, in nanoseconds of the host's monotonic clock.
    pub until: Option<u64>,
}

/// A grant, as both sides name it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GrantName {
    pub(crate) index: u32,
    pub(crate) state: u64,
}

impl GrantName {
    /// Returns the name that a layer above gives to a grant of its own, which no area has.
    pub fn of_number(state: u64) -> Self {
        Self { index: 0, state }
    }

    /// Returns the number of a grant of the layer above.
    pub fn number(self) -> u64 {
        self.state
    }
}

fixed! {
    GrantName { index, state }
}

#[repr(C, align(64))]
struct HazardEntry {
    /// The index of the grant in use, plus 1.
    grant: AtomicU64,
}

#[repr(C, align(32))]
struct GrantEntry {
    state: AtomicU64,
    addr: AtomicU64,
    len: AtomicU64,
    /// 0 for no end.
    until: AtomicU64,
}

#[repr(C, align(64))]
struct Header {
    magic: AtomicU64,
    /// Changed when a use of an ended grant ends, for the owner that sleeps. One for each side.
    ended: [AtomicU32; 2],
    /// Held by a thread of each side.
    alive: [AliveWord; 2],
}

/// The tables of one side.
#[repr(C, align(4096))]
struct AreaHalf {
    /// The grants that this side's accesses use.
    hazards: [HazardEntry; HAZARDS],
    /// The grants of this side's memory.
    grants: [GrantEntry; GRANTS as usize],
}

#[repr(C, align(4096))]
struct Contents {
    header: Header,
    halves: [AreaHalf; 2],
}

const MAGIC: u64 = u64::from_le_bytes(*b"hydrlocl");

/// The area in this process's memory.
pub(crate) struct SharedArea {
    contents: NonNull<Contents>,
    /// The file, until the other side has it.
    file: Option<OwnedFd>,
    /// 0 for the side that listened, 1 for the side that connected.
    own: usize,
    /// The own hazards in use, a bit for each.
    claimed: AtomicU64,
    /// The own grants that are free.
    free: Mutex<FreeGrants>,
}

struct FreeGrants {
    returned: Vec<u32>,
    /// The grants from here on were never used.
    fresh: u32,
}

// SAFETY: the mapping is accessed as atomics only.
unsafe impl Send for SharedArea {}
// SAFETY: as above.
unsafe impl Sync for SharedArea {}

impl SharedArea {
    /// Makes the area, as the side that listened.
    pub(crate) fn create() -> Result<Self, Error> {
        let failed = |cause| Error::system("making the shared file of a connection", cause);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = fs::memfd_create("hydrant-local", flags).map_err(failed)?;
        file_size::set(&file, size_of::<Contents>() as u64)?;
        fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(failed)?;
        let area = Self::map(file, 0)?;
        area.contents().header.magic.store(MAGIC, Release);
        Ok(area)
    }

    /// Maps the area that the other side made.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the file is none that this version makes; [`Error::System`].
    pub(crate) fn open(file: OwnedFd) -> Result<Self, Error> {
        let failed = |cause| Error::system("mapping the shared file of a connection", cause);
        let size = fs::fstat(&file).map_err(failed)?.st_size;
        let seals = fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        if size != size_of::<Contents>() as i64 || !seals.contains(SealFlags::SHRINK) {
            let what = "the shared file of a connection has another size, or can shrink".to_owned();
            return Err(Error::Unreachable(what));
        }
        let mut area = Self::map(file, 1)?;
        area.close_file();
        if area.contents().header.magic.load(Acquire) != MAGIC {
            let what = "the shared file of a connection is of another version".to_owned();
            return Err(Error::Unreachable(what));
        }
        Ok(area)
    }

    fn map(file: OwnedFd, own: usize) -> Result<Self, Error> {
        // SAFETY: the call makes a new mapping, and affects no other.
        let base = unsafe {
            mm::mmap(
                ptr::null_mut(),
                size_of::<Contents>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        let base =
            base.map_err(|cause| Error::system("mapping the shared file of a connection", cause))?;
        let contents = NonNull::new(base.cast()).expect("a mapping is not at address 0");
        Ok(Self {
            contents,
            file: Some(file),
            own,
            claimed: AtomicU64::new(0),
            free: Mutex::new(FreeGrants {
                returned: Vec::new(),
                fresh: 0,
            }),
        })
    }

    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Closes the file. The memory stays.
    pub(crate) fn close_file(&mut self) {
        self.file = None;
    }

    fn contents(&self) -> &Contents {
        // SAFETY: the mapping is of that size, is aligned to a page, and lives as long as `self`. The file cannot
        // shrink. All fields are atomics, for which any bytes are valid.
        unsafe { self.contents.as_ref() }
    }

    /// Returns the word that a thread of this side holds.
    pub(crate) fn own_alive(&self) -> &AliveWord {
        &self.contents().header.alive[self.own]
    }

    /// Returns the word that a thread of the other side holds.
    pub(crate) fn peer_alive(&self) -> &AliveWord {
        &self.contents().header.alive[1 - self.own]
    }

    fn own(&self) -> &AreaHalf {
        &self.contents().halves[self.own]
    }

    fn other(&self) -> &AreaHalf {
        &self.contents().halves[1 - self.own]
    }

    /// Grants own memory to the peer. Returns `None` if all grants are in use.
    pub(crate) fn grant(&self, terms: &GrantTerms) -> Option<GrantName> {
        let index = {
            let mut free = self.free.lock();
            match free.returned.pop() {
                Some(index) => index,
                None if free.fresh < GRANTS => {
                    free.fresh += 1;
                    free.fresh - 1
                }
                None => return None,
            }
        };
        let entry = &self.own().grants[index as usize];
        entry.addr.store(terms.addr as u64, Relaxed);
        entry.len.store(terms.len as u64, Relaxed);
        entry.until.store(terms.until.unwrap_or(0), Relaxed);
        let number = entry.state.load(Relaxed) / NUMBER;
        let rights = if terms.read { READ } else { 0 } | if terms.write { WRITE } else { 0 };
        let state = number.wrapping_add(1).wrapping_mul(NUMBER) | LIVE | rights;
        entry.state.store(state, Release);
        Some(GrantName { index, state })
    }

    /// Returns true if the grant is in force.
    pub(crate) fn is_granted(&self, name: GrantName) -> bool {
        (self.own().grants.get(name.index as usize))
            .is_some_and(|entry| entry.state.load(Acquire) == name.state)
    }

    /// Returns the terms of an own grant for an access of the peer that this process makes.
    pub(crate) fn permits(
        &self,
        name: GrantName,
        [offset, len]: [u64; 2],
        how: GrantUse,
    ) -> Result<usize, GrantRefusal> {
        let entry = (self.own().grants.get(name.index as usize)).ok_or(GrantRefusal::Revoked)?;
        check(entry, name, [offset, len], how)
    }

    /// Ends a grant. No access begins from now on, but some may be under way.
    pub(crate) fn end(&self, name: GrantName, is_expired: bool) {
        let entry = &self.own().grants[name.index as usize];
        let ended = name.state & !LIVE | if is_expired { EXPIRED } else { 0 };
        let _ = entry
            .state
            .compare_exchange(name.state, ended, SeqCst, Relaxed);
        fence(SeqCst);
    }

    /// Returns true if an access that began before the end of the grant is under way.
    fn is_used(&self, index: u32) -> bool {
        (self.other().hazards.iter())
            .any(|hazard| hazard.grant.load(Acquire) == u64::from(index) + 1)
    }

    /// Waits until no access uses an ended grant. Returns `false` if `goes_on` says no first, and the grant is still in
    /// use then.
    pub(crate) fn wait_unused(&self, name: GrantName, mut goes_on: impl FnMut() -> bool) -> bool {
        let word = &self.contents().header.ended[self.own];
        let since = Instant::now();
        loop {
            let seen = word.load(Acquire);
            if !self.is_used(name.index) {
                return true;
            }
            if since.elapsed() < SPIN {
                std::hint::spin_loop();
                continue;
            }
            if !goes_on() {
                return false;
            }
            let nap = rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: NAP.as_nanos() as i64,
            };
            // An early return is as good as a late one.
            let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&nap));
        }
    }

    /// Makes the place of an ended grant free for another. Nobody uses the grant.
    pub(crate) fn free(&self, name: GrantName) {
        self.free.lock().returned.push(name.index);
    }

    /// Begins an access to the peer's memory. Returns the address in the peer's process. The access lasts until the
    /// guard is dropped.
    ///
    /// # Errors
    /// [`GrantRefusal`].
    pub(crate) fn begin_use(
        &self,
        name: GrantName,
        range: [u64; 2],
        how: GrantUse,
    ) -> Result<(usize, HazardGuard<'_>), GrantRefusal> {
        let entry = (self.other().grants.get(name.index as usize)).ok_or(GrantRefusal::Revoked)?;
        let guard = self.claim(name.index);
        // Sequentially consistent, against the fence in `end`.
        fence(SeqCst);
        let addr = check(entry, name, range, how)?;
        Ok((addr, guard))
    }

    fn claim(&self, grant: u32) -> HazardGuard<'_> {
        let place = loop {
            let claimed = self.claimed.load(Relaxed);
            let place = claimed.trailing_ones();
            if place as usize >= HAZARDS {
                std::thread::yield_now();
                continue;
            }
            let wanted = claimed | 1 << place;
            let claimed = self
                .claimed
                .compare_exchange_weak(claimed, wanted, Acquire, Relaxed);
            if claimed.is_ok() {
                break place as usize;
            }
        };
        let hazard = &self.own().hazards[place];
        hazard.grant.store(u64::from(grant) + 1, SeqCst);
        HazardGuard {
            area: self,
            place,
            grant,
        }
    }
}

impl Drop for SharedArea {
    fn drop(&mut self) {
        // SAFETY: the mapping is this struct's own, and nothing refers to it any more.
        let _ = unsafe { mm::munmap(self.contents.as_ptr().cast(), size_of::<Contents>()) };
    }
}

/// Checks an access against a grant.
fn check(
    entry: &GrantEntry,
    name: GrantName,
    [offset, len]: [u64; 2],
    how: GrantUse,
) -> Result<usize, GrantRefusal> {
    let state = entry.state.load(SeqCst);
    if state != name.state || state & LIVE == 0 {
        let is_same = state / NUMBER == name.state / NUMBER;
        return Err(if is_same && state & EXPIRED != 0 {
            GrantRefusal::Expired
        } else {
            GrantRefusal::Revoked
        });
    }
    let right = match how {
        GrantUse::Read => READ,
        GrantUse::Write => WRITE,
    };
    if state & right == 0 {
        return Err(GrantRefusal::NotPermitted);
    }
    let until = entry.until.load(Relaxed);
    if until != 0 && monotonic() >= until {
        return Err(GrantRefusal::Expired);
    }
    let room = entry.len.load(Relaxed);
    if offset.checked_add(len).is_none_or(|end| end > room) {
        return Err(GrantRefusal::OutOfBounds);
    }
    let addr = entry.addr.load(Relaxed).checked_add(offset);
    let addr = addr.and_then(|addr| usize::try_from(addr).ok());
    addr.ok_or(GrantRefusal::OutOfBounds)
}

/// Returns the nanoseconds of the host's monotonic clock, which all its processes share.
pub fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// An access under way.
pub(crate) struct HazardGuard<'a> {
    area: &'a SharedArea,
    place: usize,
    grant: u32,
}

impl Drop for HazardGuard<'_> {
    fn drop(&mut self) {
        let area = self.area;
        area.own().hazards[self.place].grant.store(0, SeqCst);
        area.claimed.fetch_and(!(1 << self.place), Release);
        // The owner may have ended the grant meanwhile, and sleep.
        let entry = &area.other().grants[self.grant as usize];
        if entry.state.load(SeqCst) & LIVE == 0 {
            let word = &area.contents().header.ended[1 - area.own];
            word.fetch_add(1, Release);
            let _ = futex::wake(word, futex::Flags::empty(), u32::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize},
    };

    use super::*;

    fn pair() -> (SharedArea, SharedArea) {
        let area = SharedArea::create().unwrap();
        let file = area.file().unwrap().try_clone_to_owned().unwrap();
        (area, SharedArea::open(file).unwrap())
    }

    const TERMS: GrantTerms = GrantTerms {
        addr: 0x1000,
        len: 100,
        read: true,
        write: false,
        until: None,
    };

    #[test]
    fn a_grant_permits_what_it_says_until_it_ends() {
        let (owner, peer) = pair();
        let name = owner.grant(&TERMS).unwrap();
        let begin = |range, how| peer.begin_use(name, range, how).map(|(addr, _)| addr);
        assert_eq!(begin([10, 90], GrantUse::Read), Ok(0x100a));
        assert_eq!(
            begin([10, 91], GrantUse::Read),
            Err(GrantRefusal::OutOfBounds)
        );
        assert_eq!(
            begin([u64::MAX, 2], GrantUse::Read),
            Err(GrantRefusal::OutOfBounds)
        );
        assert_eq!(
            begin([0, 1], GrantUse::Write),
            Err(GrantRefusal::NotPermitted)
        );
        owner.end(name, false);
        assert_eq!(begin([0, 1], GrantUse::Read), Err(GrantRefusal::Revoked));
        assert!(owner.wait_unused(name, || false));
        owner.free(name);
        let next = owner.grant(&TERMS).unwrap();
        assert_eq!(next.index, name.index);
        assert_eq!(begin([0, 1], GrantUse::Read), Err(GrantRefusal::Revoked));
        owner.end(next, true);
        let late = peer.begin_use(next, [0, 1], GrantUse::Read).map(|_| ());
        assert_eq!(late, Err(GrantRefusal::Expired));
    }

    #[test]
    fn a_grant_ends_with_its_time() {
        let (owner, peer) = pair();
        let until = |ns| GrantTerms {
            until: Some(monotonic() + ns),
            ..TERMS
        };
        let over = owner.grant(&until(0)).unwrap();
        let lasting = owner.grant(&until(1 << 40)).unwrap();
        let begin = |name| peer.begin_use(name, [0, 1], GrantUse::Read).map(|_| ());
        assert_eq!(begin(over), Err(GrantRefusal::Expired));
        assert_eq!(begin(lasting), Ok(()));
    }

    #[test]
    fn there_are_as_many_grants_as_said() {
        let (owner, _peer) = pair();
        let names: Vec<_> = (0..GRANTS).map(|_| owner.grant(&TERMS).unwrap()).collect();
        assert_eq!(owner.grant(&TERMS), None);
        owner.end(names[5], false);
        owner.free(names[5]);
        assert_eq!(owner.grant(&TERMS).unwrap().index, names[5].index);
    }

    #[test]
    fn the_end_waits_for_uses() {
        let (owner, peer) = pair();
        let name = owner.grant(&TERMS).unwrap();
        let (_, guard) = peer.begin_use(name, [0, 1], GrantUse::Read).unwrap();
        owner.end(name, false);
        assert!(!owner.wait_unused(name, || false));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(owner.wait_unused(name, || true));
                assert!(is_over.load(SeqCst));
            });
            std::thread::sleep(Duration::from_millis(20));
            is_over.store(true, SeqCst);
            drop(guard);
        });
    }

    /// Uses race with ends of the grant. After each end, the owner alone changes the memory.
    #[test]
    fn no_use_outlives_the_end() {
        let (owner, peer) = pair();
        let (owner, peer) = (Arc::new(owner), Arc::new(peer));
        let word = Arc::new(AtomicUsize::new(0));
        let terms = GrantTerms {
            addr: word.as_ptr() as usize,
            len: 8,
            write: true,
            ..TERMS
        };
        let current = Arc::new(Mutex::new(owner.grant(&terms).unwrap()));
        let stop = Arc::new(AtomicBool::new(false));
        let users: Vec<_> = (0..2)
            .map(|_| {
                let (peer, word) = (Arc::clone(&peer), Arc::clone(&word));
                let (current, stop) = (Arc::clone(&current), Arc::clone(&stop));
                std::thread::spawn(move || {
                    while !stop.load(SeqCst) {
                        let name = *current.lock();
                        if let Ok((_, guard)) = peer.begin_use(name, [0, 8], GrantUse::Write) {
                            word.fetch_add(1, SeqCst);
                            std::hint::spin_loop();
                            drop(guard);
                        }
                    }
                })
            })
            .collect();
        let mut rounds = 0;
        // On a busy machine the users may wait for a processor.
        while rounds < 2000 || word.load(SeqCst) < 100 {
            rounds += 1;
            let name = *current.lock();
            owner.end(name, false);
            assert!(owner.wait_unused(name, || true));
            let before = word.load(SeqCst);
            for _ in 0..100 {
                std::hint::spin_loop();
            }
            assert_eq!(word.load(SeqCst), before, "a use outlived the end");
            owner.free(name);
            *current.lock() = owner.grant(&terms).unwrap();
        }
        stop.store(true, SeqCst);
        users.into_iter().for_each(|user| user.join().unwrap());
    }
}
