//! The job: its ranks, its start and its end.
//!
//! A rank whose body fails or panics is lost to the others at once. A rank that returns in good
//! order waits in a last barrier until all have.
//!
//! # The end of a job
//!
//! 1. The program's end completes what is in flight. From then on its rank keeps no message without
//!    a posted receive.
//! 2. When all that the rank has sent was handled, the conduit announces its end: a word in the
//!    rank's block (`smp`), a datagram (`verbs`), a mark in the world (`sim`). So a rank that hears
//!    of the end has all messages. The rank still answers until it leaves.
//! 3. All ranks meet in an agreement. If one of them makes another call, the ranks disagree, and
//!    the job goes on.
//! 4. Receives whose messages no rank sent fail.
//! 5. Each rank completes its calls, messages and operations. Functions and handlers may
//!    communicate until the last meeting. A rank is still if nothing is in flight there, and it has
//!    handled and begun nothing since the meeting before. If all ranks are still, nothing was in
//!    flight in the job at that meeting (the four-counter method). Otherwise they meet again, at
//!    most 64 times, because functions may call each other forever.
//! 6. The ranks leave ([`ending`]). Remaining waiters get
//!    [`Error::JobOver`](crate::Error::JobOver).
//!
//! A call whose function only waits does not count as in flight. Its rank waits two seconds for the answer before
//! each meeting, because something outside the job may wake the function.
//!
//! A waiter for a message or a member checks the news of ends (`progress::end`). News counts when no other has come for
//! 200 ms. If all ranks come to the end at about the same time, waiters thus get `JobOver`, and no error about
//! one rank. A waiter for a word of its memory also asks the others whether they rest (`progress::rest`), because
//! their handlers and tasks may still store to it.
//!
//! # Rooms are composed here
//!
//! `core.rs` composes all rooms. References from lower to higher rooms are weak, or hold nothing of the conduit, so
//! that the memory of an ended job is released.

mod alloc;
mod anywhere;
mod builder;
mod builder_settings;
mod collective;
mod conduits;
mod core;
mod ending;
mod exclusive;
mod hosts;
mod joining;
#[cfg(test)]
mod message_tests;
mod messages;
mod mutexes;
mod network;
#[cfg(feature = "sim")]
mod one_process;
mod raw;
mod rma;
mod signals;
#[cfg(feature = "sim")]
mod simulated;
mod start;
mod threads;
mod two_sided;

use std::{
    process,
    sync::{Arc, Weak},
    time::Duration,
};

use hydrant_conduit::Conduit;
use hydrant_launch::Bootstrap;

pub use builder::JobBuilder;
pub(crate) use core::Core;

use crate::{Counters, Rank, Result, Settings, progress, progress::Progress};

/// Joins the job that this process belongs to and runs `body` in it.
///
/// Under `hydrant run`, `mpiexec`, `srun` or `mpirun` every rank runs the same program. A process
/// that nobody launched is a job of one. The job ends in good order when every rank's `body` has
/// returned `Ok`: `run` [waits](Job::finalize) for that. If `body` fails or panics, the others get
/// [`Error::PeerLost`](crate::Error::PeerLost) wherever they wait for this rank.
///
/// # Errors
/// The error that `body` returns; as [`join`].
///
/// # Panics
/// If `body` panics.
pub fn run<R>(body: impl FnOnce(&Job) -> Result<R>) -> Result<R> {
    JobBuilder::new()?.run(body)
}

/// As [`run`], and also on a simulated network (feature `sim`). There this process is
/// the whole job: its ranks are threads, as many as `HYDRANT_SIM_RANKS` says, and each runs `body`.
/// The result is that of rank 0. If ranks failed, it is the first failure by rank that is not a
/// [`PeerLost`](crate::Error::PeerLost).
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// If `body` panics.
pub fn run_spmd<R: Send>(body: impl Fn(&Job) -> Result<R> + Sync) -> Result<R> {
    JobBuilder::new()?.run_spmd(body)
}

/// Joins the job that this process belongs to, as [`run`] does, until it is
/// [finalized](Job::finalize).
///
/// ```
/// # fn main() -> hydrant::Result<()> {
/// let job = hydrant::join()?;
/// let field = job.alloc::<u64>(8)?;
/// let (own, part) = (job.clone(), field.clone());
/// let worker = std::thread::spawn(move || part.put(own.right(), 0, &[1, 2]));
/// worker.join().expect("the thread does not panic")?;
/// job.finalize()
/// # }
/// ```
///
/// # Errors
/// [`Error::Launch`](crate::Error::Launch) or [`Error::Setting`](crate::Error::Setting) if the job
/// cannot be joined. It cannot on a simulated network, whose ranks are threads: see [`run_spmd`].
pub fn join() -> Result<Job> {
    JobBuilder::new()?.join()
}

