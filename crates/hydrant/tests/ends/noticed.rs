//! The end of a rank's program in good order is noticed by waiters for something that only that program would do, and
//! by no others.

use std::{
    future::pending,
    sync::{Arc, OnceLock, mpsc},
    thread,
    time::Duration,
};

use hydrant::{AnySource, AnyTag, Error, Function, Job, Op, Rank, Result};
use parking_lot::Mutex;

use crate::support::local;

fn is_told_of<T>(waited: Result<T>, rank: Rank) {
    match waited.map(drop) {
        Err(Error::PeerEnded { rank: ended, .. }) => assert_eq!(ended, rank),
        other => panic!("waits for rank {rank} in vain: {other:?}"),
    }
}

fn looked<T>(look: impl Fn() -> Result<Option<T>>) -> Result<T> {
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
    }
}

fn is_told_of_all<T>(waited: Result<T>) {
    let told = waited.map(drop);
    assert!(matches!(told, Err(Error::OthersEnded { .. })), "{told:?}");
}

#[test_on(every)]
fn who_waits_for_a_message_of_it_is_told() {
    local(3, |job| {
        if job.rank() != Rank(0) {
            return Ok(());
        }
        let (one, mut word) = (Rank(1), [0_u8]);
        is_told_of(job.receive(one, 1, &mut word), one);
        is_told_of(job.receive(one, AnyTag, &mut word), one);
        is_told_of(job.probe(one, 1), one);
        is_told_of(job.probe_matched(one, AnyTag), one);
        is_told_of(job.receive_nb(one, 1, vec![0_u8])?.wait(), one);
        is_told_of(job.wait_for(job.receive_nb(one, 1, vec![0_u8])?)?, one);
        let mut again = job.persistent_receive(one, 1, vec![0_u8])?;
        again.start()?;
        is_told_of(again.wait(), one);
        is_told_of_all(job.receive(AnySource, 1, &mut word));
        is_told_of_all(job.receive(AnySource, AnyTag, &mut word));
        is_told_of_all(job.probe(AnySource, 1));
        is_told_of_all(job.receive_nb(AnySource, 1, vec![0_u8])?.wait());
        // A message to the rank itself still arrives.
        job.send(Rank(0), 1, &[7_u8])?;
        job.receive(AnySource, 1, &mut word)?;
        assert_eq!(word, [7]);
        Ok(())
    });
}

/// A loop that looks again and again and never waits.
#[test_on(every)]
fn who_looks_for_a_message_of_it_is_told() {
    local(3, |job| {
        let (zero, one) = (Rank(0), Rank(1));
        match job.rank() {
            Rank(0) => {
                assert_eq!(looked(|| job.try_probe(one, 5))?.source(), one);
                is_told_of(looked(|| job.try_probe(one, 1)), one);
                is_told_of(looked(|| job.try_probe_matched(one, 1)), one);
                assert_eq!(looked(|| job.try_probe(one, 5))?.source(), one);
                // Another program may still send.
                assert_eq!(job.try_probe(AnySource, 1)?, None);
                job.send(Rank(2), 1, &[1_u8])?;
                is_told_of_all(looked(|| job.try_probe(AnySource, 1)));
                job.receive(one, 5, &mut [0_u8]).map(drop)
            }
            Rank(1) => job.send(zero, 5, &[1_u8]),
            _ => job.receive(zero, 1, &mut [0_u8]).map(drop),
        }
    });
}

/// The rank that has a mutex comes to its end. No waiter gets the mutex, and none of them is alone.
#[test_on(every)]
fn who_waits_for_its_mutex_is_told() {
    local(4, |job| {
        let (mutexes, one) = (job.mutexes(1)?, Rank(1));
        if job.rank() == one {
            std::mem::forget(mutexes.lock(Rank(0), 0)?);
        }
        job.barrier()?;
        if job.rank() != one {
            is_told_of(mutexes.lock(Rank(0), 0), one);
            is_told_of(mutexes.lock(Rank(0), 0), one);
            // All of them are told before any of them comes to its end.
            for other in [Rank(0), Rank(2), Rank(3)] {
                if other != job.rank() {
                    job.send(other, 1, &[1_u8])?;
                }
            }
            for other in [Rank(0), Rank(2), Rank(3)] {
                if other != job.rank() {
                    job.receive(other, 1, &mut [0_u8])?;
                }
            }
        }
        Ok(())
    });
}

