//! Each cause of an error, provoked in a trace that is right but for it.

use super::*;

/// A record of a trace under construction.
#[derive(Clone, Copy)]
struct RawRecord {
    at: u64,
    duration: u64,
    addr: u64,
    len: u64,
    stack: u64,
    request: u64,
    peer: i32,
    tag: i32,
    kind: u16,
    comm: u16,
    sequence: u32,
    computed: u64,
}

fn raw(kind: MpiCall, sequence: u32) -> RawRecord {
    RawRecord {
        at: u64::from(sequence) * 100,
        duration: 10,
        addr: 0,
        len: 0,
        stack: 7,
        request: 0,
        peer: -1,
        tag: -1,
        kind: kind as u16,
        comm: 0,
        sequence,
        computed: u64::from(sequence) * 50,
    }
}

fn message(kind: MpiCall, sequence: u32, peer: i32, tag: i32, len: u64) -> RawRecord {
    RawRecord {
        addr: 0x1000,
        len,
        peer,
        tag,
        ..raw(kind, sequence)
    }
}

fn request(kind: MpiCall, sequence: u32, request: u64) -> RawRecord {
    let named = if matches!(kind, MpiCall::Wait) { -1 } else { 1 };
    RawRecord {
        request,
        ..message(kind, sequence, named, named, 64)
    }
}

fn file(rank: u64, ranks: u64, records: &[RawRecord]) -> Vec<u8> {
    let header = [
        MAGIC,
        RECORD_BYTES as u64,
        rank,
        ranks,
        0x1000,
        0x2000,
        0,
        0,
    ];
    let mut bytes: Vec<u8> = header.iter().flat_map(|it| it.to_le_bytes()).collect();
    for it in records {
        for word in [it.at, it.duration, it.addr, it.len, it.stack, it.request] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(it.peer.to_le_bytes());
        bytes.extend(it.tag.to_le_bytes());
        bytes.extend(it.kind.to_le_bytes());
        bytes.extend(it.comm.to_le_bytes());
        bytes.extend(it.sequence.to_le_bytes());
        bytes.extend(it.computed.to_le_bytes());
    }
    bytes
}

/// MPI_Init, `calls` numbered from 2 on, MPI_Finalize.
fn whole(calls: &[RawRecord]) -> Vec<RawRecord> {
    let last = calls.last().map_or(1, |it| it.sequence);
    let mut records = vec![raw(MpiCall::Init, 1)];
    records.extend(calls);
    records.push(raw(MpiCall::Finalize, last + 1));
    records
}

fn parse(rank: u64, ranks: u64, records: &[RawRecord]) -> Result<RankTrace, Error> {
    RankTrace::parse("a.pmt", &file(rank, ranks, records))
}

fn job(first: &[RawRecord], second: &[RawRecord]) -> Result<Trace, Error> {
    let first = parse(0, 2, &whole(first)).unwrap();
    let second = parse(1, 2, &whole(second)).unwrap();
    // The order of files does not count.
    Trace::new(vec![second, first])
}

fn fault(records: &[RawRecord]) -> (Option<u64>, TraceFault) {
    let error = parse(0, 2, records).unwrap_err();
    assert_eq!(error.position, error.record.map(|it| 64 + 72 * it));
    (error.record, error.fault)
}

#[test]
fn a_trace_is_read_in_the_order_of_calls() {
    // The receive that was posted first ended last.
    let records = [
        raw(MpiCall::Init, 1),
        message(MpiCall::Recv, 3, 1, 5, 64),
        message(MpiCall::Recv, 2, 1, 5, 32),
        raw(MpiCall::Finalize, 4),
    ];
    let mut records = records;
    records[1].at = 300;
    let trace = parse(0, 2, &records).unwrap();
    let order: Vec<_> = trace
        .records()
        .iter()
        .map(|it| (it.sequence, it.index))
        .collect();
    assert_eq!(order, [(1, 0), (2, 2), (3, 1), (4, 3)]);
    assert_eq!((trace.rank(), trace.ranks(), trace.file()), (0, 2, "a.pmt"));
    let second = trace.records()[1];
    assert_eq!(
        (second.call, second.peer, second.tag, second.bytes),
        (MpiCall::Recv, 1, 5, 32)
    );
    assert!(second.has_buffer() && !trace.records()[0].has_buffer());
}

