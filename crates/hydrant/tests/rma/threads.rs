//! Several application threads of a rank at once.

use std::thread;

use hydrant::{Foreign, GlobalPtr};

use crate::support::{builder, good};

const THREADS: usize = 4;
const ROUNDS: usize = 150;
const LONG: usize = 20_000;

#[test_on(real, native)]
fn put_get_call_and_request_at_once() {
    for way in [Foreign::ProcessVm, Foreign::Messages] {
        good(builder().smp_foreign(way).run_local(3, |job| {
            let memory = job.alloc::<u64>(THREADS * LONG)?;
            let counts = job.alloc::<u64>(1)?;
            let pointers = job.alloc::<GlobalPtr<u64>>(1)?;
            let exposed = job.expose(vec![0_u64; THREADS * LONG])?;
            pointers.put(job.left(), 0, &[exposed.pointer(0)?])?;
            let count = job.handler({
                let counts = counts.clone();
                move |context, args, payload| {
                    assert_eq!(payload.len() as u64, args[0]);
                    counts.add(context.rank(), 0, 1).expect("the memory lives");
                }
            })?;
            let square = job.function(|_, number: u64| number * number)?;
            job.barrier()?;
            let theirs = pointers.local()?.load(0)?;
            let to = job.right();
            thread::scope(|threads| {
                let worker = |number: usize| {
                    let (memory, at) = (&memory, number * LONG);
                    move || -> hydrant::Result<()> {
                        for round in 0..ROUNDS {
                            let value = (round * THREADS + number) as u64;
                            let data = vec![value; LONG];
                            memory.put(to, at, &data)?;
                            job.request_medium(
                                to,
                                count,
                                &[value % 100],
                                &data_bytes(value % 100),
                            )?;
                            assert_eq!(job.call(to, &square, &value)?, value * value);
                            let place = theirs.offset(at as isize);
                            job.scope(|s| s.put_to(place, &data).map(drop))?;
                            job.fence()?;
                            let mut back = vec![0; LONG];
                            job.get_from(place, &mut back)?;
                            assert_eq!(back, data);
                            let handle = memory.get_nb(to, at, LONG)?;
                            job.quiet()?;
                            assert_eq!(handle.wait()?, data);
                        }
                        job.am_quiet()
                    }
                };
                let running: Vec<_> = (0..THREADS).map(|n| threads.spawn(worker(n))).collect();
                running
                    .into_iter()
                    .try_for_each(|thread| thread.join().expect("no thread panics"))
            })?;
            job.barrier()?;
            assert_eq!(counts.local()?.load(0)?, (THREADS * ROUNDS) as u64);
            for number in 0..THREADS {
                let last = ((ROUNDS - 1) * THREADS + number) as u64;
                assert_eq!(memory.local()?.load(number * LONG)?, last);
                assert_eq!(exposed.view().load(number * LONG + LONG - 1)?, last);
            }
            job.barrier()
        }));
    }
}

fn data_bytes(len: u64) -> Vec<u8> {
    vec![1; len as usize]
}

/// Threads may call collectives in turn, and several jobs live in one process.
#[test_on(real, native)]
fn two_jobs_at_once() {
    thread::scope(|threads| {
        let job = |seed: u64| {
            move || {
                good(builder().run_local(3, |job| {
                    let memory = job.alloc::<u64>(1000)?;
                    for round in 0..200 {
                        let value = seed * 1_000_000 + round;
                        memory.put(job.right(), 0, &[value; 1000])?;
                        job.barrier()?;
                        assert_eq!(memory.local()?.to_vec(), [value; 1000]);
                        job.barrier()?;
                    }
                    job.free(memory)
                }))
            }
        };
        let running = [1, 2].map(|seed| threads.spawn(job(seed)));
        for thread in running {
            thread.join().expect("no rank panics");
        }
    });
}
