//! Much memory that is registered at once, on played NICs: in chunks, by several threads, all of it or nothing, and
//! within a time limit. `VmPin` of the process tells from outside how much is pinned.

use std::{
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use hydrant::{ConduitKind, Error, Job, JobBuilder, MonitorKind, Op, Strategy, Symmetric};
use hydrant_testing::{
    locked::{limit_locked_memory, pin, pinned},
    roles::{self, test},
};

const CHUNK: usize = 1 << 20;
/// The bytes of an allocation, which are no whole number of chunks.
const BYTES: usize = 9 * CHUNK + 4096;
/// The bytes of memory that takes long to register in the smallest chunks.
const LARGE: usize = 24 << 20;
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
                "background" => is_registered_in_the_background,
                "used" => is_used_while_it_is_registered,
                "limits" => stops_at_each_limit,
                "exhausted" => stops_where_the_system_refuses,
                "freed" => stops_when_the_memory_is_freed,
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
            test(
                "the_first_use_finds_memory_registered_in_the_background",
                || alone("background"),
            ),
            test("memory_is_used_while_it_is_registered", || alone("used")),
            test("the_background_stops_at_each_limit", || alone("limits")),
            test("the_background_stops_where_the_system_refuses", || {
                alone("exhausted")
            }),
            test("the_background_stops_when_the_memory_is_freed", || {
                alone("freed")
            }),
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

fn all_reduce(job: &Job, value: u64, op: Op) -> hydrant::Result<u64> {
    let mut values = [value];
    job.world().all_reduce(&mut values, op)?;
    Ok(values[0])
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
        // The rest is enough for one rank, and for a part of the other's memory.
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

fn is_registered_in_the_background() {
    for strategy in [
        Strategy::Auto,
        Strategy::Firehose,
        Strategy::Rendezvous { unpin: false },
    ] {
        run(builder().registration(strategy).m(64 << 20), |job| {
            let memory = job.alloc::<u64>(BYTES / 8)?;
            let exposed = job.expose(vec![0_u64; BYTES / 8])?;
            let pointers = job.world().all_gather(&[exposed.pointer(0)?])?;
            let there = pointers[job.right().index()];
            job.barrier()?;
            let before = pinned();
            job.barrier()?;
            let requests = [
                job.register_in_background(&memory)?,
                exposed.register_in_background()?,
            ];
            for request in &requests {
                assert_eq!(request.wait()?, request.bytes());
                assert_eq!((request.is_over(), request.left()), (true, 0));
            }
            // The buffer of the allocator need not begin at a page.
            let bytes: u64 = requests.iter().map(|it| it.bytes()).sum();
            assert!((0..=4096).contains(&(bytes - 2 * BYTES as u64)));
            let counters = job.counters();
            assert_eq!(counters.bulk_registered_bytes, bytes);
            job.barrier()?;
            assert!(pinned() - before >= 4 * BYTES as u64);
            job.barrier()?;
            let registrations = job.counters().registrations;
            let source = [job.rank().0.into()];
            for at in (0..BYTES / 8).step_by(4096) {
                memory.put(job.right(), at, &source)?;
                job.put_to(there.offset(at as isize), &source)?;
            }
            job.barrier()?;
            // The sources are inline or copied, and the targets were registered.
            assert_eq!(job.counters().registrations, registrations, "{strategy}");
            let left: u64 = job.left().0.into();
            for at in (0..BYTES / 8).step_by(4096) {
                assert_eq!(memory.local()?.load(at)?, left);
                assert_eq!(exposed.view().load(at)?, left);
            }
            job.barrier()?;
            job.free(memory)?;
            drop(exposed);
            job.barrier()?;
            assert_eq!(pinned(), before, "{strategy}");
            job.barrier()
        });
    }
}

fn is_used_while_it_is_registered() {
    let builder = builder()
        .registration(Strategy::Auto)
        .m(64 << 20)
        .register_chunk(4096)
        .register_threads(1);
    run(builder, |job| {
        let mut meanwhile = 0;
        // The first round should do.
        for round in 0..20_u64 {
            let memory = job.alloc::<u64>(LARGE / 8)?;
            let request = job.register_in_background(&memory)?;
            job.barrier()?;
            let value = |at: usize| round << 32 | at as u64;
            // All over the memory, a page and its neighbour at a time.
            for turn in 0..2000_usize {
                let at = turn * 104_729 * 8 % (LARGE / 8 - 1024);
                let values: [u64; 600] = std::array::from_fn(|index| value(at + index));
                memory.put(job.right(), at, &values)?;
                let mut got = [0; 600];
                memory.get(job.right(), at, &mut got)?;
                assert_eq!(got, values);
                meanwhile += u64::from(!request.is_over());
            }
            assert_eq!(request.wait()?, LARGE as u64);
            job.barrier()?;
            let view = memory.local()?;
            for turn in 0..2000_usize {
                let at = turn * 104_729 * 8 % (LARGE / 8 - 1024);
                assert_eq!(view.load(at)?, value(at));
            }
            job.barrier()?;
            job.free(memory)?;
            if all_reduce(job, meanwhile, Op::Min)? > 0 {
                return Ok(());
            }
        }
        panic!("it was always registered before the first use");
    });
}

fn stops_at_each_limit() {
    // M holds a third of it.
    let (m, maxvictim) = (3 << 20, 1 << 20);
    let small = || {
        builder()
            .registration(Strategy::Auto)
            .m(m)
            .maxvictim(maxvictim)
    };
    let use_all = |job: &Job, memory: &Symmetric<u64>| {
        let values: Vec<u64> = (0..BYTES as u64 / 8).collect();
        memory.put(job.right(), 0, &values)?;
        job.barrier()?;
        let mut got = vec![0; values.len()];
        memory.local()?.read(0, &mut got)?;
        assert_eq!(got, values);
        job.barrier()
    };
    run(small(), |job| {
        let memory = job.alloc::<u64>(BYTES / 8)?;
        let request = job.register_in_background(&memory)?;
        let registered = request.wait()?;
        assert!((1..=m).contains(&registered), "{registered}");
        assert_eq!(registered + request.left(), BYTES as u64);
        let stats = job.registration().expect("it registers");
        assert_eq!(stats.local.deregistrations, 0, "nothing is evicted");
        job.barrier()?;
        use_all(job, &memory)?;
        let stats = job.registration().expect("it registers");
        assert!(stats.local.peak * 4096 <= m + maxvictim, "{stats:?}");
        job.barrier()
    });
    run(small().register_timeout(Duration::from_nanos(1)), |job| {
        let memory = job.alloc::<u64>(BYTES / 8)?;
        let request = job.register_in_background(&memory)?;
        assert_eq!((request.wait()?, request.left()), (0, BYTES as u64));
        assert_eq!(job.counters().bulk_left_bytes, BYTES as u64);
        use_all(job, &memory)
    });
    // No memory stays registered under this strategy.
    run(small().registration(Strategy::Bounce), |job| {
        let memory = job.alloc::<u64>(BYTES / 8)?;
        assert_eq!(job.register_in_background(&memory)?.wait()?, 0);
        use_all(job, &memory)
    });
    // Nor any where all is mapped.
    run(small().conduit(ConduitKind::Smp), |job| {
        let memory = job.alloc::<u64>(BYTES / 8)?;
        let request = job.register_in_background(&memory)?;
        assert_eq!((request.wait()?, request.bytes()), (0, 0));
        use_all(job, &memory)
    });
}

fn stops_where_the_system_refuses() {
    limit_locked_memory(LIMIT, 3);
    let builder = (builder().registration(Strategy::Auto)).register_chunk(SMALL_CHUNK);
    run(builder, |job| {
        let memory = job.alloc::<u64>(FEW / 8)?;
        job.barrier()?;
        let _ring = (job.rank().0 == 0).then(|| {
            let left = FEW as u64 / 8 * 10;
            pin((LIMIT - pinned() - left) as usize / 4096 * 4096)
        });
        job.barrier()?;
        let before = pinned();
        job.barrier()?;
        let request = job.register_in_background(&memory)?;
        let registered = request.wait()?;
        let stats = job.registration().expect("it registers");
        assert_eq!(stats.local.deregistrations, 0, "nothing is evicted");
        job.barrier()?;
        let after = pinned();
        let all = all_reduce(job, registered, Op::Sum)?;
        assert!(all < 2 * FEW as u64, "the system refused something");
        assert_eq!(after, before + all);
        job.barrier()?;
        let values: Vec<u64> = (0..FEW as u64 / 8).collect();
        memory.put(job.right(), 0, &values)?;
        job.barrier()?;
        let mut got = vec![0; values.len()];
        memory.local()?.read(0, &mut got)?;
        assert_eq!(got, values);
        job.barrier()?;
        job.free(memory)?;
        job.barrier()?;
        assert_eq!(pinned(), before);
        job.barrier()
    });
}

fn stops_when_the_memory_is_freed() {
    let builder = builder()
        .registration(Strategy::Auto)
        .m(64 << 20)
        .register_chunk(4096)
        .register_threads(1);
    run(builder, |job| {
        let mut cut_short = 0;
        for round in 0..20 {
            job.barrier()?;
            let before = pinned();
            job.barrier()?;
            let request = if round % 2 == 0 {
                let memory = job.alloc::<u64>(BYTES / 8)?;
                let request = job.register_in_background(&memory)?;
                job.free(memory)?;
                request
            } else {
                let exposed = job.expose(vec![0_u64; BYTES / 8])?;
                exposed.register_in_background()?
            };
            request.wait()?;
            assert_eq!(request.registered() + request.left(), request.bytes());
            cut_short += u64::from(request.left() > 0);
            job.barrier()?;
            assert_eq!(pinned(), before, "round {round}");
        }
        assert!(cut_short > 0, "it was always registered before the end");
        // The end of a buffer does not wait for what was asked for before.
        let mut was_prompt = false;
        for _ in 0..5 {
            let memory = job.alloc::<u64>(LARGE / 8)?;
            let first = job.register_in_background(&memory)?;
            let exposed = job.expose(vec![0_u64; BYTES / 8])?;
            let second = exposed.register_in_background()?;
            drop(exposed);
            was_prompt |= !first.is_over();
            assert!(second.is_over());
            first.wait()?;
            job.free(memory)?;
        }
        assert!(was_prompt, "it waited for other memory");
        let memory = job.alloc::<u64>(BYTES / 8)?;
        // It is under way at the end of the job.
        drop(job.register_in_background(&memory)?);
        Ok(())
    });
}
