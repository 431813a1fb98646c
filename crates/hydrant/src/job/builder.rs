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

use super::{Job, ending::End, network::Network, threads};
use crate::{
    AtomicsKind, ConduitKind, Error, ForesightPolicy, IdleCores, InterNodeKind, MessageProtocol,
    Rank, Result, Settings, Strategy,
};

/// Says how a job is to be, before it starts. Made by [`Job::builder`].
#[derive(Clone)]
pub struct JobBuilder {
    pub(super) settings: Settings,
    pub(super) through: Option<Arc<Layer>>,
    mpi_communicator: Option<usize>,
}

/// Puts a conduit over another.
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

    /// A builder that starts from the settings given.
    pub fn with(settings: Settings) -> Self {
        Self {
            settings,
            through: None,
            mpi_communicator: None,
        }
    }

    /// Which network joins the ranks (`HYDRANT_CONDUIT`).
    pub fn conduit(mut self, kind: ConduitKind) -> Self {
        self.settings.conduit = kind;
        self.settings.built("HYDRANT_CONDUIT");
        self
    }

    /// Which network joins ranks of different hosts (`HYDRANT_INTER_NODE`).
    pub fn inter_node(mut self, kind: InterNodeKind) -> Self {
        self.settings.inter_node = kind;
        self.settings.built("HYDRANT_INTER_NODE");
        self
    }

    /// How many hosts the ranks pretend to be on, in blocks (`HYDRANT_PRETEND_HOSTS`): to try on
    /// one host what happens on several.
    pub fn pretend_hosts(mut self, hosts: u32) -> Self {
        self.settings.pretend_hosts = hosts;
        self.settings.built("HYDRANT_PRETEND_HOSTS");
        self
    }

    /// Who changes words of 64 bits atomically (`HYDRANT_ATOMICS`).
    pub fn atomics(mut self, kind: AtomicsKind) -> Self {
        self.settings.atomics = kind;
        self.settings.built("HYDRANT_ATOMICS");
        self
    }

    /// How two-sided messages go (`HYDRANT_MESSAGES`).
    pub fn messages(mut self, protocol: MessageProtocol) -> Self {
        self.settings.messages = protocol;
        self.settings.built("HYDRANT_MESSAGES");
        self
    }

    /// Most bytes of a two-sided message that is sent at once (`HYDRANT_MESSAGES_EAGER`), at most what
    /// one active message carries.
    pub fn messages_eager(mut self, bytes: usize) -> Self {
        self.settings.messages_eager = Some(bytes);
        self.settings.built("HYDRANT_MESSAGES_EAGER");
        self
    }

    /// Whether peers may name any address of this rank (`HYDRANT_ANYWHERE`), with
    /// [`put_anywhere`](Job::put_anywhere) and [`get_anywhere`](Job::get_anywhere). They may not,
    /// unless this is said at both.
    pub fn anywhere(mut self, may: bool) -> Self {
        self.settings.anywhere = may;
        self.settings.built("HYDRANT_ANYWHERE");
        self
    }

    /// Ranks of a simulated job that [`run`](Self::run) starts (`HYDRANT_SIM_RANKS`).
    pub fn sim_ranks(mut self, ranks: u32) -> Self {
        self.settings.sim_ranks = ranks;
        self.settings.built("HYDRANT_SIM_RANKS");
        self
    }

    /// What a simulated network draws its chances from (`HYDRANT_SIM_SEED`).
    pub fn sim_seed(mut self, seed: u64) -> Self {
        self.settings.sim_seed = seed;
        self.settings.built("HYDRANT_SIM_SEED");
        self
    }

    /// How ranks find each other (`HYDRANT_BOOTSTRAP`).
    pub fn bootstrap(mut self, kind: Kind) -> Self {
        self.settings.bootstrap = kind;
        self.settings.built("HYDRANT_BOOTSTRAP");
        self
    }

    /// Bytes of symmetric memory that each rank may allocate (`HYDRANT_HEAP`).
    pub fn heap(mut self, bytes: usize) -> Self {
        self.settings.heap = bytes;
        self.settings.built("HYDRANT_HEAP");
        self
    }

    /// How memory gets registered, where the network needs that (`HYDRANT_REGISTRATION`).
    pub fn registration(mut self, strategy: Strategy) -> Self {
        self.settings.registration.strategy = strategy;
        self.settings.built("HYDRANT_REGISTRATION");
        self
    }

    /// Whether the strategy `foresight` moves firehoses ahead of need (`HYDRANT_FORESIGHT_FIREHOSES`).
    pub fn foresee_firehoses(mut self, on: bool) -> Self {
        self.settings.foresight.firehoses = on;
        self.settings.built("HYDRANT_FORESIGHT_FIREHOSES");
        self
    }

    /// Sets whether the strategy `foresight` steps back where giving memory up costs more than a small part of the time
    /// (`HYDRANT_FORESIGHT_STEPS_BACK`). If not, it gives up all that it does not expect soon, as its paper has it.
    pub fn foresight_steps_back(mut self, on: bool) -> Self {
        self.settings.foresight.steps_back = on;
        self.settings.built("HYDRANT_FORESIGHT_STEPS_BACK");
        self
    }

    /// How many idle cores of a host the helpers of the strategy `foresight` share (`HYDRANT_FORESIGHT_CORES`).
    pub fn foresight_cores(mut self, cores: IdleCores) -> Self {
        self.settings.foresight.cores = cores;
        self.settings.built("HYDRANT_FORESIGHT_CORES");
        self
    }

    /// How they do where the cores are fewer (`HYDRANT_FORESIGHT_POLICY`).
    pub fn foresight_policy(mut self, policy: ForesightPolicy) -> Self {
        self.settings.foresight.policy = policy;
        self.settings.built("HYDRANT_FORESIGHT_POLICY");
        self
    }

    /// M: bytes that peers together may keep registered here (`HYDRANT_M`).
    pub fn m(mut self, bytes: u64) -> Self {
        self.settings.registration.m = Some(bytes);
        self.settings.built("HYDRANT_M");
        self
    }

    /// Bytes that may stay registered beside M (`HYDRANT_MAXVICTIM`).
    pub fn maxvictim(mut self, bytes: u64) -> Self {
        self.settings.registration.maxvictim = Some(bytes);
        self.settings.built("HYDRANT_MAXVICTIM");
        self
    }

    /// Bytes of a bucket (`HYDRANT_BUCKET`).
    pub fn bucket(mut self, bytes: usize) -> Self {
        self.settings.registration.bucket = Some(bytes);
        self.settings.built("HYDRANT_BUCKET");
        self
    }

    /// Most bytes of data that ride on a move (`HYDRANT_RIDE`).
    pub fn ride(mut self, bytes: usize) -> Self {
        self.settings.registration.ride = bytes;
        self.settings.built("HYDRANT_RIDE");
        self
    }

    /// Whether victims may fill what peers leave unused (`HYDRANT_ADAPTIVE_VICTIMS`).
    pub fn adaptive_victims(mut self, on: bool) -> Self {
        self.settings.registration.adaptive_victims = on;
        self.settings.built("HYDRANT_ADAPTIVE_VICTIMS");
        self
    }

    /// Whether a peer may borrow what others leave unused (`HYDRANT_BORROW`).
    pub fn borrowing(mut self, on: bool) -> Self {
        self.settings.registration.borrowing = on;
        self.settings.built("HYDRANT_BORROW");
        self
    }

    /// Whether misses in sequence widen registrations (`HYDRANT_WIDEN`).
    pub fn widening(mut self, on: bool) -> Self {
        self.settings.registration.widening = on;
        self.settings.built("HYDRANT_WIDEN");
        self
    }

    /// Whether a thread answers peers while the application computes (`HYDRANT_SERVICE`).
    /// Without it, call [`Job::poll`] now and then.
    pub fn service(mut self, on: bool) -> Self {
        self.settings.service = on;
        self.settings.built("HYDRANT_SERVICE");
        self
    }

    /// The processors on which that thread may run (`HYDRANT_SERVICE_CPUS`); none: the choice is Hydrant's. Those
    /// of ranks that wait for answers, where no others are idle, spare each answer the way to another core.
    ///
    /// Handlers run on that thread, and a thread that they start is where its parent is, unless it goes elsewhere.
    pub fn service_cpus(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.settings.service_cpus = cpus.into_iter().collect();
        self.settings.built("HYDRANT_SERVICE_CPUS");
        self
    }

    /// How long a waiting thread spins before it yields and sleeps (`HYDRANT_SPIN`).
    pub fn spin(mut self, time: Duration) -> Self {
        self.settings.spin = time;
        self.settings.built("HYDRANT_SPIN");
        self
    }

    /// How long to wait for the other ranks at the start (`HYDRANT_JOIN_TIMEOUT`).
    pub fn join_timeout(mut self, time: Duration) -> Self {
        self.settings.join_timeout = time;
        self.settings.built("HYDRANT_JOIN_TIMEOUT");
        self
    }

    /// Messages that the ring between two ranks holds (`HYDRANT_RING_SLOTS`).
    pub fn ring_slots(mut self, slots: usize) -> Self {
        self.settings.ring_slots = slots;
        self.settings.built("HYDRANT_RING_SLOTS");
        self
    }

    /// Bytes of payload that a ring holds, of which a message carries a quarter (`HYDRANT_RING_PAYLOAD`).
    pub fn ring_payload(mut self, bytes: usize) -> Self {
        self.settings.ring_payload = Some(bytes);
        self.settings.built("HYDRANT_RING_PAYLOAD");
        self
    }

    /// Buffers that a rank may have exposed at once, on `smp+pin` extents registered
    /// (`HYDRANT_EXTENTS`).
    pub fn extents(mut self, extents: usize) -> Self {
        self.settings.extents = Some(extents);
        self.settings.built("HYDRANT_EXTENTS");
        self
    }

    /// How memory outside the heap is reached (`HYDRANT_SMP_FOREIGN`).
    pub fn foreign(mut self, foreign: Foreign) -> Self {
        self.settings.foreign = foreign;
        self.settings.built("HYDRANT_SMP_FOREIGN");
        self
    }

    /// Puts a conduit of the program's own between each rank and the network: to watch what
    /// goes by, or to see how a job does on a network that offers less. What memory safety rests
    /// on, its author promises with `unsafe impl Conduit`.
    pub fn through(
        mut self,
        layer: impl Fn(Box<dyn Conduit>) -> Box<dyn Conduit> + Send + Sync + 'static,
    ) -> Self {
        self.through = Some(Arc::new(layer));
        self
    }

    /// Makes the processes of an MPI communicator the ranks of the job, in its order, if the program has initialized
    /// MPI. `communicator` is its handle in C: an address for Open MPI, a number for MPICH. The job uses it while it
    /// starts, and to abort. [`join`](Self::join) is then collective over these processes.
    pub fn mpi_communicator(mut self, communicator: usize) -> Self {
        self.mpi_communicator = Some(communicator);
        self
    }

    /// The settings so far.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// As [`join`](crate::join), with these settings.
    ///
    /// # Errors
    /// As there.
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
        match Network::of_processes(&self).attach(&self, &mut *bootstrap) {
            Ok(conduit) => Job::start(conduit, bootstrap, self.settings),
            // That one says what happened, unless an abort ends it before it could.
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
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn run<R>(self, body: impl FnOnce(&Job) -> Result<R>) -> Result<R> {
        let job = self.join()?;
        let (mut body, mut result) = (Some(body), None);
        live(job, &mut |job| {
            result = body.take().map(|body| body(job)).transpose()?;
            Ok(())
        })?;
        Ok(result.expect("the body of a job that ended well has returned"))
    }

    /// As [`run_spmd`](crate::run_spmd), with these settings.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn run_spmd<R: Send>(self, body: impl Fn(&Job) -> Result<R> + Sync) -> Result<R> {
        if !self.settings.conduit.is_virtual() {
            return self.run(body);
        }
        let mut bootstrap = self.launcher()?;
        threads::run_as_one_process(&self, &mut *bootstrap, body)
    }

    /// Runs a job of `n` ranks as threads of this process: for tests, and for programs that
    /// embed a job. Everything is as between processes, but for the death of one.
    ///
    /// # Panics
    /// If a rank's `body` does, once all ranks have ended.
    pub fn run_local<R: Send>(
        self,
        n: u32,
        body: impl Fn(&Job) -> Result<R> + Sync,
    ) -> Vec<Result<R>> {
        self.settings.warn_unknown();
        threads::run(&self, n, body)
    }

    /// The connection to who launched this process.
    ///
    /// # Errors
    /// [`Error::Forked`] in a child of a process that joined: the connection is the parent's, which may still use it.
    fn launcher(&self) -> Result<Box<dyn Bootstrap>> {
        /// The rank as which a process joined last, and that process.
        static JOINED: Mutex<Option<(Origin, Rank)>> = Mutex::new(None);
        // The lock is not held while a thread waits, so that a child rarely finds it taken.
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

/// From the first word to the last. The body, which is called once, keeps its result itself: so this is compiled once, and
/// not in every program for each body.
pub(super) fn live(job: Job, body: &mut dyn FnMut(&Job) -> Result<()>) -> Result<()> {
    let progress = job.progress();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        body(&job)?;
        match job.finalize() {
            // The body did so itself.
            Err(Error::JobOver) => Ok(()),
            ended => ended,
        }
    }));
    let bereft = matches!(outcome, Ok(Err(Error::PeerLost(_)))) && !progress.is_lost_itself();
    let outcome = match progress.is_forked() {
        // In a child, while the parent goes on in the body.
        true => outcome,
        false => outcome.map(|result| result.map_err(|error| progress.cause_of(error))),
    };
    job.core()
        .leave(if bereft { End::Bereft } else { End::Failed });
    match outcome {
        Ok(result) => result,
        Err(cause) => panic::resume_unwind(cause),
    }
}