/// A job, as seen by one of its ranks. Any number of threads may use it at once.
///
/// This is a handle: a clone is cheap, names the same job, and may move to any thread, task or
/// structure. The job ends here when it is [finalized](Self::finalize), or when [`run`]'s body
/// returns. From then on calls that communicate return [`Error::JobOver`](crate::Error::JobOver).
/// If the last handle is dropped before, this rank has failed: the others get
/// [`Error::PeerLost`](crate::Error::PeerLost) where they wait for it, and the launcher is told.
///
/// # Children
/// A child that was forked from a rank, and does not call `exec`, has copies of the rank's handles
/// and takes no part in the job.
///
/// - Calls that communicate return [`Error::Forked`](crate::Error::Forked) there. So does [`run`]
///   if its body returns in the child.
/// - A drop, a panic or `exit` in the child ends nothing in the job. [`abort`](Self::abort) ends
///   only the child.
/// - Views and slices from before the fork stay readable, and so do exposed buffers. A new view is
///   an error. The child's stores there are its own. Pages that it has not stored to show the
///   stores of the ranks.
/// - The child cannot join a job either, because the launcher knows its parent. It may run jobs
///   whose ranks are [threads](JobBuilder::run_local).
/// - A child has only the thread that called `fork`. Of the C library and other crates it may use
///   what they allow in the child of a multithreaded program.
#[derive(Clone)]
pub struct Job {
    core: Arc<Core>,
}

/// A [`Job`] handle that does not keep the job alive. It is for data that the job keeps itself, as
/// its [handlers](Job::handler) and [functions](Job::async_function): with a `Job` they would keep
/// each other alive forever.
#[derive(Clone)]
pub struct WeakJob {
    core: Weak<Core>,
}

impl WeakJob {
    /// Returns the job, unless its last handle was dropped.
    pub fn upgrade(&self) -> Option<Job> {
        let core = self.core.upgrade()?;
        Some(Job { core })
    }
}

impl std::fmt::Debug for WeakJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakJob")
    }
}

impl Job {
    /// Returns a builder that starts from the settings of the environment.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting).
    pub fn builder() -> Result<JobBuilder> {
        JobBuilder::new()
    }

    /// Starts the job on an attached conduit.
    fn start(
        conduit: Box<dyn Conduit>,
        bootstrap: Box<dyn Bootstrap>,
        settings: Settings,
    ) -> Result<Self> {
        let core = Core::start(conduit, bootstrap, settings)?;
        Ok(Self { core })
    }

