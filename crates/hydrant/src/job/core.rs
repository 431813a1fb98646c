//! The rooms of a job at one rank.

use std::{mem, sync::Arc, time::Duration};

use hydrant_base::words::{Fixed, only};
use hydrant_conduit::Conduit;
use hydrant_launch::Bootstrap;
use parking_lot::Mutex;

use super::ending::{EndKind, Leaving};
use crate::{
    Error, Result, Settings, Team,
    atomics::{AtomicsExecutor, ByMessage},
    collective::{self, Handovers},
    foresight::Foreseeing,
    memory::{Locks, Reach, Registry},
    message::Messages,
    progress::{Progress, Resting, kind},
    registration::RegistrationSetup,
    rma::{Buffers, Unpacker},
    stripe::{StripedArc, StripedWeak},
    transfer::Transfer,
    two_sided::TwoSided,
};

/// The most rounds in which operations in flight are completed at the end. Functions and handlers
/// may communicate with each other forever.
const ROUNDS: u32 = 64;

/// How long the end of the job waits for the call of a function that only waits, while nothing else
/// happens.
const SILENCE: Duration = Duration::from_secs(2);

/// The rooms of a job, from the ground up. Only [jobs](super::Job) keep it alive. When the last of
/// them is dropped, this rank leaves unless it has left before.
pub(crate) struct Core {
    pub(crate) progress: Arc<Progress>,
    pub(crate) transfer: Arc<Transfer>,
    /// Predicts the uses of memory, under the strategy `foresight`.
    pub(crate) foreseeing: Option<Arc<Foreseeing>>,
    /// The transfer room for handles of memory, which do not keep it alive.
    _handed_out: StripedArc<Transfer>,
    weak: StripedWeak<Transfer>,
    pub(crate) messages: Arc<Messages>,
    pub(crate) two_sided: Arc<TwoSided>,
    pub(crate) memory: Arc<Registry>,
    pub(crate) handovers: Arc<Handovers>,
    /// The executor of changes of 64-bit words, the same at every rank.
    pub(crate) atomics: AtomicsExecutor,
    /// The team of all ranks.
    pub(crate) world: Team,
    pub(crate) settings: Settings,
    bootstrap: Arc<Mutex<Box<dyn Bootstrap>>>,
    /// The means to leave; taken by the thread that leaves.
    leaving: Mutex<Option<Leaving>>,
}

impl Core {
    /// Composes the rooms, and begins to answer peers. Each room gets the rooms below it, and hands
    /// in to them the traits by which they call it.
    pub(crate) fn start(
        conduit: Box<dyn Conduit>,
        mut bootstrap: Box<dyn Bootstrap>,
        settings: Settings,
    ) -> Result<Arc<Self>> {
        let atomics = AtomicsExecutor::choose(&settings, conduit.caps())?;
        let setup =
            RegistrationSetup::new(&*conduit, &settings, atomics != AtomicsExecutor::Processors)?;
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
        let of_users = [
            kind::USER,
            kind::CALL,
            kind::FAILURE,
            kind::RESULT,
            kind::LATE_REPLY,
        ];
        for kind in of_users {
            progress.route(kind, messages.clone());
        }
        let two_sided = TwoSided::new(&transfer, &settings);
        let by_message = ByMessage::new(&memory, messages.calls(), atomics);
        progress.route(kind::ATOMIC, Arc::new(by_message));
        let unpacker = Unpacker::new(&memory, messages.calls());
        progress.route(kind::PACKED, Arc::new(unpacker));
        progress.route(kind::STORE, Arc::new(collective::Stores));
        let handovers = Arc::new(Handovers::new(messages.calls()));
        progress.route(kind::HANDOVER, handovers.clone());
        progress.route(kind::REST, Arc::new(Resting));
        let handed_out = StripedArc::new(&transfer);
        let mut leaving = Leaving::new(
            (&transfer, &memory, &messages, &two_sided),
            &bootstrap,
            &settings,
        );
        let world = Team::world(&transfer)?;
        leaving.start_service(&settings)?;
        let foreseeing = Foreseeing::start(&transfer, &settings);
        leaving.set_foreseeing(foreseeing.clone());
        leaving.serve_snapshots(&settings);
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
            handovers,
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
        let announced = ComingToEnd::begin(self)?;
        let mut before = self.stillness();
        // By now, waiters for something that only this program does know of its end. After this
        // meeting no program begins anything, but functions and handlers may.
        at_end.meet()?;
        self.two_sided.note_all_ended();
        for _ in 0..ROUNDS {
            self.complete()?;
            let now = self.stillness();
            let is_still = now.is_some() && now == before;
            before = now;
            // All ranks were still at the moment between two meetings, so nothing was in flight in
            // the job then.
            if at_end.is_so_everywhere(is_still)? {
                break;
            }
        }
        // Every message of every rank has been handled.
        self.two_sided.finish_received()?;
        announced.done();
        Ok(())
    }

