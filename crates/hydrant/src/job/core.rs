//! What a job is composed of, at one rank.

use std::{
    hash::BuildHasher,
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use hydrant_conduit::Conduit;
use hydrant_launch::Bootstrap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;

use super::ending::{End, Leaving};
use crate::{
    Error, Result, Settings, Team,
    atomics::{AtomicsExecutor, ByMessage},
    collective,
    foresight::Foreseeing,
    memory::{Locks, Reach, Registry},
    message::Messages,
    progress::{Progress, Resting, kind},
    registration::Setup,
    rma::{Buffers, Unpacker},
    stripe::{StripedArc, StripedWeak},
    transfer::Transfer,
    two_sided::TwoSided,
};

/// The most rounds in which what is in flight is completed at the end. Functions and handlers may go on communicating
/// with each other for ever.
const ROUNDS: u32 = 64;

/// The time for which a call of a function that only waits is waited for at the end, while nothing else happens.
const SILENCE: Duration = Duration::from_secs(2);

/// The rooms of a job, from the ground up. Only [jobs](super::Job) keep it: when the last of them
/// goes, this rank leaves, if it has not left before.
pub(crate) struct Core {
    pub(crate) progress: Arc<Progress>,
    pub(crate) transfer: Arc<Transfer>,
    /// What foresees which memory is used, by that strategy.
    pub(crate) foreseeing: Option<Arc<Foreseeing>>,
    /// The same, as the handles of memory use it, which do not keep it.
    _handed_out: StripedArc<Transfer>,
    weak: StripedWeak<Transfer>,
    pub(crate) messages: Arc<Messages>,
    pub(crate) two_sided: Arc<TwoSided>,
    pub(crate) memory: Arc<Registry>,
    /// Who changes words of 64 bits: the same at every rank.
    pub(crate) atomics: AtomicsExecutor,
    /// The team of all ranks.
    pub(crate) world: Team,
    pub(crate) settings: Settings,
    bootstrap: Arc<Mutex<Box<dyn Bootstrap>>>,
    /// How this rank leaves; taken by who does it.
    leaving: Mutex<Option<Leaving>>,
}

impl Core {
    /// Composes the rooms, each of which gets those below it and hands in to them what they tell it,
    /// and begins to answer peers.
    pub(crate) fn start(
        conduit: Box<dyn Conduit>,
        mut bootstrap: Box<dyn Bootstrap>,
        settings: Settings,
    ) -> Result<Arc<Self>> {
        let atomics = AtomicsExecutor::choose(&settings, conduit.caps())?;
        let setup = Setup::new(&*conduit, &settings, atomics != AtomicsExecutor::Processors)?;
        if let Some(setup) = &setup {
            setup.publish_segment(&mut *bootstrap)?;
        }
        let id = agree(&mut *bootstrap, &settings, atomics)?;
        let bootstrap = Arc::new(Mutex::new(bootstrap));
        let progress = Progress::new(conduit, id, &settings);
        let transfer = Transfer::new(&progress, setup, &bootstrap);
        let memory = Arc::new(Registry::new(settings.heap, Locks::new(&progress)?));
        let buffers = Buffers::new(&transfer, &memory);
        let messages = Arc::new(Messages::new(Box::new(buffers)));
        for kind in [kind::USER, kind::CALL, kind::FAILURE, kind::RESULT] {
            progress.route(kind, messages.clone());
        }
        let two_sided = TwoSided::new(&transfer, &settings);
        let by_message = ByMessage::new(&memory, messages.calls(), atomics);
        progress.route(kind::ATOMIC, Arc::new(by_message));
        let unpacker = Unpacker::new(&memory, messages.calls());
        progress.route(kind::PACKED, Arc::new(unpacker));
        progress.route(kind::STORE, Arc::new(collective::Stores));
        progress.route(kind::REST, Arc::new(Resting));
        let handed_out = StripedArc::new(&transfer);
        let mut leaving = Leaving::new(
            (&transfer, &memory, &messages, &two_sided),
            &bootstrap,
            &settings,
        );
        let world = Team::world(&transfer)?;
        leaving.start_service(&settings)?;
        let foreseeing = Foreseeing::start(&transfer, &settings.foresight);
        leaving.end_foreseeing(foreseeing.clone());
        Ok(Arc::new(Self {
            world,
            leaving: Mutex::new(Some(leaving)),
            progress,
            weak: handed_out.downgrade(),
            _handed_out: handed_out,
            transfer,
            foreseeing,
            messages,
            two_sided,
            memory,
            atomics,
            settings,
            bootstrap,
        }))
    }

    /// Comes to the end of the job with all other ranks, and completes what is in flight.
    ///
    /// # Errors
    /// As [`Job::finalize`](crate::Job::finalize). The job goes on then.
    pub(super) fn come_to_end(&self) -> Result<()> {
        let at_end = self.world.come_to_end()?;
        let came = Coming::begin(self)?;
        let mut before = self.stillness();
        // Waiters for something that only this program does are told by now. After this meeting no program begins
        // anything, but functions and handlers may.
        at_end.meet()?;
        self.two_sided.all_have_come();
        for _ in 0..ROUNDS {
            self.complete()?;
            let now = self.stillness();
            let is_still = now.is_some() && now == before;
            before = now;
            // All were still at the moment between two meetings: nothing was in flight in the job then.
            if at_end.is_so_everywhere(is_still)? {
                break;
            }
        }
        // Every message of every rank has been handled.
        self.two_sided.finish_received()?;
        came.done();
        Ok(())
    }

    /// Completes what is in flight at this rank. A call of a function that only waits is waited for [so long](SILENCE).
    fn complete(&self) -> Result<()> {
        let (progress, calls) = (&self.progress, self.messages.calls());
        calls.begin_all(progress)?;
        self.two_sided.finish_all()?;
        self.transfer.finish_all()?;
        progress.wait_all_handled()?;
        // Replies were sent before their requests counted as handled.
        progress.drain();
        calls.finish_all_within(progress, SILENCE)
    }

    /// The requests that this rank has handled and called so far, if nothing is in flight at it but calls and tasks that wait.
    fn stillness(&self) -> Option<[u64; 4]> {
        let (made, wanted) = self.messages.calls().made_and_wanted();
        let counters = self.progress.tally.snapshot();
        let is_still = self.progress.is_still() && self.two_sided.is_idle();
        is_still.then_some([counters.handled, counters.replies, made, wanted as u64])
    }

    /// Leaves the job, once.
    pub(super) fn leave(&self, end: End) {
        if self.progress.is_forked() {
            return;
        }
        let leaving = self.leaving.lock().take();
        if let Some(leaving) = leaving {
            leaving.leave(end);
        }
    }

    /// How the job reaches its symmetric memory.
    pub(crate) fn reach(&self) -> Reach<'_> {
        Reach {
            transfer: &self.transfer,
            weak: self.weak.clone(),
            calls: self.messages.calls(),
            locks: self.memory.locks(),
            by_nics: self.atomics != AtomicsExecutor::Processors,
            spares_processors: self.atomics.spares_processors(),
        }
    }

    pub(crate) fn abort(&self, status: i32) {
        if self.progress.is_forked() {
            return;
        }
        self.progress.conduit().leave(false);
        (self.bootstrap.lock()).abort(status, "the program called abort");
    }
}

