//! Starting a job.

use hydrant_conduit::fork::CreatorProcess;
use hydrant_launch::{Bootstrap, JoinOptions};
use parking_lot::Mutex;

use super::{Job, JobBuilder, ending::run_to_end, network::JobNetwork, threads};
use crate::{Error, Rank, Result};

impl JobBuilder {
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
                    "a network of processes, such as smp, because this program joins as one rank; on {conduit} the \
                     ranks are threads of one process: call `run_spmd` in place of `run` or `join`, and start the \
                     program with `hydrant run --conduit {conduit} -n 4 PROGRAM`"
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
        #[cfg(feature = "sim")]
        if self.settings.conduit.is_virtual() {
            let mut bootstrap = self.launcher()?;
            return super::one_process::run_as_one_process(&self, &mut *bootstrap, body);
        }
        self.run(body)
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
        static JOINED: Mutex<Option<(CreatorProcess, Rank)>> = Mutex::new(None);
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
        *JOINED.lock() = Some((CreatorProcess::here(), Rank(bootstrap.rank())));
        if bootstrap.rank() == 0 {
            self.settings.warn_unknown();
        }
        Ok(bootstrap)
    }
}
