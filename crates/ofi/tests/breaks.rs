//! Connections that break under load: messages arrive once and in order, and writes land once.
//!
//! Two ranks are threads of this process. Another thread shuts sockets of the process down, at random, as a router
//! that resets connections would.

#![allow(unsafe_code)] // registers and writes memory

use std::{
    sync::{
        Barrier, Mutex,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Access, Conduit, Local, Message, Permission, Posted, Rank, Remote, Sent, Window,
    conformance::Log,
};
use hydrant_ofi::{OfiOptions, attach, endpoints};
use hydrant_testing::{HANG, left_out, ranks};

/// The least number of connections to break.
const BREAKS: u32 = 25;
/// The most rounds of a rank: enough for the breaks on any machine.
const MOST_ROUNDS: u64 = 100_000;

/// Shuts down a connected socket of this process, if it has one. Returns true if it did.
fn break_one(turn: usize) -> bool {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else {
        return false;
    };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let all: Vec<i32> = folder.flatten().filter_map(number).collect();
    let connected = |descriptor: &i32| {
        let mut address = [0_u64; 16];
        let mut len = size_of_val(&address) as libc::socklen_t;
        let into = address.as_mut_ptr().cast();
        // SAFETY: the buffer has `len` bytes. A number that is no socket is an error.
        let code = unsafe { libc::getpeername(*descriptor, into, &raw mut len) };
        let family = i32::from(address[0] as u16);
        code == 0 && [libc::AF_INET, libc::AF_INET6].contains(&family)
    };
    let sockets: Vec<i32> = all.into_iter().filter(connected).collect();
    let Some(chosen) = sockets.get(turn % sockets.len().max(1)) else {
        return false;
    };
    // SAFETY: shutting a socket down frees nothing.
    unsafe { libc::shutdown(*chosen, libc::SHUT_RDWR) == 0 }
}

/// What one rank tells the other about its memory.
type Told = Mutex<Vec<Option<Remote>>>;

/// Sends numbered requests, and writes and reads a word of the other rank, until `enough`.
fn drive(conduit: &dyn Conduit, told: &Told, meet: &Barrier, enough: &AtomicBool) -> u64 {
    let me = conduit.rank();
    let other = Rank(1 - me.0);
    let (window, source) = (Window::private(4096), Window::private(4096));
    let addr = window.as_ptr();
    // SAFETY: 1. The window outlives the key. 2. Only the other rank writes to it.
    let key = unsafe { conduit.register(addr, 4096, Permission::ReadWrite) }.expect("a key");
    // SAFETY: 1. The window outlives the key. 2. No peer knows it.
    let own = unsafe { conduit.register(source.as_ptr(), 4096, Permission::ReadWrite) };
    let own = own.expect("a key");
    let offset = addr.addr() as u64;
    told.lock().expect("no panic")[me.index()] = Some(Remote { key, offset });
    meet.wait();
    let there = told.lock().expect("no panic")[other.index()].expect("it was told");
    let mut next = 0_u64;
    let log = &mut Log::handling(move |delivery, port| {
        assert_eq!(delivery.args, [next], "a request is missing, or came twice");
        next += 1;
        let reply = Message {
            kind: 1,
            tag: 2,
            args: delivery.args,
            payload: &[7; 100],
        };
        port.reply(&reply).expect("within the limits");
    });
    let mut rounds = 0;
    while !enough.load(SeqCst) && rounds < MOST_ROUNDS {
        let request = Message {
            kind: 1,
            tag: 1,
            args: &[rounds],
            payload: &[],
        };
        let since = Instant::now();
        while conduit.send(other, &request).expect("the other is there") == Sent::Full {
            conduit.poll(log);
            assert!(since.elapsed() < HANG, "there is never room");
        }
        source.store(0, rounds).expect("in bounds");
        let local = |offset: usize| Local {
            addr: source.as_ptr().wrapping_add(offset),
            key: own,
        };
        for access in [
            Access::put(other, there, local(0), 8),
            Access::get(other, there, local(8), 8),
        ] {
            // SAFETY: 1. The source is registered, and waits until the operation has ended. 2. The other rank lent the
            // memory.
            match unsafe { conduit.post(&access) }.expect("a key in force") {
                Posted::Done => {}
                Posted::Pending(ticket) => {
                    log.until(conduit, |log| log.outcome(ticket).is_some());
                    log.take(ticket).expect("it ended").expect("it is done");
                }
            }
        }
        let read: u64 = source.load(8).expect("in bounds");
        assert_eq!(read, rounds, "the value that was just written");
        rounds += 1;
    }
    log.until(conduit, |log| log.replies.len() as u64 == rounds);
    for (number, reply) in (0..).zip(&log.replies) {
        assert_eq!((&reply.args[..], reply.payload.len()), (&[number][..], 100));
    }
    // The other rank's requests are answered until it has all replies, too.
    conduit.come_to_end(true);
    log.until(conduit, |_| conduit.has_come_to_end(other));
    rounds
}

/// The options for the loopback interface, whose sockets belong to nobody else. `None` without libfabric.
fn on_loopback() -> Option<OfiOptions> {
    let options = OfiOptions {
        segment: 1 << 20,
        extents: 64,
        interface: "lo".to_owned(),
        ..OfiOptions::default()
    };
    let Err(why) = endpoints(&options) else {
        return Some(options);
    };
    left_out(why);
    None
}

/// The provider takes a message, its connection is gone, and nothing follows by which the other rank would miss it.
#[test]
fn the_last_message_before_a_silence_arrives() {
    const ROUNDS: usize = 4;
    let Some(options) = on_loopback() else {
        return;
    };
    ranks::joined(2, |mut bootstrap| {
        let conduit = attach(&mut bootstrap, &options).expect("a provider of libfabric");
        let conduit: &dyn Conduit = &conduit;
        let other = Rank(1 - conduit.rank().0);
        let log = &mut Log::handling(|delivery, port| {
            let reply = Message {
                kind: 1,
                tag: 2,
                args: delivery.args,
                payload: &[],
            };
            port.reply(&reply).expect("within the limits");
        });
        for round in 0..if other == Rank(1) { ROUNDS } else { 0 } {
            let request = Message {
                kind: 1,
                tag: 1,
                args: &[round as u64],
                payload: &[],
            };
            break_one(round);
            let sent = conduit.send(other, &request).expect("the other is there");
            assert_eq!(sent, Sent::Yes);
            log.until(conduit, |log| log.replies.len() > round);
        }
        conduit.come_to_end(true);
        log.until(conduit, |_| conduit.has_come_to_end(other));
    });
}

#[test]
fn nothing_is_lost_or_doubled_when_connections_break() {
    let Some(options) = on_loopback() else {
        return;
    };
    let (told, meet) = (Mutex::new(vec![None; 2]), Barrier::new(3));
    let (enough, broken) = (AtomicBool::new(false), AtomicU32::new(0));
    let rounds = thread::scope(|scope| {
        let breaker = scope.spawn(|| {
            meet.wait();
            let since = Instant::now();
            for turn in 0.. {
                thread::sleep(Duration::from_millis(2 + turn as u64 % 23));
                let count = broken.fetch_add(u32::from(break_one(turn)), Relaxed);
                if count >= BREAKS || since.elapsed() > HANG {
                    break;
                }
            }
            enough.store(true, SeqCst);
        });
        let rounds = ranks::joined(2, |mut bootstrap| {
            let conduit = attach(&mut bootstrap, &options).expect("a provider of libfabric");
            drive(&conduit, &told, &meet, &enough)
        });
        breaker.join().expect("no panic");
        rounds
    });
    assert!(rounds.iter().all(|rounds| *rounds > 0));
    assert!(broken.load(Relaxed) >= BREAKS, "too few connections broke");
}