impl Core {
    /// Keeps everything for good, in a forked child. Only the parent may end it: the child lacks the parent's
    /// threads, and lacks its registrations or shares them.
    fn leak(&mut self) {
        mem::forget(self.leaving.get_mut().take());
        mem::forget((
            Arc::clone(&self.progress),
            Arc::clone(&self.transfer),
            self.foreseeing.clone(),
            Arc::clone(&self.messages),
            Arc::clone(&self.two_sided),
            Arc::clone(&self.memory),
            Arc::clone(&self.bootstrap),
        ));
    }
}

/// A program that has come to its end. Dropped before it is [done](Self::done), it lets the program go on.
struct Coming<'a> {
    core: &'a Core,
}

impl<'a> Coming<'a> {
    fn begin(core: &'a Core) -> Result<Self> {
        let coming = Self { core };
        core.two_sided.come_to_end()?;
        // In this order, so that the news overtakes no message.
        core.progress.wait_all_handled()?;
        core.progress.conduit().come_to_end(true);
        Ok(coming)
    }

    fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        if self.core.progress.is_forked() {
            return;
        }
        self.core.progress.conduit().come_to_end(false);
        self.core.two_sided.go_on();
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.progress.is_forked() {
            return self.leak();
        }
        if let Some(leaving) = self.leaving.get_mut().take() {
            leaving.give_up();
        }
    }
}

/// Rank 0 announces the job's number, which all ranks use, and the way of atomic operations. All ranks must have
/// found the same way, because a word is changed in one way.
fn agree(
    bootstrap: &mut dyn Bootstrap,
    settings: &Settings,
    atomics: AtomicsExecutor,
) -> Result<u64> {
    if bootstrap.rank() == 0 {
        let mut announced = [0; 9];
        announced[..8].copy_from_slice(&number(settings)?.to_le_bytes());
        announced[8] = atomics.code();
        bootstrap.put("job-id", &announced)?;
    }
    bootstrap.fence()?;
    let announced = bootstrap.get(0, "job-id")?;
    let Ok([id @ .., theirs]) = <[u8; 9]>::try_from(announced.as_slice()) else {
        return Err(Error::other("rank 0 published an unreadable job id"));
    };
    if theirs != atomics.code() {
        return Err(Error::other(format!(
            "rank {} has {}, rank 0 has not: HYDRANT_ATOMICS and HYDRANT_REGISTRATION must be \
             the same at all ranks",
            bootstrap.rank(),
            atomics
        )));
    }
    Ok(u64::from_le_bytes(id))
}

/// The number of a new job, at random. In virtual time a program and a seed give one result, so the seed and the
/// number of earlier virtual jobs of this process determine it. Never zero, which a zeroed pointer would name.
fn number(settings: &Settings) -> Result<u64> {
    static VIRTUAL: AtomicU64 = AtomicU64::new(0);
    let number = if settings.conduit.is_virtual() {
        let before = VIRTUAL.fetch_add(1, Relaxed);
        FxBuildHasher.hash_one((settings.sim_seed, before))
    } else {
        let mut drawn = [0; 8];
        rustix::rand::getrandom(&mut drawn[..], rustix::rand::GetRandomFlags::empty())
            .map_err(std::io::Error::from)?;
        u64::from_le_bytes(drawn)
    };
    Ok(number | 1)
}
