//! Calls from several threads.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{Delivery, Error, Message, Rank, ReplyPort, Sink, Sleeper, Ticket};

use super::{
    ContractCheck, Fixture,
    log::Log,
    memory::{AddressKind, Arena, beyond},
    pattern::{self, assert_same},
    team::{TeamMember, each, poll_until},
};

pub(super) const CHECKS: &[ContractCheck] = &[
    ContractCheck::new(
        "threads_send",
        "threads that send to one peer each keep their order",
        send,
    ),
    ContractCheck::new(
        "threads_access",
        "more threads than a rank has slots write and read at once",
        access,
    ),
    ContractCheck::new(
        "threads_poll",
        "poll returns at once if another polls, drain waits for its turn",
        poll,
    ),
    ContractCheck::new("threads_wait", "a thread polls while another waits", wait),
    ContractCheck::new(
        "threads_hand_over",
        "no thread misses a delivery that another thread is making",
        hand_over,
    ),
];

/// A sink for several polling threads: the numbers that arrived, in order.
struct Common<'a>(&'a Mutex<Vec<[u64; 2]>>);

impl Sink for Common<'_> {
    fn request(&mut self, delivery: Delivery<'_>, _: &mut dyn ReplyPort) {
        let numbers = [delivery.args[0], delivery.args[1]];
        assert_eq!(delivery.payload, numbers[1].to_le_bytes());
        self.0.lock().push(numbers);
    }
    fn reply(&mut self, delivery: Delivery<'_>) {
        panic!("no rank sent {delivery:?}");
    }
    fn local(&mut self, _: Ticket) {}
    fn complete(&mut self, _: Ticket, _: Result<(), Error>) {}
    fn malformed(&mut self, error: Error) {
        panic!("{error}");
    }
}

/// Sends a message that has its number twice.
fn numbered(me: &TeamMember<'_>, peer: Rank, thread: u64, n: u64) {
    let payload = n.to_le_bytes();
    let message = Message {
        kind: 0,
        tag: 0,
        args: &[thread, n],
        payload: &payload,
    };
    me.send(&mut Log::new(), peer, &message);
}

fn send(fixture: &dyn Fixture) {
    const THREADS: u64 = 4;
    const MANY: u64 = 3000;
    let arrived = Mutex::new(Vec::new());
    each(fixture, 2, |me| {
        let all = (THREADS * MANY) as usize;
        let done = || arrived.lock().len() >= all;
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (arrived, done) = (&arrived, &done);
                scope.spawn(move || {
                    let _alarm = me.alarm();
                    if me.rank() == Rank(0) {
                        (0..MANY).for_each(|n| numbered(me, Rank(1), number, n));
                    } else if number < 3 {
                        // Threads that poll in turns.
                        me.until(&mut Common(arrived), "every message", |_| done());
                    }
                });
            }
        });
        me.meet(&mut Log::new());
    });
    let arrived = arrived.into_inner();
    for thread in 0..THREADS {
        let of_thread: Vec<u64> = (arrived.iter())
            .filter_map(|[from, n]| (*from == thread).then_some(*n))
            .collect();
        assert!(
            of_thread.iter().copied().eq(0..MANY),
            "thread {thread}: {of_thread:?}"
        );
    }
}

fn access(fixture: &dyn Fixture) {
    const THREADS: usize = 48;
    const PART: usize = 3 << 10;
    let done = AtomicUsize::new(0);
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let arena = Arena::new(me.conduit, AddressKind::Extent, THREADS * PART);
        let to = arena.publish(me, log)[me.right().index()];
        let seed = |writer: Rank, number: usize, round| {
            (number * 100 + round) as u64 * 2 + u64::from(writer.0)
        };
        let transfers = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (transfers, done) = (&transfers, &done);
                scope.spawn(move || {
                    let _alarm = me.alarm();
                    for round in 0..20 {
                        let data = pattern::bytes(seed(me.rank(), number, round), PART);
                        let to = beyond(to, number * PART);
                        let transfer = me
                            .post_write(me.right(), to, &data)
                            .expect("within the extent");
                        if let Some(ticket) = transfer.ticket() {
                            // The rank's first thread polls for all.
                            let since = Instant::now();
                            let ended =
                                |transfers: &Mutex<Vec<Ticket>>| transfers.lock().contains(&ticket);
                            while !ended(transfers) {
                                me.hope("a write of another thread", since);
                                me.breathe();
                            }
                            let mut log = Log::new();
                            log.ended.push((ticket, Ok(())));
                            me.land(&mut log, transfer).expect("just seen");
                        }
                    }
                    done.fetch_add(1, SeqCst);
                });
            }
            me.until(log, "the threads", |log| {
                let mut transfers = transfers.lock();
                for (ticket, outcome) in log.ended.drain(..) {
                    outcome.expect("within the extent");
                    transfers.push(ticket);
                }
                done.load(SeqCst) == 2 * THREADS
            });
        });
        me.meet(log);
        for number in 0..THREADS {
            let expected = pattern::bytes(seed(me.left(), number, 19), PART);
            let got = &arena.bytes()[number * PART..(number + 1) * PART];
            assert_same(got, &expected, format_args!("thread {number}"));
        }
        me.meet(log);
    });
}

