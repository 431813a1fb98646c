//! The bare network between two threads, on a real RDMA device. Skipped where there is none.

use std::{io, thread};

use hydrant_verbs::{Bare, Opcode, VerbsOptions, ports};

/// Opens two ends and connects them.
fn pair(bytes: usize) -> Option<[Bare; 2]> {
    if let Err(why) = ports("", None) {
        println!("left out: {why}");
        return None;
    }
    let open = || Bare::open(&VerbsOptions::default(), 0, bytes).expect("an RDMA device");
    let mut ends = [open(), open()];
    let [one, other] = ends.each_ref().map(Bare::address);
    ends[0].connect(other).expect("a peer");
    ends[1].connect(one).expect("a peer");
    Some(ends)
}

#[test]
fn operations_complete_one_by_one_and_in_streams() {
    let Some([mut here, there]) = pair(1 << 20) else {
        return;
    };
    assert_eq!(here.registered_bytes() % 4096, 0);
    for opcode in [Opcode::Write, Opcode::Read] {
        for len in [1, 8, 4096, 1 << 20] {
            here.once(opcode, len).expect("a completion");
        }
        here.stream(opcode, 64 << 10, 100).expect("completions");
    }
    let beyond = here.once(Opcode::Write, (1 << 20) + 1);
    assert_eq!(beyond.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    drop(there);
}

#[test]
fn messages_go_back_and_forth() {
    let Some([mut here, mut there]) = pair(4096) else {
        return;
    };
    const TRIPS: usize = 200;
    thread::scope(|scope| {
        scope.spawn(move || (0..TRIPS).for_each(|_| there.pong(4096).expect("a message")));
        (0..TRIPS).for_each(|_| here.ping(4096).expect("an answer"));
    });
}

#[test]
fn an_end_that_is_not_connected_says_so() {
    if ports("", None).is_err() {
        return;
    }
    let mut alone = Bare::open(&VerbsOptions::default(), 0, 4096).expect("an RDMA device");
    let outcome = alone.once(Opcode::Read, 8);
    assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::NotConnected);
    (alone.register(&mut [0; 8192])).expect("a registration");
}