    /// Ends the job in good order: completes what this rank has in flight, waits until every rank
    /// does the same while it answers them, and leaves. Collective. From then on, clones of this
    /// handle and all that the job made are useless.
    ///
    /// - **Completed** are puts, gets, atomic operations and collectives that were begun. Calls are
    ///   completed when their answers arrive, which the handles still give. One-way calls, and
    ///   calls whose handles were dropped, are completed when their functions have run, or have
    ///   begun if they are [`async`](Self::async_function). Messages are completed when they were
    ///   received, and receives if their messages were sent. The same holds for calls and
    ///   operations that functions and handlers begin meanwhile, if they come to an end: each rank
    ///   completes its operations in flight at most 64 times.
    /// - **Failed** is a message that its receiver did not ask for before it came to the end of the
    ///   job itself. So is a receive whose message no rank sent. So is a call of an `async`
    ///   function that only waits while nothing is in flight in the job for two seconds. Their
    ///   handles return [`Error::JobOver`](crate::Error::JobOver). Detached tasks are dropped where
    ///   they are.
    /// - **Other threads** of this rank send and receive nothing more from here on, and get
    ///   [`Error::JobOver`](crate::Error::JobOver). Their pending waits end with that error when the
    ///   job is over, a [`wait_for`](Self::wait_for) too.
    /// - **Other ranks** get an error if they wait for something that only this rank's program would
    ///   do. A message, or a collective of a team, fails with
    ///   [`Error::PeerEnded`](crate::Error::PeerEnded). A message from any rank, or a word of the
    ///   waiting rank's memory, fails with [`Error::OthersEnded`](crate::Error::OthersEnded) once all
    ///   others have come to the end. Messages that this rank sent before are received first. Until
    ///   all have come, this rank answers: its memory can be reached, and its handlers and functions
    ///   run. These may send active messages and begin operations themselves.
    ///
    /// # Errors
    /// - [`Error::JobOver`](crate::Error::JobOver) if the job was finalized before.
    /// - [`Error::InHandler`](crate::Error::InHandler).
    /// - [`Error::OutOfTurn`](crate::Error::OutOfTurn) while another thread of this rank is in a
    ///   collective of all ranks.
    /// - [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch) if another rank is in a
    ///   collective that this rank did not join.
    /// - [`Error::PeerLost`](crate::Error::PeerLost). The job then goes on until the last handle is
    ///   dropped. Messages that this rank had not received by then are lost.
    pub fn finalize(&self) -> Result<()> {
        progress::may_wait("finalize")?;
        self.active()?.transfer.finish_all()?;
        self.progress().finish_errands()?;
        self.core.come_to_end()?;
        self.core.leave(ending::EndKind::Orderly);
        Ok(())
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Returns the rooms of the job, unless it is over.
    ///
    /// # Errors
    /// [`Error::JobOver`](crate::Error::JobOver).
    #[inline]
    pub(crate) fn active(&self) -> Result<&Core> {
        self.core.progress.check_running()?;
        Ok(&self.core)
    }

    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.core.progress
    }

    /// Returns a handle that does not keep the job alive.
    pub fn downgrade(&self) -> WeakJob {
        WeakJob {
            core: Arc::downgrade(&self.core),
        }
    }

    /// Returns the rank of this process.
    #[inline]
    pub fn rank(&self) -> Rank {
        self.core.progress.rank
    }

    /// Returns the number of ranks in the job.
    #[inline]
    pub fn size(&self) -> u32 {
        self.core.progress.size
    }

    /// Returns the next rank around the ring.
    pub fn right(&self) -> Rank {
        Rank((self.rank().0 + 1) % self.size())
    }

    /// Returns the previous rank around the ring.
    pub fn left(&self) -> Rank {
        Rank((self.rank().0 + self.size() - 1) % self.size())
    }

    /// Returns all ranks, this one included.
    pub fn ranks(&self) -> impl ExactSizeIterator<Item = Rank> + use<> {
        (0..self.size()).map(Rank)
    }

