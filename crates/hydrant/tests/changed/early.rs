//! Memory that is mapped by one thread before it is heard that another has unmapped it.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use hydrant::{Rank, Result, Strategy};

use super::{Over, alone, builder, good, place::Place};

/// Keeps the monitor's thread from running, as far as that is possible, until it is dropped.
struct Starved<'a>(&'a AtomicBool);

impl<'a> Starved<'a> {
    fn begin<'scope>(scope: &'scope thread::Scope<'scope, 'a>, over: &'a AtomicBool) -> Self {
        set_policy_of_monitor(libc::SCHED_IDLE);
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(over)
    }
}

impl Drop for Starved<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
        set_policy_of_monitor(libc::SCHED_OTHER);
    }
}

fn set_policy_of_monitor(policy: i32) {
    for task in std::fs::read_dir("/proc/self/task")
        .expect("own threads")
        .flatten()
    {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.trim() == "hydrant-monitor" {
            let number = task
                .file_name()
                .to_string_lossy()
                .parse()
                .expect("a number");
            let priority = libc::sched_param { sched_priority: 0 };
            // SAFETY: the parameter is a local variable.
            let set = unsafe { libc::sched_setscheduler(number, policy, &raw const priority) };
            assert_eq!(set, 0);
        }
    }
}

/// A thread maps the address of memory that another has just unmapped, before that is heard, and lends it. A peer
/// reaches the new memory, although the old is registered.
#[test]
fn lent_memory_is_what_is_there_now() {
    let _alone = alone();
    const LEN: usize = 8192;
    const ROUNDS: u64 = 12;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    let early = good(builder.run_local(2, |job| {
        let field = job.alloc::<u8>(LEN)?;
        let mut early = 0;
        let (over, mut said) = (AtomicBool::new(false), [0_u64]);
        if job.rank() == Rank(1) {
            for round in 1..=ROUNDS {
                job.receive(Rank(0), 1, &mut said)?;
                // SAFETY: rank 0 waits for the message that follows.
                unsafe { job.put_anywhere(Rank(0), said[0], &[round as u8; LEN])? };
                job.send(Rank(0), 2, &[round])?;
            }
            job.barrier()?;
            return Ok(0);
        }
        thread::scope(|scope| -> Result<()> {
            let _starved = Starved::begin(scope, &over);
            for round in 1..=ROUNDS {
                let mut old = Place::new(LEN);
                old.bytes().fill(0xff);
                for _ in 0..3 {
                    field.put(Rank(1), 0, old.bytes())?;
                }
                let (address, unmapped) = (old.address(), AtomicBool::new(false));
                thread::scope(|scope| -> Result<()> {
                    let owner = scope.spawn(|| {
                        drop(old);
                        unmapped.store(true, Relaxed);
                    });
                    let mut new = loop {
                        if let Some(new) = Place::at(address, LEN) {
                            break new;
                        }
                    };
                    early += u64::from(!unmapped.load(Relaxed));
                    // SAFETY: the memory stays mapped until the loan ends, and only the peer writes to it.
                    let loan = unsafe { job.lend_anywhere(new.bytes().as_mut_ptr(), LEN)? };
                    job.send(Rank(1), 1, &[address])?;
                    job.receive(Rank(1), 2, &mut said)?;
                    drop(loan);
                    let there = new.bytes();
                    assert!(
                        there.iter().all(|byte| *byte == round as u8),
                        "round {round}: {}",
                        there[0]
                    );
                    owner.join().expect("no panic");
                    Ok(())
                })?;
            }
            Ok(())
        })?;
        job.barrier()?;
        Ok(early)
    }));
    eprintln!("{} of {ROUNDS} were early", early[0]);
}

/// A thread maps in a loop and puts from what it gets, while another unmaps what it has put from.
#[test]
fn a_thread_that_gets_unmapped_memory_early_puts_its_own_bytes() {
    let _alone = alone();
    const LEN: usize = 8192;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    let reused = good(builder.run_local(2, |job| {
        if job.rank() == Rank(1) {
            job.alloc::<u8>(2 * LEN)?;
            job.barrier()?;
            return Ok(0);
        }
        let field = job.alloc::<u8>(2 * LEN)?;
        let (over, last) = (AtomicBool::new(false), AtomicU64::new(0));
        let reused = AtomicU64::new(0);
        let theft = |value: u8| -> Result<()> {
            let mut place = Place::new(LEN);
            reused.fetch_add(u64::from(place.address() == last.load(Relaxed)), Relaxed);
            place.bytes().fill(value);
            field.put(Rank(1), LEN, place.bytes())?;
            let mut back = vec![0; LEN];
            field.get(Rank(1), LEN, &mut back)?;
            assert!(back.iter().all(|byte| *byte == value), "{value}");
            Ok(())
        };
        thread::scope(|scope| {
            let thief = scope.spawn(|| {
                let mut value = 0_u8;
                while !over.load(Relaxed) {
                    value = value.wrapping_add(2);
                    theft(value)?;
                }
                Ok(())
            });
            let own = || -> Result<()> {
                for _ in 0..4000 {
                    let mut place = Place::new(LEN);
                    place.bytes().fill(1);
                    field.put(Rank(1), 0, place.bytes())?;
                    field.put(Rank(1), 0, place.bytes())?;
                    last.store(place.address(), Relaxed);
                    drop(place);
                }
                Ok(())
            };
            let outcome = {
                let _over = Over(&over);
                own()
            };
            outcome.and(thief.join().expect("no panic"))
        })?;
        job.barrier()?;
        Ok(reused.load(Relaxed))
    }));
    assert!(reused[0] > 0, "no address was ever used again");
}
