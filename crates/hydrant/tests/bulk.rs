//! Much memory that is registered at once, on played NICs: in chunks, by several threads, all of it or nothing, and
//! within a time limit. `VmPin` of the process tells from outside how much is pinned.

use std::{
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use hydrant::{ConduitKind, Error, Job, JobBuilder, MonitorKind, Strategy};
use hydrant_testing::{
    locked::{limit_locked_memory, pin, pinned},
    roles::{self, test},
};

const CHUNK: usize = 1 << 20;
/// The bytes of an allocation, which are no whole number of chunks.
const BYTES: usize = 9 * CHUNK + 4096;
/// The locked memory that a process may have, where a test limits it.
const LIMIT: u64 = 8 << 20;
/// The bytes of an allocation and of its chunks there.
const FEW: usize = SMALL_CHUNK * 16 + 4096;
const SMALL_CHUNK: usize = 64 << 10;

fn main() -> ExitCode {
    roles::main(
        |name, _| {
            let body: fn() = match name {
                "chunks" => is_registered_in_chunks,
                "refused" => is_registered_whole_or_not_at_all,
                "late" => is_given_up_when_the_time_is_over,
                _ => return None,
            };
            body();
            Some(ExitCode::SUCCESS)
        },
        vec![
            test("much_memory_is_registered_in_chunks", || alone("chunks")),
            test("a_refusal_in_the_middle_leaves_nothing_pinned", || {
                alone("refused")
            }),
            test("a_time_limit_leaves_nothing_pinned", || alone("late")),
        ],
    )
}

/// Plays a role in a process of its own, whose pins are those of the job.
fn alone(name: &str) {
    let command = roles::role(&[name]);
    let ended = (Command::new(&command[0]).args(&command[1..]))
        .output()
        .expect("this binary starts");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
}

fn builder() -> JobBuilder {
    (Job::builder().expect("the settings are valid"))
        .heap(64 << 20)
        .conduit(ConduitKind::Pinned)
        .registration(Strategy::PinEverything)
        .register_chunk(CHUNK)
        .register_threads(3)
        // Nothing but allocations stays registered.
        .monitor(MonitorKind::Off)
}

/// Runs two ranks, which all succeed.
fn run(builder: JobBuilder, body: impl Fn(&Job) -> hydrant::Result<()> + Sync) {
    let ends = builder.run_local(2, |job| body(job));
    (ends.into_iter()).for_each(|end| end.expect("the rank succeeds"));
}

fn is_registered_in_chunks() {
    run(builder(), |job| {
        job.barrier()?;
        let before = pinned();
        job.barrier()?;
        let counters = job.counters();
        let memory = job.alloc::<u64>(BYTES / 8)?;
        let later = job.counters();
        assert_eq!(later.bulk_bytes - counters.bulk_bytes, BYTES as u64);
        assert_eq!(
            later.bulk_registered_bytes - counters.bulk_registered_bytes,
            BYTES as u64
        );
        assert_eq!(later.bulk_left_bytes, counters.bulk_left_bytes);
        assert_eq!(later.registrations - counters.registrations, 10);
        job.barrier()?;
        assert_eq!(pinned() - before, 2 * BYTES as u64);
        // Across the seams of chunks, and in one go.
        let values: Vec<u64> = (0..BYTES as u64 / 8).map(|at| at * 3 + 1).collect();
        memory.put(job.right(), 0, &values)?;
        for seam in (1..=9).map(|chunk| chunk * CHUNK / 8) {
            memory.put(job.right(), seam - 3, &[seam as u64; 6])?;
        }
        job.barrier()?;
        let mut here = vec![0; values.len()];
        memory.local()?.read(0, &mut here)?;
        let mut there = vec![0; values.len()];
        memory.get(job.right(), 0, &mut there)?;
        for at in 0..values.len() {
            let seam = (at + 3) / (CHUNK / 8) * (CHUNK / 8);
            let right = match seam > 0 && (seam - 3..seam + 3).contains(&at) {
                true => seam as u64,
                false => values[at],
            };
            assert_eq!([here[at], there[at]], [right; 2], "{at}");
        }
        job.barrier()?;
        job.free(memory)?;
        job.barrier()?;
        assert_eq!(pinned(), before);
        job.barrier()
    });
}

/// The kernel refuses some chunks, because the program has pinned memory since the job began.
fn is_registered_whole_or_not_at_all() {
    limit_locked_memory(LIMIT, 2);
    run(builder().register_chunk(SMALL_CHUNK), |job| {
        let small = job.alloc::<u64>(512)?;
        job.barrier()?;
        // What is left is enough for one rank, and for a part of the other's memory.
        let ring = (job.rank().0 == 0).then(|| {
            let left = FEW as u64 / 8 * 10;
            pin((LIMIT - pinned() - left) as usize / 4096 * 4096)
        });
        job.barrier()?;
        let before = pinned();
        job.barrier()?;
        let refused = job.alloc::<u64>(FEW / 8).expect_err("too much is pinned");
        let text = refused.to_string();
        // The rank that was refused says why; the other may have had room.
        assert!(
            text.contains("memlock") || text.contains("could not register its part"),
            "{text}"
        );
        job.barrier()?;
        assert_eq!(pinned(), before);
        let counters = job.counters();
        let ended = counters.bulk_registered_bytes + counters.bulk_left_bytes;
        assert_eq!(counters.bulk_bytes, ended);
        job.barrier()?;
        if ring.is_some() {
            drop(ring);
            // The kernel frees a closed ring late.
            while pinned() == before {
                thread::sleep(Duration::from_millis(1));
            }
        }
        job.barrier()?;
        // As before.
        let memory = job.alloc::<u64>(FEW / 8)?;
        let seam = SMALL_CHUNK / 8;
        memory.put(job.right(), seam - 1, &[7, 8])?;
        small.put(job.right(), 0, &[9])?;
        job.barrier()?;
        let view = memory.local()?;
        assert_eq!([view.load(seam - 1)?, view.load(seam)?], [7, 8]);
        job.barrier()
    });
}

fn is_given_up_when_the_time_is_over() {
    let timeout = Duration::from_nanos(1);
    run(builder().register_timeout(timeout), |job| {
        job.barrier()?;
        let before = pinned();
        job.barrier()?;
        match job.alloc::<u64>(BYTES / 8) {
            Err(Error::RegistrationTimeout {
                registered, wanted, ..
            }) => {
                assert!(registered < wanted);
                assert_eq!(wanted, BYTES as u64);
            }
            other => panic!("{:?}", other.map(drop)),
        }
        job.barrier()?;
        assert_eq!(pinned(), before);
        job.barrier()
    });
}
