//! Others are told of changed memory only after the peers that reach it.

use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use hydrant::{ConduitKind, InterNodeKind, Rank, Result, Signal, Strategy};
use hydrant_conduit::{Conduit, Forward, Message, Sent};

use super::{
    Over, alone, builder, good,
    place::{Place, Renewal},
};

/// Rank 0 tells rank 1 of memory, and rank 1 tells rank 2, which reached what was there before.
#[test]
fn a_peer_that_others_tell_reaches_what_is_there_now() {
    let _alone = alone();
    const LEN: usize = 8192;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    good(builder.run_local(3, |job| {
        let mut place = Place::new(LEN);
        let mut word = [0_u64];
        for round in 0..300_u32 {
            let value = round as u8 | 1;
            match job.rank() {
                Rank(0) => {
                    let how = Renewal::ALL[round as usize % 3];
                    place.renew(how, 0);
                    job.send(Rank(1), 1, &[place.address()])?;
                    job.receive(Rank(2), 3, &mut word)?;
                    let there = &place.bytes()[..LEN];
                    assert!(
                        there.iter().all(|byte| *byte == value),
                        "{how:?}, round {round}"
                    );
                }
                Rank(1) => {
                    job.receive(Rank(0), 1, &mut word)?;
                    job.send(Rank(2), 2, &word)?;
                }
                _ => {
                    job.receive(Rank(1), 2, &mut word)?;
                    // SAFETY: rank 0 waits for the message that follows.
                    unsafe { job.put_anywhere(Rank(0), word[0], &[value; LEN])? };
                    job.send(Rank(0), 3, &word)?;
                }
            }
        }
        job.barrier()
    }));
}

/// A network on which messages of one thread of a rank take long to leave.
struct SlowThread(Box<dyn Conduit>);

