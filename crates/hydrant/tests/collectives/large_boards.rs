//! Two ranks, whose boards are large: streams that begin at ever other slots, and go around more than once.

use hydrant::{Job, Rank, Result};

use super::run;

/// In one slot, in some, in a part of the board, around it more than once.
const LENGTHS: [usize; 5] = [513, 5_000, 20_000, 70_000, 300_000];

fn value(rank: usize, turn: usize, index: usize) -> u64 {
    (rank * 7_919 + turn * 104_729 + index) as u64 ^ 0x5bd1_e995
}

fn values(rank: usize, turn: usize, len: usize) -> Vec<u64> {
    (0..len).map(|index| value(rank, turn, index)).collect()
}

/// The order matters.
fn joined(left: u64, right: u64) -> u64 {
    left.wrapping_mul(3).wrapping_add(right)
}

fn each(job: &Job, turn: usize, len: usize) -> Result<()> {
    let (me, root) = (job.rank().index(), Rank(turn as u32 % 2));
    let mine = values(me, turn, len);
    let both: Vec<u64> = (0..len)
        .map(|index| joined(value(0, turn, index), value(1, turn, index)))
        .collect();
    let what = |what: &str| format!("{what} of {len}, turn {turn}");

    let mut data = mine.clone();
    job.all_reduce_with(&mut data, joined)?;
    assert!(data == both, "{}", what("all_reduce"));

    let reduced = job.reduce_with(root, &mine, joined)?;
    assert_eq!(reduced.is_some(), job.rank() == root);
    assert!(
        reduced.is_none_or(|reduced| reduced == both),
        "{}",
        what("reduce")
    );

    let mut data = mine.clone();
    job.scan_with(&mut data, joined)?;
    let right = if me == 0 { &mine } else { &both };
    assert!(data == *right, "{}", what("scan"));

    let mut data = mine.clone();
    job.broadcast(root, &mut data)?;
    assert!(
        data == values(root.index(), turn, len),
        "{}",
        what("broadcast")
    );

    let all: Vec<u64> = (0..2).flat_map(|rank| values(rank, turn, len)).collect();
    let mut into = vec![0; 2 * len];
    job.all_gather_into(&mine, &mut into)?;
    assert!(into == all, "{}", what("all_gather"));

    let mut into = vec![0; 2 * len];
    job.gather_into(root, &mine, (job.rank() == root).then_some(&mut into))?;
    assert!(job.rank() != root || into == all, "{}", what("gather"));

    let mut part = vec![0; len];
    job.scatter(root, (job.rank() == root).then_some(&all), &mut part)?;
    assert!(part == mine, "{}", what("scatter"));
    Ok(())
}

#[test_on(every)]
fn streams_arrive_whole_wherever_they_begin() {
    run(2, |job| {
        (0..12).try_for_each(|turn| LENGTHS.iter().try_for_each(|len| each(job, turn, *len)))
    });
}
