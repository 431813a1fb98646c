//! A process that has pinned memory before its job begins. The job may register the rest of the limit.

use std::process::{Command, ExitCode};

use hydrant::{ConduitKind, Error, Job, Strategy};
use hydrant_testing::{
    locked::{limit_locked_memory, pin},
    roles::{self, test},
};

const LIMIT: usize = 8 << 20;
/// The elements that each rank has for the other, more than it may register.
const ELEMENTS: usize = 1 << 20;

fn main() -> ExitCode {
    roles::main(
        |name, _| {
            let (account, body): (_, fn()) = match name {
                "full" => (0, is_refused),
                "three_quarters" => (1, registers_the_rest),
                _ => return None,
            };
            limit_locked_memory(LIMIT as u64, account);
            body();
            Some(ExitCode::SUCCESS)
        },
        vec![
            test("a_job_that_may_register_nothing_is_refused", || {
                alone("full")
            }),
            test("a_job_registers_what_pins_before_it_leave", || {
                alone("three_quarters")
            }),
        ],
    )
}

/// Plays a role in a process of its own, whose limit it lowers.
fn alone(name: &str) {
    let command = roles::role(&[name]);
    let ended = (Command::new(&command[0]).args(&command[1..]))
        .output()
        .expect("this binary starts");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
}

fn run<T: Send>(body: impl Fn(&Job) -> hydrant::Result<T> + Sync) -> Vec<hydrant::Result<T>> {
    let builder = Job::builder().expect("the settings are valid");
    builder
        .heap(64 << 20)
        .conduit(ConduitKind::Pinned)
        .registration(Strategy::Firehose)
        .run_local(2, |job| body(job))
}

/// Nothing is left for the buckets of a job.
fn is_refused() {
    // The rings of the program and of the job lock 24 KiB of these.
    let _ring = pin(LIMIT - (28 << 10));
    for end in run(|_| Ok(())) {
        match end {
            Err(cause @ Error::Registration(_)) => {
                let text = cause.to_string();
                assert!(text.contains("beside the "), "{text}");
                assert!(text.contains("pinned already (VmPin)"), "{text}");
            }
            end => panic!("{end:?}"),
        }
    }
}

/// A job beside pins is refused no registration, because it wants no more than what is left.
fn registers_the_rest() {
    let _ring = pin(3 * LIMIT / 4);
    let ends = run(|job| {
        let memory = job.alloc::<u64>(ELEMENTS)?;
        for turn in 0..4096_usize {
            let index = turn * 104_729 % ELEMENTS;
            memory.put(job.right(), index, &[turn as u64])?;
        }
        job.barrier()?;
        Ok((job.counters(), job.registration()))
    });
    for end in ends {
        let (counters, stats) = end.expect("a quarter is left");
        let stats = stats.expect("it registers");
        // The kernel refused nothing.
        assert_eq!(stats.local.failed, 0, "{stats:?}");
        assert!(counters.registrations > 100, "{counters}");
    }
}
