//! The keys to sort: from a seed, or from a file that the first rank reads.

use std::path::Path;

use hydrant::{Job, Result};

use crate::{
    buffer::Buffer,
    input::{self, InputError},
    program::Failure,
    seed::Seed,
    together::{self, FIRST},
};

/// The source of the keys.
pub(super) struct Keys {
    count: usize,
    source: KeySource,
}

enum KeySource {
    Seed(Seed),
    /// Only on the first rank.
    File(Option<Vec<i64>>),
}

impl Keys {
    /// Random keys.
    pub(super) fn from_seed(count: usize, seed: u64) -> Self {
        let source = KeySource::Seed(Seed::new(seed, 0));
        Self { count, source }
    }

    /// Reads the keys of a file; `count` of them if the user expects a number. Collective.
    ///
    /// # Errors
    /// [`InputError`], and the errors of [`Job::broadcast`].
    pub(super) fn from_file(job: &Job, path: &Path, count: Option<usize>) -> Result<Self, Failure> {
        let keys = together::on_first(job, || read(path, count))?;
        let mut count = [keys.as_ref().map_or(0, Vec::len) as u64];
        job.broadcast(FIRST, &mut count)?;
        Ok(Self {
            count: count[0] as usize,
            source: KeySource::File(keys),
        })
    }

    /// The number of keys.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// This rank's run of `run` keys. Missing keys are padded with the largest value: sorted, the
    /// padding is last, and as many keys are cut from the result. Equal keys cannot be told from
    /// padding, which does not matter. Collective.
    ///
    /// # Errors
    /// The errors of [`Job::scatter`].
    pub(super) fn run(&self, job: &Job, run: usize) -> Result<Buffer<i64>> {
        let mut keys = Buffer::zeroed(run);
        keys.fill(i64::MAX);
        match &self.source {
            KeySource::Seed(seed) => {
                let start = job.rank().index() * run;
                for (key, index) in keys.iter_mut().zip(start..self.count) {
                    *key = seed.key(index as u64);
                }
            }
            KeySource::File(all) => {
                let all = all.as_ref().map(|all| {
                    let mut all = all.clone();
                    all.resize(run * job.size() as usize, i64::MAX);
                    all
                });
                job.scatter(FIRST, all.as_deref(), &mut keys)?;
            }
        }
        Ok(keys)
    }

    /// All keys, on the first rank.
    pub(super) fn whole(self) -> Vec<i64> {
        match self.source {
            KeySource::Seed(seed) => (0..self.count as u64)
                .map(|index| seed.key(index))
                .collect(),
            KeySource::File(keys) => keys.unwrap_or_default(),
        }
    }
}

fn read(path: &Path, count: Option<usize>) -> Result<Vec<i64>, InputError> {
    let keys = input::read::<i64>(path)?.values;
    match count {
        Some(wanted) if wanted != keys.len() => Err(InputError::OtherSize {
            path: path.to_owned(),
            what: "keys",
            found: keys.len(),
            wanted,
            by: format!("--n {wanted}"),
        }),
        _ => Ok(keys),
    }
}

/// All runs in order, without the padding, on the first rank; none on the others. Collective.
///
/// # Errors
/// The errors of [`Job::gather`].
pub(super) fn gather(job: &Job, mine: &[i64], count: usize) -> Result<Vec<i64>> {
    let mut all = job.gather(FIRST, mine)?.unwrap_or_default();
    all.truncate(count);
    Ok(all)
}
