//! A rank that sends what follows no rule loses the job, and nobody waits for it or with it.

#![allow(unsafe_code)] // sends by the conduit of a job, as no safe code can

#[path = "support/shared.rs"]
mod support;

use std::{collections::HashMap, ptr::NonNull, slice, sync::Mutex};

use hydrant::{ConduitKind, Error, InterNodeKind, MessageProtocol, Rank, settings};
use hydrant_conduit::{Conduit, Error as Fault, Message};

use support::builder;

/// Bytes of a message that is announced.
const ANNOUNCED: u64 = 1 << 20;

/// The conduits of a job's ranks, which the job owns.
#[derive(Clone, Copy)]
struct Borrowed(NonNull<dyn Conduit>);
// SAFETY: a conduit may be called from any thread.
unsafe impl Send for Borrowed {}

const fn request(
    kind: u8,
    tag: u16,
    args: &'static [u64],
    payload: &'static [u8],
) -> Message<'static> {
    Message {
        kind,
        tag,
        args,
        payload,
    }
}

/// Messages that no rank sends, each with what is wrong with it. Rank 0 has announced a two-sided message of
/// [`ANNOUNCED`] bytes, its first, to rank 1.
const MALFORMED: [(&str, Message<'static>); 20] = [
    (
        "arguments that the conduit's kind does not have",
        request(Message::KINDS, 7, &[1, 2], &[3]),
    ),
    (
        "a kind that nobody has",
        request(Message::KINDS - 1, 0, &[], &[]),
    ),
    ("an answer as a request", request(2, 0, &[1], &[])),
    (
        "a store into no team's scratch",
        request(3, 0, &[u64::MAX, 1], &[1]),
    ),
    (
        "an atomic operation without arguments",
        request(4, 0, &[], &[]),
    ),
    (
        "a registration message that is none",
        request(5, 0, &[], &[255, 1, 2]),
    ),
    (
        "the end of a loan that nobody asked for",
        request(6, 2, &[77], &[]),
    ),
    ("a two-sided message that is none", request(9, 99, &[], &[])),
    (
        "a two-sided message under a reserved tag",
        request(9, 0, &[u64::MAX, 0], &[1]),
    ),
    (
        "a piece of a message under a reserved tag",
        request(9, 9, &[u64::MAX, 1, 2, 0], &[1]),
    ),
    (
        "a piece that is longer than its message",
        request(9, 9, &[1, 1, 1, 0], &[1, 2]),
    ),
    (
        "a part of a message that nobody asked for",
        request(9, 3, &[77, 0], &[1]),
    ),
    (
        "a message asked for that was not announced",
        request(9, 2, &[77, 1], &[]),
    ),
    (
        "more of a message asked for than there is",
        request(9, 2, &[1, 1, 0, 0, 1, ANNOUNCED, 0], &[]),
    ),
    (
        "more of a message asked for than can be",
        request(9, 2, &[1, 1, 0, 0, u64::MAX, ANNOUNCED, 1], &[]),
    ),
    (
        "a message asked for that goes to no place",
        request(9, 2, &[1, 1, 0, 0], &[]),
    ),
    (
        "a message asked for under the key of all memory",
        request(9, 2, &[1, 1, u64::MAX], &[]),
    ),
    (
        "a message asked for under the key of the segment",
        request(9, 2, &[1, 1, 0], &[]),
    ),
    (
        "a part of a message asked for under the key of all memory",
        request(9, 2, &[1, 1, u64::MAX, 0, 0, ANNOUNCED, 0], &[]),
    ),
    ("credit for what was not sent", request(9, 6, &[1, 1], &[])),
];

/// As [`MALFORMED`], of messages in pieces. The first message of each pair breaks no rule if the
/// second is not sent.
const PIECES: [(&str, [Message<'static>; 2]); 3] = [
    (
        "pieces that are longer than their message",
        [
            request(9, 9, &[1, 1, 3, 0], &[1, 2]),
            request(9, 9, &[1, 1, 3, 0], &[3, 4]),
        ],
    ),
    (
        "pieces of two messages under one number",
        [
            request(9, 9, &[1, 1, 3, 0], &[1]),
            request(9, 9, &[2, 1, 3, 0], &[2]),
        ],
    ),
    (
        "messages in pieces beyond the credit",
        [
            request(9, 9, &[1, 1, 512 << 10, 0], &[1]),
            request(9, 9, &[1, 2, 2, 0], &[2]),
        ],
    ),
];

/// How three or more ranks end whose rank 1 sends such a thing to rank 0, while all of them wait
/// for each other again and again.
fn ends(kind: ConduitKind, hosts: u32, ranks: u32, messages: &[Message<'_>]) -> Vec<Error> {
    let conduits = std::sync::Arc::new(Mutex::new(HashMap::new()));
    let job = builder()
        .conduit(kind)
        .pretend_hosts(hosts)
        .inter_node(InterNodeKind::Pinned)
        .messages(MessageProtocol::Rendezvous)
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
        let _announced = match job.rank() {
            Rank(0) => Some(job.send_nb(Rank(1), 1, vec![0_u8; ANNOUNCED as usize])?),
            _ => None,
        };
        job.barrier()?;
        if job.rank() == Rank(1) {
            let place = conduits.lock().expect("no panic inside")[&Rank(1)];
            // SAFETY: the job keeps its conduit, in its box, as long as this body runs.
            let conduit = unsafe { place.0.as_ref() };
            for message in messages {
                assert!(conduit.send(Rank(0), message).is_ok());
            }
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
    let one = MALFORMED
        .iter()
        .map(|(what, it)| (what, slice::from_ref(it)));
    let two = PIECES.iter().map(|(what, both)| (what, &both[..]));
    for (what, messages) in one.chain(two) {
        let ends = ends(kind.clone(), hosts, ranks, messages);
        for (rank, end) in ends.iter().enumerate() {
            let fits = match rank {
                // Which knows what was wrong.
                0 => matches!(end, Error::Conduit(Fault::Malformed { peer: Rank(1), .. })),
                1 => matches!(end, Error::Expelled(Rank(1))),
                // Rank 1, or who gave up for its sake just before.
                _ => matches!(end, Error::PeerLost(_)),
            };
            assert!(fits, "{what}: rank {rank}: {end}");
        }
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

#[test]
fn over_rdma() {
    if let Err(why) = settings::rdma_ports(&hydrant::Settings::new()) {
        eprintln!("left out: {why}");
        return;
    }
    expelled(ConduitKind::Verbs, 1, 3);
}
