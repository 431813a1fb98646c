//! Collectives at random, on random teams, against the serial answer.

use hydrant::{Blocks, Job, Op, Rank, Result, Team, TeamRank};
use proptest::prelude::*;

use super::outcomes;

/// One collective of all members of a team; what it is done with follows from the rank.
#[derive(Debug, Clone)]
enum Step {
    Barrier(Option<u64>),
    Broadcast { root: u32, len: usize },
    Gather { root: u32, len: usize },
    AllGather { len: usize },
    Scatter { root: u32, len: usize },
    AllToAll { len: usize },
    AllToAllV { len: usize },
    Blocks { root: u32, len: usize },
    ReduceScatter { len: usize },
    Reduce { root: u32, len: usize },
    AllReduce { len: usize },
    Scan { len: usize },
    ExclusiveScan { len: usize },
}

/// What a program does: split the world by these colors and keys, then the steps, each on
/// the world or on the team.
#[derive(Debug, Clone)]
struct Program {
    colors: Vec<Option<u32>>,
    keys: Vec<u32>,
    steps: Vec<(bool, Step)>,
}

fn length() -> impl Strategy<Value = usize> {
    // Around the most that is piggybacked on the agreement, and around a chunk.
    prop_oneof![
        0..40_usize,
        100..300_usize,
        500..1100_usize,
        1500..2600_usize,
        10_000..10_100_usize
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let rooted = || (any::<u32>(), length());
    prop_oneof![
        prop::option::of(0..5_u64).prop_map(Step::Barrier),
        rooted().prop_map(|(root, len)| Step::Broadcast { root, len }),
        rooted().prop_map(|(root, len)| Step::Gather { root, len }),
        length().prop_map(|len| Step::AllGather { len }),
        rooted().prop_map(|(root, len)| Step::Scatter { root, len }),
        length().prop_map(|len| Step::AllToAll { len }),
        length().prop_map(|len| Step::AllToAllV { len }),
        rooted().prop_map(|(root, len)| Step::Blocks { root, len }),
        length().prop_map(|len| Step::ReduceScatter { len }),
        rooted().prop_map(|(root, len)| Step::Reduce { root, len }),
        length().prop_map(|len| Step::AllReduce { len }),
        length().prop_map(|len| Step::Scan { len }),
        length().prop_map(|len| Step::ExclusiveScan { len }),
    ]
}

fn program() -> impl Strategy<Value = Program> {
    (1..9_usize).prop_flat_map(|ranks| {
        let colors = prop::collection::vec(prop::option::weighted(0.8, 0..3_u32), ranks);
        let keys = prop::collection::vec(0..3_u32, ranks);
        let steps = prop::collection::vec((any::<bool>(), step()), 1..60);
        (colors, keys, steps).prop_map(|(colors, keys, steps)| Program {
            colors,
            keys,
            steps,
        })
    })
}

/// What member m has at index i in step s.
fn value(step: usize, member: usize, index: usize) -> u64 {
    let mixed = (step as u64 * 1_000_003 + member as u64 * 7919 + index as u64) ^ 0x9e37_79b9;
    mixed.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

fn values(step: usize, member: usize, len: usize) -> Vec<u64> {
    (0..len).map(|index| value(step, member, index)).collect()
}

fn sum(step: usize, members: std::ops::Range<usize>, len: usize) -> Vec<u64> {
    (0..len)
        .map(|i| {
            members
                .clone()
                .fold(0, |sum: u64, m| sum.wrapping_add(value(step, m, i)))
        })
        .collect()
}

fn perform(team: &Team, number: usize, step: &Step) -> Result<()> {
    let (n, me) = (team.size() as usize, team.rank().index());
    let root_of = |root: u32| TeamRank(root % team.size());
    let at_root = |root: u32| root_of(root) == team.rank();
    let concat = |len| {
        (0..n)
            .flat_map(|member| values(number, member, len))
            .collect::<Vec<_>>()
    };
    match *step {
        Step::Barrier(name) => {
            // Some name it, some do not.
            let name = name.filter(|name| (me as u64 + name).is_multiple_of(2));
            team.notify(name)?;
            team.wait(name)?;
        }
        Step::Broadcast { root, len } => {
            let mut data = values(number, me, len);
            team.broadcast(root_of(root), &mut data)?;
            assert_eq!(data, values(number, root_of(root).index(), len));
        }
        Step::Gather { root, len } => {
            let all = team.gather(root_of(root), &values(number, me, len))?;
            assert_eq!(all, at_root(root).then(|| concat(len)));
        }
        Step::AllGather { len } => {
            assert_eq!(team.all_gather(&values(number, me, len))?, concat(len));
        }
        Step::Scatter { root, len } => {
            let all = at_root(root).then(|| concat(len));
            let mut part = vec![0; len];
            team.scatter(root_of(root), all.as_deref(), &mut part)?;
            assert_eq!(part, values(number, me, len));
        }
        Step::AllToAll { len } => {
            let parts: Vec<u64> = (0..n)
                .flat_map(|to| values(number, me * n + to, len))
                .collect();
            let expected: Vec<u64> = (0..n)
                .flat_map(|from| values(number, from * n + me, len))
                .collect();
            assert_eq!(team.all_to_all(&parts)?, expected);
        }
        Step::AllToAllV { len } => {
            let len = |from: usize, to: usize| len * ((from + 3 * to + number) % 4) / 3;
            let parts: Vec<_> = (0..n)
                .map(|to| values(number, me * n + to, len(me, to)))
                .collect();
            let expected: Vec<_> = (0..n)
                .map(|from| values(number, from * n + me, len(from, me)))
                .collect();
            assert_eq!(team.all_to_all_v(&parts)?, expected);
        }
        Step::Blocks { root, len } => {
            // Scattered, gathered, and gathered by all, with gaps that differ from step to step.
            let counts: Vec<_> = (0..n).map(|m| len * ((m + number) % 4) / 3).collect();
            let gap = number % 3;
            let displacements: Vec<_> = (0..n)
                .map(|m| gap * (m + 1) + counts[..m].iter().sum::<usize>())
                .collect();
            let blocks = Blocks::at(&counts, &displacements);
            let mut all = vec![1; gap * (n + 1) + counts.iter().sum::<usize>()];
            for member in 0..n {
                let block = &mut all[displacements[member]..][..counts[member]];
                block.copy_from_slice(&values(number, member, counts[member]));
            }
            let mut part = vec![0; counts[me]];
            let given = at_root(root).then_some((all.as_slice(), blocks));
            team.scatter_v(root_of(root), given, &mut part)?;
            assert_eq!(part, values(number, me, counts[me]));
            let mut into = vec![1; all.len()];
            let room = at_root(root).then_some((into.as_mut_slice(), blocks));
            team.gather_v_into(root_of(root), &part, room)?;
            assert!(!at_root(root) || into == all);
            let mut into = vec![1; all.len()];
            team.all_gather_v_into(&part, &mut into, blocks)?;
            assert_eq!(into, all);
        }
        Step::ReduceScatter { len } => {
            let counts: Vec<_> = (0..n).map(|m| len * ((m + number) % 3) / 2).collect();
            let before = counts[..me].iter().sum::<usize>();
            let total = counts.iter().sum();
            let mut part = vec![0; counts[me]];
            team.reduce_scatter_v(&values(number, me, total), &counts, &mut part, Op::Sum)?;
            assert_eq!(part, sum(number, 0..n, total)[before..][..counts[me]]);
        }
        Step::Reduce { root, len } => {
            let reduced = team.reduce(root_of(root), &values(number, me, len), Op::Sum)?;
            assert_eq!(reduced, at_root(root).then(|| sum(number, 0..n, len)));
        }
        Step::AllReduce { len } => {
            let mut data = values(number, me, len);
            team.all_reduce(&mut data, Op::Sum)?;
            assert_eq!(data, sum(number, 0..n, len));
        }
        Step::Scan { len } => {
            let mut data = values(number, me, len);
            team.scan(&mut data, Op::Sum)?;
            assert_eq!(data, sum(number, 0..me + 1, len));
        }
        Step::ExclusiveScan { len } => {
            let mut data = values(number, me, len);
            team.exclusive_scan(&mut data, Op::Sum)?;
            assert_eq!(data, sum(number, 0..me, len));
        }
    }
    Ok(())
}

fn follow(job: &Job, program: &Program) -> Result<()> {
    let me = job.rank().index();
    let team = job.world().split(program.colors[me], program.keys[me])?;
    let mut expected: Vec<Rank> = job
        .ranks()
        .filter(|rank| program.colors[rank.index()] == program.colors[me])
        .collect();
    expected.sort_by_key(|rank| program.keys[rank.index()]);
    match &team {
        Some(team) => assert_eq!(team.members(), expected),
        None => assert_eq!(program.colors[me], None),
    }
    for (number, (on_world, step)) in program.steps.iter().enumerate() {
        match &team {
            _ if *on_world => perform(job.world(), number, step)?,
            Some(team) => perform(team, number, step)?,
            None => {}
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test_on(every)]
    fn any_program_gives_the_serial_answer(program in program()) {
        for end in outcomes(program.colors.len() as u32, |job| follow(job, &program)) {
            end.unwrap();
        }
    }
}
