//! The settings of a job before it starts.

use std::{fmt, sync::Arc};

use hydrant_conduit::Conduit;

use crate::{Result, Settings};

/// Collects the settings of a job before it starts. Made by [`Job::builder`](crate::Job::builder).
#[derive(Clone)]
pub struct JobBuilder {
    pub(super) settings: Settings,
    pub(super) through: Option<Arc<Layer>>,
    pub(super) mpi_communicator: Option<usize>,
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
}
