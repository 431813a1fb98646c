//! Teams by split.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use hydrant::{Error, Job, Level, Op, Rank, Result, Section, Signal, Team, TeamRank};

use super::{SIZES, run};

/// The sum over a team of the ranks of the job.
fn sum_of_ranks(team: &Team, own: Rank) -> u32 {
    let mut sum = [own.0];
    team.all_reduce(&mut sum, Op::Sum).unwrap();
    sum[0]
}

#[test_on(every)]
fn members_are_those_of_a_color_by_key() {
    for n in SIZES {
        run(n, |job| {
            // Reversed keys: the last rank comes first.
            let team = job
                .world()
                .split(Some(job.rank().0 % 2), n - job.rank().0)?
                .unwrap();
            let mut expected: Vec<Rank> = job
                .ranks()
                .filter(|rank| rank.0 % 2 == job.rank().0 % 2)
                .collect();
            expected.reverse();
            assert_eq!(team.members(), expected);
            assert_eq!(expected[team.rank().index()], job.rank());
            assert_eq!(team.size() as usize, expected.len());
            let ranks = team.all_gather(&[job.rank()])?;
            assert_eq!(ranks, expected);
            assert_eq!(
                sum_of_ranks(&team, job.rank()),
                expected.iter().map(|rank| rank.0).sum::<u32>()
            );
            // The root counts in the team.
            let mut data = [job.rank()];
            team.broadcast(TeamRank(0), &mut data)?;
            assert_eq!(data[0], expected[0]);
            Ok(())
        });
    }
}

#[test_on(every)]
fn ranks_of_the_job_and_of_a_team_lead_to_each_other() {
    for n in SIZES {
        run(n, |job| {
            let own = job.rank().0;
            // Reversed keys: all but the one in the middle have another number in the team.
            let team = job.world().split(Some(own % 2), n - own)?.unwrap();
            for (number, rank) in (0..).zip(team.members()) {
                assert_eq!(team.job_rank(TeamRank(number))?, *rank);
                assert_eq!(team.team_rank(*rank), Some(TeamRank(number)));
            }
            assert_eq!(team.team_rank(job.rank()), Some(team.rank()));
            // Ranks that are no members, and one that is no rank.
            for rank in (0..n).filter(|rank| rank % 2 != own % 2).chain([n]) {
                assert_eq!(team.team_rank(Rank(rank)), None);
            }
            for rank in job.ranks() {
                assert_eq!(job.world().job_rank(TeamRank(rank.0))?, rank);
                assert_eq!(job.world().team_rank(rank), Some(TeamRank(rank.0)));
            }
            assert_eq!(job.world().team_rank(Rank(n)), None);
            Ok(())
        });
    }
}