thread_local! {
    static IS_SLOW: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: every call is handed on to a conduit that keeps the contract.
unsafe impl Forward for SlowThread {
    fn inner(&self) -> &dyn Conduit {
        &*self.0
    }

    fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, hydrant_conduit::Error> {
        if IS_SLOW.get() {
            thread::sleep(Duration::from_millis(2));
        }
        self.0.send(peer, message)
    }
}

/// A function changes memory and answers, while another thread sends what tells the caller of that change.
#[test]
fn an_answer_comes_after_the_news_that_another_thread_sends() {
    let _alone = alone();
    const LEN: usize = 8192;
    const ROUNDS: u64 = 200;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    let slow = builder.through(|inner| Box::new(SlowThread(inner)));
    good(slow.run_local(2, |job| {
        let changing = Mutex::new(Place::new(LEN));
        let renew = job.function(move |_: Rank, value: u64| {
            let mut place = changing.lock().unwrap_or_else(PoisonError::into_inner);
            place.renew(Renewal::Over, value as u8);
            place.address()
        })?;
        let field = job.alloc::<u8>(LEN)?;
        let over = AtomicBool::new(false);
        thread::scope(|scope| -> Result<()> {
            let _over = Over(&over);
            if job.rank() == Rank(0) {
                scope.spawn(|| {
                    IS_SLOW.set(true);
                    let mut own = Place::new(LEN);
                    while !over.load(Relaxed) {
                        field.put(Rank(1), 0, own.bytes()).expect("a peer");
                    }
                });
                return job.barrier();
            }
            for round in 1..=ROUNDS {
                let theirs = job.call(Rank(0), &renew, &round)?;
                for _ in 0..2 {
                    let mut got = [0; 64];
                    // SAFETY: rank 0 changes the memory in the calls of this thread alone.
                    unsafe { job.get_anywhere(Rank(0), theirs, &mut got)? };
                    assert_eq!(got, [round as u8; 64], "round {round}");
                }
            }
            job.barrier()
        })
    }));
}

/// A handler changes memory and replies, while another thread keeps the news of that change back. The reply comes late, and
/// replies to later requests come after it.
#[test]
fn replies_that_follow_the_news_keep_their_order() {
    let _alone = alone();
    const LEN: usize = 8192;
    const ROUNDS: u64 = 200;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    let slow = builder.through(|inner| Box::new(SlowThread(inner)));
    good(slow.run_local(2, |job| {
        let place = Place::new(LEN);
        let theirs = job.all_gather(&[place.address()])?[0];
        let changing = Mutex::new(place);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let reply = job.handler({
            let seen = Arc::clone(&seen);
            move |_, args, _| seen.lock().expect("no panic").push(args[0])
        })?;
        let renew = job.handler(move |context, args, _| {
            let mut place = changing.lock().expect("no panic");
            place.renew(Renewal::Over, args[0] as u8);
            context.reply_short(reply, args).expect("a reply");
        })?;
        let plain = job.handler(move |context, args, _| {
            context.reply_short(reply, args).expect("a reply");
        })?;
        let field = job.alloc::<u8>(LEN)?;
        let over = AtomicBool::new(false);
        thread::scope(|scope| -> Result<()> {
            let _over = Over(&over);
            if job.rank() == Rank(0) {
                scope.spawn(|| {
                    IS_SLOW.set(true);
                    let mut own = Place::new(LEN);
                    while !over.load(Relaxed) {
                        field.put(Rank(1), 0, own.bytes()).expect("a peer");
                    }
                });
                return job.barrier();
            }
            let mut right = Vec::new();
            for round in 1..=ROUNDS {
                for (number, handler) in [renew, plain, renew, plain, plain].into_iter().enumerate()
                {
                    let number = 8 * round + number as u64;
                    job.request_short(Rank(0), handler, &[number])?;
                    right.push(number);
                }
                job.am_quiet()?;
                assert_eq!(*seen.lock().expect("no panic"), right, "round {round}");
                for _ in 0..2 {
                    let mut got = [0; 64];
                    // SAFETY: rank 0 changes the memory in the handlers of this thread's requests alone.
                    unsafe { job.get_anywhere(Rank(0), theirs, &mut got)? };
                    assert_eq!(got, [(8 * round + 2) as u8; 64], "round {round}");
                }
            }
            job.barrier()
        })
    }));
}

/// Rank 1 tells its mate of new memory by a store, and the mate tells rank 2 on another host, which reached what was there
/// before. In every other round a barrier tells all.
#[test]
fn a_mate_that_tells_another_host_comes_after_the_news() {
    let _alone = alone();
    const LEN: usize = 8192;
    const ROUNDS: u64 = 400;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    let hosts = (builder.conduit(ConduitKind::Auto))
        .inter_node(InterNodeKind::Pinned)
        .pretend_hosts(2);
    let counters = good(hosts.run_local(4, |job| {
        let (flags, mut place) = (job.alloc::<u64>(1)?, Place::new(LEN));
        let mut theirs = [place.address()];
        job.broadcast(Rank(1), &mut theirs)?;
        for round in 1..=ROUNDS {
            let (value, by_signal) = (round as u8 | 1, round % 2 == 0);
            let how = [Renewal::Over, Renewal::Emptied, Renewal::Moved][round as usize % 3];
            if job.rank() == Rank(1) {
                place.renew(how, 0);
            }
            if !by_signal {
                job.barrier()?;
            }
            match job.rank() {
                Rank(1) => {
                    if by_signal {
                        flags.signal(Rank(0), 0, Signal::Set(round))?;
                    }
                    job.receive(Rank(2), 1, &mut [0_u64])?;
                    let there = &place.bytes()[..LEN];
                    assert!(
                        there.iter().all(|byte| *byte == value),
                        "{how:?}, round {round}"
                    );
                }
                Rank(0) if by_signal => {
                    job.wait_until(&flags, 0, |word| word >= round)?;
                    flags.signal(Rank(2), 0, Signal::Set(round))?;
                }
                Rank(2) => {
                    if by_signal {
                        job.wait_until(&flags, 0, |word| word >= round)?;
                    }
                    // SAFETY: rank 1 waits for the message that follows.
                    unsafe { job.put_anywhere(Rank(1), theirs[0], &[value; LEN])? };
                    job.send(Rank(1), 1, &[round])?;
                }
                _ => {}
            }
        }
        job.barrier()?;
        Ok(job.counters())
    }));
    assert!(counters[1].memory_changes > ROUNDS / 2, "{}", counters[1]);
}

/// Long messages, which each rank answers where it handles them, arrive while memory changes that a peer reaches. Nobody
/// waits there for the peer, whose answer could not be handled meanwhile.
#[test]
fn messages_are_handled_while_memory_changes() {
    let _alone = alone();
    const LEN: usize = 8192;
    const LONG: usize = 200_000;
    const ROUNDS: u8 = 250;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    let counters = good(builder.run_local(2, |job| {
        let (mut place, over) = (Place::new(LEN), AtomicBool::new(false));
        let mut theirs = vec![place.address()];
        theirs = job.all_gather(&theirs)?;
        let theirs = theirs[job.right().index()];
        thread::scope(|scope| -> Result<()> {
            let _over = Over(&over);
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    place.renew(Renewal::Over, 0);
                    thread::sleep(Duration::from_micros(100));
                }
            });
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    // SAFETY: nobody looks at the memory, which the peer maps anew at any time.
                    let put = unsafe { job.put_anywhere(job.right(), theirs, &[1_u8; LEN]) };
                    put.expect("memory is always mapped there");
                }
            });
            for round in 0..ROUNDS {
                let mut there = vec![0; LONG];
                let sent = job.send_nb(job.right(), 1, vec![round; LONG])?;
                job.receive(job.left(), 1, &mut there)?;
                assert!(there.iter().all(|byte| *byte == round), "round {round}");
                sent.wait()?;
            }
            Ok(())
        })?;
        job.barrier()?;
        Ok(job.counters())
    }));
    assert!(counters[0].memory_changes > 100, "{}", counters[0]);
}
