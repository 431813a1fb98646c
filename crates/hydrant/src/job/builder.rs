//! Starting a job.

use std::{
    panic::{self, AssertUnwindSafe},
    thread,
    time::Duration,
};

use hydrant_launch::{Bootstrap, JoinOptions, Kind};
use hydrant_smp::Foreign;

use super::{Core, Job, ending};
use crate::{Error, Result, Settings};

/// Says how a job is to be, before it starts. Made by [`Job::builder`].
#[derive(Debug, Clone)]
pub struct JobBuilder {
    settings: Settings,
}

impl JobBuilder {
    pub(super) fn new() -> Result<Self> {
        Ok(Self::with(Settings::from_env()?))
    }

    /// A builder that starts from the settings given.
    pub fn with(settings: Settings) -> Self {
        Self { settings }
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

    /// Whether a thread answers peers while the application computes (`HYDRANT_SERVICE`).
    /// Without it, call [`Job::poll`] now and then.
    pub fn service(mut self, on: bool) -> Self {
        self.settings.service = on;
        self.settings.built("HYDRANT_SERVICE");
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

    /// Bytes of payload that a ring holds (`HYDRANT_RING_PAYLOAD`).
    pub fn ring_payload(mut self, bytes: usize) -> Self {
        self.settings.ring_payload = bytes;
        self.settings.built("HYDRANT_RING_PAYLOAD");
        self
    }

    /// Buffers that a rank may have exposed at once (`HYDRANT_EXTENTS`).
    pub fn extents(mut self, extents: usize) -> Self {
        self.settings.extents = extents;
        self.settings.built("HYDRANT_EXTENTS");
        self
    }

    /// How memory outside the heap is reached (`HYDRANT_SMP_FOREIGN`).
    pub fn foreign(mut self, foreign: Foreign) -> Self {
        self.settings.foreign = foreign;
        self.settings.built("HYDRANT_SMP_FOREIGN");
        self
    }

    /// The settings so far.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// As [`run`](crate::run), with these settings.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn run<R>(self, body: impl FnOnce(&Job) -> Result<R>) -> Result<R> {
        start_log(&self.settings);
        let mut bootstrap = hydrant_launch::join_with(&JoinOptions {
            kind: self.settings.bootstrap,
            ..JoinOptions::default()
        })?;
        match attach(&self.settings, &mut *bootstrap) {
            Ok(conduit) => live(
                Core::new(Box::new(conduit), bootstrap, self.settings)?,
                body,
            ),
            Err(error) => {
                bootstrap.abort(1, &error.to_string());
                Err(error)
            }
        }
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
        start_log(&self.settings);
        let (body, settings) = (&body, &self.settings);
        let ends: Vec<_> = thread::scope(|scope| {
            let ranks: Vec<_> = hydrant_launch::local(n)
                .into_iter()
                .map(|mut bootstrap| {
                    scope.spawn(move || {
                        let conduit = attach(settings, &mut bootstrap)?;
                        let core =
                            Core::new(Box::new(conduit), Box::new(bootstrap), settings.clone())?;
                        live(core, body)
                    })
                })
                .collect();
            ranks
                .into_iter()
                .map(thread::ScopedJoinHandle::join)
                .collect()
        });
        (ends.into_iter())
            .map(|end| end.unwrap_or_else(|cause| panic::resume_unwind(cause)))
            .collect()
    }
}

fn attach(settings: &Settings, bootstrap: &mut dyn Bootstrap) -> Result<hydrant_smp::Smp> {
    let options = hydrant_smp::Options {
        segment: crate::memory::SYSTEM + settings.heap,
        slots: settings.ring_slots,
        payload: settings.ring_payload,
        extents: settings.extents,
        foreign: settings.foreign,
        timeout: settings.join_timeout,
    };
    hydrant_smp::attach(bootstrap, &options).map_err(Error::from)
}

/// From the first word to the last.
fn live<R>(core: std::sync::Arc<Core>, body: impl FnOnce(&Job) -> Result<R>) -> Result<R> {
    let service = core.start_service()?;
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        let job = Job::new(core.clone())?;
        let result = body(&job)?;
        ending::wait_for_all(&job)?;
        Ok(result)
    }));
    ending::leave(&core, service, matches!(outcome, Ok(Ok(_))));
    match outcome {
        Ok(result) => result,
        Err(cause) => panic::resume_unwind(cause),
    }
}

/// The first job of a process sets up the log, unless the program has one.
fn start_log(settings: &Settings) {
    let filter = tracing_subscriber::EnvFilter::try_new(&settings.log).unwrap_or_default();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .without_time()
        .try_init();
}