#[test]
fn headers_that_are_none() {
    let good = file(0, 2, &whole(&[]));
    let fault = |bytes: &[u8]| RankTrace::parse("a.pmt", bytes).unwrap_err().fault;
    assert_eq!(fault(&good[..63]), TraceFault::NoHeader { bytes: 63 });
    let with = |word: usize, value: u64| {
        let mut bytes = good.clone();
        bytes[8 * word..8 * word + 8].copy_from_slice(&value.to_le_bytes());
        fault(&bytes)
    };
    assert_eq!(with(0, 5), TraceFault::Magic { found: 5 });
    assert_eq!(with(1, 64), TraceFault::RecordSize { found: 64 });
    assert_eq!(with(2, 2), TraceFault::Rank { rank: 2, ranks: 2 });
    assert_eq!(with(3, 0), TraceFault::Ranks { ranks: 0 });
    assert_eq!(with(3, 1 << 40), TraceFault::Ranks { ranks: 1 << 40 });
    assert_eq!(
        with(4, 0x3000),
        TraceFault::Executable {
            low: 0x3000,
            high: 0x2000
        }
    );
}

#[test]
fn files_that_end_early() {
    let good = file(0, 2, &whole(&[]));
    let error = RankTrace::parse("a.pmt", &good[..good.len() - 5]).unwrap_err();
    assert_eq!(error.fault, TraceFault::Truncated { bytes: 67 });
    assert_eq!(
        error.to_string(),
        "a.pmt, rank 0, record 1 at byte 136: the file ends 67 bytes into a record of 72; it was cut off"
    );
    assert_eq!(format!("{error:?}"), error.to_string());
    let error = RankTrace::parse("a.pmt", &good[..64]).unwrap_err();
    assert_eq!((error.rank, error.fault), (Some(0), TraceFault::Empty));
    assert_eq!(
        fault(&[raw(MpiCall::Init, 1)]),
        (Some(0), TraceFault::Finalize)
    );
}

#[test]
fn records_that_make_no_sense() {
    let with = |change: fn(&mut RawRecord)| {
        let mut records = whole(&[
            message(MpiCall::Send, 2, 1, 0, 64),
            message(MpiCall::Send, 3, 1, 0, 64),
        ]);
        change(&mut records[2]);
        fault(&records)
    };
    assert_eq!(
        with(|it| it.kind = 21),
        (Some(2), TraceFault::Kind { kind: 21 })
    );
    assert_eq!(
        with(|it| it.kind = 0),
        (Some(2), TraceFault::Kind { kind: 0 })
    );
    assert_eq!(with(|it| it.kind = 1), (Some(2), TraceFault::Init));
    assert_eq!(with(|it| it.kind = 2), (Some(2), TraceFault::Finalize));
    let buffer = TraceFault::Buffer {
        addr: u64::MAX,
        bytes: 64,
    };
    assert_eq!(with(|it| it.addr = u64::MAX), (Some(2), buffer));
    assert_eq!(
        with(|it| it.duration = u64::MAX),
        (Some(2), TraceFault::TimeOverflow)
    );
    let back = TraceFault::TimeBack {
        clock: "t_ns",
        before: 200,
        now: 199,
    };
    assert_eq!(with(|it| it.at = 199), (Some(2), back));
    let back = TraceFault::TimeBack {
        clock: "comp_ns",
        before: 100,
        now: 99,
    };
    assert_eq!(with(|it| it.computed = 99), (Some(2), back));
    assert_eq!(
        with(|it| it.peer = 2),
        (Some(2), TraceFault::Peer { peer: 2, ranks: 2 })
    );
    assert_eq!(
        with(|it| it.peer = -1),
        (Some(2), TraceFault::Peer { peer: -1, ranks: 2 })
    );
    let missing = TraceFault::MissingCall { before: 2, now: 4 };
    let records = [
        raw(MpiCall::Init, 1),
        raw(MpiCall::Barrier, 2),
        raw(MpiCall::Finalize, 4),
    ];
    assert_eq!(fault(&records), (Some(2), missing));
}

