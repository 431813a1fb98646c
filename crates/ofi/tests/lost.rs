//! Writes of a rank that are on their way when it is lost, or when one of the ranks leaves, land in no memory that was
//! taken back.

#![allow(unsafe_code)] // registers and writes memory

use std::{
    sync::{
        Barrier, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Access, Conduit, Local, Permission, Posted, Rank, Remote, Standing, Window, conformance::Log,
};
use hydrant_ofi::{OfiOptions, attach, endpoints};
use hydrant_testing::{HANG, left_out, ranks};

/// The bytes of a put: more than sockets hold.
const LEN: usize = 64 << 20;
/// The bytes that the writer never puts.
const OWN: u8 = u8::MAX;
const WRITER: Rank = Rank(1);
const ROUNDS: u64 = 6;

/// The options of both ranks. `None` without libfabric.
fn on_loopback() -> Option<OfiOptions> {
    let options = OfiOptions {
        segment: 1 << 20,
        extents: 64,
        interface: "lo".to_owned(),
        ..OfiOptions::default()
    };
    let Err(why) = endpoints(&options) else {
        return Some(options);
    };
    left_out(why);
    None
}

/// Runs two ranks, of which one puts all the time, until the other took its memory back after `end`. `late`: how long
/// that one does not poll before.
fn take_back_after(late: Duration, end: fn(&dyn Conduit)) {
    let Some(options) = on_loopback() else {
        return;
    };
    let (told, meet, over) = (Mutex::new(None), Barrier::new(2), AtomicBool::new(false));
    ranks::joined(2, |mut bootstrap| {
        // It outlives the conduit.
        let window = Window::private(LEN);
        let conduit = attach(&mut bootstrap, &options).expect("a provider of libfabric");
        let conduit: &dyn Conduit = &conduit;
        let addr = window.as_ptr();
        // SAFETY: 1. The window outlives the key. 2. Only the writer stores to it until the key ended.
        let key = unsafe { conduit.register(addr, LEN, Permission::ReadWrite) }.expect("a key");
        if conduit.rank() == WRITER {
            meet.wait();
            let there = told.lock().expect("no panic").expect("it was told");
            write_until(conduit, there, Local { addr, key }, &over);
            return;
        }
        let offset = addr.addr() as u64;
        *told.lock().expect("no panic") = Some(Remote { key, offset });
        meet.wait();
        let log = &mut Log::default();
        poll_for(conduit, log, Duration::from_millis(30));
        thread::sleep(late);
        end(conduit);
        // SAFETY: the writer is lost, or counts this rank as lost.
        unsafe { conduit.deregister_unused(key) }.expect("a key in force");
        // SAFETY: the window has so many bytes, and belongs to this rank alone again. That is what is tested.
        unsafe { addr.write_bytes(OWN, LEN) };
        poll_for(conduit, log, Duration::from_millis(30));
        over.store(true, SeqCst);
        let mut bytes = vec![0; LEN];
        window.read(0, &mut bytes).expect("in bounds");
        let landed = bytes.iter().filter(|byte| **byte != OWN).count();
        assert_eq!(landed, 0, "bytes landed after their key had ended");
    });
}

/// Puts other bytes again and again.
fn write_until(conduit: &dyn Conduit, there: Remote, local: Local, over: &AtomicBool) {
    let log = &mut Log::default();
    for value in 0..OWN {
        // SAFETY: the memory is valid, and no operation uses it now.
        unsafe { local.addr.write_bytes(value, LEN) };
        // SAFETY: 1. The memory stays as it is until the operation has ended. 2. The other rank lent the memory.
        let Ok(Posted::Pending(ticket)) =
            (unsafe { conduit.post(&Access::put(Rank(0), there, local, LEN)) })
        else {
            break;
        };
        let since = Instant::now();
        while log.outcome(ticket).is_none() && !over.load(SeqCst) {
            conduit.poll(log);
            assert!(since.elapsed() < HANG, "a put does not end");
        }
        if log.take(ticket).is_none_or(|outcome| outcome.is_err()) {
            break;
        }
    }
    // The memory stays until the other rank has looked.
    let since = Instant::now();
    while !over.load(SeqCst) && since.elapsed() < HANG {
        conduit.poll(log);
    }
}

fn poll_for(conduit: &dyn Conduit, log: &mut Log, time: Duration) {
    let since = Instant::now();
    while since.elapsed() < time {
        conduit.poll(log);
    }
}

#[test]
fn puts_of_a_lost_rank_land_in_no_memory_that_was_taken_back() {
    for round in 0..ROUNDS {
        take_back_after(Duration::from_millis(round), |conduit| {
            conduit.expel(WRITER);
            let since = Instant::now();
            while conduit.standing(WRITER) == Standing::Present {
                assert!(since.elapsed() < HANG, "the rank is never lost");
                std::hint::spin_loop();
            }
        });
    }
}

#[test]
fn puts_land_in_no_memory_of_a_rank_that_has_failed() {
    for round in 0..ROUNDS {
        take_back_after(Duration::from_millis(round), |conduit| conduit.leave(false));
    }
}

/// Runs two ranks. The writer leaves while most of its puts wait for their turn.
fn take_back_after_leave(options: &OfiOptions) {
    const PUTS: usize = 80;
    let (told, meet, over) = (Mutex::new(None), Barrier::new(2), AtomicBool::new(false));
    ranks::joined(2, |mut bootstrap| {
        // It outlives the conduit.
        let window = Window::private(LEN);
        let conduit = attach(&mut bootstrap, options).expect("a provider of libfabric");
        let conduit: &dyn Conduit = &conduit;
        let addr = window.as_ptr();
        // SAFETY: 1. The window outlives the key. 2. Only the writer stores to it until the key ended.
        let key = unsafe { conduit.register(addr, LEN, Permission::ReadWrite) }.expect("a key");
        let log = &mut Log::default();
        if conduit.rank() == WRITER {
            meet.wait();
            let there = told.lock().expect("no panic").expect("it was told");
            for _ in 0..PUTS {
                let put = Access::put(Rank(0), there, Local { addr, key }, LEN);
                // SAFETY: 1. The memory stays as it is to the end. 2. The other rank lent the memory.
                let posted = unsafe { conduit.post(&put) };
                let _pending = posted.expect("the other rank is there");
            }
            conduit.leave(false);
            let since = Instant::now();
            while !over.load(SeqCst) && since.elapsed() < HANG {
                conduit.poll(log);
            }
            return;
        }
        let offset = addr.addr() as u64;
        *told.lock().expect("no panic") = Some(Remote { key, offset });
        meet.wait();
        let since = Instant::now();
        while conduit.standing(WRITER) == Standing::Present {
            conduit.poll(log);
            assert!(since.elapsed() < HANG, "the writer never leaves");
        }
        // SAFETY: the writer has left.
        unsafe { conduit.deregister_unused(key) }.expect("a key in force");
        // SAFETY: the window has so many bytes, and belongs to this rank alone again. That is what is tested.
        unsafe { addr.write_bytes(OWN, LEN) };
        poll_for(conduit, log, Duration::from_millis(100));
        over.store(true, SeqCst);
        let mut bytes = vec![0; LEN];
        window.read(0, &mut bytes).expect("in bounds");
        let landed = bytes.iter().filter(|byte| **byte != OWN).count();
        assert_eq!(landed, 0, "bytes landed after their key had ended");
    });
}

#[test]
fn puts_of_a_rank_that_has_left_land_in_no_memory_that_was_taken_back() {
    let Some(options) = on_loopback() else {
        return;
    };
    for _ in 0..ROUNDS {
        take_back_after_leave(&options);
    }
}
