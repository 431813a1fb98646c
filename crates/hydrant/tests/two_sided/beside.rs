//! Messages beside other work of a rank: exposed buffers, handlers, tasks.

use std::{
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use hydrant::{ConduitKind, Error, MessageProtocol, Rank, ReceiveHandle, Result};

use super::{builder, good, numbers, numbers_of, simulated};

#[test]
fn long_messages_leave_room_for_exposed_buffers() {
    const EXTENTS: usize = 16;
    const MESSAGES: u64 = 8;
    let network = builder().messages(MessageProtocol::Rendezvous);
    // The sender polls only after that, so its loans last until then.
    let exposed = Barrier::new(2);
    good(network.extents(EXTENTS).service(false).run_local(2, |job| {
        let other = Rank(1);
        if job.rank() == other {
            let sends = (0..MESSAGES)
                .map(|tag| job.send_nb(Rank(0), tag, numbers(job, tag, 50_000)))
                .collect::<Result<Vec<_>, _>>()?;
            exposed.wait();
            sends.into_iter().try_for_each(|it| it.wait().map(drop))?;
            return job.barrier();
        }
        let receives = (0..MESSAGES)
            .map(|tag| {
                job.probe(other, tag)?;
                Ok(job.receive_nb(other, tag, vec![0; 50_000])?)
            })
            .collect::<Result<Vec<_>>>()?;
        let guards: Result<Vec<_>> = (0..EXTENTS * 3 / 4)
            .map(|_| job.expose(vec![0_u8; 5000]))
            .collect();
        exposed.wait();
        guards.map(drop)?;
        for (tag, receive) in (0..).zip(receives) {
            assert_eq!(receive.wait()?.0, numbers_of(other, tag, 50_000));
        }
        job.barrier()
    }));
}

#[test]
fn a_call_ends_when_its_task_has_its_message() {
    for conduit in [ConduitKind::Smp, ConduitKind::Pinned] {
        // A waiter sleeps at once, so the task must wake it.
        let network = builder().conduit(conduit).spin(Duration::ZERO);
        good(network.run_local(2, |job| {
            let posted = Arc::new(Mutex::new(None::<ReceiveHandle<u32>>));
            let taken = Arc::clone(&posted);
            let finish = job.async_function(move |_: Rank, (): ()| {
                let receive = taken.lock().unwrap().take();
                async move {
                    let (data, status) = receive.expect("one a call").await.expect("it comes");
                    let count = status.count::<u32>().expect("whole numbers");
                    data[..count].iter().map(|it| u64::from(*it)).sum::<u64>()
                }
            })?;
            job.barrier()?;
            for (tag, count) in (0..).zip([1, 10, 2000, 40_000, 0, 3]) {
                let receive = job.receive_nb(job.left(), tag, vec![0_u32; 40_000])?;
                *posted.lock().unwrap() = Some(receive);
                let send = job.send_nb(job.right(), tag, numbers(job, tag, count))?;
                let right = numbers_of(job.left(), tag, count);
                let right: u64 = right.iter().map(|it| u64::from(*it)).sum();
                assert_eq!(job.call(job.rank(), &finish, &())?, right);
                send.wait()?;
            }
            job.barrier()
        }));
    }
}

#[test]
fn no_message_is_delivered_inside_a_handler() {
    good(builder().run_local(2, |job| {
        let here = job.downgrade();
        let looks = job.function(move |caller: Rank, tag: u64| {
            let job = here.upgrade().expect("the job goes on");
            // The message of the caller came before the call.
            assert_eq!(job.poll(), 0);
            job.try_probe(caller, tag).expect("a look").is_some()
        })?;
        job.barrier()?;
        for tag in 0..50 {
            job.send(job.right(), tag, &[tag])?;
            assert!(job.call(job.right(), &looks, &tag)?);
        }
        // A rank that is done first must not receive a message that its peer has yet to see.
        job.barrier()?;
        for tag in 0..50 {
            let mut got = [u64::MAX];
            job.receive(job.left(), tag, &mut got)?;
            assert_eq!(got, [tag]);
        }
        job.barrier()
    }));
}

/// Sets a flag when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Returned credit sends the waiting messages, on any thread that polls, just when their scope
/// fails.
#[test]
fn a_failed_scope_waits_for_no_receive_while_its_sends_leave() {
    const ROUNDS: u64 = 60;
    const SENDS: usize = 1800;
    /// Messages received before the scope ends. Their credit lets others leave.
    const BEFORE: usize = 512;
    let ended = AtomicU64::new(0);
    good(builder().run_local(2, |job| {
        let other = job.right();
        let over = AtomicBool::new(false);
        thread::scope(|threads| {
            // The threads must also stop after a failure, or they would poll for ever.
            let _ends = Ends(&over);
            for _ in 0..2 * usize::from(job.rank() == Rank(0)) {
                threads.spawn(|| {
                    while !over.load(SeqCst) {
                        job.poll();
                    }
                });
            }
            let round = |number: u64| -> Result<()> {
                let mut got = [0_u8; 480];
                if job.rank() == Rank(0) {
                    let end: Result<()> = job.scope(|scope| {
                        for _ in 0..SENDS {
                            scope.send_synchronous(other, 1, &[3_u8; 480])?;
                        }
                        Err(Error::other("the scope fails"))
                    });
                    assert!(end.is_err());
                    ended.store(number, SeqCst);
                    return job.receive(other, 2, &mut got[..1]).map(drop);
                }
                job.probe(other, 1)?;
                thread::sleep(Duration::from_micros(number * 37 % 1500));
                for _ in 0..BEFORE {
                    job.receive(other, 1, &mut got)?;
                }
                // The other messages are not received before the scope has ended.
                while ended.load(SeqCst) != number {
                    job.poll();
                }
                for _ in BEFORE..SENDS {
                    job.receive(other, 1, &mut got)?;
                }
                job.send(other, 2, &[0_u8])
            };
            (1..=ROUNDS).try_for_each(round)
        })?;
        job.barrier()
    }));
}

/// In virtual time, where a computing rank does not answer.
#[test]
fn a_copied_message_waits_for_no_other_rank() {
    const LEN: usize = 1 << 17;
    const OPERATIONS: u64 = 140_000_000;
    let network = simulated("connectx").messages(MessageProtocol::Eager);
    let ends = network.run_local(3, |job| {
        job.barrier()?;
        let begun = job.now();
        match job.rank() {
            Rank(0) => {
                let other = job.send_nb(Rank(2), 1, numbers(job, 1, LEN))?;
                job.compute(200_000);
                job.send(Rank(1), 1, &numbers(job, 1, LEN))?;
                other.wait()?;
            }
            Rank(1) => {
                let mut got = vec![0; LEN];
                job.receive(Rank(0), 1, &mut got)?;
                assert_eq!(got, numbers_of(Rank(0), 1, LEN));
            }
            _ => {
                let posted = job.receive_nb(Rank(0), 1, vec![0; LEN])?;
                // This rank clears the message, and then does not poll any more.
                for _ in 0..50 {
                    job.poll();
                    job.compute(1000);
                }
                job.compute(OPERATIONS);
                assert_eq!(posted.wait()?.0, numbers_of(Rank(0), 1, LEN));
            }
        }
        let took = job.now() - begun;
        job.barrier()?;
        Ok(took)
    });
    let took: Vec<Duration> = ends
        .into_iter()
        .map(|it| it.expect("a rank failed"))
        .collect();
    assert!(took[1] < took[2] / 10, "{took:?}");
}
