//! Long data, which goes from buffer to buffer where memory is registered and there is room, and in chunks where
//! not.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use hydrant::{Error, Job, JobBuilder, Op, Rank, Result, TeamRank};

use crate::support::builder;

/// Bytes around those from which on buffers are cleared, around those of a piece, and of several registrations.
const LENGTHS: [usize; 7] = [
    130_047, 130_048, 130_049, 260_096, 260_097, 1_000_003, 4_500_001,
];

/// With little to register, with some, and with much.
fn jobs() -> [JobBuilder; 3] {
    [64 << 10, 1 << 20, 64 << 20].map(|bytes| builder().heap(4 << 20).maxvictim(bytes))
}

fn run(n: u32, body: impl Fn(&Job) -> Result<()> + Sync) {
    for job in jobs() {
        (job.run_local(n, &body).into_iter()).for_each(Result::unwrap);
    }
}

/// What `rank` has in a turn. Word by word: tests have gigabytes of it.
fn bytes(rank: u32, turn: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let salt = u64::from(rank) * 77 + turn as u64;
    for (word, at) in bytes.chunks_mut(size_of::<u64>()).enumerate() {
        let value = (word as u64 + (salt << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        at.copy_from_slice(&(value ^ value >> 29).to_le_bytes()[..at.len()]);
    }
    bytes
}

/// Whether both are the same; what differs is not printed.
fn same(found: &[u8], expected: &[u8], what: &str, len: usize) {
    if found != expected {
        let differ = (found.iter().zip(expected)).position(|(found, expected)| found != expected);
        panic!("{what} of {len}: byte {differ:?} of {}", found.len());
    }
}

#[test_on(every)]
fn bytes_arrive_whole_wherever_they_go() {
    for n in [2, 3, 5] {
        run(n, |job| {
            let me = job.rank().0;
            for (turn, len) in LENGTHS.into_iter().enumerate() {
                let root = Rank(turn as u32 % n);
                let mine = bytes(me, turn, len);
                let mut data = mine.clone();
                job.broadcast(root, &mut data)?;
                same(&data, &bytes(root.0, turn, len), "broadcast", len);
                let blocks = |of: &dyn Fn(u32) -> u32| -> Vec<u8> {
                    let blocks: Vec<_> = (0..n).map(|rank| bytes(of(rank), turn, len)).collect();
                    blocks.concat()
                };
                let all = blocks(&|rank| rank);
                if let Some(gathered) = job.gather(root, &mine)? {
                    same(&gathered, &all, "gather", len);
                }
                same(&job.all_gather(&mine)?, &all, "all-gather", len);
                let parts = (root == job.rank()).then_some(&all[..]);
                data.fill(0);
                job.scatter(root, parts, &mut data)?;
                same(&data, &mine, "scatter", len);
                let given = blocks(&|to| me * n + to);
                let come = blocks(&|from| from * n + me);
                same(&job.all_to_all(&given)?, &come, "all-to-all", len);
            }
            Ok(())
        });
    }
}

/// Three words, which no chunk and no piece holds a whole number of.
type Three = [u64; 3];

/// Neither commutative, nor the same whichever is combined first with words left out.
fn joined(left: Three, right: Three) -> Three {
    std::array::from_fn(|index| left[index].wrapping_mul(31).wrapping_add(right[index]))
}

fn three(rank: u32, index: usize) -> Three {
    let seed = (u64::from(rank) << 32) + index as u64;
    [seed, seed.wrapping_mul(0x9e37_79b9), !seed]
}

#[test_on(every)]
fn elements_that_fit_no_chunk_are_folded_whole() {
    for n in [2, 3, 4] {
        run(n, |job| {
            let (me, last) = (job.rank().0, n - 1);
            for len in [5418, 5419, 10_838, 45_000] {
                let up_to = |rank: u32, index| {
                    let all = (0..=rank).map(|rank| three(rank, index));
                    all.reduce(joined).expect("one at least")
                };
                let expected =
                    |rank| -> Vec<Three> { (0..len).map(|index| up_to(rank, index)).collect() };
                let mine: Vec<Three> = (0..len).map(|index| three(me, index)).collect();
                for root in [Rank(0), Rank(last)] {
                    let reduced = job.reduce_with(root, &mine, joined)?;
                    assert_eq!(reduced.is_some(), root == job.rank());
                    let right = reduced.is_none_or(|reduced| reduced == expected(last));
                    assert!(right, "reduce to {root} of {len}");
                }
                let mut data = mine.clone();
                job.scan_with(&mut data, joined)?;
                assert!(data == expected(me), "scan of {len}");
                let mut data = mine.clone();
                job.exclusive_scan_with(&mut data, [7; 3], joined)?;
                let before = me.checked_sub(1).map_or(vec![[7; 3]; len], expected);
                assert!(data == before, "exclusive scan of {len}");
                let mut data = mine;
                job.all_reduce_with(&mut data, joined)?;
                assert!(data == expected(last), "all-reduce of {len}");
            }
            Ok(())
        });
    }
}

/// In the background, beside one another on two teams and beside a put that wants registered memory as well.
#[test_on(every)]
fn long_ones_go_on_beside_each_other() {
    run(4, |job| {
        let (me, n) = (job.rank().0, job.size());
        let half = job.world().split(Some(me % 2), 0)?.expect("a member");
        let place = job.alloc::<u8>(700_000)?;
        for turn in 0..3 {
            let world = job.all_gather_nb(bytes(me, turn, 300_000))?;
            let sums = half.all_reduce_nb(vec![u64::from(me) + 1; 100_000], Op::Sum)?;
            place.put(job.right(), 0, &bytes(me, turn, 700_000))?;
            job.barrier()?;
            let left = (me + n - 1) % n;
            same(
                &place.local()?.to_vec(),
                &bytes(left, turn, 700_000),
                "put",
                700_000,
            );
            // Before the next turn's is put there.
            job.barrier()?;
            let expected = u64::from(me % 2) * 2 + 4;
            assert!(sums.wait()?.iter().all(|sum| *sum == expected));
            let all: Vec<u8> = (0..n).flat_map(|rank| bytes(rank, turn, 300_000)).collect();
            same(&world.wait()?, &all, "all-gather", 300_000);
        }
        Ok(())
    });
}

/// A rank ends in the midst of a collective of two, whose data goes when it leaves or was asked for: the other is in
/// a collective with a third rank meanwhile.
#[test_on(every)]
fn a_rank_that_ends_leaves_nobody_waiting() {
    const LEN: usize = 200_000;
    for sends in [true, false] {
        let done = AtomicU32::new(0);
        let ends = builder().heap(4 << 20).maxvictim(64 << 20).service(false);
        let ends = ends.run_local(4, |job| {
            let me = job.rank().0;
            let with_2 = job.world().split((me % 2 == 0).then_some(0), 0)?;
            let with_3 = job.world().split((me % 3 == 0).then_some(0), 0)?;
            job.barrier()?;
            let (with_2, with_3) = match (with_2, with_3) {
                (None, None) => return Ok(()),
                both => both,
            };
            let root = TeamRank(u32::from(sends));
            match (me, with_2, with_3) {
                (0, Some(with_2), Some(with_3)) => {
                    // So that its buffer is cleared while the other does nothing.
                    thread::sleep(Duration::from_millis(100));
                    let (other, mut data) = (vec![3_u8; LEN], vec![0; LEN]);
                    let begun = with_3.broadcast_nb(root, other)?;
                    with_2.broadcast(TeamRank(1), &mut data)?;
                    same(&data, &vec![7; LEN], "broadcast", LEN);
                    // Whether it had come is a matter of time.
                    let _ = begun.wait();
                }
                (2, Some(with_2), _) => {
                    let begun = with_2.broadcast_nb(TeamRank(1), vec![7_u8; LEN])?;
                    thread::sleep(Duration::from_millis(1000));
                    begun.wait()?;
                }
                (3, _, Some(with_3)) => {
                    let begun = with_3.broadcast_nb(root, vec![9_u8; LEN])?;
                    thread::sleep(Duration::from_millis(300));
                    std::mem::forget(begun);
                    return Err(Error::other("had enough"));
                }
                _ => {}
            }
            done.fetch_add(1, Relaxed);
            Ok(())
        });
        assert!(ends.iter().all(|end| end.is_err()), "the third ended");
        assert_eq!(done.into_inner(), 2, "{ends:?}");
    }
}

/// Looks after messages for so many milliseconds.
fn poll_for(job: &Job, millis: u64) {
    let begins = Instant::now();
    while begins.elapsed() < Duration::from_millis(millis) {
        job.poll();
        thread::yield_now();
    }
}

/// Two buffers that share a page, the second behind the first, if there are any.
fn neighbours(len: usize) -> (Vec<u64>, Vec<u64>) {
    // The system's C library takes no mapping of its own for less than this afterwards.
    drop(std::hint::black_box(vec![1_u8; 30 << 20]));
    let mut all: Vec<Vec<u64>> = (0..8).map(|_| vec![1; len]).collect();
    let page = |addr: usize| addr >> 12;
    let last = |buffer: &Vec<u64>| page(buffer.as_ptr().addr() + 8 * len - 1);
    let pair = (0..8).find_map(|first| {
        let behind = |second: &usize| page(all[*second].as_ptr().addr()) == last(&all[first]);
        let second = (0..8).filter(|second| *second != first).find(behind)?;
        Some((first, second))
    });
    let (first, second) = pair.unwrap_or((0, 1));
    (
        std::mem::take(&mut all[first]),
        std::mem::take(&mut all[second]),
    )
}

/// A member that folds for long while another has cleared its buffer for what comes after, and a third ends.
#[test_on(every)]
fn what_failed_is_given_up_in_the_midst_of_another() {
    const LEN: usize = 50_000;
    let done = AtomicU32::new(0);
    let ends = builder().heap(4 << 20).maxvictim(64 << 20).service(false);
    let ends = ends.run_local(4, |job| {
        let me = job.rank().0;
        let two = job.world().split((me % 2 == 0).then_some(0), 0)?;
        let three = job.world().split((me != 1).then_some(0), (5 - me) % 5)?;
        job.barrier()?;
        match (me, two, three) {
            (0, Some(two), Some(three)) => {
                let (sums, mut data) = neighbours(LEN);
                let begun = three.all_reduce_with_nb(sums, |left, right| left + right)?;
                poll_for(job, 300);
                two.broadcast(TeamRank(1), &mut data)?;
                assert!(data == [7; LEN]);
                assert!(matches!(begun.wait(), Err(Error::PeerLost(_))));
            }
            (2, Some(two), Some(three)) => {
                let folds = AtomicBool::new(false);
                let begun = two.broadcast_nb(TeamRank(1), vec![7_u64; LEN])?;
                let sums = three.all_reduce_with_nb(vec![1_u64; LEN], move |left, right| {
                    if !folds.swap(true, Relaxed) {
                        thread::sleep(Duration::from_millis(1500));
                    }
                    left + right
                })?;
                assert!(matches!(sums.wait(), Err(Error::PeerLost(_))));
                begun.wait()?;
            }
            (3, _, Some(three)) => {
                let begun =
                    three.all_reduce_with_nb(vec![1_u64; LEN], |left, right| left + right)?;
                poll_for(job, 700);
                drop(begun);
                return Err(Error::other("had enough"));
            }
            _ => return Ok(()),
        }
        done.fetch_add(1, Relaxed);
        Ok(())
    });
    assert!(ends.iter().all(|end| end.is_err()), "the third ended");
    assert_eq!(done.into_inner(), 2, "{ends:?}");
}
