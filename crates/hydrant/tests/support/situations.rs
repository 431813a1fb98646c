//! What ranks may be doing when one of them is killed.
//!
//! Each is a role: `lost SITUATION VICTIM TOKEN`. Every rank prints `ready RANK PID` when it
//! is there, and every survivor `lost RANK VICTIM TIME` when it is told. If `HYDRANT_TEST_FORKS` is set, each rank
//! has children by then. One ends as a rank would, and one outlives the rank with all its open descriptors.

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use hydrant::{Error, Foreign, GlobalPtr, Handler, Job, Rank, Result, Signal, Symmetric};
use hydrant_testing::{
    forked,
    running::{now, say},
};

/// What to do until the victim is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Situation {
    /// The victim answers one call after the other.
    Calls,
    /// The victim is still busy with the call.
    WaitsForCall,
    /// The victim handles a flood of requests.
    Floods,
    /// The victim handles nothing, and its rings are full.
    FloodsFull,
    /// The victim comes to no barrier.
    WaitsInBarrier,
    /// The victim takes part in one barrier after the other.
    Barriers,
    /// Nobody gives the signal.
    WaitsForSignal,
    /// Signals go round.
    Signals,
    /// The victim does not allocate.
    WaitsInAlloc,
    /// All allocate and free, again and again.
    Allocs,
    /// The victim does not make its part its own.
    WaitsInExclusive,
    /// All make their parts their own and share them again, again and again.
    Exclusives,
    /// The victim does not handle what was asked.
    WaitsForQuiet,
    /// Puts to the victim, and quiet.
    Puts,
    /// Access to a buffer of the victim's own, by the kernel.
    ForeignMemory,
    /// The same by messages.
    ForeignMessages,
    /// The victim accesses buffers that the others lend and take back.
    Lends,
    /// The same by messages.
    LendsMessages,
    /// All compute without a call between accesses to the victim's buffer.
    Computes,
    /// The victim computes without a call, for good.
    ComputesForGood,
}

pub(crate) use Situation::*;

/// All of them.
pub(crate) const ALL: [Situation; 20] = [
    Calls,
    WaitsForCall,
    Floods,
    FloodsFull,
    WaitsInBarrier,
    Barriers,
    WaitsForSignal,
    Signals,
    WaitsInAlloc,
    Allocs,
    WaitsInExclusive,
    Exclusives,
    WaitsForQuiet,
    Puts,
    ForeignMemory,
    ForeignMessages,
    Lends,
    LendsMessages,
    Computes,
    ComputesForGood,
];

impl Situation {
    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }

    fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|situation| situation.name() == name)
    }

    fn foreign(self) -> Foreign {
        match self {
            ForeignMessages | LendsMessages => Foreign::Messages,
            _ => Foreign::ProcessVm,
        }
    }
}

/// Elements of the buffers; more bytes than a ring holds.
const BUFFER: usize = 30_000;

/// What every rank has, whatever the situation.
struct Scene {
    memory: Symmetric<u64>,
    pointers: Symmetric<GlobalPtr<u64>>,
    ignore: Handler,
    stuck: Handler,
    answer: hydrant::Function<u64, u64>,
    never: hydrant::Function<(), ()>,
}

impl Scene {
    fn new(job: &Job) -> Result<Self> {
        Ok(Self {
            // Enough that it would be missed if it were not given back.
            memory: job.alloc(2 << 20)?,
            pointers: job.alloc(job.size() as usize)?,
            ignore: job.handler(|_, _, _| {})?,
            stuck: job.handler(|_, _, _| sleep_for_good())?,
            answer: job.function(|_, number| number + 1)?,
            never: job.function(|_, ()| sleep_for_good())?,
        })
    }

    /// Tells every rank of a buffer.
    fn publish(&self, job: &Job, pointer: GlobalPtr<u64>) -> Result<()> {
        for rank in job.ranks() {
            self.pointers.put(rank, job.rank().index(), &[pointer])?;
        }
        Ok(())
    }

    fn published(&self, by: Rank) -> Result<GlobalPtr<u64>> {
        self.pointers.local()?.load(by.index())
    }
}

