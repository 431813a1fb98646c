//! Who looks after messages, how waiting works, and who gets what arrives.
//!
//! Each rank has one service thread, ARMCI's server. An application thread that waits looks
//! after messages itself and leaves the service thread asleep; while the application
//! computes, the service thread answers, looks on briefly, and blocks.
//!
//! This room owns the conduit. What arrives goes to the rooms above through what they handed in when
//! the job was composed: a [`Route`] for each kind of message, and one [`Operations`] for the ends of
//! one-sided operations.

mod arrivals;
mod attention;
mod backlog;
mod begun;
mod end;
mod errands;
mod faults;
mod guard;
mod handler;
pub(crate) mod kind;
mod onward;
mod rest;
mod send;
mod service;
mod spawned;
mod taking;
mod tasks;
mod until;
mod wait;

use std::{
    any::Any,
    collections::BTreeMap,
    mem::ManuallyDrop,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    task::Waker,
    time::Duration,
};

use hydrant_conduit::{
    Conduit, Message,
    fork::{Origin, Presence},
};
use parking_lot::{Condvar, Mutex};

pub(crate) use arrivals::{Operations, Outcome, Route};
pub(crate) use backlog::Backlog;
pub use begun::Begun;
pub(crate) use begun::Slot;
pub(crate) use errands::Errand;
pub(crate) use handler::in_handler;
pub use handler::may_wait;
pub(crate) use rest::Resting;
pub(crate) use service::start_service;
pub(crate) use tasks::{taken, wait_for, wake};
pub(crate) use wait::{For, On};

use crate::{Error, Rank, Result, Settings, counters::Tally, stripe::Striped};
use attention::Attention;
use begun::Chains;
use faults::Faults;
use onward::Onward;
use spawned::Spawned;

/// The conduit of a rank, and the state of its progress.
pub(crate) struct Progress {
    /// This process.
    pub(crate) rank: Rank,
    /// Processes in the job.
    pub(crate) size: u32,
    /// The job's number: the same at every rank, different from job to job.
    pub(crate) id: u64,
    /// What this rank did.
    pub(crate) tally: Arc<Tally>,
    /// Time passes by what is asked of the conduit: there is no use in looking again and again,
    /// and no service thread.
    pub(crate) virtual_time: bool,
    /// How long a waiting thread spins.
    spin: Duration,
    /// Processors that the ranks of this host share.
    pub(crate) host_cores: usize,
    /// More ranks than cores: whoever spins takes the core from the one it waits for.
    crowded: bool,
    /// Fewer than two cores for each rank: a thread that spins may have the core that a peer's service
    /// thread needs to answer it.
    shares_cores: bool,
    /// Dropped by the process that joined alone: a child has its threads, its descriptors and its registrations not,
    /// or in common with its parent.
    conduit: ManuallyDrop<Box<dyn Conduit>>,
    /// Memory that the conduit knows of; dropped after it.
    kept: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// Who gets messages of each kind; set once, when the job is composed.
    routes: [OnceLock<Arc<dyn Route>>; Message::KINDS as usize],
    /// Who is told of the ends of one-sided operations; set once, when the job is composed.
    operations: OnceLock<Weak<dyn Operations>>,
    /// What peers did wrong.
    faults: Faults,
    /// What application threads say of themselves; each writes its own.
    attention: Striped<Attention>,
    /// Application threads asleep in a wait.
    asleep: AtomicU32,
    /// What whoever polls is to do: bits of [`Backlog`].
    backlog: AtomicU8,
    /// What handlers sent and peers had no room for.
    onward: Mutex<Onward>,
    /// Tasks of the job's own.
    spawned: Mutex<Spawned>,
    /// What was begun and goes on by itself.
    chains: Mutex<Chains>,
    /// The news of programs' ends, until it is old enough.
    news: Mutex<end::News>,
    /// How much of it is.
    settled: AtomicU64,
    /// Whether anything is under way anywhere, as far as others said.
    rest: Mutex<rest::Rest>,
    /// Those that wait [until](until::Until) something is so; and whether there are any.
    hopeful: Mutex<Vec<Waker>>,
    has_hopeful: AtomicBool,
    /// Itself.
    me: Weak<Progress>,
    /// The service thread waits until no application thread is asleep.
    parked: AtomicBool,
    park: Mutex<()>,
    unpark: Condvar,
    /// The service thread sleeps, and not for [room](backlog).
    service_rests: AtomicBool,
    /// How many changes of peers were [noticed](Self::notice_ended); more than there are while news is to be noticed
    /// again.
    noticed: AtomicU64,
    /// Of how many the rooms above were told.
    told: AtomicU64,
    /// There is a service thread until the end of the job.
    served: bool,
    /// Tasks that wait for the end of an operation.
    tasks: AtomicU32,
    /// Who is woken when a peer ends, by the number of a question; they come and go by themselves.
    watchers: Mutex<BTreeMap<u64, Waker>>,
    /// The service thread sleeps, and is not woken by the end of an operation.
    ignores_tasks: AtomicBool,
    /// What goes on while somebody polls, and how much that is.
    errands: Mutex<Vec<Arc<dyn Errand>>>,
    errands_open: AtomicU32,
    /// The process that joined.
    origin: Origin,
    /// The job goes on here; ended once, when this rank leaves.
    running: Presence,
    /// All that waited for peers has been told so.
    closed: AtomicBool,
    /// What the virtual clock showed last, in nanoseconds.
    shown: AtomicU64,
}

