//! Long data of collectives in private memory, which the other member has the system read (cross-memory attach), and
//! what becomes of it where the system does not, or gives up half way.

#![allow(unsafe_code)] // stands between a job and its network, and maps memory that the system does not read

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::{Duration, Instant},
};

use hydrant::{Error, Job, JobBuilder, Rank, Result, TeamRank};
use hydrant_conduit::{self as conduit, Conduit, Forward};

/// Elements that are read in several pieces, and from the board in many slots.
const MANY: usize = 400_000;

/// What goes before a read: who reads, of whom, and into what. Whether the system reads then.
type Before = dyn Fn(Rank, Rank, &mut [u8]) -> bool + Send + Sync;

/// A conduit whose reads are told of before they are done, or refused.
struct Watched {
    inner: Box<dyn Conduit>,
    before: Arc<Before>,
}

// SAFETY: every call is handed on to a conduit that keeps the contract, but for reads that are refused.
unsafe impl Forward for Watched {
    fn inner(&self) -> &dyn Conduit {
        &*self.inner
    }

    fn read_attached(
        &self,
        peer: Rank,
        addr: u64,
        into: &mut [u8],
    ) -> std::result::Result<(), conduit::Error> {
        if (self.before)(self.inner.rank(), peer, into) {
            return self.inner.read_attached(peer, addr, into);
        }
        let len = into.len() as u64;
        Err(conduit::Error::BadAddress { peer, addr, len })
    }
}

/// A builder of jobs whose reads are watched.
fn watched(before: impl Fn(Rank, Rank, &mut [u8]) -> bool + Send + Sync + 'static) -> JobBuilder {
    let before: Arc<Before> = Arc::new(before);
    let builder = Job::builder().expect("the settings are valid");
    builder.heap(4 << 20).through(move |inner| {
        let before = Arc::clone(&before);
        Box::new(Watched { inner, before })
    })
}

/// Reads that each rank asked for.
type Asked = [AtomicU64; 8];

/// A builder of jobs of 8 ranks at most, of which the reads are refused once each has had so many.
fn refusing(allowed: u64, asked: &Arc<Asked>) -> JobBuilder {
    let asked = Arc::clone(asked);
    watched(move |me, _, into| {
        let is_done = asked[me.index()].fetch_add(1, Relaxed) < allowed;
        if !is_done {
            // What a read that fails half way leaves.
            into.fill(0xa5);
        }
        is_done
    })
}

/// Whether the system reads private memory here at all.
fn is_read_here() -> bool {
    let asked = run(3, u64::MAX, |job| {
        (0..3).try_for_each(|round| all_to_all(job, MANY, round))
    });
    if asked == 0 {
        eprintln!(
            "this system does not let a process read its own memory: boards alone are tested"
        );
    }
    asked > 0
}

/// Runs a job whose ranks' reads are refused from some number on; how often they asked.
fn run(ranks: u32, allowed: u64, body: impl Fn(&Job) -> Result<()> + Sync + Send + 'static) -> u64 {
    let asked = Arc::default();
    for end in refusing(allowed, &asked).run_local(ranks, body) {
        end.unwrap();
    }
    asked.iter().map(|asked| asked.load(Relaxed)).sum()
}

fn value(rank: usize, index: usize, round: u64) -> u64 {
    (rank as u64 * 1_000_003 + index as u64 + round).wrapping_mul(0x2545_f491_4f6c_dd1d)
}

fn values(rank: usize, len: usize, round: u64) -> Vec<u64> {
    (0..len).map(|index| value(rank, index, round)).collect()
}

/// What a member gets in an all-to-all of parts of `len` elements.
fn parts_for(me: usize, n: usize, len: usize, round: u64) -> impl Iterator<Item = u64> {
    (0..n).flat_map(move |from| (0..len).map(move |at| value(from, me * len + at, round)))
}

/// Parts of `len` elements to each, which change as soon as the call returns.
fn all_to_all(job: &Job, len: usize, round: u64) -> Result<()> {
    let (n, me) = (job.size() as usize, job.rank().index());
    let mut parts = values(me, len * n, round);
    let mut into = vec![0; len * n];
    job.all_to_all_into(&parts, &mut into)?;
    parts.fill(0);
    let right = parts_for(me, n, len, round);
    assert!(
        into.into_iter().eq(right),
        "all_to_all of {len}, round {round}"
    );
    Ok(())
}

fn all_gather(job: &Job, len: usize, round: u64) -> Result<()> {
    let (n, me) = (job.size() as usize, job.rank().index());
    let mut mine = values(me, len, round);
    let mut into = vec![0; len * n];
    job.all_gather_into(&mine, &mut into)?;
    mine.fill(0);
    let right = (0..n).flat_map(|from| (0..len).map(move |at| value(from, at, round)));
    assert!(
        into.into_iter().eq(right),
        "all_gather of {len}, round {round}"
    );
    Ok(())
}