#[test_on(every)]
fn who_waits_until_it_receives_is_told() {
    local(2, |job| {
        if job.rank() != Rank(0) {
            return Ok(());
        }
        let (one, long) = (Rank(1), vec![1_u8; 1 << 20]);
        // A short message has gone.
        job.send(one, 1, &[1_u8])?;
        is_told_of(job.send_nb(one, 1, vec![1_u8])?.wait(), one);
        is_told_of(job.send(one, 1, &long), one);
        is_told_of(job.send_nb(one, 1, long.clone())?.wait(), one);
        is_told_of(job.scope(|scope| scope.send(one, 1, &long).map(drop)), one);
        // More than the receiver would keep.
        (0..3000_u64).try_for_each(|number| job.send(one, 1, &[number]))
    });
}

/// A receive that waits when the news comes, and a message that was kept by then.
#[test_on(every)]
fn what_was_under_way_with_it_is_told() {
    local(2, |job| {
        let one = Rank(1);
        if job.rank() == Rank(0) {
            let receives = [
                job.receive_nb(one, 1, vec![0_u8])?,
                job.receive_nb(AnySource, 2, vec![0_u8])?,
            ];
            let sends = [
                job.send_nb(one, 1, vec![1_u8])?,
                job.send_nb(one, 2, vec![1_u8; 200_000])?,
                job.send_nb(one, 3, vec![1_u8])?,
                job.send_nb(one, 4, vec![1_u8; 200_000])?,
            ];
            job.barrier()?;
            let [named, any] = receives;
            is_told_of(named.wait(), one);
            is_told_of_all(any.wait());
            sends
                .into_iter()
                .for_each(|send| is_told_of(send.wait(), one));
            return Ok(());
        }
        // Two of them were taken out, and are not received.
        let held = [
            job.probe_matched(Rank(0), 3)?,
            job.probe_matched(Rank(0), 4)?,
        ];
        job.probe(Rank(0), 2)?;
        job.barrier()?;
        std::mem::forget(held);
        Ok(())
    });
}

#[test_on(every)]
fn what_it_sent_before_is_received() {
    local(3, |job| {
        let (zero, me) = (Rank(0), job.rank());
        let tags = 0..2000_u64;
        if me != zero {
            for tag in tags {
                // The first of the messages that wait for credit are sent after its program has come to its end.
                drop(job.send_nb(zero, tag, vec![tag])?);
            }
            drop(job.send_nb(zero, 5000, vec![u64::from(me.0); 100_000])?);
            return Ok(());
        }
        let mut word = [0_u64];
        for from in [Rank(1), Rank(2)] {
            for tag in tags.clone() {
                job.receive(from, tag, &mut word)?;
                assert_eq!(word, [tag]);
            }
        }
        let mut long = vec![0_u64; 100_000];
        for _ in 0..2 {
            let from = job.receive(AnySource, 5000, &mut long)?.source();
            assert!(long.iter().all(|word| *word == u64::from(from.0)));
        }
        is_told_of(job.receive(Rank(2), AnyTag, &mut word), Rank(2));
        is_told_of_all(job.receive(AnySource, AnyTag, &mut word));
        Ok(())
    });
}

/// A receive from any source waits as long as another rank may send.
#[test_on(every)]
fn a_message_of_another_is_waited_for() {
    local(3, |job| {
        let mut word = [0_u8];
        match job.rank() {
            Rank(0) => {
                is_told_of(job.receive(Rank(1), 1, &mut word), Rank(1));
                job.send(Rank(2), 1, &[5_u8])?;
                let from = job.receive(AnySource, AnyTag, &mut word)?.source();
                assert_eq!((from, word), (Rank(2), [6]));
            }
            Rank(1) => {}
            _ => {
                job.receive(AnySource, 1, &mut word)?;
                job.send(Rank(0), 2, &[word[0] + 1])?;
            }
        }
        Ok(())
    });
}

/// A rank at its end answers, and completes the requests of its handlers and functions.
#[test_on(every)]
fn it_answers_until_all_have_come() {
    local(3, |job| {
        let memory = job.alloc::<u64>(8)?;
        let (zero, flag) = (job.downgrade(), memory.clone());
        let onward = Arc::new(OnceLock::<Function<u64, u64>>::new());
        let (here, next) = (job.downgrade(), Arc::clone(&onward));
        let more = job.function(|_, n: u64| n + 1)?;
        onward.set(more).expect("it is set once");
        let relay = job.async_function(move |_, n: u64| {
            let called =
                (here.upgrade().zip(next.get())).map(|(job, next)| job.call_nb(Rank(2), next, &n));
            async move { called?.ok()?.await.ok() }
        })?;
        let raise = job.function(move |from: Rank, n: u64| {
            if zero.upgrade().is_some() {
                drop(flag.put_nb(from, 7, vec![n]).map(drop));
            }
        })?;
        job.barrier()?;
        if job.rank() != Rank(0) {
            return Ok(());
        }
        // The programs of the others have come to their ends by then.
        is_told_of(job.receive(Rank(1), 1, &mut [0_u8]), Rank(1));
        is_told_of(job.receive(Rank(2), 1, &mut [0_u8]), Rank(2));
        memory.put(Rank(1), 0, &[41])?;
        let mut word = [0];
        memory.get(Rank(1), 0, &mut word)?;
        assert_eq!(word, [41]);
        assert_eq!(memory.fetch_add(Rank(2), 1, 3)?, 0);
        assert_eq!(job.call(Rank(1), &relay, &9)?, Some(10));
        job.call_one_way(Rank(2), &raise, &77)?;
        assert_eq!(job.wait_until(&memory, 7, |word| word == 77)?, 77);
        Ok(())
    });
}

