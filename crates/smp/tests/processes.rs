//! What only processes of their own can show: the death of a peer, copies between address
//! spaces, and that nothing is left behind. The test starts itself again for every rank.

mod family;

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Access, Conduit, Delivery, Error, Key, Local, Membership, Message, Permission, Posted, Rank,
    Remote, ReplyPort, Sent, Sink, Sleeper, Standing, Ticket, Window,
};
use hydrant_smp::{Foreign, Options, attach};
use libtest_mimic::{Arguments, Trial};

use family::{
    Child, Family, Hooked,
    strangers::{self, Strangers},
};
use hydrant_launch::Bootstrap;

/// Whatever takes longer hangs.
const GUARD: Duration = Duration::from_secs(30);

/// Longer than any test: what waits for it to pass hangs.
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
        let options = Options {
            segment: 16 << 20,
            foreign,
            timeout: GUARD,
            ..Options::default()
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
    let trials = vec![
        Trial::test("a_killed_peer_is_seen_by_all", || victim("killed")),
        Trial::test("a_peer_that_just_exits_is_seen_by_all", || victim("exits")),
        Trial::test("a_peer_killed_while_it_writes_holds_up_nobody", || {
            (0..10).try_for_each(|_| victim("hammer"))
        }),
        Trial::test("a_rank_that_dies_before_it_joins_is_named_at_once", || {
            early("rank_1_dies", 1)
        }),
        Trial::test(
            "a_rank_0_that_dies_before_others_join_is_named_at_once",
            || early("rank_0_dies", 0),
        ),
        Trial::test("strangers_keep_nobody_from_joining", || orderly("besieged")),
        Trial::test("memory_of_other_processes_by_the_kernel", || {
            orderly("copy")
        }),
        Trial::test("memory_of_other_processes_by_messages", || {
            orderly("copy_by_messages")
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A job of three that all end well, and leave nothing.
fn orderly(role: &str) -> Result<(), libtest_mimic::Failed> {
    let mut family = Family::start(role, 3);
    family.serve(3, GUARD);
    for rank in 0..3 {
        assert!(family.wait(rank, GUARD).success(), "rank {rank} of {role}");
    }
    family.nothing_left();
    Ok(())
}

/// A job of three whose last rank dies when the others have said that they wait for it.
fn victim(role: &str) -> Result<(), libtest_mimic::Failed> {
    let mut family = Family::start(role, 3);
    family.serve(3, GUARD);
    family.expect_line(0, "waiting", GUARD);
    family.expect_line(1, "waiting", GUARD);
    if role == "exits" {
        family.tell(2, "go");
    } else {
        // Sometimes in the middle of something, sometimes not.
        thread::sleep(Duration::from_micros(u64::from(std::process::id() % 1000)));
        family.kill(2);
    }
    for rank in 0..2 {
        assert!(family.wait(rank, GUARD).success(), "rank {rank} of {role}");
    }
    family.wait(2, GUARD);
    family.nothing_left();
    Ok(())
}

/// A job of two whose rank `victim` ends where nobody but the other can see it.
fn early(role: &str, victim: usize) -> Result<(), libtest_mimic::Failed> {
    let mut family = Family::start(role, 2);
    family.serve(2, GUARD);
    assert!(family.wait(1 - victim, GUARD).success(), "{role}");
    family.wait(victim, GUARD);
    family.nothing_left();
    Ok(())
}

/// Ends between the fence after which ranks join and joining, or sees the other do so.
fn dies_early(child: &mut Child, victim: Rank) -> ExitCode {
    let me = Rank(child.rank());
    let options = Options {
        timeout: NEVER,
        ..Options::default()
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
    let options = Options {
        timeout: NEVER,
        ..Options::default()
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

/// A sink that keeps what it needs of what comes.
#[derive(Default)]
struct Log {
    replies: u64,
    ended: Vec<(Ticket, Result<(), Error>)>,
}

impl Sink for Log {
    fn request(&mut self, delivery: Delivery<'_>, port: &mut dyn ReplyPort) {
        let Delivery {
            kind,
            tag,
            args,
            payload,
            ..
        } = delivery;
        port.reply(&Message {
            kind,
            tag,
            args,
            payload,
        })
        .expect("within the limits");
    }
    fn reply(&mut self, delivery: Delivery<'_>) {
        assert_eq!(delivery.payload, delivery.args[0].to_le_bytes());
        self.replies += 1;
    }
    fn local(&mut self, _: Ticket) {}
    fn complete(&mut self, ticket: Ticket, result: Result<(), Error>) {
        self.ended.push((ticket, result));
    }
    fn malformed(&mut self, error: Error) {
        panic!("{error}");
    }
}

impl Log {
    fn until(&mut self, conduit: &dyn Conduit, mut done: impl FnMut(&Self) -> bool) {
        let since = Instant::now();
        while !done(self) {
            assert!(since.elapsed() < GUARD, "rank {} hangs", conduit.rank());
            if conduit.poll(self) == 0 {
                conduit.wait(
                    Sleeper::Application,
                    Some(Duration::from_millis(1)),
                    &mut || false,
                );
            }
        }
    }

    /// How an operation ended.
    fn end(&mut self, conduit: &dyn Conduit, posted: Result<Posted, Error>) -> Result<(), Error> {
        let Posted::Pending(ticket) = posted? else {
            return Ok(());
        };
        self.until(conduit, |log| {
            log.ended.iter().any(|(ended, _)| *ended == ticket)
        });
        let at = self
            .ended
            .iter()
            .position(|(ended, _)| *ended == ticket)
            .expect("just seen");
        self.ended.swap_remove(at).1
    }
}

fn put(
    conduit: &dyn Conduit,
    log: &mut Log,
    peer: Rank,
    to: Remote,
    data: &[u8],
) -> Result<(), Error> {
    let from = Local::unregistered(data.as_ptr().cast_mut());
    #[allow(unsafe_code)]
    // SAFETY: `data` is borrowed until the operation has ended; the places are windows.
    let posted = unsafe { conduit.post(&Access::put(peer, to, from, data.len())) };
    log.end(conduit, posted)
}

fn get(
    conduit: &dyn Conduit,
    log: &mut Log,
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
    // SAFETY: leaked, and only accessed as a window.
    let key = unsafe { conduit.register(window.as_ptr(), len, Permission::ReadWrite) };
    (window, key.expect("room for an extent"))
}

/// Every rank writes to, reads from and calls the next one.
fn copy(conduit: &dyn Conduit, child: &mut Child) {
    const LEN: usize = 100_003;
    let log = &mut Log::default();
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
    log.until(conduit, |log| log.replies == 5000);
    child.meet(|| {
        conduit.poll(log);
    });
}

/// Rank 2 dies; the others wait for it in every way there is.
fn die(conduit: &dyn Conduit, child: &mut Child) {
    let log = &mut Log::default();
    let (_window, key) = lend(conduit, 1 << 20);
    let places = child.exchange(&key.0.to_string());
    if conduit.rank() == Rank(2) {
        // Killed here, or told to go without a word to anybody.
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
                    conduit.wait(sleeper, Some(GUARD), &mut || conduit.changes() != before);
                }
            });
        }
    });
    assert!(since.elapsed() < GUARD, "the death woke nobody");
    assert_eq!(conduit.standing(Rank(2)), Standing::Lost);
    // The death counts once, though both saw it; the other may have left by now.
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

/// Rank 2 is killed while it writes to the others, which take their memory back.
fn hammer(conduit: &dyn Conduit, child: &mut Child) {
    let log = &mut Log::default();
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