fn scatter(job: &Job, len: usize, round: u64) -> Result<()> {
    let (n, me) = (job.size() as usize, job.rank().index());
    let root = round as usize % n;
    let mut whole = (me == root).then(|| values(root, len * n, round));
    let mut mine = vec![0; len];
    job.scatter(Rank(root as u32), whole.as_deref(), &mut mine)?;
    if let Some(whole) = &mut whole {
        whole.fill(0);
    }
    let right = (0..len).map(|at| value(root, me * len + at, round));
    assert!(
        mine.into_iter().eq(right),
        "scatter of {len}, round {round}"
    );
    Ok(())
}

/// Each, whoever begins or waits, and one behind the other.
fn all(job: &Job) -> Result<()> {
    for round in 0..3 {
        for len in [4_097, 9_000, MANY / job.size() as usize] {
            all_to_all(job, len, round)?;
            all_gather(job, len, round)?;
            scatter(job, len, round)?;
        }
        let (n, me) = (job.size() as usize, job.rank().index());
        let begun = job.all_to_all_nb(values(me, 9_000 * n, round))?;
        let again = job.all_gather_nb(values(me, 9_000, round + 1))?;
        let right = |from| (0..9_000).map(move |at| value(from, me * 9_000 + at, round));
        assert!(begun.wait()?.into_iter().eq((0..n).flat_map(right)));
        let right = |from| (0..9_000).map(move |at| value(from, at, round + 1));
        assert!(again.wait()?.into_iter().eq((0..n).flat_map(right)));
    }
    Ok(())
}

#[test]
fn what_the_system_does_not_read_is_shown_on_the_board() {
    let is_read = is_read_here();
    for ranks in [2, 3, 5] {
        for allowed in [0, 1, 2, 5, 17] {
            let asked = run(ranks, allowed, all);
            // Once refused, a member does not ask another again.
            let most = u64::from(ranks) * (allowed + u64::from(ranks) - 1);
            assert!(
                asked <= most,
                "{ranks} ranks asked {asked} times, {allowed} allowed"
            );
            // Two whose processors share a cache go by the board.
            let may_be_near = ranks == 2;
            assert!(
                asked > 0 || !is_read || may_be_near,
                "{ranks} ranks did not ask"
            );
        }
    }
}

#[test]
fn what_the_system_reads_is_right() {
    let is_read = is_read_here();
    for ranks in [2, 3, 4, 8] {
        let asked = run(ranks, u64::MAX, all);
        // As above.
        assert!(
            (asked > 0) == is_read || ranks == 2,
            "{ranks} ranks asked {asked} times"
        );
    }
}

/// Teams that use the scratch of others before them: what these said of their members is not said of theirs.
#[test]
fn teams_find_out_anew() {
    run(4, 6, |job| {
        for round in 0..6 {
            let color = (job.rank().0 + round as u32) % 2;
            let team = (job.world().split(Some(color), 0)?).expect("all have a color");
            for _ in 0..3 {
                let me = job.rank().index();
                let mut mine = values(me, 20_000, round);
                let into = team.all_gather(&mine)?;
                mine.fill(0);
                let right = (0..2).flat_map(|member| {
                    let from = team.job_rank(TeamRank(member)).map_or(0, Rank::index);
                    (0..20_000).map(move |at| value(from, at, round))
                });
                assert!(into.into_iter().eq(right), "round {round}");
            }
        }
        Ok(())
    });
}

/// Whoever has a result has the right one, although others gave up and used their memory again.
#[test]
fn a_lost_member_ends_collectives_on_private_memory() {
    const LEN: usize = 30_000;
    for (ranks, who, allowed) in [
        (2, 0, u64::MAX),
        (3, 1, u64::MAX),
        (5, 4, u64::MAX),
        (3, 0, 4),
    ] {
        let ends = refusing(allowed, &Arc::default()).run_local(ranks, |job| {
            let (n, me) = (job.size() as usize, job.rank().index());
            for round in 0.. {
                if job.rank().0 == who && round == 4 {
                    return Err(Error::other("had enough"));
                }
                let mut parts = values(me, LEN * n, round);
                let mut into = vec![0; LEN * n];
                let end = job.all_to_all_into(&parts, &mut into);
                parts.fill(0);
                drop(parts);
                let right = parts_for(me, n, LEN, round);
                assert!(end.is_err() || into.into_iter().eq(right), "round {round}");
                end?;
            }
            Ok(())
        });
        for (rank, end) in ends.into_iter().enumerate() {
            match rank as u32 == who {
                true => assert!(matches!(end, Err(Error::Other(_))), "{end:?}"),
                false => assert!(matches!(end, Err(Error::PeerLost(_))), "{end:?}"),
            }
        }
    }
}