fn poll(fixture: &dyn Fixture) {
    let (inside, polled, handled) = (
        AtomicBool::new(false),
        AtomicBool::new(false),
        AtomicBool::new(false),
    );
    each(fixture, 2, |me| {
        if me.rank() == Rank(0) {
            let message = Message {
                kind: 0,
                tag: 0,
                args: &[],
                payload: &[],
            };
            me.send(&mut Log::new(), Rank(1), &message);
        } else {
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _alarm = me.alarm();
                    let log = &mut Log::handling(|_, _| {
                        inside.store(true, SeqCst);
                        let since = Instant::now();
                        while !polled.load(SeqCst) {
                            me.hope("a poll beside a poll", since);
                            me.breathe();
                        }
                        // Long enough to notice a drain that does not wait.
                        thread::sleep(std::time::Duration::from_millis(50));
                        handled.store(true, SeqCst);
                    });
                    me.until(log, "the message", |log| !log.requests.is_empty());
                });
                let log = &mut Log::new();
                let since = Instant::now();
                while !inside.load(SeqCst) {
                    me.hope("the other thread's handler", since);
                    me.breathe();
                }
                me.conduit.poll(log);
                polled.store(true, SeqCst);
                me.conduit.drain(log);
                assert!(
                    handled.load(SeqCst),
                    "drain returned while another thread was delivering"
                );
                assert!(log.requests.is_empty(), "a message was delivered twice");
            });
        }
        me.meet(&mut Log::new());
    });
}

fn wait(fixture: &dyn Fixture) {
    const MANY: u64 = 2000;
    let arrived = Mutex::new(Vec::new());
    each(fixture, 2, |me| {
        let count = || arrived.lock().len() as u64;
        let look = || {
            if me.conduit.poll(&mut Common(&arrived)) > 0 {
                me.conduit.wake(me.rank());
            }
        };
        if me.rank() == Rank(0) {
            for n in 0..MANY {
                numbered(me, Rank(1), 0, n);
                if n % 16 == 0 {
                    poll_until(me, "the messages so far", || count() > n);
                }
            }
        } else {
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _alarm = me.alarm();
                    while count() < MANY {
                        me.sleep(Sleeper::Service, || count() >= MANY);
                        look();
                    }
                });
                while count() < MANY {
                    me.sleep(Sleeper::Application, || count() >= MANY);
                    look();
                }
            });
        }
        me.meet(&mut Log::new());
    });
    let arrived = arrived.into_inner();
    assert!(arrived.iter().map(|[_, n]| *n).eq(0..MANY), "{arrived:?}");
}

/// A sink that is slow to handle a message and the end of an operation.
struct Slow<'a> {
    busy: &'a AtomicBool,
    requests: &'a AtomicUsize,
    ended: &'a AtomicUsize,
}

impl Slow<'_> {
    fn take(&self, count: &AtomicUsize) {
        self.busy.store(true, SeqCst);
        thread::sleep(Duration::from_millis(5));
        count.fetch_add(1, SeqCst);
        self.busy.store(false, SeqCst);
    }
}

impl Sink for Slow<'_> {
    fn request(&mut self, _: Delivery<'_>, _: &mut dyn ReplyPort) {
        self.take(self.requests);
    }
    fn reply(&mut self, delivery: Delivery<'_>) {
        panic!("no rank sent {delivery:?}");
    }
    fn local(&mut self, _: Ticket) {}
    fn complete(&mut self, _: Ticket, result: Result<(), Error>) {
        result.expect("within the arena");
        self.take(self.ended);
    }
    fn malformed(&mut self, error: Error) {
        panic!("{error}");
    }
}

/// Tells another thread, when dropped, that this thread has ended or panicked.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn hand_over(fixture: &dyn Fixture) {
    const ROUNDS: usize = 10;
    each(fixture, 2, |me| {
        let log = &mut Log::new();
        let arena = Arena::new(me.conduit, AddressKind::Extent, 64);
        let to = arena.publish(me, log)[me.right().index()];
        // No thread counts messages that arrive while another still polls for the meeting.
        me.meet_deaf();
        let [busy, over] = [(); 2].map(|()| AtomicBool::new(false));
        let [requests, ended] = [(); 2].map(|()| AtomicUsize::new(0));
        let slow = || Slow {
            busy: &busy,
            requests: &requests,
            ended: &ended,
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let _alarm = me.alarm();
                while !over.load(SeqCst) {
                    me.conduit.poll(&mut slow());
                    me.breathe();
                }
            });
            let _over = Over(&over);
            // This thread falls asleep while the other handles a message, and must wake when the
            // other is done.
            let wait_for = |count: &AtomicUsize, wanted: usize, what: &str| {
                let since = Instant::now();
                while !busy.load(SeqCst) && count.load(SeqCst) < wanted {
                    me.hope(what, since);
                    me.breathe();
                }
                while count.load(SeqCst) < wanted {
                    me.hope(what, since);
                    me.sleep(Sleeper::Application, || count.load(SeqCst) >= wanted);
                }
            };
            for round in 1..=ROUNDS {
                let message = Message {
                    kind: 0,
                    tag: 0,
                    args: &[],
                    payload: &[],
                };
                me.send(&mut slow(), me.right(), &message);
                wait_for(&requests, round, "a message");
                let before = ended.load(SeqCst);
                let transfer = me.post_write(me.right(), to, &[round as u8; 64]);
                let transfer = transfer.expect("within the arena");
                if transfer.ticket().is_some() {
                    wait_for(&ended, before + 1, "the end of a write");
                }
            }
        });
        me.meet(log);
        assert_eq!(arena.bytes(), [ROUNDS as u8; 64]);
        me.meet(log);
    });
}
