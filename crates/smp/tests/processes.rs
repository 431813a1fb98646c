//! Tests that need separate processes: the death of a peer, copies between address spaces, and that
//! nothing is left behind. The test starts itself again for every rank.

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Access, Conduit, Error, Key, Local, Membership, Message, Permission, Rank, Remote, Sent,
    Sleeper, Standing, Window, conformance::Log,
};
use hydrant_launch::Bootstrap;
use hydrant_smp::{Foreign, SmpOptions, attach};
use hydrant_testing::{
    HANG,
    family::{Child, Family, Hooked, orderly},
    roles::{self, test},
    strangers::{self, Strangers},
};

/// Longer than any test. A wait that reaches it hangs.
const NEVER: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    strangers::be_one();
    if let Some(mut child) = Child::from_environment() {
        let role = child.role.clone();
        match role.as_str() {
            "rank_1_dies" => return dies_early(&mut child, Rank(1)),
            "rank_0_dies" => return dies_early(&mut child, Rank(0)),
            "besieged" => return besieged(&mut child),
            _ => {}
        }
        let foreign = match role.as_str() {
            "copy_by_messages" => Foreign::Messages,
            _ => Foreign::Auto,
        };
        let options = SmpOptions {
            segment: 16 << 20,
            foreign,
            timeout: HANG,
            ..SmpOptions::default()
        };
        let conduit = attach(&mut child, &options).expect("ranks of one host");
        match role.as_str() {
            "killed" | "exits" => die(&conduit, &mut child),
            "hammer" => hammer(&conduit, &mut child),
            _ => copy(&conduit, &mut child),
        }
        conduit.leave(true);
        return ExitCode::SUCCESS;
    }
    let tests = vec![
        test("a_killed_peer_is_seen_by_all", || victim("killed")),
        test("a_peer_that_just_exits_is_seen_by_all", || victim("exits")),
        test("a_peer_killed_during_a_write_blocks_no_rank", || {
            (0..10).for_each(|_| victim("hammer"));
        }),
        test("a_rank_that_dies_before_it_joins_is_named_at_once", || {
            early("rank_1_dies", 1);
        }),
        test(
            "a_rank_0_that_dies_before_others_join_is_named_at_once",
            || {
                early("rank_0_dies", 0);
            },
        ),
        test("strangers_do_not_keep_ranks_from_joining", || {
            orderly("besieged", 3)
        }),
        test("memory_of_other_processes_by_the_kernel", || {
            orderly("copy", 3)
        }),
        test("memory_of_other_processes_by_messages", || {
            orderly("copy_by_messages", 3);
        }),
    ];
    roles::main(|_, _| None, tests)
}

/// A job of three, whose last rank dies after the others have reported that they wait for it.
fn victim(role: &str) {
    let mut family = Family::start(role, 3);
    family.serve();
    family.expect_line(0, "waiting");
    family.expect_line(1, "waiting");
    if role == "exits" {
        family.tell(2, "go");
    } else {
        // The death sometimes falls into an operation, and sometimes not.
        thread::sleep(Duration::from_micros(u64::from(std::process::id() % 1000)));
        family.kill(2);
    }
    family.end_well(0..2);
    family.wait(2);
    family.nothing_left();
}

/// A job of two, whose rank `victim` ends where only the other rank can see it.
fn early(role: &str, victim: usize) {
    let mut family = Family::start(role, 2);
    family.serve();
    family.end_well([1 - victim]);
    family.wait(victim);
    family.nothing_left();
}

/// Ends between the fence before the join and the join, or sees the peer do so.
fn dies_early(child: &mut Child, victim: Rank) -> ExitCode {
    let me = Rank(child.rank());
    let options = SmpOptions {
        timeout: NEVER,
        ..SmpOptions::default()
    };
    let hook = |_| {
        if me == victim {
            std::process::exit(9);
        }
    };
    let mut job = Hooked {
        child,
        fences: 0,
        hook,
    };
    let Err(error) = attach(&mut job, &options) else {
        panic!("a job without rank {victim}");
    };
    assert!(
        matches!(error, Error::PeerLost(lost) if lost == victim),
        "{error}"
    );
    ExitCode::SUCCESS
}