    /// Completes what is in flight at this rank. It waits for a call of a function that only waits
    /// at most [so long](SILENCE).
    fn complete(&self) -> Result<()> {
        let (progress, calls) = (&self.progress, self.messages.calls());
        calls.wait_until_begun(progress)?;
        self.two_sided.finish_all()?;
        self.transfer.finish_all()?;
        progress.wait_all_handled()?;
        // Replies were sent before their requests counted as handled.
        progress.drain();
        calls.finish_all_within(progress, SILENCE)
    }

    /// Returns the requests that this rank has handled and the calls that it has made, if nothing
    /// is in flight here but calls and tasks that wait.
    fn stillness(&self) -> Option<[u64; 4]> {
        let (made, wanted) = self.messages.calls().counts();
        let counters = self.progress.tally.snapshot();
        let is_still = self.progress.is_still() && self.two_sided.is_idle();
        is_still.then_some([counters.handled, counters.replies, made, wanted as u64])
    }

    /// Leaves the job, once.
    pub(super) fn leave(&self, end: EndKind) {
        if self.progress.is_forked() {
            return;
        }
        let leaving = self.leaving.lock().take();
        if let Some(leaving) = leaving {
            leaving.leave(end);
        }
    }

    /// Returns the means by which the job reaches its symmetric memory.
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

    /// Tells the launcher that this rank fails because another is lost.
    pub(super) fn announce_loss(&self) {
        if !self.progress.is_forked() {
            // Without the news the launcher blames the rank that it sees ended first.
            let _ = (self.bootstrap.lock()).put(hydrant_launch::BEREFT, b"1");
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
    /// Leaks everything in a forked child. Only the parent may end it: the child lacks the parent's
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

/// Announces that the program has come to its end. If it is dropped before [`done`](Self::done), it
/// withdraws the announcement.
struct ComingToEnd<'a> {
    core: &'a Core,
}

impl<'a> ComingToEnd<'a> {
    fn begin(core: &'a Core) -> Result<Self> {
        let announced = Self { core };
        core.two_sided.come_to_end()?;
        // In this order, so that the news overtakes no message.
        core.progress.wait_all_handled()?;
        core.progress.conduit().come_to_end(true);
        Ok(announced)
    }

    fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for ComingToEnd<'_> {
    fn drop(&mut self) {
        if self.core.progress.is_forked() {
            return;
        }
        self.core.progress.conduit().come_to_end(false);
        self.core.two_sided.resume();
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.progress.is_forked() {
            return self.leak();
        }
        if let Some(leaving) = self.leaving.get_mut().take() {
            leaving.leave_unfinalized();
        }
    }
}

/// Agrees on the number of the job and on the executor of atomic operations. Rank 0 announces both.
/// All ranks must have found the same executor, because a word is changed by one executor.
fn agree(
    bootstrap: &mut dyn Bootstrap,
    settings: &Settings,
    atomics: AtomicsExecutor,
) -> Result<u64> {
    if bootstrap.rank() == 0 {
        let mut announced = Vec::new();
        (number(settings)?, atomics.code()).put(&mut announced);
        bootstrap.put("job-id", &announced)?;
    }
    bootstrap.fence()?;
    let announced = bootstrap.get(0, "job-id")?;
    let unreadable = |_| Error::other("rank 0 published an unreadable job id");
    let (id, theirs): (u64, u8) = only(&announced).map_err(unreadable)?;
    if theirs != atomics.code() {
        return Err(Error::other(format!(
            "rank {} has {}, rank 0 has not: HYDRANT_ATOMICS and HYDRANT_REGISTRATION must be \
             the same at all ranks",
            bootstrap.rank(),
            atomics
        )));
    }
    Ok(id)
}

/// Draws the number of a new job at random, but the same again in virtual time. The number is never
/// zero, which a zeroed pointer would name.
#[cfg_attr(
    not(feature = "sim"),
    expect(unused_variables, reason = "the number is random")
)]
fn number(settings: &Settings) -> Result<u64> {
    #[cfg(feature = "sim")]
    if settings.conduit.is_virtual() {
        return Ok(super::simulated::number(settings) | 1);
    }
    let mut drawn = [0; 8];
    rustix::rand::getrandom(&mut drawn[..], rustix::rand::GetRandomFlags::empty())
        .map_err(std::io::Error::from)?;
    Ok(u64::from_le_bytes(drawn) | 1)
}