    /// Returns the ranks whose memory this rank reaches directly: those of its host, itself
    /// included.
    pub fn host_ranks(&self) -> impl Iterator<Item = Rank> + '_ {
        self.ranks()
            .filter(|rank| self.core.progress.conduit().window(*rank).is_some())
    }

    /// Checks that the program of `rank` has not come to its end, so that it may still do what the
    /// caller waits for. It neither waits nor handles messages: a loop around it calls
    /// [`poll`](Self::poll). It may be called in a handler, and in the condition of a
    /// [`wait_until`](Self::wait_until), which then ends when the check fails.
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// # hydrant::Job::builder()?.run_local(2, |job| {
    /// let flags = job.alloc::<u64>(1)?;
    /// if job.rank().0 == 0 {
    ///     let ended = || job.check_present(job.right()).is_err();
    ///     job.wait_until(&flags, 0, |word| word == 1 || ended())?;
    /// }
    /// # Ok(())
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::PeerEnded`](crate::Error::PeerEnded) if the program came to the end of the job in
    ///   good order. All that it sent or put before has arrived.
    /// - [`Error::PeerLost`](crate::Error::PeerLost) if the rank ended otherwise.
    /// - [`Error::JobOver`](crate::Error::JobOver),
    ///   [`Error::RankOutOfRange`](crate::Error::RankOutOfRange).
    pub fn check_present(&self, rank: Rank) -> Result<()> {
        let progress = &self.active()?.progress;
        progress.check_rank(rank)?;
        progress.check_present(rank, "its program does nothing more")
    }

    /// Returns the team of all ranks.
    pub fn world(&self) -> &crate::Team {
        &self.core.world
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> &Settings {
        &self.core.settings
    }

    /// Returns the counters of this rank so far.
    pub fn counters(&self) -> Counters {
        self.core.progress.tally.snapshot()
    }

    /// Returns the registrations and decisions of this rank so far, if the network needs registered
    /// memory. Returns `None` in a forked child.
    pub fn registration(&self) -> Option<crate::RegistrationStats> {
        (self.registration_here()).map(crate::registration::Registration::stats)
    }

    /// Returns the registrations of this process, or `None` in a forked child.
    fn registration_here(&self) -> Option<&crate::registration::Registration> {
        let registration = self.core.transfer.registration();
        registration.filter(|_| !self.progress().is_forked())
    }

    /// Returns how well the strategy [`Foresight`](crate::Strategy::Foresight) predicted the uses
    /// of memory. Returns `None` with other strategies and in a forked child.
    #[cfg(feature = "foresight")]
    pub fn foresight(&self) -> Option<crate::Foresight> {
        let foreseeing = self.core.foreseeing.as_ref();
        (foreseeing.filter(|_| !self.progress().is_forked())).map(|it| it.stats())
    }

    /// Starts to record the registered bytes of this rank over time, for
    /// [`registered_series`](Self::registered_series). Each registration then costs a moment and a
    /// few bytes more.
    pub fn keep_registered_series(&self) {
        if let Some(registration) = self.registration_here() {
            registration.keep_series();
        }
    }

    /// Returns the registered bytes of this rank, each with the time of the change, since they [are
    /// recorded](Self::keep_registered_series). Earlier registrations are not counted. Times are
    /// those of [`now`](Self::now).
    pub fn registered_series(&self) -> Vec<(std::time::Duration, u64)> {
        let registration = self.registration_here();
        registration.map_or_else(Vec::new, |it| it.series())
    }

    /// Returns the capabilities of the conduit under the job, and its costs of registration.
    pub fn conduit(&self) -> &hydrant_conduit::Caps {
        self.core.progress.conduit().caps()
    }

    /// Returns the memory that the conduit under the job uses itself.
    pub fn footprint(&self) -> hydrant_conduit::Footprint {
        self.core.progress.conduit().footprint()
    }

    /// Returns the port of the network that this rank uses, for people: an RDMA device and its port, or a provider of
    /// libfabric with interface and address. It is empty where shared memory joins all ranks.
    pub fn port(&self) -> String {
        self.core.progress.conduit().port()
    }

    /// Returns whether NICs change words of 64 bits ([`AtomicsKind`](crate::AtomicsKind)).
    /// `docs/registration.md` says what that means for elements of `u64`, `i64` and `f64`.
    pub fn has_native_atomics(&self) -> bool {
        self.core.atomics != crate::atomics::AtomicsExecutor::Processors
    }

    /// Returns the time since the job started, on the conduit's clock, which is virtual on a
    /// simulated network. A program measures with this clock and not with `Instant`: in virtual
    /// time the ranks take turns on the processors, so real time says nothing about them.
    pub fn now(&self) -> Duration {
        self.core.progress.now()
    }

    /// Declares that the program computes so many operations here. In real time this does nothing,
    /// because computing takes its time anyway. In virtual time computing takes no time except for
    /// what is declared here. Messages that arrive meanwhile are handled as the host attends to
    /// them.
    ///
    /// Virtual time ends after 106 days: computing then takes a rank only up to that time, and its
    /// other operations still take their time. In a handler, and when the job is over, this does
    /// nothing.
    #[cfg(feature = "sim")]
    pub fn compute(&self, operations: u64) {
        if progress::may_wait("compute").is_ok()
            && let Ok(core) = self.active()
        {
            let progress = &core.progress;
            (progress.conduit()).compute(operations, &mut progress.arrivals());
            progress.wake_condition_waiters();
        }
    }

    /// Ends the whole job with `status` now: tells peers and the launcher, and exits this process.
    /// The system keeps only the low eight bits of a status. If these are zero but the status is
    /// not, it becomes 1, so that no failure becomes a success. In a forked child only the child
    /// ends.
    pub fn abort(&self, status: i32) -> ! {
        let status = i32::from(hydrant_launch::exit_status(status));
        self.core.abort(status);
        process::exit(status)
    }

    /// Ends this process with `status` because a peer is lost. The launcher then waits for the news of that peer, whose
    /// failure decides the status of the job. Peers are not told more than that this process has ended.
    pub fn exit_for_loss(&self, status: i32) -> ! {
        self.core.announce_loss();
        process::exit(hydrant_launch::exit_status(status).into())
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job(rank {} of {})", self.rank(), self.size())
    }
}