/// Joins while strangers send to the socket.
fn besieged(child: &mut Child) -> ExitCode {
    let me = child.rank();
    let mut besiegers = None;
    let hook = |fences| {
        // Rank 0 has opened the socket by now, and waits.
        if me == 1 && fences == 1 {
            besiegers = Some(Strangers::start());
        }
    };
    let options = SmpOptions {
        timeout: NEVER,
        ..SmpOptions::default()
    };
    let mut job = Hooked {
        child,
        fences: 0,
        hook,
    };
    let conduit = attach(&mut job, &options).expect("ranks of one host");
    drop(besiegers);
    child.exchange("in");
    conduit.leave(true);
    ExitCode::SUCCESS
}

fn put(
    conduit: &dyn Conduit,
    log: &mut Log<'_>,
    peer: Rank,
    to: Remote,
    data: &[u8],
) -> Result<(), Error> {
    let from = Local::unregistered(data.as_ptr().cast_mut());
    #[allow(unsafe_code)]
    // SAFETY: `data` is borrowed until the operation has ended; the remote memory is accessed only
    // as windows.
    let posted = unsafe { conduit.post(&Access::put(peer, to, from, data.len())) };
    log.end(conduit, posted)
}

fn get(
    conduit: &dyn Conduit,
    log: &mut Log<'_>,
    peer: Rank,
    from: Remote,
    data: &mut [u8],
) -> Result<(), Error> {
    let to = Local::unregistered(data.as_mut_ptr());
    #[allow(unsafe_code)]
    // SAFETY: `data` is borrowed until the operation has ended.
    let posted = unsafe { conduit.post(&Access::get(peer, from, to, data.len())) };
    log.end(conduit, posted)
}

/// Registers a window that is never freed: the process ends first.
fn lend(conduit: &dyn Conduit, len: usize) -> (Window, Key) {
    let window = Window::private(len);
    std::mem::forget(window.clone());
    #[allow(unsafe_code)]
    // SAFETY: the window is leaked, and only accessed as a window.
    let key = unsafe { conduit.register(window.as_ptr(), len, Permission::ReadWrite) };
    (window, key.expect("room for an extent"))
}

/// Every rank writes to, reads from and sends to the next rank.
fn copy(conduit: &dyn Conduit, child: &mut Child) {
    const LEN: usize = 100_003;
    let log = &mut Log::echoing();
    let rank = conduit.rank();
    let (right, left) = (Rank((rank.0 + 1) % 3), Rank((rank.0 + 2) % 3));
    let (window, key) = lend(conduit, LEN);
    let anywhere = Window::private(LEN);
    conduit.commit(0, LEN).expect("memory for a test");
    let segment = conduit
        .window(rank)
        .expect("own")
        .part(0, LEN)
        .expect("a part");
    let places = child.exchange(&format!("{} {}", key.0, anywhere.addr()));
    let (key, addr) = places[right.index()].split_once(' ').expect("two numbers");
    let remotes = [
        Remote {
            key: Key::SEGMENT,
            offset: 0,
        },
        Remote {
            key: Key(key.parse().expect("a key")),
            offset: 0,
        },
        Remote {
            key: Key::ANY,
            offset: addr.parse().expect("an address"),
        },
    ];
    let data = |rank: Rank| -> Vec<u8> {
        (0..LEN as u32)
            .map(|n| (n * 7 + n / 251 + rank.0) as u8)
            .collect()
    };
    for (remote, mine) in remotes.into_iter().zip([&segment, &window, &anywhere]) {
        put(conduit, log, right, remote, &data(rank)).expect("within the place");
        let mut got = vec![0; LEN];
        get(conduit, log, right, remote, &mut got).expect("within the place");
        assert!(got == data(rank), "read from rank {right}");
        child.meet(|| {
            conduit.poll(log);
        });
        mine.read(0, &mut got).expect("in bounds");
        assert!(got == data(left), "written by rank {left}");
    }
    let nowhere = Remote {
        key: Key::ANY,
        offset: 8,
    };
    let refused = put(conduit, log, right, nowhere, &[1; 8]);
    assert!(
        matches!(refused, Err(Error::BadAddress { .. })),
        "{refused:?}"
    );
    for n in 0..5000_u64 {
        let payload = n.to_le_bytes();
        let message = Message {
            kind: 1,
            tag: 2,
            args: &[n],
            payload: &payload,
        };
        let mut sent = false;
        log.until(conduit, |_| {
            sent = sent || conduit.send(right, &message).expect("present") == Sent::Yes;
            sent
        });
    }
    log.until(conduit, |log| log.replies.len() == 5000);
    for (n, reply) in log.replies.iter().enumerate() {
        assert_eq!(
            (reply.from, &reply.payload[..]),
            (right, &n.to_le_bytes()[..])
        );
    }
    child.meet(|| {
        conduit.poll(log);
    });
}

