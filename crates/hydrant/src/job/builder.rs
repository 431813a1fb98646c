//! Starting a job.

use std::{
    fmt,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    time::Duration,
};

use hydrant_conduit::{Conduit, fork::Origin};
use hydrant_launch::{Bootstrap, JoinOptions, Kind};
use hydrant_smp::Foreign;
use parking_lot::Mutex;

use super::{Job, ending::EndKind, network::JobNetwork, threads};
use crate::{
    AtomicsKind, ConduitKind, Error, ForesightPolicy, IdleCores, InterNodeKind, MessageProtocol,
    Rank, Result, Settings, Strategy,
};

/// Collects the settings of a job before it starts. Made by [`Job::builder`].
#[derive(Clone)]
pub struct JobBuilder {
    pub(super) settings: Settings,
    pub(super) through: Option<Arc<Layer>>,
    mpi_communicator: Option<usize>,
}

/// Wraps a conduit into another.
pub(super) type Layer = dyn Fn(Box<dyn Conduit>) -> Box<dyn Conduit> + Send + Sync;

impl fmt::Debug for JobBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobBuilder({:?})", self.settings)
    }
}

impl JobBuilder {
    pub(super) fn new() -> Result<Self> {
        Ok(Self::with(Settings::from_env()?))
    }

    /// Returns a builder that starts from `settings`.
    pub fn with(settings: Settings) -> Self {
        Self {
            settings,
            through: None,
            mpi_communicator: None,
        }
    }

    /// Sets the network that joins the ranks (`HYDRANT_CONDUIT`).
    pub fn conduit(mut self, kind: ConduitKind) -> Self {
        self.settings.conduit = kind;
        self.settings.built("HYDRANT_CONDUIT");
        self
    }

    /// Sets the network that joins ranks of different hosts (`HYDRANT_INTER_NODE`).
    pub fn inter_node(mut self, kind: InterNodeKind) -> Self {
        self.settings.inter_node = kind;
        self.settings.built("HYDRANT_INTER_NODE");
        self
    }

    /// Sets how many hosts the ranks pretend to be on, in blocks (`HYDRANT_PRETEND_HOSTS`). So a
    /// job for several hosts can be tried on one.
    pub fn pretend_hosts(mut self, hosts: u32) -> Self {
        self.settings.pretend_hosts = hosts;
        self.settings.built("HYDRANT_PRETEND_HOSTS");
        self
    }

    /// Sets what changes words of 64 bits atomically (`HYDRANT_ATOMICS`).
    pub fn atomics(mut self, kind: AtomicsKind) -> Self {
        self.settings.atomics = kind;
        self.settings.built("HYDRANT_ATOMICS");
        self
    }

    /// Sets the protocol of two-sided messages (`HYDRANT_MESSAGES`).
    pub fn messages(mut self, protocol: MessageProtocol) -> Self {
        self.settings.messages = protocol;
        self.settings.built("HYDRANT_MESSAGES");
        self
    }

    /// Sets the most bytes of a two-sided message that is sent eagerly (`HYDRANT_MESSAGES_EAGER`),
    /// at most what one active message carries.
    pub fn messages_eager(mut self, bytes: usize) -> Self {
        self.settings.messages_eager = Some(bytes);
        self.settings.built("HYDRANT_MESSAGES_EAGER");
        self
    }

    /// Sets whether peers may name any address of this rank (`HYDRANT_ANYWHERE`), with
    /// [`put_anywhere`](Job::put_anywhere) and [`get_anywhere`](Job::get_anywhere). They may not by
    /// default. Both ranks must set it.
    pub fn anywhere(mut self, may: bool) -> Self {
        self.settings.anywhere = may;
        self.settings.built("HYDRANT_ANYWHERE");
        self
    }

    /// Sets the number of ranks of a simulated job that [`run_spmd`](Self::run_spmd) starts
    /// (`HYDRANT_SIM_RANKS`).
    pub fn sim_ranks(mut self, ranks: u32) -> Self {
        self.settings.sim_ranks = ranks;
        self.settings.built("HYDRANT_SIM_RANKS");
        self
    }