impl Progress {
    /// `id`: the job's number.
    pub(crate) fn new(conduit: Box<dyn Conduit>, id: u64, settings: &Settings) -> Arc<Self> {
        Arc::new_cyclic(|me| Self::knowing_itself(me, conduit, id, settings))
    }

    fn knowing_itself(
        me: &Weak<Self>,
        conduit: Box<dyn Conduit>,
        id: u64,
        settings: &Settings,
    ) -> Self {
        // Not those whose memory is mapped here: played NICs map none, and their ranks share the cores all the same.
        let ranks_here = conduit.caps().host_ranks as usize;
        let cores = host_cores(settings);
        let origin = Origin::here();
        crate::stripe::share_in_children();
        Self {
            rank: conduit.rank(),
            size: conduit.size(),
            id,
            tally: Arc::new(Tally::new()),
            virtual_time: settings.conduit.is_virtual(),
            spin: settings.spin,
            host_cores: cores,
            crowded: ranks_here > cores,
            shares_cores: settings.service && 2 * ranks_here > cores,
            conduit: ManuallyDrop::new(conduit),
            kept: OnceLock::new(),
            routes: [const { OnceLock::new() }; Message::KINDS as usize],
            operations: OnceLock::new(),
            faults: Faults::default(),
            attention: Striped::new(Attention::default),
            asleep: AtomicU32::new(0),
            backlog: AtomicU8::new(0),
            onward: Mutex::default(),
            spawned: Mutex::default(),
            chains: Mutex::default(),
            news: Mutex::default(),
            settled: AtomicU64::new(0),
            rest: Mutex::default(),
            hopeful: Mutex::default(),
            has_hopeful: AtomicBool::new(false),
            me: Weak::clone(me),
            parked: AtomicBool::new(false),
            park: Mutex::new(()),
            unpark: Condvar::new(),
            service_rests: AtomicBool::new(false),
            noticed: AtomicU64::new(0),
            told: AtomicU64::new(0),
            served: settings.service && !settings.conduit.is_virtual(),
            tasks: AtomicU32::new(0),
            watchers: Mutex::default(),
            ignores_tasks: AtomicBool::new(false),
            errands: Mutex::new(Vec::new()),
            errands_open: AtomicU32::new(0),
            origin,
            running: Presence::new(origin),
            closed: AtomicBool::new(false),
            shown: AtomicU64::new(u64::MAX),
        }
    }

    /// Who gets messages of a kind, which is one of [`kind`]. Called once a kind, before anything is
    /// polled.
    pub(crate) fn route(&self, kind: u8, route: Arc<dyn Route>) {
        let set = self.routes[usize::from(kind)].set(route);
        debug_assert!(set.is_ok(), "kind {kind} has two routes");
    }