/// The role.
pub(crate) fn rank(arguments: &[String]) -> ExitCode {
    let [situation, victim, _token] = arguments else {
        eprintln!("usage: --role lost SITUATION VICTIM TOKEN");
        return ExitCode::from(2);
    };
    let situation = Situation::named(situation).expect("a situation");
    let victim = Rank(victim.parse().expect("a rank"));
    let builder = Job::builder()
        .expect("the settings are valid")
        .heap(256 << 20);
    let end = builder.smp_foreign(situation.foreign()).run(|job| {
        let scene = Scene::new(job)?;
        let lent = job.expose(vec![7; BUFFER])?;
        scene.publish(job, lent.pointer(0)?)?;
        job.barrier()?;
        if std::env::var_os("HYDRANT_TEST_FORKS").is_some() {
            fork_from(job, &scene)?;
        }
        say(&format!("ready {} {}", job.rank(), std::process::id()));
        let end = begin(job, &scene, victim).and_then(|()| play(situation, job, &scene, victim));
        if let Err(Error::PeerLost(lost)) = &end {
            say(&format!("lost {} {lost} {}", job.rank(), now().as_micros()));
        }
        // Revoking must not wait for the dead.
        drop(lent);
        end
    });
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a job there is nobody else to ask.
            let rank = std::env::var("PMI_RANK").unwrap_or_default();
            say(&format!("error {rank} {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Forks a child that tries to take part and drops its handles, and one that does nothing until it is killed.
fn fork_from(job: &Job, scene: &Scene) -> Result<()> {
    let refused = |done: Result<()>| matches!(done, Err(Error::Forked { .. }));
    let tries = forked::child(|| {
        let first = Rank(0);
        let right = refused(job.barrier())
            && refused(scene.memory.put_value(first, 3, 1))
            && refused(job.request_short(first, scene.ignore, &[1]))
            && refused(job.finalize());
        std::process::exit(i32::from(!right))
    });
    forked::child(|| {
        sleep_for_good();
        0
    });
    match forked::ended(tries) {
        Some(0) => Ok(()),
        other => Err(Error::other(format!("a child ended with {other:?}"))),
    }
}

fn sleep_for_good() {
    thread::sleep(Duration::from_secs(3600));
}

/// Waits for the victim: a handler that never returns must not find it in a barrier.
fn begin(job: &Job, scene: &Scene, victim: Rank) -> Result<()> {
    if job.rank() == victim {
        for rank in job.ranks() {
            scene.memory.signal(rank, 2, Signal::Set(1))?;
        }
    }
    job.wait_until(&scene.memory, 2, |begun| begun == 1)
        .map(drop)
}

fn play(situation: Situation, job: &Job, scene: &Scene, victim: Rank) -> Result<()> {
    let is_victim = job.rank() == victim;
    let mut round = 0;
    loop {
        round += 1;
        match situation {
            // These the victim does, too.
            Barriers => job.barrier()?,
            Allocs => job.free(job.alloc::<u64>(100_000)?)?,
            Exclusives => exclusive(job, round)?,
            Signals => {
                scene.memory.signal(job.right(), 0, Signal::Add(1))?;
                job.wait_until(&scene.memory, 0, |count| count >= round)?;
            }
            Computes if is_victim => compute(round),
            ComputesForGood if is_victim => compute(20),
            Lends | LendsMessages if is_victim => access_all(job, scene)?,
            _ if is_victim => sleep_for_good(),

            Calls => assert_eq!(job.call(victim, &scene.answer, &round)?, round + 1),
            WaitsForCall => job.call(victim, &scene.never, &())?,
            Floods => job.request_medium(victim, scene.ignore, &[round], &[1; 500])?,
            FloodsFull => job.request_medium(victim, scene.stuck, &[round], &[1; 500])?,
            WaitsInBarrier => job.barrier()?,
            WaitsForSignal => job
                .wait_until(&scene.memory, 1, |value| value != 0)
                .map(drop)?,
            WaitsInAlloc => job.alloc::<u64>(100).map(drop)?,
            WaitsInExclusive => {
                // What was allocated together before is one's own only if the victim agrees.
                let own = job.exclusive(scene.memory.clone())?;
                drop(own);
            }
            WaitsForQuiet => {
                job.request_short(victim, scene.stuck, &[])?;
                job.am_quiet()?;
            }
            Puts => {
                scene.memory.put(victim, 0, &[round; 1000])?;
                job.quiet()?;
            }
            ForeignMemory | ForeignMessages => access(job, scene.published(victim)?)?,
            Lends | LendsMessages => lend(job, scene, victim)?,
            Computes | ComputesForGood => {
                compute(round);
                access(job, scene.published(victim)?)?;
            }
        }
    }
}

/// Memory of all that is each rank's own for a moment.
fn exclusive(job: &Job, round: u64) -> Result<()> {
    let memory = job.alloc::<u64>(1000)?;
    let mut own = job.exclusive(memory)?;
    own.fill(round);
    let memory = job.share(own)?;
    assert_eq!(memory.get_value(job.right(), 999)?, round);
    job.free(memory)
}

fn access(job: &Job, pointer: GlobalPtr<u64>) -> Result<()> {
    let mut data = vec![7; BUFFER];
    job.put_to(pointer, &data)?;
    job.get_from(pointer, &mut data)
}

/// Keeps a core busy for some milliseconds, without a call.
fn compute(round: u64) {
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(round % 21) {
        std::hint::spin_loop();
    }
}

/// The victim's part in [`Situation::Lends`]: at the buffers of all, wherever they are lent.
fn access_all(job: &Job, scene: &Scene) -> Result<()> {
    for rank in job.ranks() {
        match access(job, scene.published(rank)?) {
            Ok(()) | Err(Error::Revoked { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Lends a buffer for a moment; nothing may change it afterwards.
fn lend(job: &Job, scene: &Scene, victim: Rank) -> Result<()> {
    let lent = job.expose(vec![0; BUFFER])?;
    scene
        .pointers
        .put(victim, job.rank().index(), &[lent.pointer(0)?])?;
    thread::sleep(Duration::from_micros(300));
    let mut back = lent.take_back();
    back.fill(3);
    thread::sleep(Duration::from_micros(100));
    assert!(
        std::hint::black_box(&back)
            .iter()
            .all(|element| *element == 3)
    );
    job.quiet()
}
