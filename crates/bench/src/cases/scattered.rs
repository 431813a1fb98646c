//! Puts scattered over a working set that outgrows M: Figures 3 and 4 of the Firehose paper, on a
//! real network, with the bytes pinned meanwhile.
//!
//! Rank 0 puts at random offsets within the working set in rank 1's memory, from one buffer of its
//! own. Before that it puts once to every bucket of the set, or to as many as hold twice M. Rank 1
//! does nothing but handle messages. Both sample the kernel's count of pinned bytes until the end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hydrant::{Job, Rank, Strategy, Symmetric};
use hydrant_base::Random;

use super::attend;
use crate::ensemble::Ensemble;
use crate::measure::median;
use crate::network::PARTNER;
use crate::row::{Goal, Row, WORKING_SET};

/// The limit M where the environment does not set one.
const M: u64 = 4 << 20;
const MAXVICTIM: u64 = 1 << 20;

/// The factor on M for strategies that never deregister. As in the paper, the limit is lifted for
/// them.
const LIFTED: u64 = 16;

/// Working sets in quarters of M.
const QUARTERS: [u64; 8] = [1, 2, 3, 4, 5, 6, 8, 16];
const QUICK_QUARTERS: [u64; 3] = [1, 4, 16];

/// Bytes of a put, as text too, and the number of puts in a figure.
const PUTS: [(usize, &str, u64); 2] = [(8, "8 B", 1500), (64 << 10, "64 KiB", 100)];

/// Bytes from one offset of a short put to the next: one put to a bucket.
const STEP: usize = 4096;

/// The interval between two samples of the pinned bytes.
const LOOK: Duration = Duration::from_millis(10);

/// The limits that a job of this strategy runs with: settings and their values.
pub(crate) fn limits(strategy: Strategy) -> [(&'static str, String); 2] {
    // The ranks report a bad value of the environment.
    let said = Job::builder().ok();
    let said = said.map(|builder| (builder.settings().m, builder.settings().maxvictim));
    let (m, maxvictim) = said.unwrap_or((None, None));
    let m = m.unwrap_or(M)
        * if never_deregisters(strategy) {
            LIFTED
        } else {
            1
        };
    [
        ("HYDRANT_M", m.to_string()),
        (
            "HYDRANT_MAXVICTIM",
            maxvictim.unwrap_or(MAXVICTIM).to_string(),
        ),
    ]
}

/// True if a strategy never deregisters buckets that peers use.
fn never_deregisters(strategy: Strategy) -> bool {
    let no_unpin = Strategy::Rendezvous { unpin: false };
    strategy == Strategy::PinEverything || strategy == no_unpin
}

/// Runs on all ranks: rank 0 puts, and each rank samples its own pinned bytes.
pub(crate) fn run(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let pinned = PinnedSamples::default();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                pinned.sample();
                std::thread::sleep(LOOK);
            }
            pinned.sample();
        });
        let outcome = measure(e);
        over.store(true, Ordering::Release);
        outcome
    })?;
    report_pinned(e, &pinned)
}

fn measure(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let settings = e.job.settings();
    let strategy = settings.registration;
    let m = settings.m.unwrap_or(M)
        / if never_deregisters(strategy) {
            LIFTED
        } else {
            1
        };
    let quarters = if e.quick {
        &QUICK_QUARTERS[..]
    } else {
        &QUARTERS
    };
    let most = m / 4 * QUARTERS[QUARTERS.len() - 1];
    let field = e.job.alloc::<u64>(most as usize / size_of::<u64>())?;
    field.local()?.fill(0..field.len(), 1)?;
    let own = e.job.alloc::<u64>(PUTS[1].0 / size_of::<u64>())?;
    let (over, mut turn) = (e.job.alloc::<u64>(1)?, 0);
    // Beyond M and the victims, more puts do not change the cache.
    let enough = if e.quick { 64 } else { 2 * m as usize / STEP };
    e.job.barrier()?;
    for (bytes, words, count) in PUTS {
        let count = if e.quick { count / 10 } else { count };
        for quarters in quarters {
            let set = m / 4 * quarters;
            e.next(&format!("{strategy}: {words} puts over {set} bytes"))?;
            turn += 1;
            if e.job.rank() == Rank(0) {
                let set_bytes = set as usize;
                let mean = scatter(&field, &own, bytes, set_bytes, [enough as u64, count])?;
                over.put_value(PARTNER, 0, turn)?;
                let bench = format!("{words} puts {WORKING_SET}");
                e.row(Row::new(&bench, strategy.name(), "ns", mean).bytes(set))?;
            } else if e.job.rank() == PARTNER {
                attend(e, &over, turn)?;
            }
            e.job.barrier()?;
        }
    }
    e.job.free(over)?;
    e.job.free(own)?;
    e.job.free(field)
}