/// Rank 2 dies while the others wait for it in every possible way.
fn die(conduit: &dyn Conduit, child: &mut Child) {
    let log = &mut Log::echoing();
    let (_window, key) = lend(conduit, 1 << 20);
    let places = child.exchange(&key.0.to_string());
    if conduit.rank() == Rank(2) {
        // The test kills the process here, or tells it to exit without a message to the others.
        child.read_line();
        std::process::exit(3);
    }
    let before = conduit.changes();
    child.say("waiting");
    let since = Instant::now();
    thread::scope(|scope| {
        for sleeper in [Sleeper::Service, Sleeper::Application] {
            scope.spawn(move || {
                while conduit.standing(Rank(2)) == Standing::Present {
                    conduit.wait(sleeper, Some(HANG), &mut || conduit.changes() != before);
                }
            });
        }
    });
    assert!(since.elapsed() < HANG, "the death woke nobody");
    assert_eq!(conduit.standing(Rank(2)), Standing::Lost);
    // The death counts once, though both ranks saw it. The other rank may have left by now.
    let changes = conduit.changes() - before;
    assert!((1..=2).contains(&changes), "{changes} changes");
    let remote = Remote {
        key: Key(places[2].parse().expect("a key")),
        offset: 0,
    };
    let lost = put(conduit, log, Rank(2), remote, &[1; 8]);
    assert!(matches!(lost, Err(Error::PeerLost(Rank(2)))), "{lost:?}");
    let message = Message {
        kind: 0,
        tag: 0,
        args: &[],
        payload: &[],
    };
    assert!(matches!(
        conduit.send(Rank(2), &message),
        Err(Error::PeerLost(Rank(2)))
    ));
    conduit.deregister(key).expect("a key in force");
}

/// Rank 2 is killed while it writes to the others, which then revoke their memory.
fn hammer(conduit: &dyn Conduit, child: &mut Child) {
    let log = &mut Log::echoing();
    let (window, key) = lend(conduit, 1 << 20);
    let places = child.exchange(&key.0.to_string());
    if conduit.rank() == Rank(2) {
        let data = vec![1; 1 << 20];
        loop {
            for (peer, key) in places.iter().enumerate().take(2) {
                let key = Key(key.parse().expect("a key"));
                let remote = Remote { key, offset: 0 };
                let _ = put(conduit, log, Rank(peer as u32), remote, &data);
            }
        }
    }
    let written = || window.load::<u8>(0) == Ok(1);
    log.until(conduit, |_| written());
    child.say("waiting");
    log.until(conduit, |_| conduit.standing(Rank(2)) == Standing::Lost);
    conduit.deregister(key).expect("a key in force");
    window.fill(0, 1 << 20, 0).expect("in bounds");
    for _ in 0..100 {
        conduit.poll(log);
    }
    let mut bytes = vec![1; 1 << 20];
    window.read(0, &mut bytes).expect("in bounds");
    assert!(bytes.iter().all(|byte| *byte == 0), "a dead peer wrote");
}
