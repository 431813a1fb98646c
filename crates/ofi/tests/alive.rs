//! Ranks that are alive are not lost, whatever they do.

#![allow(unsafe_code)] // registers and accesses memory

use std::{
    sync::{Barrier, Mutex},
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Access, Conduit, Local, Permission, Posted, Rank, Remote, Standing, Window, conformance::Log,
};
use hydrant_ofi::{OfiOptions, attach, endpoints};
use hydrant_testing::ranks;

const PATIENCE: Duration = Duration::from_secs(1);
const LEN: usize = 8 << 10;

/// One rank accesses the other's memory for longer than ranks may be silent, and sends no message. The other only polls.
fn access_for_long(access: fn(Rank, Remote, Local, usize) -> Access) {
    let options = OfiOptions {
        segment: 1 << 20,
        extents: 64,
        interface: "lo".to_owned(),
        peer_timeout: Some(PATIENCE),
        ..OfiOptions::default()
    };
    if let Err(why) = endpoints(&options) {
        eprintln!("skipped: {why}");
        assert!(
            std::env::var_os("HYDRANT_TEST_REQUIRE").is_none(),
            "libfabric is required"
        );
        return;
    }
    let (told, meet) = (Mutex::new(None), Barrier::new(2));
    ranks::joined(2, |mut bootstrap| {
        let window = Window::private(LEN);
        let conduit = attach(&mut bootstrap, &options).expect("a provider of libfabric");
        let conduit: &dyn Conduit = &conduit;
        let addr = window.as_ptr();
        // SAFETY: 1. The window outlives the key. 2. Only the other rank stores to it.
        let key = unsafe { conduit.register(addr, LEN, Permission::ReadWrite) }.expect("a key");
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
                let posted = access(other, there, Local { addr, key }, LEN);
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
    access_for_long(Access::put);
}

#[test]
fn a_rank_that_only_gets_is_not_lost() {
    access_for_long(Access::get);
}