/// Waits for another thread, which is not to take half a minute.
fn until(what: &str, come: &AtomicBool) {
    let since = Instant::now();
    while !come.load(SeqCst) {
        assert!(
            since.elapsed() < Duration::from_secs(30),
            "waited for {what}"
        );
        thread::yield_now();
    }
}

/// What rank 1 reads of rank 2 once it may, and whether it may.
#[derive(Default)]
struct Gate {
    is_shut: AtomicBool,
    is_open: AtomicBool,
}

/// Rank 0 ends after it has agreed, rank 2 gives up and uses its memory again, and then rank 1 reads that.
#[test]
fn memory_of_who_gave_up_is_not_taken_for_what_it_was() {
    const LEN: usize = 30_000;
    let gate = Arc::new(Gate::default());
    let seen = Arc::clone(&gate);
    let builder = watched(move |me, peer, _| {
        if (me, peer) == (Rank(1), Rank(2)) && seen.is_shut.load(Relaxed) {
            until("rank 2 to give up", &seen.is_open);
        }
        true
    });
    let ends = builder.service(false).run_local(3, |job| {
        let (n, me) = (job.size() as usize, job.rank().index());
        (0..2).try_for_each(|round| all_to_all(job, LEN, round))?;
        // Who is first may not stop rank 1 in a round before.
        job.barrier()?;
        gate.is_shut.store(true, Relaxed);
        job.barrier()?;
        let mut parts = values(me, LEN * n, 7);
        let mut into = vec![0; LEN * n];
        match job.rank() {
            Rank(2) => {
                let ended = job.all_to_all_into(&parts, &mut into);
                assert!(matches!(ended, Err(Error::PeerLost(Rank(0)))), "{ended:?}");
                parts.fill(0);
                gate.is_open.store(true, SeqCst);
                thread::sleep(Duration::from_millis(400));
                Ok(())
            }
            Rank(1) => {
                let ended = job.all_to_all_into(&parts, &mut into);
                let right = parts_for(me, n, LEN, 7);
                assert!(
                    ended.is_err() || into.into_iter().eq(right),
                    "a result that is none"
                );
                ended
            }
            _ => {
                // The others wait in the call, so that this one shows what it has before it ends.
                thread::sleep(Duration::from_millis(60));
                drop(job.all_to_all_nb(parts)?);
                thread::sleep(Duration::from_millis(60));
                Err(Error::other("had enough"))
            }
        }
    });
    assert!(matches!(ends[0], Err(Error::Other(_))), "{:?}", ends[0]);
}

/// A call that comes while its target copies: when the second read begins it was sent, when the fourth does it was
/// answered. Of each of two others a piece is read between two looks.
#[derive(Default)]
struct Called {
    reads: AtomicU64,
    begun: AtomicBool,
    sent: AtomicBool,
    answered: AtomicBool,
}

/// Who copies for long answers others meanwhile, in a call or in the background.
#[test]
fn who_copies_looks_after_messages() {
    for background in [false, true] {
        let called = Arc::new(Called::default());
        let seen = Arc::clone(&called);
        let builder = watched(move |me, _, _| {
            if me == Rank(0) && seen.begun.load(SeqCst) {
                match seen.reads.fetch_add(1, SeqCst) {
                    1 => until("a call", &seen.sent),
                    3 => assert!(seen.answered.load(SeqCst), "nobody looked after messages"),
                    _ => {}
                }
            }
            true
        });
        let ends = builder.service(false).run_local(4, |job| {
            let answers = Arc::clone(&called);
            let answer = job.function(move |_, ()| answers.answered.store(true, SeqCst))?;
            let team = job.world().split((job.rank() != Rank(3)).then_some(0), 0)?;
            job.barrier()?;
            if let Some(team) = team {
                let me = job.rank().index();
                for round in 0..3 {
                    if round == 2 {
                        job.barrier()?;
                        called.begun.store(true, SeqCst);
                    }
                    let parts = values(me, 3 * MANY, round);
                    let into = match background {
                        true => team.all_to_all_nb(parts)?.wait()?,
                        false => team.all_to_all(&parts)?,
                    };
                    let right = (0..3).flat_map(|from| {
                        (0..MANY).map(move |at| value(from, me * MANY + at, round))
                    });
                    assert!(into.into_iter().eq(right), "round {round}");
                }
            } else {
                job.barrier()?;
                let since = Instant::now();
                while called.reads.load(SeqCst) == 0 && since.elapsed() < Duration::from_secs(5) {
                    job.poll();
                }
                let call = job.call_nb(Rank(0), &answer, &())?;
                called.sent.store(true, SeqCst);
                call.wait()?;
            }
            job.barrier()
        });
        for end in ends {
            end.unwrap();
        }
    }
}