    /// Sets the random seed of a simulated network (`HYDRANT_SIM_SEED`).
    pub fn sim_seed(mut self, seed: u64) -> Self {
        self.settings.sim_seed = seed;
        self.settings.built("HYDRANT_SIM_SEED");
        self
    }

    /// Sets how ranks find each other (`HYDRANT_BOOTSTRAP`).
    pub fn bootstrap(mut self, kind: Kind) -> Self {
        self.settings.bootstrap = kind;
        self.settings.built("HYDRANT_BOOTSTRAP");
        self
    }

    /// Sets the bytes of symmetric memory that each rank may allocate (`HYDRANT_HEAP`).
    pub fn heap(mut self, bytes: usize) -> Self {
        self.settings.heap = bytes;
        self.settings.built("HYDRANT_HEAP");
        self
    }

    /// Sets the strategy of registration, for networks that need it (`HYDRANT_REGISTRATION`).
    pub fn registration(mut self, strategy: Strategy) -> Self {
        self.settings.registration.strategy = strategy;
        self.settings.built("HYDRANT_REGISTRATION");
        self
    }

    /// Sets whether the strategy `foresight` moves firehoses ahead of need
    /// (`HYDRANT_FORESIGHT_FIREHOSES`).
    pub fn foresee_firehoses(mut self, on: bool) -> Self {
        self.settings.foresight.firehoses = on;
        self.settings.built("HYDRANT_FORESIGHT_FIREHOSES");
        self
    }

    /// Sets whether the strategy `foresight` keeps memory registered where evictions cost more than
    /// a small part of the time (`HYDRANT_FORESIGHT_STEPS_BACK`). If not, it evicts all memory that
    /// it does not expect soon, as in the paper.
    pub fn foresight_steps_back(mut self, on: bool) -> Self {
        self.settings.foresight.steps_back = on;
        self.settings.built("HYDRANT_FORESIGHT_STEPS_BACK");
        self
    }

    /// Sets how many idle cores of a host the helpers of the strategy `foresight` share
    /// (`HYDRANT_FORESIGHT_CORES`).
    pub fn foresight_cores(mut self, cores: IdleCores) -> Self {
        self.settings.foresight.cores = cores;
        self.settings.built("HYDRANT_FORESIGHT_CORES");
        self
    }

    /// Sets how these helpers share too few cores (`HYDRANT_FORESIGHT_POLICY`).
    pub fn foresight_policy(mut self, policy: ForesightPolicy) -> Self {
        self.settings.foresight.policy = policy;
        self.settings.built("HYDRANT_FORESIGHT_POLICY");
        self
    }

    /// Sets M: the bytes that peers together may keep registered here (`HYDRANT_M`).
    pub fn m(mut self, bytes: u64) -> Self {
        self.settings.registration.m = Some(bytes);
        self.settings.built("HYDRANT_M");
        self
    }

    /// Sets the bytes that may stay registered beside M (`HYDRANT_MAXVICTIM`).
    pub fn maxvictim(mut self, bytes: u64) -> Self {
        self.settings.registration.maxvictim = Some(bytes);
        self.settings.built("HYDRANT_MAXVICTIM");
        self
    }

    /// Sets the bytes of a bucket (`HYDRANT_BUCKET`).
    pub fn bucket(mut self, bytes: usize) -> Self {
        self.settings.registration.bucket = Some(bytes);
        self.settings.built("HYDRANT_BUCKET");
        self
    }

    /// Sets the most bytes of data that piggyback on a move (`HYDRANT_PIGGYBACK`).
    pub fn piggyback(mut self, bytes: usize) -> Self {
        self.settings.registration.piggyback = bytes;
        self.settings.built("HYDRANT_PIGGYBACK");
        self
    }

    /// Sets whether victims may fill what peers leave unused (`HYDRANT_ADAPTIVE_VICTIMS`).
    pub fn adaptive_victims(mut self, on: bool) -> Self {
        self.settings.registration.adaptive_victims = on;
        self.settings.built("HYDRANT_ADAPTIVE_VICTIMS");
        self
    }

    /// Sets whether a peer may borrow what others leave unused (`HYDRANT_BORROW`).
    pub fn borrowing(mut self, on: bool) -> Self {
        self.settings.registration.borrowing = on;
        self.settings.built("HYDRANT_BORROW");
        self
    }

