//! Ranks that are alive are not lost, whatever they do.

#![allow(unsafe_code)] // registers and accesses memory

use std::{
    ptr,
    sync::{Barrier, Mutex, PoisonError},
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Access, Conduit, Local, Permission, Posted, Rank, Remote, Standing, conformance::Log,
};
use hydrant_ofi::{OfiOptions, attach, endpoints};
use hydrant_testing::{left_out, ranks};

const PATIENCE: Duration = Duration::from_secs(1);
/// The bytes of an access, and those of one that takes longer than that.
const SHORT: usize = 8 << 10;
const LONG: usize = 4 << 30;
/// The bytes of memory behind it.
const MEMORY: usize = 16 << 20;

/// Held by the test that runs. Those that map much memory hold each other up.
static ALONE: Mutex<()> = Mutex::new(());

/// Addresses behind which the same memory lies again and again.
struct Repeated(*mut u8, usize);

impl Repeated {
    fn new(len: usize) -> Self {
        // Pages are made now, and not while ranks wait for each other.
        let shared = libc::MAP_SHARED | libc::MAP_POPULATE;
        let all = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new file without a name.
        let file = unsafe { libc::memfd_create(c"repeated".as_ptr(), 0) };
        // SAFETY: the file was just made.
        assert_eq!(unsafe { libc::ftruncate(file, MEMORY as libc::off_t) }, 0);
        // SAFETY: a new mapping, at an address that is free.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, all, libc::MAP_SHARED, file, 0) };
        for at in (0..len).step_by(MEMORY) {
            let (place, part) = (start.wrapping_byte_add(at), MEMORY.min(len - at));
            // SAFETY: the place is in the mapping above, which nobody uses yet.
            let mapped = unsafe { libc::mmap(place, part, all, shared | libc::MAP_FIXED, file, 0) };
            assert_eq!(mapped, place);
        }
        // SAFETY: the file is this function's, and the mappings keep it.
        unsafe { libc::close(file) };
        Self(start.cast(), len)
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// One rank accesses the other's memory for longer than ranks may be silent, and sends no message. The other only polls.
fn access_for_long(len: usize, access: fn(Rank, Remote, Local, usize) -> Access) {
    let options = OfiOptions {
        segment: 1 << 20,
        extents: 64,
        interface: "lo".to_owned(),
        peer_timeout: Some(PATIENCE),
        ..OfiOptions::default()
    };
    if let Err(why) = endpoints(&options) {
        return left_out(why);
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (told, meet) = (Mutex::new(None), Barrier::new(2));
    ranks::joined(2, |mut bootstrap| {
        // It outlives the conduit.
        let memory = Repeated::new(len);
        let conduit = attach(&mut bootstrap, &options).expect("a provider of libfabric");
        let conduit: &dyn Conduit = &conduit;
        let addr = memory.0;
        // SAFETY: 1. The memory outlives the key. 2. Only the other rank stores to it.
        let key = unsafe { conduit.register(addr, len, Permission::ReadWrite) }.expect("a key");
        let offset = addr.addr() as u64;
        let (me, other) = (conduit.rank(), Rank(1 - conduit.rank().0));
        if me == Rank(0) {
            *told.lock().expect("no panic") = Some(Remote { key, offset });
        }
        meet.wait();
        let log = &mut Log::default();
        let since = Instant::now();
        while since.elapsed() < 3 * PATIENCE {
            if me == Rank(0) {
                conduit.poll(log);
            } else {
                let there = told.lock().expect("no panic").expect("it was told");
                let posted = access(other, there, Local { addr, key }, len);
                // SAFETY: 1. The memory waits until the operation has ended. 2. The other rank lent the memory.
                let posted = unsafe { conduit.post(&posted) }.expect("the other rank is there");
                if let Posted::Pending(ticket) = posted {
                    log.until(conduit, |log| log.outcome(ticket).is_some());
                    log.take(ticket).expect("it ended").expect("it is done");
                }
            }
            assert_eq!(conduit.standing(other), Standing::Present);
        }
        conduit.come_to_end(true);
        log.until(conduit, |_| conduit.has_come_to_end(other));
    });
}

#[test]
fn a_rank_that_only_puts_is_not_lost() {
    access_for_long(SHORT, Access::put);
}

#[test]
fn a_rank_that_only_gets_is_not_lost() {
    access_for_long(SHORT, Access::get);
}

#[test]
fn a_rank_whose_put_takes_long_is_not_lost() {
    access_for_long(LONG, Access::put);
}

#[test]
fn a_rank_whose_get_takes_long_is_not_lost() {
    access_for_long(LONG, Access::get);
}