#[test]
fn records_of_one_call_agree() {
    let with = |change: fn(&mut RawRecord)| {
        let mut second = message(MpiCall::AlltoallReceive, 2, 1, -1, 64);
        change(&mut second);
        parse(
            0,
            2,
            &whole(&[message(MpiCall::AlltoallSend, 2, 1, -1, 64), second]),
        )
    };
    with(|_| ()).unwrap();
    for (change, field) in [
        ((|it| it.at += 1) as fn(&mut RawRecord), "t_ns"),
        (|it| it.computed += 1, "comp_ns"),
        (|it| it.stack += 1, "stack"),
        (|it| it.comm += 1, "comm"),
        (|it| it.kind = MpiCall::AlltoallvReceive as u16, "kind"),
    ] {
        let error = with(change).unwrap_err();
        assert_eq!(
            (error.record, error.fault),
            (Some(2), TraceFault::Contradiction { call: 2, field })
        );
    }
}

#[test]
fn requests_are_begun_and_completed_once() {
    let begin = request(MpiCall::Isend, 2, 9);
    let wait = request(MpiCall::Wait, 3, 9);
    parse(0, 2, &whole(&[begin, wait])).unwrap();
    assert_eq!(
        fault(&whole(&[begin])),
        (Some(1), TraceFault::RequestLeft { request: 9 })
    );
    let again = TraceFault::RequestAgain { request: 9 };
    assert_eq!(
        fault(&whole(&[begin, request(MpiCall::Irecv, 3, 9)])),
        (Some(2), again)
    );
    let none = TraceFault::RequestAgain { request: 0 };
    assert_eq!(
        fault(&whole(&[request(MpiCall::Irecv, 2, 0)])),
        (Some(1), none)
    );
    let unknown = TraceFault::RequestUnknown { request: 8 };
    assert_eq!(
        fault(&whole(&[begin, request(MpiCall::Wait, 3, 8)])),
        (Some(2), unknown)
    );
    let twice = TraceFault::RequestUnknown { request: 9 };
    assert_eq!(
        fault(&whole(&[begin, wait, request(MpiCall::Wait, 4, 9)])),
        (Some(3), twice)
    );
}

#[test]
fn a_job_has_each_rank_once() {
    let rank = |rank, ranks| parse(rank, ranks, &whole(&[])).unwrap();
    Trace::new(vec![rank(1, 2), rank(0, 2)]).unwrap();
    let fault = |files| Trace::new(files).unwrap_err().fault;
    assert_eq!(
        fault(vec![]),
        TraceFault::RankMissing {
            missing: 0,
            ranks: 0
        }
    );
    assert_eq!(
        fault(vec![rank(1, 2)]),
        TraceFault::RankMissing {
            missing: 0,
            ranks: 2
        }
    );
    assert_eq!(
        fault(vec![rank(0, 2), rank(0, 2)]),
        TraceFault::RankTwice {
            other: "a.pmt".into()
        }
    );
    let other = TraceFault::OtherJob {
        ranks: 3,
        other: "a.pmt".into(),
        others: 2,
    };
    assert_eq!(fault(vec![rank(0, 2), rank(1, 3)]), other);
}