/// A rank whose wait at the end fails goes on after all.
#[test_on(every)]
fn who_goes_on_after_all_is_waited_for() {
    local(2, |job| {
        let (other, mut word) = (job.right(), [0_u8]);
        if job.rank() == Rank(0) {
            let told = job.finalize();
            assert!(
                matches!(told, Err(Error::CollectiveMismatch { .. })),
                "{told:?}"
            );
        } else {
            let told = job.barrier();
            assert!(
                matches!(told, Err(Error::CollectiveMismatch { .. })),
                "{told:?}"
            );
        }
        job.barrier()?;
        job.send(other, 1, &[job.rank().0 as u8 + 1])?;
        job.receive(AnySource, 1, &mut word)?;
        assert_eq!(word, [other.0 as u8 + 1]);
        let mut sum = [1_u64];
        job.all_reduce(&mut sum, Op::Sum)?;
        assert_eq!(sum, [2]);
        Ok(())
    });
}

/// Threads that wait in any way when their rank comes to its end.
#[test_on(every)]
fn threads_that_wait_are_told_that_the_job_is_over() {
    let told = Mutex::new(Vec::new());
    local(2, |job| {
        if job.settings().conduit.is_virtual() {
            return Ok(());
        }
        let memory = job.alloc::<u64>(1)?;
        type Wait = fn(&Job, &hydrant::Symmetric<u64>) -> Result<()>;
        let waits: Vec<(&str, Wait)> = vec![
            ("receive", |job, _| {
                job.receive(job.right(), 1, &mut [0_u8]).map(drop)
            }),
            ("receive from anybody", |job, _| {
                job.receive(AnySource, 1, &mut [0_u8]).map(drop)
            }),
            ("probe", |job, _| job.probe(job.right(), 1).map(drop)),
            ("probe anybody", |job, _| job.probe(AnySource, 1).map(drop)),
            ("long send", |job, _| {
                job.send(job.right(), 2, &[0_u8; 200_000])
            }),
            ("send until received", |job, _| {
                job.send_nb(job.right(), 2, vec![0_u8])?.wait().map(drop)
            }),
            ("wait_until", |job, memory| {
                job.wait_until(memory, 0, |word| word == 1).map(drop)
            }),
            ("wait_for", |job, _| job.wait_for(pending::<()>())),
            ("wait_for a receive", |job, _| {
                job.wait_for(job.receive_nb(job.right(), 1, vec![0_u8])?)?
                    .map(drop)
            }),
        ];
        job.barrier()?;
        thread::scope(|threads| {
            for (what, wait) in waits {
                let (job, memory, told) = (job.clone(), memory.clone(), &told);
                threads.spawn(move || {
                    let end = wait(&job, &memory);
                    told.lock().push((what, end));
                });
            }
            // They sleep by then, except for those that come late.
            thread::sleep(Duration::from_millis(100));
            job.finalize()
        })
    });
    for (what, end) in told.into_inner() {
        let is_over = matches!(end, Err(Error::JobOver));
        // The other rank hears of the first one's end before its own.
        let is_ended = matches!(end, Err(Error::PeerEnded { .. }));
        let waits_for_peer = !what.contains("any") && !what.starts_with("wait_");
        assert!(
            is_over || is_ended && (waits_for_peer || what == "wait_for a receive"),
            "{what}: {end:?}"
        );
    }
}

/// Another thread of the rank may send a message that its peers do not.
#[test_on(every)]
fn another_thread_may_send_to_its_own_rank() {
    local(2, |job| {
        if job.rank() != Rank(0) || job.settings().conduit.is_virtual() {
            return Ok(());
        }
        thread::scope(|threads| {
            let (polled, is_known) = mpsc::channel();
            let other = threads.spawn(move || {
                job.poll();
                // The receiver may be gone by a failure of its own.
                let _ = polled.send(());
                thread::sleep(Duration::from_millis(150));
                job.send(Rank(0), 1, &[3_u8])
            });
            is_known.recv().expect("the other thread polls");
            let mut word = [0_u8];
            job.receive(AnySource, 1, &mut word)?;
            assert_eq!(word, [3]);
            other.join().expect("no panic")
        })
    });
}

