//! A rank that sends what follows no rule loses the job, and nobody waits for it or with it.

#![allow(unsafe_code)] // sends by the conduit of a job, as no safe code can

#[path = "support/local.rs"]
mod support;

use std::{collections::HashMap, ptr::NonNull, sync::Mutex};

use hydrant::{ConduitKind, Error, FarKind, Rank};
use hydrant_conduit::{Conduit, Error as Fault, Message};

use support::builder;

/// The conduits of a job's ranks, which the job owns.
#[derive(Clone, Copy)]
struct Borrowed(NonNull<dyn Conduit>);
// SAFETY: a conduit may be called from any thread.
unsafe impl Send for Borrowed {}

/// Requests of the conduit's own kinds, with arguments that these do not have.
const MALFORMED: Message<'static> = Message {
    kind: Message::KINDS,
    tag: 7,
    args: &[1, 2],
    payload: &[3],
};

/// How three or more ranks end whose rank 1 sends such a thing to rank 0, while all of them wait
/// for each other again and again.
fn ends(kind: ConduitKind, hosts: u32, ranks: u32) -> Vec<Error> {
    let conduits = std::sync::Arc::new(Mutex::new(HashMap::new()));
    let job = builder()
        .conduit(kind)
        .pretend_hosts(hosts)
        .far(FarKind::Pinned)
        .through({
            let conduits = conduits.clone();
            move |conduit| {
                let rank = conduit.rank();
                let place = Borrowed(NonNull::from(&*conduit));
                conduits
                    .lock()
                    .expect("no panic inside")
                    .insert(rank, place);
                conduit
            }
        });
    let ends = job.run_local(ranks, |job| {
        let memory = job.alloc::<u64>(100_000)?;
        job.barrier()?;
        if job.rank() == Rank(1) {
            let place = conduits.lock().expect("no panic inside")[&Rank(1)];
            // SAFETY: the job keeps its conduit, in its box, as long as this body runs.
            let conduit = unsafe { place.0.as_ref() };
            assert!(conduit.send(Rank(0), &MALFORMED).is_ok());
        }
        for round in 0.. {
            memory.put(job.right(), 0, &vec![round; 100_000])?;
            job.barrier()?;
        }
        Ok(())
    });
    (ends.into_iter())
        .map(|end| end.expect_err("a job that lost a rank"))
        .collect()
}

fn expelled(kind: ConduitKind, hosts: u32, ranks: u32) {
    let ends = ends(kind, hosts, ranks);
    for (rank, end) in ends.iter().enumerate() {
        let fits = match rank {
            // Which knows what was wrong.
            0 => matches!(end, Error::Conduit(Fault::Malformed { peer: Rank(1), .. })),
            1 => matches!(end, Error::Expelled(Rank(1))),
            // Rank 1, or who gave up for its sake just before.
            _ => matches!(end, Error::PeerLost(_)),
        };
        assert!(fits, "rank {rank}: {end}");
    }
}

#[test]
fn by_shared_memory() {
    expelled(ConduitKind::Smp, 1, 3);
}

#[test]
fn where_memory_is_pinned() {
    expelled(ConduitKind::Pinned, 1, 3);
}

#[test]
fn from_a_host_of_its_own_and_another() {
    // Ranks 0 and 1 are on one host.
    expelled(ConduitKind::Auto, 2, 4);
}
