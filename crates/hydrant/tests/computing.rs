//! Ranks that compute for long and leave messages to others: what they owe their peers leaves when
//! there is room for it, not when they next call Hydrant. A test that fails does so by its guard
//! against hanging.

#[path = "support/mixed.rs"]
mod mixed;
#[path = "support/pinned.rs"]
mod network;
#[path = "support/simulated.rs"]
mod simulated;
#[path = "support/ranks.rs"]
mod support;

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use hydrant::{GlobalPtr, Handler, Job, JobBuilder, Op, Rank, Result, Strategy};
use support::good;

/// Longer than anything here takes on a busy machine.
const HANG: Duration = Duration::from_secs(20);

/// Requests that fill a ring of [`jobs`].
const SLOTS: u32 = 8;

/// Jobs of ranks with little to register and little room for messages, on every network where
/// memory must be registered.
fn jobs() -> [JobBuilder; 2] {
    [network::builder(), mixed::builder()].map(|builder| {
        (builder.heap(16 << 20).m(64 << 12).maxvictim(32 << 12)).ring_slots(SLOTS as usize)
    })
}

/// Computes, without a call to Hydrant, until `over`.
fn compute_until(over: impl Fn() -> bool) {
    let begun = Instant::now();
    while !over() {
        assert!(
            begun.elapsed() < HANG,
            "nothing comes while this rank computes"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Leaves no room for messages to `rank` for a while: `slow` sleeps for so many milliseconds as its
/// argument says.
fn leave_no_room(job: &Job, rank: Rank, slow: Handler) -> Result<()> {
    job.request_short(rank, slow, &[300])?;
    (1..SLOTS).try_for_each(|_| job.request_short(rank, slow, &[0]))
}

fn slow(job: &Job) -> Result<Handler> {
    job.handler(|_, args, _| thread::sleep(Duration::from_millis(args[0])))
}

/// The service thread answers a peer, finds no room, and has to come back.
#[test]
fn an_answer_that_found_no_room_leaves_when_there_is() {
    for (builder, in_scope) in jobs()
        .into_iter()
        .zip([false, true])
        .chain(jobs().into_iter().zip([true, false]))
    {
        let put = AtomicBool::new(false);
        good(builder.run_local(2, |job| {
            let field = job.alloc::<u8>(1 << 20)?;
            let slow = slow(job)?;
            job.barrier()?;
            if job.rank() == Rank(0) {
                // The service thread is to be the one that looks after messages here.
                thread::sleep(Duration::from_millis(100));
                leave_no_room(job, Rank(1), slow)?;
                compute_until(|| put.load(SeqCst));
            } else {
                // Until the slow handler runs, in the service thread.
                thread::sleep(Duration::from_millis(200));
                let data = vec![1; 200_000];
                if in_scope {
                    job.scope(|s| s.put(&field, Rank(0), 0, &data).map(drop))?;
                } else {
                    field.put(Rank(0), 0, &data)?;
                }
                put.store(true, SeqCst);
            }
            job.barrier()
        }));
    }
}

/// The application finds no room, and computes.
#[test]
fn a_request_that_found_no_room_leaves_when_there_is() {
    for builder in jobs() {
        let arrived = AtomicBool::new(false);
        good(builder.run_local(2, |job| {
            let field = job.alloc::<u8>(1 << 20)?;
            let slow = slow(job)?;
            job.barrier()?;
            if job.rank() == Rank(0) {
                // Looking after messages for a while makes the naps of the service thread long.
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(200) {
                    job.poll();
                }
                leave_no_room(job, Rank(1), slow)?;
                let put = field.put_nb(Rank(1), 0, vec![1; 200_000])?;
                compute_until(|| arrived.load(SeqCst));
                put.wait()?;
            } else {
                compute_until(|| matches!(field.local().and_then(|own| own.load(199_999)), Ok(1)));
                arrived.store(true, SeqCst);
            }
            job.barrier()
        }));
    }
}

/// One thread of the application sleeps when another finds no room, and computes.
#[test]
fn a_sleeper_sends_what_another_thread_had_no_room_for() {
    for builder in jobs() {
        let arrived = AtomicBool::new(false);
        good(builder.run_local(2, |job| {
            let field = job.alloc::<u8>(1 << 20)?;
            let over = job.alloc::<u64>(1)?;
            let slow = slow(job)?;
            job.barrier()?;
            if job.rank() == Rank(0) {
                thread::scope(|threads| {
                    let waits = threads.spawn(|| job.wait_until(&over, 0, |word| word == 1));
                    thread::sleep(Duration::from_millis(100));
                    leave_no_room(job, Rank(1), slow)?;
                    let put = field.put_nb(Rank(1), 0, vec![1; 200_000])?;
                    compute_until(|| arrived.load(SeqCst));
                    over.atomic_store(Rank(0), 0, 1)?;
                    put.wait()?;
                    waits.join().expect("a wait does not panic").map(drop)
                })?;
            } else {
                compute_until(|| matches!(field.local().and_then(|own| own.load(199_999)), Ok(1)));
                arrived.store(true, SeqCst);
            }
            job.barrier()
        }));
    }
}

/// Each rank in turn computes, while the others wait for what it takes part in.
#[test]
fn collectives_go_on_in_a_rank_that_computes() {
    const LEN: usize = 40_000;
    for builder in jobs() {
        let done = AtomicU32::new(0);
        good(builder.run_local(3, |job| {
            for round in 0..3 {
                let begun = [
                    job.all_reduce_nb(vec![1_u64; LEN], Op::Sum)?,
                    job.all_gather_nb(vec![1_u64; LEN])?,
                ];
                if job.rank() == Rank(round) {
                    compute_until(|| done.load(SeqCst) == 2 * (round + 1));
                }
                let [sum, all] = begun;
                assert_eq!(sum.wait()?[LEN - 1], 3);
                assert_eq!(all.wait()?.len(), 3 * LEN);
                if job.rank() != Rank(round) {
                    done.fetch_add(1, SeqCst);
                }
                job.barrier()?;
            }
            Ok(())
        }));
    }
}

/// Three threads of a rank want everything of one that computes.
#[test]
fn many_threads_are_served_by_a_rank_that_computes() {
    const THREADS: usize = 3;
    for strategy in [Strategy::Bounce, Strategy::Firehose] {
        let busy = AtomicU32::new(THREADS as u32);
        let builder = network::builder().registration(strategy);
        good(
            builder
                .heap(4 << 20)
                .m(64 << 12)
                .maxvictim(32 << 12)
                .run_local(2, |job| {
                    let field = job.alloc::<u8>(3 << 20)?;
                    job.barrier()?;
                    if job.rank() == Rank(1) {
                        compute_until(|| busy.load(SeqCst) == 0);
                        return job.barrier();
                    }
                    thread::scope(|threads| {
                        for number in 0..THREADS {
                            let (field, busy) = (&field, &busy);
                            threads.spawn(move || {
                                for round in 0..300 {
                                    ask_for(field, round, number << 20)
                                        .expect("a peer that computes serves");
                                }
                                busy.fetch_sub(1, SeqCst);
                            });
                        }
                    });
                    job.barrier()
                }),
        );
    }
}

/// One operation of some kind and length on the memory of rank 1, from `at` on.
fn ask_for(field: &hydrant::Symmetric<u8>, round: usize, at: usize) -> Result<()> {
    let len = 1 + round * 7919 % 160_000;
    match round % 4 {
        0 => field.put(Rank(1), at, &vec![1; len]),
        1 => field.get(Rank(1), at, &mut vec![1; len]),
        2 => field.get_nb(Rank(1), at, len)?.wait().map(drop),
        _ => field.put_nb(Rank(1), at, vec![1; len])?.wait().map(drop),
    }
}

/// The same in virtual time, in which a rank is served while it computes, too. Computing takes
/// seconds there, a put some milliseconds.
#[test]
fn an_answer_that_found_no_room_leaves_in_virtual_time() {
    let builder = simulated::on("myrinet-gm-armci")
        .m(64 << 12)
        .maxvictim(32 << 12);
    let ended = good(builder.run_local(2, |job| {
        let field = job.alloc::<u8>(1 << 20)?;
        let noted = job.handler(|_, _, _| {})?;
        job.barrier()?;
        if job.rank() == Rank(0) {
            let payload = vec![0; job.limits().max_medium];
            for _ in 0..16 {
                job.request_medium(Rank(1), noted, &[], &payload)?;
            }
            job.compute(10_000_000_000);
        } else {
            let data = vec![1; 200_000];
            job.scope(|s| s.put(&field, Rank(0), 0, &data).map(drop))?;
        }
        let ended = job.now();
        job.barrier()?;
        Ok(ended)
    }));
    assert!(
        ended[1] < ended[0],
        "the put waited for the end of the computation: {ended:?}"
    );
}

/// Machines of virtual time that interrupt who computes, whose NICs do not read.
const INTERRUPTED: [&str; 2] = ["myrinet-gm-armci", "clan-via"];

/// Where the NIC does not read, the target writes, and says so when that is over.
#[test]
fn a_get_is_answered_by_who_computes_in_virtual_time() {
    for machine in INTERRUPTED {
        let ended = good(simulated::on(machine).run_local(2, |job| {
            let field = job.alloc::<u8>(1 << 20)?;
            field.local()?.write(0, &vec![3; 1 << 20])?;
            job.barrier()?;
            if job.rank() == Rank(0) {
                job.compute(10_000_000_000);
            } else {
                // What is not registered yet, and what is.
                for _ in 0..2 {
                    let mut data = vec![1; 300_000];
                    field.get(Rank(0), 0, &mut data)?;
                    assert!(data.iter().all(|byte| *byte == 3));
                }
            }
            let ended = job.now();
            job.barrier()?;
            Ok(ended)
        }));
        assert!(
            ended[1] < ended[0],
            "{machine}: the gets waited for the end of the computation: {ended:?}"
        );
    }
}

/// What ends while its rank computes gives back memory that a peer takes back.
#[test]
fn memory_is_given_back_by_who_computes_in_virtual_time() {
    for machine in INTERRUPTED.into_iter().chain(["ideal"]) {
        let ended = good(simulated::on(machine).run_local(2, |job| {
            let pointers = job.alloc::<GlobalPtr<u8>>(1)?;
            let lent = (job.rank() == Rank(0)).then(|| job.expose(vec![0_u8; 1 << 20]));
            let lent = lent.transpose()?;
            if let Some(lent) = &lent {
                pointers.put_value(Rank(1), 0, lent.pointer(0)?)?;
            }
            job.barrier()?;
            let ended = if let Some(lent) = lent {
                job.barrier()?;
                let since = job.now();
                while job.now() < since + Duration::from_micros(50) {}
                assert!(lent.take_back().iter().all(|byte| [7, 8].contains(byte)));
                job.now()
            } else {
                let there = pointers.local()?.load(0)?;
                job.put_to(there, &vec![7; 1 << 20])?;
                job.barrier()?;
                let put = job.put_to_nb(there, vec![8; 1 << 20])?;
                job.compute(10_000_000_000);
                put.wait()?;
                job.now()
            };
            job.barrier()?;
            Ok(ended)
        }));
        assert!(
            ended[0] < ended[1],
            "{machine}: the buffer waited for the end of the computation: {ended:?}"
        );
    }
}

/// The processor time that this thread has used.
fn used() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

/// With more ranks than cores, a rank that waits for a peer's NIC leaves its core to that NIC. It does not keep it,
/// as it would with a core for each. It took 65 µs of a processor for each get, and takes 5.
#[test]
fn who_waits_for_a_nic_in_a_crowd_uses_little_of_its_core() {
    const GETS: u32 = 400;
    const MOST: Duration = Duration::from_micros(25);
    let cores = thread::available_parallelism().map_or(1, usize::from) as u32;
    // On a machine of many cores a few ranks are no crowd.
    if cores > 8 {
        return;
    }
    let spent = good(
        network::builder()
            .heap(1 << 20)
            .run_local(cores + 1, |job| {
                let there = job.alloc::<u8>(4096)?;
                let mut here = vec![1; 4096];
                there.get(job.right(), 0, &mut here)?;
                job.barrier()?;
                let before = used();
                for _ in 0..GETS {
                    there.get(job.right(), 0, &mut here)?;
                }
                let spent = used() - before;
                job.barrier()?;
                assert_eq!(here, [0; 4096]);
                job.free(there)?;
                Ok(spent)
            }),
    );
    let each = spent.iter().sum::<Duration>() / (GETS * (cores + 1));
    assert!(each < MOST, "{each:?} of a processor for each get");
}