/// The mean time of a put, as the median of five runs.
fn scatter(
    field: &Symmetric<u64>,
    own: &Symmetric<u64>,
    bytes: usize,
    set: usize,
    [warm_up, count]: [u64; 2],
) -> hydrant::Result<f64> {
    let words = bytes / size_of::<u64>();
    // SAFETY: only rank 0 works here, and only on its partner's memory. Nobody writes to its own
    // part, which is freed after this.
    #[allow(unsafe_code)]
    let data = &unsafe { own.local_slice() }?[..words];
    let place = bytes.max(STEP);
    let places = (set / place).max(1);
    for index in (0..places).take(warm_up as usize) {
        field.put(PARTNER, index * place / size_of::<u64>(), data)?;
    }
    let mut random = Random::new(1);
    let mut means = [0.0; 5];
    for mean in &mut means {
        let start = Instant::now();
        for _ in 0..count.div_ceil(5) {
            let index = random.below(places) * place / size_of::<u64>();
            field.put(PARTNER, index, data)?;
        }
        *mean = start.elapsed().as_secs_f64() * 1e9 / count.div_ceil(5) as f64;
    }
    Ok(median(&mut means))
}

/// The most bytes that a rank had pinned and locked, from `/proc/self/status`.
#[derive(Default)]
struct PinnedSamples {
    pin: AtomicU64,
    lock: AtomicU64,
}

impl PinnedSamples {
    fn sample(&self) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        for (key, most) in [("VmPin:", &self.pin), ("VmLck:", &self.lock)] {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
            most.fetch_max(kib.unwrap_or(0) * 1024, Ordering::Relaxed);
        }
    }
}

/// Compares the most bytes pinned with the bytes allowed: M, MAXVICTIM, the conduit's own and, in
/// the same processes, those of the bare network.
fn report_pinned(e: &Ensemble<'_>, pinned: &PinnedSamples) -> hydrant::Result<()> {
    let (settings, conduit) = (e.job.settings(), e.job.footprint());
    let limits = settings.m.unwrap_or(M) + settings.maxvictim.unwrap_or(MAXVICTIM);
    let peers = e.job.size() as usize - 1;
    // Each rank of a pair registers half of the pair's memory, where it is registered: the rings of
    // shared memory are not.
    let of_pairs = match e.job.settings().conduit {
        hydrant::ConduitKind::Pinned => 0,
        _ => conduit.per_pair / 2 * peers,
    };
    let own = conduit.per_rank + of_pairs;
    // The bare network beside the job registers memory of its own.
    let bare = (e.network.as_ref()).map_or(0, |network| network.borrow().registered_bytes());
    let fixed = own + bare;
    for (name, most) in [("VmPin", &pinned.pin), ("VmLck", &pinned.lock)] {
        let most = e.gather(most.load(Ordering::Relaxed))?;
        if e.rank() == 0 {
            let most = most.into_iter().max().unwrap_or(0);
            let case = format!("{}: most {name} of a rank", settings.registration);
            let row = Row::new("pinned", case, "bytes", most as f64);
            let bound = (limits + fixed as u64) as f64;
            e.row(row.against(bound).goal(Goal::AtMostTimes(1.0)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_lifted_for_strategies_that_never_deregister() {
        let m = |strategy| limits(strategy)[0].1.parse::<u64>().unwrap();
        let firehose = m(Strategy::Firehose);
        assert_eq!(m(Strategy::PinEverything), LIFTED * firehose);
        assert_eq!(m(Strategy::Rendezvous { unpin: true }), firehose);
    }

    #[test]
    fn locked_memory_is_counted() {
        let pinned = PinnedSamples::default();
        pinned.sample();
        let before = pinned.lock.load(Ordering::Relaxed);
        let memory = vec![1_u8; 64 << 10];
        // SAFETY: the memory is our own, and locking does not change it.
        #[allow(unsafe_code)]
        let locked = unsafe { rustix::mm::mlock(memory.as_ptr().cast_mut().cast(), memory.len()) };
        locked.unwrap();
        pinned.sample();
        assert!(pinned.lock.load(Ordering::Relaxed) >= before + (64 << 10));
    }
}
