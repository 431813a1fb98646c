//! The turns of threads, and ranks that wait for ever.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use hydrant_conduit::{Conduit, Membership, Message, Rank, Sent, Sleep, Sleeper, Standing};
use hydrant_sim::Faults;

use crate::support::{RankHandle, each, world};

#[test]
fn a_deadlock_report_names_each_rank_and_its_wait() {
    let world = world("ideal", 2, 1, Faults::default());
    let texts = each(&world, |me: &RankHandle<'_>| {
        let sleeper = [Sleeper::Application, Sleeper::Room][me.rank().index()];
        let cause = panic::catch_unwind(AssertUnwindSafe(|| {
            me.conduit.wait(sleeper, None, &mut || false);
        }));
        *cause.unwrap_err().downcast::<String>().unwrap()
    });
    assert!(texts[0].contains("the program deadlocks"), "{texts:?}");
    assert!(texts[0].contains("rank 0"), "{texts:?}");
    assert!(
        texts[0].contains("rank 0 since 50ns: it waits for a message"),
        "{texts:?}"
    );
    assert!(
        texts[0].contains("rank 1 since 50ns: it waits for room"),
        "{texts:?}"
    );
}

#[test]
fn a_thread_that_blocks_outside_loses_its_turn() {
    let world = world("ideal", 1, 1, Faults::default());
    each(&world, |me| {
        me.nap(Duration::from_micros(1));
        // The thread that has the turn waits for one that needs it.
        std::thread::scope(|scope| {
            let child = scope.spawn(|| me.nap(Duration::from_micros(5)));
            child.join().unwrap();
        });
        let message = Message {
            kind: 0,
            tag: 0,
            args: &[],
            payload: &[],
        };
        assert_eq!(me.conduit.send(Rank(0), &message).unwrap(), Sent::Yes);
    });
}

/// Rank 0 works in real time while it has the turn, and rank 1 wants the turn.
fn has_the_turn(outside: impl Fn() + Sync) {
    let world = world("ideal", 2, 1, Faults::default());
    let done = AtomicBool::new(false);
    each(&world, |me| {
        let first = me.rank() == Rank(0);
        me.nap_until(Duration::from_millis(if first { 1 } else { 2 }));
        if first {
            outside();
            done.store(true, SeqCst);
        } else {
            assert!(done.load(SeqCst), "rank 0 lost its turn");
        }
        me.meet();
    });
}

#[test]
fn a_thread_that_waits_for_a_working_thread_keeps_its_turn() {
    has_the_turn(|| {
        let lock = Mutex::new(());
        std::thread::scope(|scope| {
            let held = lock.lock().unwrap();
            let child = scope.spawn(|| drop(lock.lock()));
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(50) {
                std::hint::spin_loop();
            }
            drop(held);
            child.join().unwrap();
            let worker = scope.spawn(|| {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(300) {
                    std::hint::spin_loop();
                }
            });
            worker.join().unwrap();
        });
    });
}

#[test]
fn a_thread_that_sleeps_in_real_time_keeps_its_turn() {
    has_the_turn(|| std::thread::sleep(Duration::from_millis(300)));
}

#[test]
fn nobody_begins_without_a_rank_that_is_late() {
    let world = world("ideal", 2, 1, Faults::default());
    let late = AtomicBool::new(false);
    each(&world, |me| {
        if me.rank() == Rank(1) {
            std::thread::sleep(Duration::from_secs(4));
            late.store(true, SeqCst);
        }
        me.nap(Duration::from_micros(1));
        assert!(late.load(SeqCst), "rank {} began", me.rank());
    });
}

#[test]
fn a_rank_that_ends_before_it_called_is_not_waited_for() {
    let world = world("ideal", 2, 1, Faults::default());
    let (here, gone) = (world.conduit(Rank(0)), world.conduit(Rank(1)));
    drop(gone);
    here.wait(Sleeper::Nap, Some(Duration::from_micros(1)), &mut || false);
    assert_eq!(here.standing(Rank(1)), Standing::Lost);
    here.leave(true);
}
