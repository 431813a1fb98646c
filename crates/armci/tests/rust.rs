//! Uses of ARMCI that only Rust has: procedures that panic, calls in handlers, and an early end.

#![allow(unsafe_code)] // memory is named by its address
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a block is one step of a program on memory that the test owns"
)]

use std::{
    panic::resume_unwind,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

use armci::{Armci, Error, Handle, Result, Strides, Vector};
use hydrant::{ConduitKind, Job, Rank, Strategy};
use parking_lot::Mutex;

/// Runs two processes that reach each other's memory only where it is pinned.
fn two(body: impl Fn(&Job) -> Result<()> + Sync) {
    let builder = Job::builder().expect("the settings are valid");
    let builder = builder.heap(64 << 20).conduit(ConduitKind::Pinned);
    let ends = builder.run_local(2, |job| Ok(body(job)));
    for (rank, end) in ends.into_iter().enumerate() {
        let end = end.map_err(Error::from).and_then(|end| end);
        end.unwrap_or_else(|error| panic!("process {rank}: {error}"));
    }
}

#[test]
fn a_procedures_panic_is_reported_to_its_caller() {
    two(|job| {
        let armci = Armci::new(job, None)?;
        let bad = armci.register(Arc::new(|_, _| resume_unwind(Box::new("it cannot"))));
        let good = armci.register(Arc::new(|request, _| {
            request.reply.data = request.data.clone();
            true
        }));
        job.barrier()?;
        for proc in [0, 1] {
            let replied = armci.execute(bad, proc, &[], &[], [0, 0]);
            let Err(Error::Hydrant(hydrant::Error::HandlerPanicked { message, .. })) = replied
            else {
                panic!("a procedure that panics: {replied:?}");
            };
            assert!(message.contains("it cannot"), "{message}");
            assert_eq!(armci.execute(good, proc, &[], &[7], [0, 9])?.data, [7]);
        }
        Ok(job.barrier()?)
    });
}

/// A section of one run goes as a contiguous operation, as when Global Arrays gets an element.
/// Nothing is packed, and no task is woken for it. Sections of several short runs are packed.
#[test]
fn a_single_run_is_not_packed() {
    const ROUNDS: usize = 20;
    two(|job| {
        let armci = Armci::new(job, None)?;
        let all = armci.malloc(4096)?;
        let proc = 1 - armci.me();
        let there = all[proc as usize];
        for (rows, packed) in [(1, 0), (3, 3)] {
            let before = job.counters().packed;
            for round in 0..ROUNDS as i32 {
                let strides = Strides {
                    src: &[16, 0],
                    dst: &[16, 0],
                    count: &[8, rows, 1],
                };
                let (put, mut got) = ([round; 64], [0; 64]);
                let (mut to, mut from) = (Handle::default(), Handle::default());
                let (source, target) = (put.as_ptr().cast(), got.as_mut_ptr().cast());
                // SAFETY: the handles are waited for before the buffers are dropped.
                unsafe {
                    armci.put_strided_nb(source, there, strides, proc, Some(&mut to))?;
                    armci.get_strided_nb(there, target, strides, proc, Some(&mut from))?;
                }
                armci.wait(Some(&mut to))?;
                armci.wait(Some(&mut from))?;
                let right: Vec<i32> = (0..64)
                    .map(|at| {
                        if at / 4 < rows && at % 4 < 2 {
                            round
                        } else {
                            0
                        }
                    })
                    .collect();
                assert_eq!(got[..], right[..]);
                let run = [there.wrapping_add(1024)];
                let (own, theirs) = ([source.cast_mut()], run);
                let vector = Vector {
                    src: &own,
                    dst: &theirs,
                    bytes: 8,
                };
                let mut handle = Handle::default();
                // SAFETY: the handle is waited for before the buffer is dropped.
                unsafe { armci.put_vector_nb(&[vector], proc, Some(&mut handle))? };
                armci.wait(Some(&mut handle))?;
            }
            let packed_now = job.counters().packed - before;
            assert_eq!(packed_now, 2 * packed * ROUNDS as u64, "of {rows} runs");
            armci.barrier()?;
        }
        Ok(())
    });
}

/// A handler cannot wait. An operation in flight stays so, and a later call waits for it.
#[test]
fn an_operation_that_a_handler_cannot_wait_for_is_waited_for_later() {
    const BYTES: usize = 24 << 20;
    two(|job| {
        let armci = Arc::new(Armci::new(job, None)?);
        let (refused, inner) = (Arc::new(AtomicBool::new(false)), Arc::clone(&armci));
        let told = Arc::clone(&refused);
        let handler = job.handler(move |_, _, _| {
            let fenced = inner.fence(1);
            assert!(matches!(
                fenced,
                Err(Error::Hydrant(hydrant::Error::InHandler { .. }))
            ));
            told.store(true, SeqCst);
        })?;
        let all = armci.malloc(BYTES as i64)?;
        // SAFETY: this is this process's own part, and nobody else uses it before the barrier.
        unsafe { all[armci.me() as usize].write_bytes(armci.me() as u8 + 1, BYTES) };
        armci.barrier()?;
        if armci.me() == 0 {
            let (mut back, mut handle) = (vec![0; BYTES], Handle::default());
            // SAFETY: the handle is waited for before the buffer is read.
            unsafe {
                armci.get_nb(
                    all[1],
                    back.as_mut_ptr(),
                    BYTES as i32,
                    1,
                    Some(&mut handle),
                )?;
            }
            job.request_short(Rank(0), handler, &[])?;
            while !refused.load(SeqCst) {
                thread::yield_now();
            }
            armci.wait(Some(&mut handle))?;
            assert_eq!(back.iter().position(|byte| *byte != 2), None);
        }
        armci.barrier()
    });
}

/// A handler that tests the operations in flight finds a thread waiting for them. Most of the time
/// the handler runs in that thread.
#[test]
fn handlers_never_wait_for_a_waiter() {
    const BYTES: usize = 1 << 20;
    two(|job| {
        let armci = Arc::new(Armci::new(job, None)?);
        let all = armci.malloc(2 * BYTES as i64)?;
        let inner = Arc::clone(&armci);
        let spare = all[1].addr() + BYTES;
        let handler = job.handler(move |_, _, _| {
            let there = std::ptr::with_exposed_provenance_mut::<u64>(spare);
            let is_refused = |ended: Result<()>| {
                matches!(
                    ended,
                    Ok(()) | Err(Error::Hydrant(hydrant::Error::InHandler { .. }))
                )
            };
            assert!(is_refused(inner.fence(1)));
            // SAFETY: 1. ARMCI allocated the destination.
            assert!(is_refused(unsafe { inner.put_value(7_u64, there, 1) }));
            assert!(inner.test(&mut Handle::default()).is_ok());
        })?;
        let done = job.alloc::<u64>(1)?;
        armci.barrier()?;
        if armci.me() == 1 {
            while done.local()?.load(0)? == 0 {
                job.request_short(Rank(0), handler, &[])?;
            }
        } else {
            let mut back = vec![0_u8; BYTES];
            for round in 0..200 {
                let mut handle = Handle::default();
                // SAFETY: the handle is waited for, or the process is fenced, before the buffer is
                // dropped.
                unsafe {
                    armci.get_nb(
                        all[1],
                        back.as_mut_ptr(),
                        BYTES as i32,
                        1,
                        Some(&mut handle),
                    )?;
                }
                match round % 2 {
                    0 => armci.wait(Some(&mut handle))?,
                    _ => armci.fence(1)?,
                }
            }
            done.put_value(Rank(1), 0, 1)?;
        }
        armci.barrier()
    });
}

/// An operation that is refused in a handler is not in flight, so its memory belongs to the caller.
#[test]
fn a_refused_operation_keeps_no_memory_of_the_caller() {
    two(|job| {
        let armci = Arc::new(Armci::new(job, None)?);
        let all = armci.malloc(1 << 16)?;
        // SAFETY: this is this process's own part, and nobody else uses it before the barrier.
        unsafe { all[armci.me() as usize].write_bytes(0x11, 1 << 16) };
        let (ran, inner) = (Arc::new(AtomicBool::new(false)), Arc::clone(&armci));
        let (there, told) = (all[1].addr(), Arc::clone(&ran));
        let back = vec![0_u8; 512].leak();
        let into = back.as_mut_ptr().addr();
        let echo = armci.register(Arc::new(|request, _| {
            request.reply.data = request.data.clone();
            true
        }));
        let call = Arc::new(std::sync::OnceLock::new());
        let called = Arc::clone(&call);
        let handler = job.handler(move |_, _, _| {
            let there = std::ptr::with_exposed_provenance_mut::<u8>(there);
            let into = std::ptr::with_exposed_provenance_mut::<u8>(into);
            let source = [0x22_u8; 4096];
            let runs = armci::Vector {
                src: &[there, there.wrapping_add(300)],
                dst: &[into, into.wrapping_add(256)],
                bytes: 256,
            };
            // SAFETY: ARMCI allocated the memory there. The source lives until the call returns.
            // Nobody reads the destination before all processes are done.
            let ends = unsafe {
                [
                    inner.put(source.as_ptr(), there, 4096, 1),
                    inner.get_vector(&[runs], 1),
                ]
            };
            let replied = inner.wait_executed(*called.get().expect("it was begun"), echo);
            for end in ends.into_iter().chain([replied.map(|_| ())]) {
                assert!(
                    matches!(end, Err(Error::Hydrant(hydrant::Error::InHandler { .. }))),
                    "{end:?}"
                );
            }
            told.store(true, SeqCst);
        })?;
        armci.barrier()?;
        if armci.me() == 0 {
            let begun = armci.execute_nb(echo, 1, &[], &[5], [0, 1])?;
            call.set(begun).expect("once");
            job.request_short(Rank(0), handler, &[])?;
            while !ran.load(SeqCst) {
                job.poll();
            }
            armci.all_fence()?;
            assert_eq!(
                armci.wait_executed(begun, echo)?.map(|it| it.data),
                Some(vec![5])
            );
            // SAFETY: nobody else uses the buffer, because all operations on it were refused.
            let got =
                unsafe { std::ptr::with_exposed_provenance::<[u8; 512]>(into).read_volatile() };
            assert_eq!(got, [0; 512]);
        }
        armci.barrier()?;
        // SAFETY: this is this process's own part, and all operations are done.
        let own = unsafe { std::slice::from_raw_parts(all[armci.me() as usize], 4096) };
        assert_eq!(own.iter().position(|byte| *byte != 0x11), None);
        armci.barrier()
    });
}

/// Runs of an accumulate are packed together even where peers answer only in calls of their own.
#[test]
fn an_accumulate_of_many_runs_takes_few_messages_without_a_service_thread() {
    const RUNS: usize = 1000;
    let builder = Job::builder().expect("the settings are valid");
    let builder = (builder.heap(64 << 20)).conduit(ConduitKind::Pinned);
    let ends = builder.service(false).run_local(2, |job| {
        let sent = || job.counters().requests;
        Ok((|| -> Result<()> {
            let armci = Armci::new(job, None)?;
            let all = armci.malloc(RUNS as i64 * 16)?;
            let own = all[armci.me() as usize];
            // SAFETY: this is this process's own part, and nobody else uses it before the barrier.
            unsafe { own.write_bytes(0, RUNS * 16) };
            armci.barrier()?;
            if armci.me() == 0 {
                let (before, ones) = (sent(), [1_i64; RUNS]);
                let scale = 2_i64.to_ne_bytes();
                let strides = armci::Strides {
                    src: &[8],
                    dst: &[16],
                    count: &[8, RUNS as i32],
                };
                let mut handle = Handle::default();
                // SAFETY: ARMCI allocated the destination. The scale and the source live until the
                // call returns.
                unsafe {
                    let scale = Armci::scale(armci::ACC_LNG, scale.as_ptr())?;
                    let source = ones.as_ptr().cast();
                    armci.accumulate_strided_nb(
                        &scale,
                        source,
                        all[1],
                        strides,
                        1,
                        Some(&mut handle),
                    )?;
                }
                armci.wait(Some(&mut handle))?;
                assert!(
                    sent() - before < RUNS as u64 / 10,
                    "{} requests",
                    sent() - before
                );
            }
            armci.barrier()?;
            let wanted = [2 * i64::from(armci.me()), 0];
            // SAFETY: this is this process's own part, and all operations are done.
            let sums = unsafe { std::slice::from_raw_parts(own.cast::<[i64; 2]>(), RUNS) };
            assert!(sums.iter().all(|pair| *pair == wanted));
            armci.barrier()
        })())
    });
    for (rank, end) in ends.into_iter().enumerate() {
        let end = end.map_err(Error::from).and_then(|end| end);
        end.unwrap_or_else(|error| panic!("process {rank}: {error}"));
    }
}

/// Copied values live as long as the network needs them.
#[test]
fn copied_values_outlive_their_caller() {
    const VALUES: usize = 200;
    two(|job| {
        let armci = Armci::new(job, None)?;
        let all = armci.malloc((VALUES * 8) as i64)?;
        let [mine, theirs] =
            [armci.me(), 1 - armci.me()].map(|proc| all[proc as usize].cast::<u64>());
        armci.barrier()?;
        for at in 0..VALUES {
            // SAFETY: 1. ARMCI allocated the destination.
            unsafe { armci.put_value_nb(at as u64 + 1, theirs.add(at), 1 - armci.me(), None)? };
        }
        drop(armci);
        job.quiet()?;
        job.barrier()?;
        for at in 0..VALUES {
            // SAFETY: this is this process's own part, which lives until the job ends. All puts are
            // done.
            assert_eq!(unsafe { mine.add(at).read_volatile() }, at as u64 + 1);
        }
        Ok(job.barrier()?)
    });
}

/// Operations of one thread fail while another thread waits for them, or sends the gathered ones.
/// Both threads get the error, and the owner gets it once.
#[test]
fn a_fence_of_another_thread_leaves_each_owner_its_errors() {
    const BYTES: usize = 1 << 20;
    let told = Mutex::new(Vec::new());
    let is_lost = |ended: Result<()>| {
        matches!(
            ended,
            Err(Error::Hydrant(hydrant::Error::PeerLost(Rank(1))))
        )
    };
    let begun = AtomicBool::new(false);
    let builder = Job::builder().expect("the settings are valid");
    let builder = (builder.heap(64 << 20)).conduit(ConduitKind::Pinned);
    // The data arrives in messages, which process 1 sends only while it polls.
    let builder = builder.service(false).registration(Strategy::Bounce);
    builder.run_local(2, |job| {
        let begins = |job: &Job| -> Result<()> {
            let armci = Armci::new(job, None)?;
            let all = armci.malloc(4 * BYTES as i64)?;
            armci.barrier()?;
            if armci.me() == 1 {
                while !begun.load(SeqCst) {
                    thread::yield_now();
                }
                return Ok(());
            }
            let start = all[1].addr();
            let (theirs, fenced) = (Barrier::new(2), Barrier::new(2));
            thread::scope(|scope| {
                let (armci, theirs, fenced) = (&armci, &theirs, &fenced);
                let owner = scope.spawn(move || -> Result<[bool; 7]> {
                    let mut back = vec![0_u8; 3 * BYTES];
                    let mut own = Handle::default();
                    let mut gathers = Handle {
                        is_aggregate: 1,
                        ..own
                    };
                    let handles = [None, Some(&mut own), Some(&mut gathers)];
                    for (part, handle) in handles.into_iter().enumerate() {
                        let from = std::ptr::with_exposed_provenance_mut(start + part * BYTES);
                        let to = back[part * BYTES..].as_mut_ptr();
                        // SAFETY: ARMCI allocated the source. All operations are waited for before
                        // the buffer is dropped.
                        unsafe { armci.get_nb(from, to, BYTES as i32, 1, handle)? };
                    }
                    theirs.wait();
                    fenced.wait();
                    Ok([
                        is_lost(armci.wait(Some(&mut own))),
                        is_lost(armci.wait(Some(&mut gathers))),
                        is_lost(armci.wait(None)),
                        armci.wait(None).is_ok(),
                        armci.fence(1).is_ok(),
                        armci.test(&mut own).is_ok(),
                        armci.all_fence().is_ok(),
                    ])
                });
                theirs.wait();
                begun.store(true, SeqCst);
                let ended = is_lost(armci.fence(1));
                let again = armci.fence(1).is_ok();
                fenced.wait();
                let owner = owner.join().expect("it does not panic")?;
                told.lock().push((ended, again, owner));
                Ok(())
            })
        };
        let ended = begins(job);
        assert!(ended.is_ok(), "{ended:?}");
        match job.rank() {
            Rank(1) => Err(hydrant::Error::other("it ends in the middle")),
            _ => Ok(()),
        }
    });
    assert_eq!(told.into_inner(), [(true, true, [true; 7])]);
}

/// Most operations, on a network in virtual time without a service thread.
#[test]
fn most_operations_work_in_virtual_time() {
    let builder = Job::builder().expect("the settings are valid");
    let network = ConduitKind::Sim("myrinet-gm".to_owned());
    let builder = builder.heap(64 << 20).conduit(network);
    let ends = builder.run_local(3, |job| Ok(everything(job)));
    for (rank, end) in ends.into_iter().enumerate() {
        let end = end.map_err(Error::from).and_then(|end| end);
        end.unwrap_or_else(|error| panic!("process {rank}: {error}"));
    }
}

fn everything(job: &Job) -> Result<()> {
    let armci = Armci::new(job, None)?;
    let (me, all) = (armci.me(), armci.processes());
    let right = (me + 1) % all;
    let memory = armci.malloc(1 << 16)?;
    let there = memory[right as usize];
    let data: Vec<u8> = (0..5000).map(|at| (at * 7 + me) as u8).collect();
    let mut back = vec![0; 5000];
    armci.create_mutexes(1)?;
    // SAFETY: ARMCI allocated the memory there. The buffers live until the calls return.
    unsafe {
        armci.put(data.as_ptr(), there.add(64), 5000, right)?;
        armci.get(there.add(64), back.as_mut_ptr(), 5000, right)?;
        assert_eq!(back, data);
        armci.notify(right)?;
        armci.notify_wait((me + all - 1) % all)?;
        for _ in 0..20 {
            armci.lock(0, 0)?;
            let word: i64 = armci.get_value(memory[0].cast(), 0)?;
            armci.put_value(word + 1, memory[0].cast(), 0)?;
            armci.unlock(0, 0)?;
        }
        let scale = Armci::scale(armci::ACC_LNG, 1_i64.to_ne_bytes().as_ptr())?;
        for proc in 0..all {
            let one = [1_i64; 4];
            let sums = memory[proc as usize].add(8192);
            armci.accumulate(&scale, one.as_ptr().cast(), sums, 32, proc)?;
        }
        armci.barrier()?;
        let word: i64 = armci.get_value(memory[0].cast(), 0)?;
        let sum: i64 = armci.get_value(memory[me as usize].add(8216).cast(), me)?;
        assert_eq!((word, sum), (20 * i64::from(all), all.into()));
    }
    armci.send(5, &[me as u8], right)?;
    let mut one = [0];
    armci.receive(5, &mut one, None)?;
    assert_eq!(i32::from(one[0]), (me + all - 1) % all);
    let group = armci.group_of(&(0..all).rev().collect::<Vec<_>>(), armci::Group(0))?;
    armci.group_barrier(group)?;
    armci.barrier()?;
    armci.destroy_mutexes()?;
    armci.free(memory[me as usize])?;
    Ok(job.barrier()?)
}
