//! The end of a loan: whoever still has a pointer reaches nothing any more, least of all the next
//! buffer at that address.

#![allow(unsafe_code)] // names memory by its address, to see that this opens nothing else

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use hydrant::{Error, Exposed, GlobalPtr, Rank};

use crate::{
    memory::lend_again::{STRATEGIES, lend_again},
    support::{builder, good},
};

#[test_on(real)]
fn a_pointer_does_not_reach_the_next_buffer_at_its_address() {
    for strategy in STRATEGIES {
        let builder = builder().registration(strategy);
        let refused = good(builder.run_local(3, |job| lend_again(job, 60)));
        println!("{strategy}: refused {refused:?} times");
        assert!(refused[1] + refused[2] > 0, "{strategy}: never refused");
    }
}

/// Whoever named an address once, which was right, is judged as strictly as before.
#[test_on(real)]
fn naming_an_address_opens_nothing_else() {
    let builder = builder().anywhere(true);
    let refused = good(builder.run_local(3, |job| {
        let word = AtomicU64::new(0);
        let places = job.alloc::<u64>(1)?;
        places.put_value(job.left(), 0, word.as_ptr().expose_provenance() as u64)?;
        job.barrier()?;
        let theirs = places.local()?.load(0)?;
        // SAFETY: an atomic of a peer that waits in a barrier before it lets go of it.
        unsafe { job.put_anywhere(job.right(), theirs, &7_u64.to_ne_bytes())? };
        job.barrier()?;
        assert_eq!(word.load(SeqCst), 7);
        lend_again(job, 100)
    }));
    assert!(refused[1] + refused[2] > 0, "never refused");
}

/// A rank puts to its own exposed buffer by one thread and takes it back by another.
#[test_on(real)]
fn the_own_rank_is_waited_for_too() {
    good(builder().run_local(2, |job| {
        for round in 0..20 {
            let lent = job.expose(vec![0_u8; 16 << 20])?;
            let to = lent.pointer(0)?;
            let (data, begun) = (vec![7_u8; 16 << 20], AtomicBool::new(false));
            thread::scope(|threads| {
                let puts = threads.spawn(|| {
                    loop {
                        begun.store(true, SeqCst);
                        match job.put_to(to, &data) {
                            Ok(()) => {}
                            Err(Error::Revoked { .. }) => return,
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
                while !begun.load(SeqCst) {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_micros(100 * round));
                let mut back = lent.take_back();
                back.fill(3);
                thread::sleep(Duration::from_millis(2));
                let now = std::hint::black_box(&back);
                assert!(now.iter().all(|byte| *byte == 3), "a late write");
                puts.join().expect("it is refused in the end");
            });
        }
        job.barrier()
    }));
}

/// A handler that takes a buffer back cannot wait for peers: it panics, and what peers may still
/// use is never freed.
#[test_on(real)]
fn what_a_handler_takes_back_is_leaked() {
    good(builder().run_local(2, |job| {
        let kept: Arc<Mutex<Option<Exposed<'static, u8>>>> = Arc::default();
        let board = job.alloc::<GlobalPtr<u8>>(1)?;
        let take = job.function({
            let kept = Arc::clone(&kept);
            move |_, ()| {
                let lent = kept.lock().unwrap_or_else(PoisonError::into_inner).take();
                lent.map_or(0, |lent| lent.take_back().len())
            }
        })?;
        let lent = job.expose(vec![1_u8; 50_000])?;
        let address = lent.view().as_ptr().addr();
        board.put_value(job.left(), 0, lent.pointer(0)?)?;
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(lent);
        job.barrier()?;
        let theirs = board.local()?.load(0)?;
        job.put_to(theirs, &[7; 50_000])?;
        job.barrier()?;
        let taken = job.call(job.right(), &take, &());
        if job.registration().is_some() {
            assert!(taken.is_err(), "peers cannot be waited for there");
            job.barrier()?;
            for _ in 0..100 {
                let other = vec![2_u8; 50_000];
                assert_ne!(other.as_ptr().addr(), address, "it was freed");
            }
        } else {
            assert_eq!(taken?, 50_000);
            job.barrier()?;
        }
        let late = job.put_to(theirs, &[8]);
        assert!(matches!(late, Err(Error::Revoked { .. })), "{late:?}");
        job.barrier()
    }));
}

/// The owner ends before it says where its buffer lies.
#[test_on(real)]
fn an_owner_that_is_lost_before_it_answers_is_named() {
    let ends = builder().service(false).run_local(2, |job| {
        let board = job.alloc::<GlobalPtr<u8>>(1)?;
        let lent = job.expose(vec![1_u8; 100])?;
        board.put_value(job.left(), 0, lent.pointer(0)?)?;
        job.barrier()?;
        if job.rank() == Rank(1) {
            thread::sleep(Duration::from_millis(200));
            // Its loan does not end before it does.
            std::mem::forget(lent);
            return Err(Error::Freed);
        }
        let theirs = board.local()?.load(0)?;
        loop {
            match job.put_to(theirs, &[7]) {
                Ok(()) => thread::yield_now(),
                failed => return failed,
            }
        }
    });
    assert!(
        matches!(ends[0], Err(Error::PeerLost(Rank(1)))),
        "{:?}",
        ends[0]
    );
}
