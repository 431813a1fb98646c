//! The cost of an idle rank: memory, and CPU time.

use std::time::Duration;

use hydrant::{Job, Rank, Signal};
use rustix::time::{ClockId, clock_gettime};

use crate::ensemble::Ensemble;
use crate::error::BenchError;
use crate::row::{Goal, Row};

/// The bytes of memory that the system provides to this process, shared memory by its share. Pages
/// of files are not counted, because programs and libraries are there without Hydrant too.
pub(crate) fn memory() -> hydrant::Result<u64> {
    Ok(rolled_up("Pss_Anon:")? + rolled_up("Pss_Shmem:")?)
}

/// A field of this process's `smaps_rollup`, in bytes.
fn rolled_up(key: &str) -> hydrant::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").map_err(BenchError::Memory)?;
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| {
        let why = std::io::Error::other(format!("this kernel does not say {key}"));
        BenchError::Memory(why).into()
    })
}

/// The memory that Hydrant added, summed over the ranks, and all that is resident in a rank. `before` is
/// the memory of this rank before the job; every rank has called every other since.
pub(crate) fn job_memory(e: &Ensemble<'_>, before: u64) -> hydrant::Result<()> {
    let job = e.job;
    let nothing = job.function(|_, (): ()| ())?;
    for rank in job.ranks() {
        job.call(rank, &nothing, &())?;
    }
    // No rank leaves and frees memory before all have measured.
    job.barrier()?;
    let added = e.gather(memory()?.saturating_sub(before))?;
    let resident = e.gather(rolled_up("Rss:")?)?;
    let row = |what, bytes: u64| {
        let case = format!("{what}, {} ranks", job.size());
        e.row(Row::new("cost", case, "bytes", bytes as f64))
    };
    row("memory", added.into_iter().sum())?;
    row(
        "resident in a rank",
        resident.into_iter().max().unwrap_or(0),
    )
}

/// CPU time of idle ranks: asleep in the system, in a barrier, for a signal.
pub(crate) fn idle(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let job = e.job;
    let time = Duration::from_millis(if e.quick { 300 } else { 3000 });
    let signal = job.alloc::<u64>(1)?;
    let late = |job: &Job| {
        if job.rank() == Rank(0) {
            std::thread::sleep(time);
        }
    };
    cpu_time(e, "idle, all ranks sleep", time, || {
        std::thread::sleep(time);
        Ok(())
    })?;
    cpu_time(e, "idle, the others wait in a barrier", time, || {
        late(job);
        job.barrier()
    })?;
    cpu_time(e, "idle, the others wait for a signal", time, || {
        late(job);
        match job.rank() {
            Rank(0) => job
                .ranks()
                .skip(1)
                .try_for_each(|rank| signal.signal(rank, 0, Signal::Set(1))),
            _ => job.wait_until(&signal, 0, |value| value == 1).map(drop),
        }
    })?;
    job.free(signal)?;
    Ok(())
}

/// The most CPU time that any rank used for each second of `wait`.
fn cpu_time(
    e: &Ensemble<'_>,
    case: &str,
    time: Duration,
    wait: impl FnOnce() -> hydrant::Result<()>,
) -> hydrant::Result<()> {
    e.next(case)?;
    e.job.barrier()?;
    let before = process_time();
    wait()?;
    let used = process_time().saturating_sub(before).as_nanos() as u64;
    let most = e.gather(used)?.into_iter().max().unwrap_or(0);
    let millis_a_second = most as f64 / 1e6 / time.as_secs_f64();
    e.row(
        Row::new("cost", case, "ms/s", millis_a_second)
            .goal(Goal::AtMost(1.0, "ms of CPU a second")),
    )
}

/// CPU time of all threads of this process so far.
fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