#[test]
fn what_is_sent_is_received() {
    let send = |sequence, tag, len| message(MpiCall::Send, sequence, 1, tag, len);
    let receive = |sequence, tag, len| message(MpiCall::Recv, sequence, 0, tag, len);
    job(
        &[send(2, 5, 64), send(3, 6, 8)],
        &[receive(2, 6, 8), receive(3, 5, 100)],
    )
    .unwrap();

    let error = job(&[send(2, 5, 64), send(3, 5, 8)], &[receive(2, 5, 64)]).unwrap_err();
    assert_eq!((error.rank, error.record), (Some(0), Some(2)));
    assert_eq!(
        error.fault,
        TraceFault::SendWithoutReceive {
            to: 1,
            tag: 5,
            bytes: 8
        }
    );

    // With another tag it is another message.
    let error = job(&[send(2, 5, 64)], &[receive(2, 6, 64)]).unwrap_err();
    assert_eq!(
        error.fault,
        TraceFault::SendWithoutReceive {
            to: 1,
            tag: 5,
            bytes: 64
        }
    );

    let error = job(&[send(2, 5, 64)], &[receive(2, 5, 64), receive(3, 6, 1)]).unwrap_err();
    assert_eq!((error.rank, error.record), (Some(1), Some(2)));
    assert_eq!(
        error.fault,
        TraceFault::ReceiveWithoutSend { from: 0, tag: 6 }
    );

    let error = job(&[send(2, 5, 64)], &[receive(2, 5, 63)]).unwrap_err();
    assert_eq!(
        error.fault,
        TraceFault::Length {
            to: 1,
            tag: 5,
            sent: 64,
            received: 63
        }
    );
}

#[test]
fn parts_of_an_exchange_are_of_one_length() {
    let part = |call, peer, len| message(call, 2, peer, -1, len);
    let rank = |peer, sent, received| {
        [
            part(MpiCall::AlltoallvSend, peer, sent),
            part(MpiCall::AlltoallvReceive, peer, received),
        ]
    };
    job(&rank(1, 10, 20), &rank(0, 20, 10)).unwrap();
    let error = job(&rank(1, 10, 20), &rank(0, 20, 11)).unwrap_err();
    assert_eq!(
        error.fault,
        TraceFault::Length {
            to: 1,
            tag: -1,
            sent: 10,
            received: 11
        }
    );
}

#[test]
fn communicators_may_be_numbered_differently() {
    let send = |sequence, comm, len| RawRecord {
        comm,
        ..message(MpiCall::Send, sequence, 1, 5, len)
    };
    let receive = |sequence, comm, len| RawRecord {
        comm,
        ..message(MpiCall::Recv, sequence, 0, 5, len)
    };
    // Alike: the order within each counts.
    job(
        &[send(2, 1, 64), send(3, 2, 8)],
        &[receive(2, 2, 8), receive(3, 1, 64)],
    )
    .unwrap();
    // Numbered otherwise: the order of all.
    job(
        &[send(2, 1, 64), send(3, 1, 8)],
        &[receive(2, 3, 64), receive(3, 3, 8)],
    )
    .unwrap();
}

#[test]
fn ranks_agree_about_collective_calls() {
    let root = |sequence, peer| RawRecord {
        peer,
        ..raw(MpiCall::Bcast, sequence)
    };
    job(&[root(2, 1)], &[root(2, 1)]).unwrap();
    let error = job(&[root(2, 1)], &[root(2, 0)]).unwrap_err();
    let (here, there) = (
        "Bcast with root 0".to_owned(),
        "Bcast with root 1".to_owned(),
    );
    assert_eq!(
        error.fault,
        TraceFault::Collective {
            number: 0,
            here,
            there
        }
    );
    let error = job(&[root(2, 1), raw(MpiCall::Barrier, 3)], &[root(2, 1)]).unwrap_err();
    let (here, there) = ("missing".to_owned(), "Barrier".to_owned());
    assert_eq!((error.rank, error.record), (Some(1), None));
    assert_eq!(
        error.fault,
        TraceFault::Collective {
            number: 1,
            here,
            there
        }
    );
}
