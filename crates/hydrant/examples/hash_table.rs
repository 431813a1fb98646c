//! A hash table over all ranks: every rank counts keys, wherever they belong, by atomic operations
//! on the slots alone.
//!
//! A slot is a key and a count. Who finds a slot free claims it by compare-and-swap; who finds
//! another's key goes on to the next one.
//!
//! `hydrant run -n 4 target/release/examples/hash_table [KEYS A RANK]`

use std::collections::HashMap;

use hydrant::{Error, Job, Op, Rank, Result, Symmetric};

/// Mixes the bits of a number (splitmix64).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// The keys that a rank counts: some come often. None is zero, which a free slot holds.
fn keys(rank: Rank, count: usize, ranks: u32) -> impl Iterator<Item = u64> {
    let different = (count as u64 * u64::from(ranks)) / 4 + 1;
    (0..count as u64).map(move |at| 1 + mix(u64::from(rank.0) << 40 | at) % different)
}

/// The slots, of which each rank has equally many.
struct Table {
    keys: Symmetric<u64>,
    counts: Symmetric<u64>,
    ranks: u64,
}

impl Table {
    fn new(job: &Job, slots: usize) -> Result<Self> {
        let each = slots.div_ceil(job.size() as usize);
        Ok(Self {
            keys: job.alloc(each)?,
            counts: job.alloc(each)?,
            ranks: job.size().into(),
        })
    }

    /// Where to look for a key, in order.
    fn places(&self, key: u64) -> impl Iterator<Item = (Rank, usize)> + use<> {
        let (ranks, first) = (self.ranks, mix(key));
        let slots = self.keys.len() as u64 * ranks;
        (0..slots).map(move |step| {
            let slot = (first % slots + step) % slots;
            (Rank((slot % ranks) as u32), (slot / ranks) as usize)
        })
    }

    /// Counts a key.
    fn count(&self, key: u64) -> Result<()> {
        for (rank, slot) in self.places(key) {
            let found = match self.keys.atomic_load(rank, slot)? {
                0 => self.keys.compare_swap(rank, slot, 0, key)?,
                found => found,
            };
            if found == 0 || found == key {
                return self.counts.add(rank, slot, 1);
            }
        }
        Err(Error::other("the table is full"))
    }

    /// How often a key was counted.
    fn get(&self, key: u64) -> Result<u64> {
        for (rank, slot) in self.places(key) {
            match self.keys.atomic_load(rank, slot)? {
                0 => return Ok(0),
                found if found == key => return self.counts.atomic_load(rank, slot),
                _ => {}
            }
        }
        Ok(0)
    }
}

/// Counts so many keys from each rank: how many different ones there are, checked against a table of
/// one rank; and the seconds that counting took.
pub(crate) fn hash_table(job: &Job, each: usize) -> Result<(usize, f64)> {
    let table = Table::new(job, each * job.size() as usize)?;
    job.barrier()?;
    let start = job.now();
    for key in keys(job.rank(), each, job.size()) {
        table.count(key)?;
    }
    job.barrier()?;
    let seconds = (job.now() - start).as_secs_f64();

    let mut serial = HashMap::new();
    for rank in job.ranks() {
        keys(rank, each, job.size()).for_each(|key| *serial.entry(key).or_insert(0) += 1);
    }
    // Each rank looks up a share of them, and what is not there.
    for (key, right) in &serial {
        if key % u64::from(job.size()) == u64::from(job.rank().0) {
            let count = table.get(*key)?;
            if count != *right {
                return Err(Error::other(format!(
                    "key {key} was counted {count} times, not {right}"
                )));
            }
        }
    }
    if table.get(u64::MAX)? != 0 {
        return Err(Error::other("a key that nobody counted is there"));
    }
    let mut used = [table
        .keys
        .local()?
        .to_vec()
        .iter()
        .filter(|key| **key != 0)
        .count() as u64];
    job.all_reduce(&mut used, Op::Sum)?;
    if used[0] != serial.len() as u64 {
        return Err(Error::other(format!(
            "{} slots for {} keys",
            used[0],
            serial.len()
        )));
    }
    job.free(table.keys)?;
    job.free(table.counts)?;
    Ok((serial.len(), seconds))
}

#[allow(dead_code)] // tests call what it calls
fn main() -> Result<()> {
    let each = std::env::args()
        .nth(1)
        .map_or(200_000, |count| count.parse().expect("a number"));
    hydrant::run_spmd(|job| {
        let (different, seconds) = hash_table(job, each)?;
        let mut seconds = [seconds];
        job.all_reduce(&mut seconds, Op::Max)?;
        if job.rank() == Rank(0) {
            println!(
                "hash_table: {different} different keys in {:.6} s",
                seconds[0]
            );
        }
        Ok(())
    })
}
