//! The end of a loan in virtual time: nothing lands late, by whatever way it came.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};

use hydrant::{Error, Strategy};

use crate::{
    memory::lend_again::{STRATEGIES, lend_again},
    network::simulated::on,
    support::good,
};

#[test_on(simulated)]
fn a_pointer_does_not_reach_the_next_buffer_at_its_address() {
    for profile in ["ideal", "connectx"] {
        let paging = (profile == "connectx").then_some(Strategy::Paging);
        for strategy in STRATEGIES.into_iter().chain(paging) {
            let builder = on(profile).registration(strategy);
            let refused = good(builder.run_local(3, |job| lend_again(job, 20)));
            println!("{profile}, {strategy}: refused {refused:?} times");
            assert!(refused[1] + refused[2] > 0, "{profile}, {strategy}: never");
        }
    }
}

/// A rank puts to its own exposed buffer by one thread and takes it back by another.
#[test_on(simulated)]
fn the_own_rank_is_waited_for_too() {
    const BYTES: usize = 4 << 20;
    for profile in ["ideal", "connectx"] {
        good(on(profile).run_local(2, |job| {
            for round in 0..10 {
                let lent = job.expose(vec![0_u8; BYTES])?;
                let to = lent.pointer(0)?;
                let (data, begun) = (vec![7_u8; BYTES], AtomicBool::new(false));
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
                        job.poll();
                        thread::yield_now();
                    }
                    job.compute(10_000 * round);
                    let mut back = lent.take_back();
                    back.fill(3);
                    job.compute(1_000_000);
                    job.poll();
                    let now = std::hint::black_box(&back);
                    assert!(now.iter().all(|byte| *byte == 3), "a late write");
                    puts.join().expect("it is refused in the end");
                });
            }
            job.barrier()
        }));
    }
}
