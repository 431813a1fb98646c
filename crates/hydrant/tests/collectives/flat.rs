//! Collectives on buffers of the caller's, against the serial answer.

use hydrant::{Blocks, Job, Op, Rank, Result};

use super::{SIZES, run};

/// Those of 3 and 4 are around what is told in the agreement itself, those of 512 and 513 around the most that is piggybacked on it.
const LENGTHS: [usize; 9] = [0, 1, 3, 4, 90, 512, 513, 3000, 40_000];

/// What rank r has at index i.
fn value(rank: usize, index: usize) -> u64 {
    (rank as u64 * 1_000_003 + index as u64).wrapping_mul(0x2545_f491_4f6c_dd1d)
}

fn values(rank: usize, len: usize) -> Vec<u64> {
    (0..len).map(|index| value(rank, index)).collect()
}

/// What no rank gives, to see what is left as it was.
const UNTOUCHED: u64 = 77;
/// Elements between blocks.
const GAP: usize = 3;

/// Displacements of blocks in an order of their own, with gaps before, between and behind them; and
/// the length of a buffer for them.
fn spread(counts: &[usize]) -> (Vec<usize>, usize) {
    let (mut displacements, mut end) = (vec![0; counts.len()], GAP);
    for member in (0..counts.len()).rev() {
        displacements[member] = end;
        end += counts[member] + GAP;
    }
    (displacements, end)
}

/// A buffer with these blocks, and gaps between them.
fn filled(displacements: &[usize], len: usize, blocks: &[Vec<u64>]) -> Vec<u64> {
    let mut buffer = vec![UNTOUCHED; len];
    for (displacement, block) in displacements.iter().zip(blocks) {
        buffer[*displacement..][..block.len()].copy_from_slice(block);
    }
    buffer
}

fn even(job: &Job, len: usize) -> Result<()> {
    let (n, me) = (job.size() as usize, job.rank().index());
    let mine = values(me, len);
    let all: Vec<u64> = (0..n).flat_map(|rank| values(rank, len)).collect();
    let mut into = vec![UNTOUCHED; n * len];
    job.all_gather_into(&mine, &mut into)?;
    assert_eq!(into, all, "all_gather_into of {len}");
    let mut data = vec![UNTOUCHED; n * len];
    data[me * len..][..len].copy_from_slice(&mine);
    job.all_gather_in_place(&mut data)?;
    assert_eq!(data, all, "all_gather_in_place of {len}");
    for root in job.ranks() {
        let mut into = vec![UNTOUCHED; n * len];
        let place = (root == job.rank()).then_some(into.as_mut_slice());
        job.gather_into(root, &mine, place)?;
        if root == job.rank() {
            assert_eq!(into, all, "gather_into of {len}");
        }
    }
    let parts: Vec<u64> = (0..n).flat_map(|to| values(me * n + to, len)).collect();
    let expected: Vec<u64> = (0..n).flat_map(|from| values(from * n + me, len)).collect();
    let mut into = vec![UNTOUCHED; n * len];
    job.all_to_all_into(&parts, &mut into)?;
    assert_eq!(into, expected, "all_to_all_into of {len}");
    let mut data = parts;
    job.all_to_all_in_place(&mut data)?;
    assert_eq!(data, expected, "all_to_all_in_place of {len}");
    Ok(())
}

fn uneven(job: &Job, len: usize) -> Result<()> {
    let (n, me) = (job.size() as usize, job.rank().index());
    // Nothing from some.
    let count = |rank: usize| len * ((rank + 1) % 3) / 2;
    let counts: Vec<usize> = (0..n).map(count).collect();
    let (displacements, room) = spread(&counts);
    let blocks = Blocks::at(&counts, &displacements);
    let each: Vec<_> = (0..n).map(|rank| values(rank, count(rank))).collect();
    let expected = filled(&displacements, room, &each);
    let mut into = vec![UNTOUCHED; room];
    job.all_gather_v_into(&each[me], &mut into, blocks)?;
    assert_eq!(into, expected, "all_gather_v_into of {len}");
    let mut into = vec![UNTOUCHED; each.concat().len() + 1];
    job.all_gather_v_into(&each[me], &mut into, Blocks::packed(&counts))?;
    assert_eq!(into, [each.concat(), vec![UNTOUCHED]].concat(), "packed");
    for root in job.ranks() {
        let mut into = vec![UNTOUCHED; room];
        let at_root = root == job.rank();
        let place = at_root.then_some((into.as_mut_slice(), blocks));
        job.gather_v_into(root, &each[me], place)?;
        if at_root {
            assert_eq!(into, expected, "gather_v_into of {len}");
        }
        let mut mine = vec![UNTOUCHED; counts[me]];
        let given = at_root.then_some((expected.as_slice(), blocks));
        job.scatter_v(root, given, &mut mine)?;
        assert_eq!(mine, each[me], "scatter_v of {len}");
    }
    Ok(())
}