    /// Who is told of the ends of operations. Called once, before anything is posted.
    pub(crate) fn report_to(&self, operations: Weak<dyn Operations>) {
        let set = self.operations.set(operations);
        debug_assert!(set.is_ok(), "operations are told to two");
    }

    /// Keeps memory that the conduit has registered until the conduit is gone. Called once at most.
    pub(crate) fn keep(&self, memory: Arc<dyn Any + Send + Sync>) {
        let set = self.kept.set(memory);
        debug_assert!(set.is_ok(), "one memory is kept");
    }

    /// Itself, for what outlives a call.
    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    /// Whether there are more ranks than cores.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// The network.
    #[inline]
    pub(crate) fn conduit(&self) -> &dyn Conduit {
        &**self.conduit
    }

    /// # Errors
    /// [`Error::RankOutOfRange`].
    #[inline]
    pub(crate) fn check_rank(&self, rank: Rank) -> Result<()> {
        if rank.0 < self.size {
            Ok(())
        } else {
            Err(Error::RankOutOfRange {
                rank,
                size: self.size,
            })
        }
    }

    /// The job is over here.
    pub(crate) fn stop(&self) {
        self.running.end();
        self.unpark_service();
        self.wake_sleepers();
        self.wake_watchers();
        self.conduit.wake(self.rank);
    }

    /// All that waited for peers has been told that the job is over: what is waited for otherwise may never come.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.wake_sleepers();
    }

    /// Whether [that](Self::close) is so.
    fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// # Errors
    /// [`Error::JobOver`], [`Error::Forked`].
    #[inline(always)]
    pub(crate) fn check_running(&self) -> Result<()> {
        match self.is_stopped() {
            false => Ok(()),
            true => Err(self.ended()),
        }
    }

    /// Whether the job is over here, as it is in a child that was forked.
    #[inline(always)]
    pub(crate) fn is_stopped(&self) -> bool {
        !self.running.is_here()
    }

    /// Why the job is over here.
    #[cold]
    #[inline(never)]
    pub(crate) fn ended(&self) -> Error {
        match self.is_forked() {
            true => Error::Forked { rank: self.rank },
            false => Error::JobOver,
        }
    }

    /// Whether this process was forked from the rank. Nothing that a child does reaches the conduit; nor does it take
    /// locks, which threads of the parent may have held that the child has not.
    #[inline(always)]
    pub(crate) fn is_forked(&self) -> bool {
        !self.origin.is_here()
    }

    /// # Errors
    /// [`Error::Forked`].
    #[inline(always)]
    pub(crate) fn check_origin(&self) -> Result<()> {
        match self.is_forked() {
            false => Ok(()),
            true => Err(self.ended()),
        }
    }

    /// Whether this thread may wait for `what`: not in a handler, nor in a child that was forked.
    ///
    /// # Errors
    /// [`Error::InHandler`], [`Error::Forked`].
    #[inline]
    pub(crate) fn may_wait(&self, what: &'static str) -> Result<()> {
        may_wait(what)?;
        self.check_origin()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if !self.is_forked() {
            // SAFETY: nobody has this any more.
            #[allow(unsafe_code)]
            unsafe {
                ManuallyDrop::drop(&mut self.conduit);
            }
        }
    }
}

/// Processors that the ranks of this host share. A rank bound to one still shares nothing with one bound to
/// another, so that its own are no measure.
fn host_cores(settings: &Settings) -> usize {
    if !settings.host_cpus.is_empty() {
        return settings.host_cpus.len();
    }
    let own = std::thread::available_parallelism().map_or(1, usize::from);
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
    own.max(online.map_or(1, |text| cores_in(&text)))
}

/// How many cores the kernel lists, in ranges.
fn cores_in(list: &str) -> usize {
    (list.trim().split(','))
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            last.checked_sub(first)?.checked_add(1)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_counted_as_the_kernel_lists_them() {
        for (list, cores) in [
            ("0\n", 1),
            ("0-3\n", 4),
            ("0-3,6,8-9\n", 7),
            ("3-0", 0),
            ("", 0),
        ] {
            assert_eq!(cores_in(list), cores, "{list:?}");
        }
    }
}