#[test_on(every)]
fn ranks_that_a_team_does_not_have_are_refused() {
    run(5, |job| {
        let team = job.world().split(Some(job.rank().0 % 2), 0)?.unwrap();
        let members = team.size();
        for rank in [members, u32::MAX].map(TeamRank) {
            // Alike on every member, which stay in step.
            let all = [
                team.job_rank(rank).map(drop),
                team.broadcast(rank, &mut [0_u8]),
                team.broadcast(rank, &mut vec![0_u8; 20_000]),
                team.gather_nb(rank, vec![0_u8])?.wait().map(drop),
            ];
            for refused in all {
                match refused {
                    Err(Error::TeamRankOutOfRange { rank: named, size }) => {
                        assert_eq!((named, size), (rank, members));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        let refused = team.job_rank(TeamRank(members)).unwrap_err().to_string();
        let said = format!(
            "rank {members} of the team is out of range: the team has ranks 0 to {}",
            members - 1
        );
        assert_eq!(refused, said);
        // The ranks of the team of all are the job's.
        assert!(matches!(
            job.world().job_rank(TeamRank(5)),
            Err(Error::RankOutOfRange {
                rank: Rank(5),
                size: 5
            })
        ));
        team.barrier()
    });
}

/// A team in reversed order: its rank r is rank n - 1 - r of the job.
fn reversed(job: &Job) -> Result<Team> {
    let team = job.world().split(Some(0), job.size() - job.rank().0)?;
    Ok(team.expect("every rank gives a color"))
}

/// What a rank of the job has at an index before anybody puts there.
fn own_value(rank: Rank, index: usize) -> u64 {
    u64::from(rank.0) * 100 + index as u64
}

#[test_on(every)]
fn puts_and_gets_name_ranks_of_a_team() {
    for n in SIZES {
        run(n, |job| {
            let team = reversed(job)?;
            let (words, signals) = (job.alloc::<u64>(12)?, job.alloc::<u64>(2)?);
            for index in 0..12 {
                (words.local()?).store(index, own_value(job.rank(), index))?;
            }
            job.barrier()?;
            let members = words.by_team(&team)?;
            let me = u64::from(team.rank().0);
            let right = TeamRank((team.rank().0 + 1) % n);
            // The next in the team is the one before in the job.
            let target = Rank((job.rank().0 + n - 1) % n);
            let left = Rank((job.rank().0 + 1) % n);

            let mut two = [0; 2];
            members.get(right, 8, &mut two)?;
            assert_eq!(two, [8, 9].map(|index| own_value(target, index)));
            assert_eq!(members.get_value(right, 11)?, own_value(target, 11));
            let begun = members.get_nb(right, 9, 3)?;
            let expected = [9, 10, 11].map(|index| own_value(target, index));
            assert_eq!(begun.wait()?, expected);
            let every_other = Section::new(
                7,
                1,
                &[Level {
                    count: 3,
                    stride: 2,
                }],
            )?;
            let mut three = [0; 3];
            members.get_section(right, &every_other, &mut three, &Section::run(0, 3)?)?;
            assert_eq!(three, [7, 9, 11].map(|index| own_value(target, index)));

            members.put(right, 0, &[me, me + 10])?;
            members.put_value(right, 2, me + 20)?;
            members.put_nb(right, 3, vec![me + 30])?.wait()?;
            let apart = Section::new(
                4,
                1,
                &[Level {
                    count: 2,
                    stride: 2,
                }],
            )?;
            members.put_section(right, &apart, &[me + 40, me + 60], &Section::run(0, 2)?)?;
            members.put_signal(right, 5, &[me + 50], &signals, 1, Signal::Add(7))?;
            job.wait_until(&signals, 1, |word| word == 7)?;
            job.barrier()?;

            // The one before in the team put here, and nobody else.
            let from = u64::from(team.team_rank(left).expect("all are members").0);
            let mut here = [0; 12];
            words.local()?.read(0, &mut here)?;
            for (index, word) in here.into_iter().enumerate() {
                let expected = match index {
                    0..7 => from + 10 * index as u64,
                    _ => own_value(job.rank(), index),
                };
                assert_eq!(word, expected, "index {index} of rank {}", job.rank());
            }
            job.barrier()
        });
    }
}

#[test_on(every)]
fn puts_to_ranks_that_a_team_does_not_have_are_refused() {
    run(3, |job| {
        let team = job.world().split(Some(job.rank().0 / 2), 0)?.unwrap();
        let (words, signals) = (job.alloc::<u64>(4)?, job.alloc::<u64>(1)?);
        let (members, nobody) = (words.by_team(&team)?, TeamRank(team.size()));
        let run_of_two = Section::run(0, 2)?;
        let all = [
            members.put(nobody, 0, &[1]),
            members.get(nobody, 0, &mut [1]),
            members.put_value(nobody, 0, 1),
            members.get_value(nobody, 0).map(drop),
            members
                .put_nb(nobody, 0, vec![1])
                .map(drop)
                .map_err(Error::from),
            members.get_nb(nobody, 0, 1).map(drop),
            members.put_section(nobody, &run_of_two, &[1, 1], &run_of_two),
            members.get_section(nobody, &run_of_two, &mut [1, 1], &run_of_two),
            members.put_signal(nobody, 0, &[1], &signals, 0, Signal::Set(1)),
        ];
        for refused in all {
            assert!(
                matches!(refused, Err(Error::TeamRankOutOfRange { rank, .. }) if rank == nobody),
                "{refused:?}"
            );
        }
        // What a member's part does not have is refused as by the rank in the job.
        assert!(matches!(
            members.put_value(team.rank(), 4, 1),
            Err(Error::OutOfBounds { index: 4, .. })
        ));
        job.barrier()?;
        let mut here = [9; 4];
        words.local()?.read(0, &mut here)?;
        assert_eq!((here, signals.local()?.load(0)?), ([0; 4], 0));
        job.barrier()
    });
}

#[test_on(every)]
fn memory_is_not_named_by_the_team_of_another_job() {
    let left = run(2, reversed);
    run(2, |job| {
        let words = job.alloc::<u64>(1)?;
        let foreign = words.by_team(&left[job.rank().index()]);
        assert!(matches!(
            foreign,
            Err(Error::ForeignHandle { what: "team" })
        ));
        job.barrier()
    });
}

#[test_on(every)]
fn some_get_no_team() {
    for n in SIZES {
        run(n, |job| {
            let plays = job.rank().0 % 3 != 1;
            let team = job.world().split(plays.then_some(u32::MAX), 0)?;
            assert_eq!(team.is_some(), plays);
            if let Some(team) = team {
                let expected: Vec<Rank> = job.ranks().filter(|rank| rank.0 % 3 != 1).collect();
                assert_eq!(team.members(), expected);
                assert_eq!(team.all_gather(&[job.rank()])?, expected);
            }
            Ok(())
        });
    }
}

#[test_on(every)]
fn teams_have_teams() {
    run(8, |job| {
        let half = job.world().split(Some(job.rank().0 / 4), 0)?.unwrap();
        let pair = half.split(Some(half.rank().0 % 2), 0)?.unwrap();
        let own = job.rank().0;
        let other = own / 4 * 4 + (own % 4 + 2) % 4;
        assert_eq!(pair.members(), [Rank(own.min(other)), Rank(own.max(other))]);
        // Both in use at once, and the world too.
        for round in 0..50 {
            let mut data = vec![own + round; 1000];
            pair.all_reduce(&mut data, Op::Sum)?;
            assert_eq!(data, vec![own + other + 2 * round; 1000]);
            half.barrier()?;
            assert_eq!(sum_of_ranks(&half, job.rank()), own / 4 * 16 + 6);
            if round % 8 == 0 {
                job.barrier()?;
            }
        }
        Ok(())
    });
}

#[test_on(every)]
fn scratch_of_dropped_teams_is_used_anew() {
    run(4, |job| {
        // Far more than fit at once.
        for round in 0..500_u32 {
            let team = job
                .world()
                .split(Some((job.rank().0 + round) % 2), round)?
                .unwrap();
            let mut data = vec![job.rank().0; 3000];
            team.all_reduce(&mut data, Op::Sum)?;
            assert_eq!(
                data[2999],
                team.members().iter().map(|rank| rank.0).sum::<u32>()
            );
            // Some drop it early, while others are still in it.
            if job.rank().0 > 0 {
                team.barrier()?;
            } else {
                team.notify(None)?;
                team.wait(None)?;
            }
        }
        Ok(())
    });
}

#[test_on(every)]
fn too_many_teams_are_an_error_on_every_member() {
    run(3, |job| {
        let mut teams = Vec::new();
        let error = loop {
            // Rank 2 stands alone, in cheap teams: it has room where the others have none.
            match job.world().split(Some(job.rank().0 / 2), 0) {
                Ok(team) => teams.extend(team),
                Err(error) => break error,
            }
        };
        match error {
            Error::OutOfMemory {
                rank,
                wanted,
                available,
                ..
            } => {
                assert_eq!(rank, Rank(0));
                assert!(wanted > available);
            }
            other => panic!("{other}"),
        }
        assert!(teams.len() > 20, "{}", teams.len());
        // All still work, and so do new ones once some are gone.
        for team in &teams {
            team.barrier()?;
        }
        teams.truncate(5);
        for _ in 0..5 {
            let team = job.world().split(Some(0), 0)?.unwrap();
            assert_eq!(sum_of_ranks(&team, job.rank()), 3);
            teams.push(team);
        }
        Ok(())
    });
}

#[test_on(every)]
fn a_team_outlives_its_job_in_vain() {
    for team in run(3, |job| job.world().split(Some(job.rank().0 / 2), 0)) {
        let team = team.unwrap();
        assert!(matches!(team.barrier(), Err(Error::JobOver)));
        assert!(matches!(team.all_gather(&[1_u8]), Err(Error::JobOver)));
        assert!(matches!(team.split(Some(1), 0), Err(Error::JobOver)));
    }
}

#[test_on(every)]
fn handlers_may_not_do_collectives() {
    run(2, |job| {
        let team = Arc::new(job.world().split(Some(0), 0)?.unwrap());
        let (asked, refused) = (Arc::clone(&team), Arc::new(AtomicBool::new(false)));
        let ask = job.handler({
            let refused = Arc::clone(&refused);
            move |_, _, _| {
                let all = [
                    asked.barrier(),
                    asked.notify(None),
                    asked.broadcast(TeamRank(0), &mut [0_u8]),
                ];
                let each = all
                    .iter()
                    .all(|one| matches!(one, Err(Error::InHandler { .. })));
                refused.store(each, SeqCst);
            }
        })?;
        job.request_short(job.right(), ask, &[])?;
        job.am_quiet()?;
        job.barrier()?;
        assert!(refused.load(SeqCst));
        team.barrier()
    });
}