fn exchanges(job: &Job, len: usize) -> Result<()> {
    let (n, me) = (job.size() as usize, job.rank().index());
    let count = |from: usize, to: usize| len * ((from + 2 * to) % 3) / 2;
    let given: Vec<_> = (0..n)
        .map(|to| values(me * n + to, count(me, to)))
        .collect();
    let wanted: Vec<_> = (0..n)
        .map(|from| values(from * n + me, count(from, me)))
        .collect();
    let counts: Vec<usize> = given.iter().map(Vec::len).collect();
    let (displacements, from_len) = spread(&counts);
    let from = filled(&displacements, from_len, &given);
    let into_counts: Vec<usize> = wanted.iter().map(Vec::len).collect();
    let (into_displacements, into_len) = spread(&into_counts);
    let mut into = vec![UNTOUCHED; into_len];
    let into_blocks = Blocks::at(&into_counts, &into_displacements);
    let from_blocks = Blocks::at(&counts, &displacements);
    job.all_to_all_v_into(&from, from_blocks, &mut into, into_blocks)?;
    assert_eq!(
        into,
        filled(&into_displacements, into_len, &wanted),
        "all_to_all_v_into of {len}"
    );
    Ok(())
}

fn reduces(job: &Job, len: usize) -> Result<()> {
    let (n, me) = (job.size() as usize, job.rank().index());
    let sum = |len: usize| -> Vec<u64> {
        let sum_at = |index| (0..n).fold(0_u64, |sum, rank| sum.wrapping_add(value(rank, index)));
        (0..len).map(sum_at).collect()
    };
    let root = Rank((len % n) as u32);
    let mine = values(me, len);
    let expected = if root == job.rank() {
        sum(len)
    } else {
        mine.clone()
    };
    let mut data = mine.clone();
    job.reduce_in_place(root, &mut data, Op::Sum)?;
    assert_eq!(data, expected, "reduce_in_place of {len}");
    let mut data = mine;
    job.reduce_in_place_with(root, &mut data, u64::wrapping_add)?;
    assert_eq!(data, expected, "reduce_in_place_with of {len}");

    let data = values(me, n * len);
    let expected = &sum(n * len)[me * len..][..len];
    let mut part = vec![UNTOUCHED; len];
    job.reduce_scatter(&data, &mut part, Op::Sum)?;
    assert_eq!(part, expected, "reduce_scatter of {len}");
    let mut part = vec![UNTOUCHED; len];
    job.reduce_scatter_with(&data, &mut part, u64::wrapping_add)?;
    assert_eq!(part, expected, "reduce_scatter_with of {len}");

    let counts: Vec<usize> = (0..n).map(|rank| len * ((rank + 1) % 3)).collect();
    let before: usize = counts[..me].iter().sum();
    let total = counts.iter().sum();
    let data = values(me, total);
    let expected = &sum(total)[before..][..counts[me]];
    let mut part = vec![UNTOUCHED; counts[me]];
    job.reduce_scatter_v(&data, &counts, &mut part, Op::Sum)?;
    assert_eq!(part, expected, "reduce_scatter_v of {len}");
    let mut part = vec![UNTOUCHED; counts[me]];
    job.reduce_scatter_v_with(&data, &counts, &mut part, u64::wrapping_add)?;
    assert_eq!(part, expected, "reduce_scatter_v_with of {len}");
    Ok(())
}

#[test_on(every)]
fn buffers_of_the_callers_hold_the_serial_answer() {
    for n in SIZES {
        run(n, |job| {
            for len in LENGTHS {
                even(job, len)?;
                uneven(job, len)?;
                exchanges(job, len)?;
                reduces(job, len)?;
            }
            Ok(())
        });
    }
}

/// Each rank calls another form of the same collective.
#[test_on(every)]
fn forms_may_be_mixed() {
    run(3, |job| {
        for len in [2, 30_000] {
            let me = job.rank().index();
            let mine = values(me, len);
            let all: Vec<u64> = (0..3).flat_map(|rank| values(rank, len)).collect();
            let mut into = vec![0; 3 * len];
            match me {
                0 => into = job.all_gather(&mine)?,
                1 => job.all_gather_into(&mine, &mut into)?,
                _ => {
                    into[me * len..].copy_from_slice(&mine);
                    job.all_gather_in_place(&mut into)?;
                }
            }
            assert_eq!(into, all);
            match me {
                0 => drop(job.gather(Rank(1), &mine)?),
                _ => job.gather_into(Rank(1), &mine, Some(&mut into))?,
            }
            assert_eq!(into, all);
            match me {
                0 => into = job.all_to_all(&all)?,
                1 => job.all_to_all_into(&all, &mut into)?,
                _ => job.all_to_all_in_place(&mut into)?,
            }
            assert_eq!(into, values(me, len).repeat(3));
            let counts = [len; 3];
            let blocks = Blocks::packed(&counts);
            match me {
                0 => {
                    let parts: Vec<_> = all.chunks(len).map(<[u64]>::to_vec).collect();
                    into = job.all_to_all_v(&parts)?.concat();
                }
                _ => job.all_to_all_v_into(&all, blocks, &mut into, blocks)?,
            }
            assert_eq!(into, values(me, len).repeat(3));
            let sum = match me {
                0 => job.reduce(Rank(0), &vec![1; len], Op::Sum)?,
                _ => {
                    let mut data = vec![1; len];
                    job.reduce_in_place(Rank(0), &mut data, Op::Sum)?;
                    assert_eq!(data, vec![1; len]);
                    None
                }
            };
            assert_eq!(sum, (me == 0).then(|| vec![3; len]));
        }
        Ok(())
    });
}