    /// Sets whether consecutive misses widen registrations (`HYDRANT_WIDEN`).
    pub fn widening(mut self, on: bool) -> Self {
        self.settings.registration.widening = on;
        self.settings.built("HYDRANT_WIDEN");
        self
    }

    /// Sets whether a thread answers peers while the application computes (`HYDRANT_SERVICE`).
    /// Without it, call [`Job::poll`] now and then.
    pub fn service(mut self, on: bool) -> Self {
        self.settings.service = on;
        self.settings.built("HYDRANT_SERVICE");
        self
    }

    /// Sets the processors on which that thread may run (`HYDRANT_SERVICE_CPUS`). With none,
    /// Hydrant chooses. If no processors are idle, choose those of ranks that wait for answers:
    /// then an answer need not cross to another core.
    ///
    /// Handlers run on that thread. A thread that a handler starts inherits these processors.
    pub fn service_cpus(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.settings.service_cpus = cpus.into_iter().collect();
        self.settings.built("HYDRANT_SERVICE_CPUS");
        self
    }

    /// Sets how long a waiting thread spins before it yields and sleeps (`HYDRANT_SPIN`).
    pub fn spin(mut self, time: Duration) -> Self {
        self.settings.spin = time;
        self.settings.built("HYDRANT_SPIN");
        self
    }

    /// Sets how long to wait for the other ranks at the start (`HYDRANT_JOIN_TIMEOUT`).
    pub fn join_timeout(mut self, time: Duration) -> Self {
        self.settings.join_timeout = time;
        self.settings.built("HYDRANT_JOIN_TIMEOUT");
        self
    }

    /// Sets the number of messages that the ring between two ranks holds (`HYDRANT_RING_SLOTS`).
    pub fn ring_slots(mut self, slots: usize) -> Self {
        self.settings.ring_slots = slots;
        self.settings.built("HYDRANT_RING_SLOTS");
        self
    }

    /// Sets the bytes of payload that a ring holds (`HYDRANT_RING_PAYLOAD`). A message carries at
    /// most a quarter.
    pub fn ring_payload(mut self, bytes: usize) -> Self {
        self.settings.ring_payload = Some(bytes);
        self.settings.built("HYDRANT_RING_PAYLOAD");
        self
    }

    /// Sets the number of buffers that a rank may have exposed at once, and on `smp+pin` of
    /// registered extents (`HYDRANT_EXTENTS`).
    pub fn extents(mut self, extents: usize) -> Self {
        self.settings.extents = Some(extents);
        self.settings.built("HYDRANT_EXTENTS");
        self
    }

    /// Sets how memory outside the heap is reached (`HYDRANT_SMP_FOREIGN`).
    pub fn foreign(mut self, foreign: Foreign) -> Self {
        self.settings.foreign = foreign;
        self.settings.built("HYDRANT_SMP_FOREIGN");
        self
    }

    /// Puts a conduit of the program between each rank and the network: to observe the traffic, or
    /// to try a network that offers less. Memory safety then rests on the author's `unsafe impl
    /// Conduit`.
    pub fn through(
        mut self,
        layer: impl Fn(Box<dyn Conduit>) -> Box<dyn Conduit> + Send + Sync + 'static,
    ) -> Self {
        self.through = Some(Arc::new(layer));
        self
    }

    /// Makes the processes of an MPI communicator the ranks of the job, in its order, if the
    /// program has initialized MPI. `communicator` is its handle in C: an address for Open MPI, a
    /// number for MPICH. The job uses it while it starts, and to abort. [`join`](Self::join) is
    /// then collective over these processes.
    pub fn mpi_communicator(mut self, communicator: usize) -> Self {
        self.mpi_communicator = Some(communicator);
        self
    }

    /// Returns the settings so far.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// As [`join`](crate::join), with these settings.
    ///
    /// # Errors
    /// As [`join`](crate::join).
    pub fn join(self) -> Result<Job> {
        if self.settings.conduit.is_virtual() {
            let conduit = self.settings.conduit.to_string();
            return Err(Error::Setting {
                name: "HYDRANT_CONDUIT",
                expected: format!(
                    "a network of processes, because this program is one rank; on `{conduit}` \
                     the ranks are threads of one process, which `run_spmd` starts"
                ),
                value: conduit,
            });
        }
        let mut bootstrap = self.launcher()?;
        match JobNetwork::of_processes(&self).attach(&self, &mut *bootstrap) {
            Ok(conduit) => Job::start(conduit, bootstrap, self.settings),
            // The lost rank reports its own error, unless an abort ends it first.
            Err(error @ Error::PeerLost(_)) => Err(error),
            Err(error) => {
                bootstrap.abort(1, &error.to_string());
                Err(error)
            }
        }
    }

