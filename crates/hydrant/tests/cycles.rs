//! Memory that is allocated, used and freed, again and again: what the process holds does not grow. `HYDRANT_SOAK` is the
//! number of seconds.

#![allow(unsafe_code)] // maps memory, and names it by its address

#[path = "support/pinned.rs"]
mod pinned;
#[path = "support/place.rs"]
mod place;

use std::{
    fs,
    time::{Duration, Instant},
};

use hydrant::{MonitorKind, Rank, Result, Strategy};
use place::Place;

/// The bytes of the mapping that each cycle uses.
const LEN: usize = 20_480;
/// The most memory that may be registered.
const LIMIT: u64 = 12 << 20;

/// Returns a field of the process's status, in bytes.
fn status(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("every process has it");
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next());
    let kilobytes = kilobytes.and_then(|text| text.parse::<u64>().ok());
    kilobytes.expect("a number of kilobytes") << 10
}

fn seconds() -> u64 {
    let set = std::env::var("HYDRANT_SOAK").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(3)
}

#[test]
fn memory_that_comes_and_goes_leaves_nothing_behind() {
    if let Err(absent) = hydrant_monitor::Monitor::of_process() {
        hydrant_testing::left_out(absent);
        return;
    }
    let builder = (pinned::builder().m(8 << 20).maxvictim(4 << 20))
        .anywhere(true)
        .registration(Strategy::Firehose)
        .monitor(MonitorKind::Userfaultfd);
    let whole = Duration::from_secs(seconds());
    let ends: Result<Vec<()>> = (builder.run_local(2, |job| {
        let field = job.alloc::<u8>(LEN)?;
        let start = Instant::now();
        let (mut cycles, mut early) = (0_u64, None);
        let mut word = [0_u64];
        loop {
            // An own source that is new, and then one of the peer's new places.
            let mut place = Place::new(LEN);
            let value = cycles as u8;
            place.bytes()[..LEN].fill(value);
            if job.rank() == Rank(0) {
                for _ in 0..2 {
                    field.put(Rank(1), 0, &place.bytes()[..LEN])?;
                }
                // The end of the test is named by 0.
                let is_over = start.elapsed() >= whole;
                job.send(Rank(1), 1, &[u64::from(!is_over)])?;
                if cycles.is_multiple_of(8) && !is_over {
                    job.receive(Rank(1), 2, &mut word)?;
                    // SAFETY: rank 1 waits for the message that follows.
                    unsafe { job.put_anywhere(Rank(1), word[0], &place.bytes()[..LEN])? };
                    job.send(Rank(1), 3, &word)?;
                }
                if early.is_none() && start.elapsed() >= whole / 3 {
                    early = Some((cycles, status("VmRSS:")));
                }
                assert!(is_within_limit(cycles), "cycle {cycles}");
                if is_over {
                    break;
                }
            } else {
                job.receive(Rank(0), 1, &mut word)?;
                if word[0] == 0 {
                    break;
                }
                if cycles.is_multiple_of(8) {
                    place.bytes()[..LEN].fill(!value);
                    job.send(Rank(0), 2, &[place.address()])?;
                    job.receive(Rank(0), 3, &mut word)?;
                    assert!(place.bytes()[..LEN].iter().all(|byte| *byte == value));
                }
            }
            cycles += 1;
        }
        if let Some((then, held)) = early {
            let now = status("VmRSS:");
            println!(
                "{cycles} cycles: {} KiB resident after {then}, {} KiB at the end, {} KiB pinned; {}",
                held >> 10,
                now >> 10,
                status("VmPin:") >> 10,
                job.counters()
            );
            assert!(cycles > then, "{cycles}");
            assert!(now < held + (2 << 20), "{held} bytes after {then} cycles, {now} after {cycles}");
        }
        job.barrier()
    }))
    .into_iter()
    .collect();
    ends.expect("all ranks succeed");
    assert_eq!(status("VmPin:"), 0, "the job is over");
}

/// Looks at what is pinned now and then. Both ranks are of this process.
fn is_within_limit(cycles: u64) -> bool {
    !cycles.is_multiple_of(256) || status("VmPin:") <= 2 * LIMIT + (1 << 20)
}
