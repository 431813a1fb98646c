//! Micro-benchmarks as jobs on `hydrant` over a simulated network.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hydrant::{
    ConduitKind, Job, JobBuilder, MessageProtocol, Rank, Result, Settings, Strategy, Symmetric,
};
use hydrant_base::Random;

use super::{ExperimentInputs, ReproduceError};

/// The page size of all simulated machines.
pub(crate) const PAGE: usize = 4096;
/// A megabyte as the papers count.
pub(crate) const MB: u64 = 1 << 20;
/// The rank that puts.
pub(crate) const FIRST: Rank = Rank(0);
/// The rank that owns the target memory.
pub(crate) const SECOND: Rank = Rank(1);

/// A job on a simulated network.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The machine: a shipped profile, or a file.
    pub(crate) profile: String,
    /// The number of ranks.
    pub(crate) ranks: u32,
    /// The registration strategy.
    pub(crate) strategy: Strategy,
    /// The protocol of two-sided messages.
    pub(crate) messages: MessageProtocol,
    /// M, in bytes.
    pub(crate) m: u64,
    /// MAXVICTIM, in bytes.
    pub(crate) maxvictim: u64,
    /// Entries of the pin-down cache.
    pub(crate) entries: u64,
    /// Bytes of a bucket.
    pub(crate) bucket: usize,
    /// True if peers may borrow firehoses.
    pub(crate) borrowing: bool,
    /// True if victims may fill the memory that peers leave unused.
    pub(crate) adaptive: bool,
    /// Bytes of symmetric memory.
    pub(crate) heap: usize,
}

impl Setup {
    /// Two ranks, with the Firehose paper's exact algorithm where the strategy is `firehose`.
    pub(crate) fn new(profile: &str, strategy: Strategy, m: u64, maxvictim: u64) -> Self {
        Self {
            profile: profile.to_owned(),
            ranks: 2,
            strategy,
            messages: MessageProtocol::Auto,
            m,
            maxvictim,
            entries: 1024,
            bucket: PAGE,
            borrowing: false,
            adaptive: false,
            heap: 16 << 20,
        }
    }

    /// Runs the job. Returns the first rank's result.
    pub(crate) fn run<R: Send>(
        &self,
        body: impl Fn(&Job) -> Result<R> + Sync,
    ) -> std::result::Result<R, ReproduceError> {
        let mut settings = Settings::new();
        settings.pin_down_entries = self.entries;
        let builder = JobBuilder::with(settings)
            .conduit(ConduitKind::Sim(self.profile.clone()))
            .registration(self.strategy)
            // The paper's helper deregisters every buffer that it does not expect soon.
            .foresight_steps_back(false)
            .messages(self.messages)
            .m(self.m)
            .maxvictim(self.maxvictim)
            .bucket(self.bucket)
            .piggyback(0)
            .borrow(self.borrowing)
            .adaptive_victims(self.adaptive)
            // The papers register only the needed pages.
            .widen(false)
            .heap(self.heap);
        let failed = |why: String| ReproduceError::Job {
            profile: self.profile.clone(),
            what: self.strategy.to_string(),
            why,
        };
        let ends = panic::catch_unwind(AssertUnwindSafe(|| builder.run_local(self.ranks, body)))
            .map_err(|cause| failed(in_words(cause.as_ref())))?;
        let mut first = None;
        for end in ends {
            let result = end.map_err(|why| failed(why.to_string()))?;
            first = first.or(Some(result));
        }
        first.ok_or_else(|| failed("it has no ranks".to_owned()))
    }
}

/// The machines whose registration limits some experiments lift.
const LIFTED: [&str; 2] = ["myrinet-gm", "myrinet-pm"];

/// Writes these machines as profiles beside the page, before experiments that read them run in
/// parallel.
pub(crate) fn write_lifted_profiles(out: &Path) -> std::result::Result<(), ReproduceError> {
    const LIMITS: [(&str, &str); 2] = [
        ("max_bytes", "value = 4096, unit = \"MiB\""),
        ("max_extents", "value = \"none\""),
    ];
    let line = |line: &str| match LIMITS.iter().find(|(key, _)| line.starts_with(key)) {
        Some((key, value)) => format!("{key} = {{ {value}, calibrated = \"lifted\" }}\n"),
        None => format!("{line}\n"),
    };
    for machine in LIFTED {
        let text = hydrant_sim::Profile::text(machine).unwrap_or_default();
        let text: String = text.lines().map(line).collect();
        let path = lifted_path(out, machine);
        std::fs::write(&path, text).map_err(|why| ReproduceError::Write { path, why })?;
    }
    Ok(())
}

/// The profile of a machine without these limits.
pub(crate) fn lifted(inputs: &ExperimentInputs<'_>, machine: &str) -> String {
    lifted_path(inputs.out, machine).display().to_string()
}

fn lifted_path(out: &Path, machine: &str) -> PathBuf {
    out.join(format!("{machine}-lifted.toml"))
}

/// The message of a panic.
fn in_words(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    (text.or(cause.downcast_ref::<&str>().copied()))
        .unwrap_or("a rank panicked")
        .to_owned()
}

/// The time of `body` by the job's clock.
pub(crate) fn timed(job: &Job, body: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = job.now();
    body()?;
    Ok(job.now().saturating_sub(start))
}

/// The time in microseconds.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// Megabytes a second as the papers count, where a megabyte is a million bytes.
pub(crate) fn bandwidth(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 1e3 / time.as_nanos().max(1) as f64
}

/// The numbers from `from` to below `to`, in random order.
pub(crate) fn shuffled(random: &mut Random, from: usize, to: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (from..to).collect();
    random.shuffle(&mut all);
    all
}

/// The extra length of a buffer for its [`aligned`] part. No experiment has larger buckets.
pub(crate) const SPARE: usize = 2 << 20;

/// The offset of the first boundary of [`SPARE`] bytes in a buffer. The cost of registration
/// follows from the pages and buckets that it touches, and must not depend on the heap's choice of
/// address.
pub(crate) fn aligned(buffer: &[u8]) -> usize {
    buffer.as_ptr().align_offset(SPARE)
}

/// Memory of `bytes` bytes on every rank.
pub(crate) fn memory(job: &Job, bytes: u64) -> Result<Symmetric<u8>> {
    job.alloc::<u8>(bytes as usize)
}