    /// As [`run`](crate::run), with these settings.
    ///
    /// # Errors
    /// As [`run`](crate::run).
    ///
    /// # Panics
    /// As [`run`](crate::run).
    pub fn run<R>(self, body: impl FnOnce(&Job) -> Result<R>) -> Result<R> {
        let job = self.join()?;
        let (mut body, mut result) = (Some(body), None);
        run_to_end(job, &mut |job| {
            result = body.take().map(|body| body(job)).transpose()?;
            Ok(())
        })?;
        Ok(result.expect("the body of a job that ended well has returned"))
    }

    /// As [`run_spmd`](crate::run_spmd), with these settings.
    ///
    /// # Errors
    /// As [`run_spmd`](crate::run_spmd).
    ///
    /// # Panics
    /// As [`run_spmd`](crate::run_spmd).
    pub fn run_spmd<R: Send>(self, body: impl Fn(&Job) -> Result<R> + Sync) -> Result<R> {
        if !self.settings.conduit.is_virtual() {
            return self.run(body);
        }
        let mut bootstrap = self.launcher()?;
        threads::run_as_one_process(&self, &mut *bootstrap, body)
    }

    /// Runs a job of `n` ranks as threads of this process: for tests, and for programs that embed a
    /// job. All is as between processes, except that no process can die alone.
    ///
    /// # Panics
    /// If the `body` of a rank panics, once all ranks have ended.
    pub fn run_local<R: Send>(
        self,
        n: u32,
        body: impl Fn(&Job) -> Result<R> + Sync,
    ) -> Vec<Result<R>> {
        self.settings.warn_unknown();
        threads::run(&self, n, body)
    }

    /// Connects to the launcher of this process.
    ///
    /// # Errors
    /// [`Error::Forked`] in a child of a process that joined. The connection belongs to the parent,
    /// which may still use it.
    fn launcher(&self) -> Result<Box<dyn Bootstrap>> {
        /// The process that joined last, and its rank.
        static JOINED: Mutex<Option<(Origin, Rank)>> = Mutex::new(None);
        // The lock is not held while a thread waits, so a child rarely finds it taken.
        let before = JOINED.try_lock().and_then(|joined| *joined);
        if let Some((origin, rank)) = before
            && !origin.is_here()
        {
            return Err(Error::Forked { rank });
        }
        let bootstrap = hydrant_launch::join_with(&JoinOptions {
            kind: self.settings.bootstrap,
            mpi_communicator: self.mpi_communicator,
            ..JoinOptions::default()
        })?;
        *JOINED.lock() = Some((Origin::here(), Rank(bootstrap.rank())));
        if bootstrap.rank() == 0 {
            self.settings.warn_unknown();
        }
        Ok(bootstrap)
    }
}

/// Runs a body in a job, and ends the job. The body is called once and keeps its result itself. So
/// this function is compiled once, and not in every program for each body.
pub(super) fn run_to_end(job: Job, body: &mut dyn FnMut(&Job) -> Result<()>) -> Result<()> {
    let progress = job.progress();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        body(&job)?;
        match job.finalize() {
            // The body finalized the job itself.
            Err(Error::JobOver) => Ok(()),
            ended => ended,
        }
    }));
    let lost_peer = matches!(outcome, Ok(Err(Error::PeerLost(_)))) && !progress.is_lost_itself();
    let outcome = if progress.is_forked() {
        // In a child, while the parent goes on in the body.
        outcome
    } else {
        outcome.map(|result| result.map_err(|error| progress.cause_of(error)))
    };
    job.core().leave(if lost_peer {
        EndKind::LostPeer
    } else {
        EndKind::Failed
    });
    match outcome {
        Ok(result) => result,
        Err(cause) => panic::resume_unwind(cause),
    }
}
