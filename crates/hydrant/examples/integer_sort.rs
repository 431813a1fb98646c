//! A parallel sort of integers, as the NAS benchmark IS does it: keys are counted by their high bits,
//! the counts say which keys each rank gets, and every rank sorts its own.
//!
//! `hydrant run -n 4 target/release/examples/integer_sort [KEYS A RANK]`

use hydrant::{Blocks, Error, Job, Op, Rank, Result};

/// Keys have so many bits.
const BITS: u32 = 20;
/// Keys are counted by so many of their high bits.
const HIGH: u32 = 10;

/// The keys of a rank. Of four numbers each the mean: most keys are in the middle.
fn keys(rank: Rank, count: usize) -> Vec<u32> {
    let mut state = u64::from(rank.0) + 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % (1 << BITS)
    };
    (0..count)
        .map(|_| (0..4).map(|_| next() / 4).sum())
        .collect()
}

/// Sorts so many keys from each rank: how many this rank has in the end, checked; and the seconds
/// that the sort took.
pub(crate) fn integer_sort(job: &Job, each: usize) -> Result<(usize, f64)> {
    let (ranks, keys) = (job.size() as usize, keys(job.rank(), each));
    job.barrier()?;
    let start = job.now();

    // How many keys have which high bits, everywhere.
    let bucket = |key: u32| (key >> (BITS - HIGH)) as usize;
    let mut counts = vec![0_u64; 1 << HIGH];
    keys.iter().for_each(|key| counts[bucket(*key)] += 1);
    let mut all = counts.clone();
    job.all_reduce(&mut all, Op::Sum)?;

    // Each rank gets neighbouring buckets, about equally many keys.
    let (mut owner, mut before) = (vec![0; all.len()], 0);
    for (owner, count) in owner.iter_mut().zip(&all) {
        *owner = (before * ranks as u64 / (ranks * each).max(1) as u64) as usize;
        before += count;
    }

    // The keys by their owners, who learn how many come from whom.
    let mut outgoing = vec![0; ranks];
    keys.iter()
        .for_each(|key| outgoing[owner[bucket(*key)]] += 1);
    let mut places: Vec<usize> = (0..ranks)
        .map(|rank| outgoing[..rank].iter().sum())
        .collect();
    let mut sorted = vec![0; each];
    for key in &keys {
        let place = &mut places[owner[bucket(*key)]];
        sorted[*place] = *key;
        *place += 1;
    }
    let incoming = job.all_to_all(
        &outgoing
            .iter()
            .map(|count| *count as u64)
            .collect::<Vec<_>>(),
    )?;
    let incoming: Vec<usize> = incoming.into_iter().map(|count| count as usize).collect();
    let mut mine = vec![0; incoming.iter().sum()];
    job.all_to_all_v_into(
        &sorted,
        Blocks::packed(&outgoing),
        &mut mine,
        Blocks::packed(&incoming),
    )?;
    mine.sort_unstable();
    let seconds = (job.now() - start).as_secs_f64();
    check(job, &keys, &mine)?;
    Ok((mine.len(), seconds))
}

/// Whether the keys of all ranks are in order, by rank, and the same as before.
fn check(job: &Job, before: &[u32], after: &[u32]) -> Result<()> {
    let wrong = |what: &str| Err(Error::other(what));
    if !after.is_sorted() {
        return wrong("the keys of a rank are not in order");
    }
    // The greatest key of the ranks before; where there are none, 0.
    let mut greatest = [after.last().copied().unwrap_or(0)];
    job.exclusive_scan(&mut greatest, Op::Max)?;
    if job.rank() != Rank(0) && after.first().is_some_and(|first| *first < greatest[0]) {
        return wrong("a rank before has a greater key");
    }
    // As many of each key's residues as before.
    let mut difference = vec![0_i64; 4099];
    before
        .iter()
        .for_each(|key| difference[*key as usize % 4099] += 1);
    after
        .iter()
        .for_each(|key| difference[*key as usize % 4099] -= 1);
    job.all_reduce(&mut difference, Op::Sum)?;
    match difference.iter().all(|count| *count == 0) {
        true => Ok(()),
        false => wrong("keys were lost or changed"),
    }
}

#[allow(dead_code)] // tests call what it calls
fn main() -> Result<()> {
    let each = std::env::args()
        .nth(1)
        .map_or(1 << 20, |count| count.parse().expect("a number"));
    hydrant::run_spmd(|job| {
        let (_, seconds) = integer_sort(job, each)?;
        let mut seconds = [seconds];
        job.all_reduce(&mut seconds, Op::Max)?;
        if job.rank() == Rank(0) {
            println!(
                "integer_sort: {} keys in {:.6} s",
                each * job.size() as usize,
                seconds[0]
            );
        }
        Ok(())
    })
}
