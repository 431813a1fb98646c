//! How many instructions the calls take that programs make most, whole: from the call of the program to the words
//! in the peer's memory or in its ring, and from there to the handler or the buffer. `cargo xtask instructions`
//! compares them with what is committed.
//!
//! Ranks are threads of one process. Only what is done within [`counted`] counts, in the thread that does it, and
//! nobody waits in there. What is done once, as asking for memory, was done before. Divide by [`STEPS`] or [`FEW`].

// What the macros make is public and bare.
#![allow(missing_docs)]

use std::{
    cell::RefCell,
    collections::VecDeque,
    hint::black_box,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use gungraun::{Callgrind, EntryPoint, prelude::*};
use hydrant::{ConduitKind, Handler, Job, Rank, ReceiveHandle, Result, Strategy, Symmetric};

/// How often each is done in one measurement.
const STEPS: usize = 1_000;
/// The same of messages, all of which the ring has room for.
const FEW: usize = 32;
/// Whom rank 0 reaches, and who sends it messages.
const PEER: Rank = Rank(1);
const TAG: u64 = 3;

/// Does what is counted.
#[inline(never)]
fn counted<R>(act: impl FnOnce() -> R) -> R {
    act()
}

fn counted_if<R>(is_counted: bool, act: impl FnOnce() -> R) -> R {
    match is_counted {
        true => counted(act),
        false => act(),
    }
}

fn config() -> LibraryBenchmarkConfig {
    // Threads that wait for each other take turns.
    let mut callgrind = Callgrind::with_args(["--fair-sched=yes"]);
    callgrind.entry_point(EntryPoint::Custom("instructions::counted*".to_owned()));
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

/// Runs two ranks.
fn ranks(conduit: ConduitKind, body: impl Fn(&Job) -> Result<()> + Sync) {
    let builder = Job::builder().expect("settings are good");
    let builder = builder
        .conduit(conduit)
        .registration(Strategy::Firehose)
        .heap(1 << 20)
        .service(false)
        // Nobody sleeps: how time is told for that is not to be had under valgrind.
        .spin(Duration::from_secs(600));
    for ended in builder.run_local(2, body) {
        ended.expect("nothing goes wrong");
    }
}

/// Has rank 0 do something with a word of its peer, whose memory is mapped.
fn reach(act: impl Fn(&Symmetric<u64>, usize) -> Result<()> + Sync) {
    ranks(ConduitKind::Smp, |job| {
        let memory = job.alloc::<u64>(64)?;
        if job.rank() != PEER {
            counted(|| (0..STEPS).try_for_each(|at| act(&memory, black_box(at % 64))))?;
        }
        job.barrier()
    });
}

#[library_benchmark(config = config())]
fn put_8() {
    reach(|memory, at| memory.put(PEER, at, black_box(&[7])));
}

#[library_benchmark(config = config())]
fn get_8() {
    reach(|memory, at| memory.get(PEER, at, black_box(&mut [7])));
}

#[library_benchmark(config = config())]
fn put_value() {
    reach(|memory, at| memory.put_value(PEER, at, black_box(7)));
}

#[library_benchmark(config = config())]
fn add() {
    reach(|memory, at| memory.add(PEER, at, black_box(7)));
}

// Has rank 0 begin puts of so many words to its peer where both sides are registered; what brings them there, and
// their ends, is the network's.
#[library_benchmark(config = config())]
#[bench::of_4096(512)]
fn put_registered(words: usize) {
    ranks(ConduitKind::Pinned, |job| {
        let memory = job.alloc::<u64>(words)?;
        let source = job.exclusive(job.alloc::<u64>(words)?)?;
        if job.rank() != PEER {
            for is_counted in [false, true] {
                job.scope(|scope| {
                    let put = |_| scope.put(&memory, PEER, 0, black_box(&source)).map(drop);
                    counted_if(is_counted, || (0..FEW).try_for_each(put))
                })?;
            }
        }
        job.barrier()
    });
}

/// Which side of messages is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Sender,
    Receiver,
}

/// Has the peer send messages, and then rank 0 take them.
fn one_way(
    side: Side,
    send: impl Fn(&Job, &Heard, usize) -> Result<()> + Sync,
    take: impl Fn(&Job, &Heard, usize) -> Result<()> + Sync,
) {
    prepared(side, |_, _, _| Ok(()), send, take);
}

/// Has rank 0 prepare for messages, then the peer send them, and then rank 0 take them.
fn prepared(
    side: Side,
    prepare: impl Fn(&Job, &Heard, usize) -> Result<()> + Sync,
    send: impl Fn(&Job, &Heard, usize) -> Result<()> + Sync,
    take: impl Fn(&Job, &Heard, usize) -> Result<()> + Sync,
) {
    // Without a look at what has come, as a barrier of the job's would have.
    let (met, sent) = (Barrier::new(2), Barrier::new(2));
    ranks(ConduitKind::Smp, |job| {
        let heard = Heard::new(job)?;
        job.barrier()?;
        let all = |act: &dyn Fn(&Job, &Heard, usize) -> Result<()>, is_counted, round| {
            let steps = round * FEW..(round + 1) * FEW;
            counted_if(is_counted, || {
                steps
                    .clone()
                    .try_for_each(|at| act(job, &heard, black_box(at)))
            })
        };
        for round in 0..2 {
            let is_counted = round == 1;
            if job.rank() != PEER {
                all(&prepare, is_counted && side == Side::Receiver, round)?;
            }
            met.wait();
            if job.rank() == PEER {
                all(&send, is_counted && side == Side::Sender, round)?;
            }
            sent.wait();
            if job.rank() != PEER {
                all(&take, is_counted && side == Side::Receiver, round)?;
            }
        }
        job.barrier()
    });
}

/// Requests that a rank has handled, and receives that it has posted.
struct Heard {
    count: Arc<AtomicU64>,
    handler: Handler,
    posted: RefCell<VecDeque<ReceiveHandle<usize>>>,
}

impl Heard {
    fn new(job: &Job) -> Result<Self> {
        let count = Arc::new(AtomicU64::new(0));
        let counts = Arc::clone(&count);
        let handler = job.handler(move |_, _, _| _ = counts.fetch_add(1, Relaxed))?;
        Ok(Self {
            count,
            handler,
            posted: RefCell::default(),
        })
    }
}

#[library_benchmark(config = config())]
#[bench::sent(Side::Sender)]
#[bench::handled(Side::Receiver)]
fn request_short(side: Side) {
    one_way(
        side,
        |job, heard, at| job.request_short(Rank(0), heard.handler, &[at as u64]),
        |job, heard, at| {
            while heard.count.load(Relaxed) <= at as u64 {
                job.poll();
            }
            Ok(())
        },
    );
}

fn send_8(job: &Job, _: &Heard, at: usize) -> Result<()> {
    job.send(Rank(0), TAG, &[at])
}

fn receive_8(job: &Job, _: &Heard, at: usize) -> Result<()> {
    let mut data = [usize::MAX];
    job.receive(PEER, TAG, black_box(&mut data))?;
    assert_eq!(data, [at], "messages come in order");
    Ok(())
}

// A receive finds its message in the ring.
#[library_benchmark(config = config())]
#[bench::sent(Side::Sender)]
#[bench::received(Side::Receiver)]
fn message_8(side: Side) {
    one_way(side, send_8, receive_8);
}

// As if something else had been waited for before: a receive finds that its message was kept.
#[library_benchmark(config = config())]
fn message_8_unexpected() {
    one_way(Side::Receiver, send_8, |job, heard, at| {
        if at % FEW == 0 {
            while job.poll() > 0 {}
        }
        receive_8(job, heard, at)
    });
}

// A message finds a receive that was posted.
#[library_benchmark(config = config())]
fn message_8_posted() {
    let post = |job: &Job, heard: &Heard, at| {
        let posted = job.receive_nb(PEER, TAG, black_box(vec![at]))?;
        heard.posted.borrow_mut().push_back(posted);
        Ok(())
    };
    prepared(Side::Receiver, post, send_8, |_, heard, at| {
        let posted = heard.posted.borrow_mut().pop_front();
        let (data, _) = posted.expect("one for each message").wait()?;
        assert_eq!(data, [at], "messages come in order");
        Ok(())
    });
}

library_benchmark_group!(
    name = calls,
    benchmarks = [
        put_8,
        get_8,
        put_value,
        add,
        put_registered,
        request_short,
        message_8,
        message_8_unexpected,
        message_8_posted
    ]
);

main!(library_benchmark_groups = calls);