/// A word that no rank changes any more.
#[test_on(shared, pinned, mixed)]
fn who_waits_for_a_word_is_told_when_nothing_can_change_it() {
    local(3, |job| {
        let memory = job.alloc::<u64>(2)?;
        let (here, word) = (job.downgrade(), memory.clone());
        let slow = job.async_function(move |from: Rank, n: u64| {
            let (here, word) = (here.clone(), word.clone());
            async move {
                // Some time after all have come to their ends.
                let until = std::time::Instant::now() + Duration::from_millis(200);
                std::future::poll_fn(|context| {
                    if std::time::Instant::now() < until {
                        context.waker().wake_by_ref();
                        return std::task::Poll::Pending;
                    }
                    std::task::Poll::Ready(())
                })
                .await;
                if here.upgrade().is_some() {
                    drop(word.put_nb(from, 0, vec![n]).map(drop));
                }
            }
        })?;
        job.barrier()?;
        if job.rank() == Rank(0) {
            job.call_one_way(Rank(1), &slow, &5)?;
            assert_eq!(job.wait_until(&memory, 0, |word| word == 5)?, 5);
            is_told_of_all(job.wait_until(&memory, 1, |word| word == 1));
        }
        Ok(())
    });
}

#[test_on(every)]
fn who_waits_for_a_word_after_the_others_ends_is_told() {
    local(3, |job| {
        let memory = job.alloc::<u64>(1)?;
        job.barrier()?;
        if job.rank() == Rank(0) {
            is_told_of_all(job.wait_until(&memory, 0, |word| word == 1));
        }
        Ok(())
    });
}

/// A loop that looks at a word again and again and never waits.
#[test_on(every)]
fn who_looks_at_a_word_after_the_others_ends_is_told() {
    local(3, |job| {
        let memory = job.alloc::<u64>(2)?;
        job.barrier()?;
        if job.rank() != Rank(0) {
            return memory.put(Rank(0), 1, &[u64::from(job.rank().0)]);
        }
        is_told_of_all(looked(|| job.test_until(&memory, 0, |word| word == 1)));
        is_told_of_all(looked(|| {
            job.test_until_any(&memory, &[0], |word| word == 1)
        }));
        // A word that is as it should be is found all the same.
        let word = job.test_until(&memory, 1, |word| word != 0)?;
        assert!(matches!(word, Some(1 | 2)), "{word:?}");
        Ok(())
    });
}

/// A word that one rank alone would change: the condition itself asks for that rank.
#[test_on(every)]
fn who_asks_whether_it_goes_on_is_told() {
    local(3, |job| {
        let (memory, one) = (job.alloc::<u64>(1)?, Rank(1));
        job.barrier()?;
        match job.rank() {
            Rank(0) => {
                job.check_present(one)?;
                let has_ended = || job.check_present(one).is_err();
                job.wait_until(&memory, 0, |word| word == 7 && has_ended())?;
                is_told_of(job.check_present(one), one);
                job.check_present(Rank(2))?;
                job.send(Rank(2), 1, &[1_u8])
            }
            Rank(1) => memory.put(Rank(0), 0, &[7]),
            _ => job.receive(Rank(0), 1, &mut [0_u8]).map(drop),
        }
    });
}

/// A member of a team that does not come to a collective of it.
#[test_on(every)]
fn who_waits_for_it_in_a_team_is_told() {
    local(4, |job| {
        let team = job.world().split(Some(job.rank().0 / 3), 0)?;
        let team = team.expect("every rank is in a team");
        team.barrier()?;
        if job.rank() == Rank(2) {
            return Ok(());
        }
        if job.rank() != Rank(3) {
            let told = team.barrier();
            assert!(
                matches!(told, Err(Error::PeerEnded { .. } | Error::PeerLost(_))),
                "{told:?}"
            );
        }
        // The one that hears of it first may then come to its end.
        Ok(())
    });
}

/// More messages than are kept for a rank that does not receive them.
#[test_on(every)]
fn who_waits_for_another_message_than_those_it_sent_is_told() {
    local(2, |job| {
        let (zero, one, mut word) = (Rank(0), Rank(1), [0_u64]);
        if job.rank() == one {
            (0..5000_u64).try_for_each(|number| job.send_nb(zero, 1, vec![number]).map(drop))?;
            return Ok(());
        }
        is_told_of(job.receive(one, 2, &mut word), one);
        for number in 0..5000 {
            job.receive(one, 1, &mut word)?;
            assert_eq!(word, [number]);
        }
        is_told_of(job.receive(one, 1, &mut word), one);
        Ok(())
    });
}
