//! Messages that a rank sent before its end are received and probed, with any number of polling
//! threads at the receiver, and with other ends meanwhile.

#![allow(unsafe_code)] // a layer around a conduit

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use hydrant::{ConduitKind, Error, Job, JobBuilder, Rank};
use hydrant_conduit::{Conduit, Forward, Sink};

fn builder() -> JobBuilder {
    let builder = Job::builder().expect("the settings are valid");
    builder
        .heap(1 << 20)
        .conduit(ConduitKind::Smp)
        .service(false)
}

fn end() -> Error {
    Error::other("this rank ends")
}

/// One thread finds a message that another thread is just handling.
#[test]
fn probes_of_several_threads_find_their_messages() {
    const ROUNDS: u64 = 200;
    const PROBERS: u64 = 2;
    for round in 0..ROUNDS {
        let in_vain = AtomicU64::new(0);
        drop(builder().run_local(3, |job| {
            job.barrier()?;
            match job.rank().0 {
                1 => {
                    // The messages come during a poll in some rounds, and before it in others.
                    thread::sleep(Duration::from_micros(round * 37 % 300));
                    for number in 0..200_u64 {
                        job.send(Rank(0), 1, &[number])?;
                    }
                    for prober in 0..PROBERS {
                        job.send(Rank(0), 2 + prober, &[7_u64])?;
                    }
                    return Err(end());
                }
                0 => thread::scope(|scope| {
                    for prober in 0..PROBERS {
                        let in_vain = &in_vain;
                        scope.spawn(move || {
                            if job.probe(Rank(1), 2 + prober).is_err() {
                                in_vain.fetch_add(1, SeqCst);
                            }
                        });
                    }
                }),
                _ => while job.receive(Rank(1), 1, &mut [0_u64]).is_ok() {},
            }
            Ok(())
        }));
        assert_eq!(in_vain.into_inner(), 0, "round {round}");
    }
}

/// Prolongs the moment after a drain of rank 0.
struct Slow {
    conduit: Box<dyn Conduit>,
    is_armed: Arc<AtomicBool>,
    has_drained: Arc<AtomicBool>,
}

// SAFETY: All calls go to the inner conduit, the drain among them.
unsafe impl Forward for Slow {
    fn inner(&self) -> &dyn Conduit {
        &*self.conduit
    }

    fn drain(&self, sink: &mut dyn Sink) -> usize {
        let delivered = self.conduit.drain(sink);
        if self.conduit.rank() == Rank(0) && self.is_armed.swap(false, SeqCst) {
            self.has_drained.store(true, SeqCst);
            thread::sleep(Duration::from_millis(200));
        }
        delivered
    }
}

/// A receive begins after a rank was lost. Another rank sends its message, and ends during the
/// check for lost ranks.
#[test]
fn a_message_sent_during_the_check_for_lost_ranks_is_received() {
    let (is_armed, has_drained) = (Arc::default(), Arc::default());
    let (armed, drained) = (Arc::clone(&is_armed), Arc::clone(&has_drained));
    let slow = move |conduit| -> Box<dyn Conduit> {
        Box::new(Slow {
            conduit,
            is_armed: Arc::clone(&armed),
            has_drained: Arc::clone(&drained),
        })
    };
    let got = AtomicU64::new(0);
    // The job ends badly for rank 0, too, because others are lost.
    drop(builder().through(slow).run_local(3, |job| {
        job.barrier()?;
        match job.rank().0 {
            2 => return Err(end()),
            1 => {
                while !has_drained.load(SeqCst) {
                    thread::yield_now();
                }
                job.send(Rank(0), 5, &[42_u64])?;
                return Err(end());
            }
            _ => {
                let lost = job.receive(Rank(2), 1, &mut [0_u64]);
                assert!(matches!(lost, Err(Error::PeerLost(Rank(2)))), "{lost:?}");
                is_armed.store(true, SeqCst);
                let (data, _) = job.receive_nb(Rank(1), 5, vec![0_u64])?.wait()?;
                got.store(data[0], SeqCst);
            }
        }
        Ok(())
    }));
    assert_eq!(got.into_inner(), 42, "it was sent");
    assert!(has_drained.load(SeqCst), "nothing was drained in between");
}
