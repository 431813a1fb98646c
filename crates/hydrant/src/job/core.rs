//! What every part of a job looks at.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use hydrant_conduit::Conduit;
use hydrant_launch::Bootstrap;

use super::faults::Faults;
use crate::{
    Error, Rank, Result, Settings,
    am::Engine,
    counters::Tally,
    memory::{Block, Registry},
    progress::{self, Pending, Progress},
    registration::Registration,
    rma::atomics::Way,
};

/// A job's state at one rank.
pub(crate) struct Core {
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    /// The same at every rank, different from job to job.
    pub(crate) id: u64,
    pub(crate) conduit: Box<dyn Conduit>,
    pub(crate) settings: Settings,
    pub(crate) tally: Arc<Tally>,
    /// What peers did wrong.
    pub(crate) faults: Faults,
    pub(crate) progress: Progress,
    pub(crate) pending: Pending,
    pub(crate) am: Engine,
    pub(crate) memory: Registry,
    /// Who changes words of 64 bits: the same at every rank.
    pub(crate) atomics: Way,
    /// Where the network needs registered memory; dropped after the conduit, which knows of
    /// memory of it.
    pub(crate) registration: Option<Registration>,
    bootstrap: Mutex<Box<dyn Bootstrap>>,
}

impl Core {
    pub(crate) fn new(
        conduit: Box<dyn Conduit>,
        mut bootstrap: Box<dyn Bootstrap>,
        settings: Settings,
    ) -> Result<Arc<Self>> {
        let atomics = Way::choose(&settings, conduit.caps())?;
        let words = atomics != Way::Processors;
        let registration = Registration::new(&*conduit, &settings, words)?;
        if let Some(registration) = &registration {
            registration.tell(&mut *bootstrap)?;
        }
        let id = agree(&mut *bootstrap, atomics)?;
        let tally = Arc::new(Tally::new());
        let ranks_here = (0..conduit.size())
            .filter(|rank| conduit.window(Rank(*rank)).is_some())
            .count();
        let core = Self {
            rank: conduit.rank(),
            size: conduit.size(),
            id,
            progress: Progress::new(ranks_here, settings.spin, settings.conduit.is_virtual()),
            pending: Pending::default(),
            am: Engine::new(),
            registration,
            memory: Registry::new(settings.heap),
            atomics,
            tally,
            faults: Faults::default(),
            settings,
            conduit,
            bootstrap: Mutex::new(bootstrap),
        };
        core.set_up_bounce();
        Ok(Arc::new(core))
    }

    pub(crate) fn start_service(self: &Arc<Self>) -> Result<Option<JoinHandle<()>>> {
        if !self.settings.service || self.progress.virtual_time {
            return Ok(None);
        }
        progress::start_service(self).map(Some)
    }

    pub(crate) fn bootstrap(&self) -> MutexGuard<'_, Box<dyn Bootstrap>> {
        self.bootstrap
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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

    /// # Errors
    /// [`Error::ForeignHandle`] for memory of another job, which another conduit reaches.
    pub(crate) fn check_memory(&self, block: &Block) -> Result<()> {
        if block.job == self.id {
            Ok(())
        } else {
            Err(Error::ForeignHandle { what: "memory" })
        }
    }

    pub(crate) fn abort(&self, status: i32) {
        self.conduit.leave(false);
        self.bootstrap().abort(status, "the program called abort");
    }
}

/// Rank 0 draws a number, which everybody uses, and says who does atomic operations, as everybody
/// must have found: a word is changed in one way.
fn agree(bootstrap: &mut dyn Bootstrap, atomics: Way) -> Result<u64> {
    if bootstrap.rank() == 0 {
        let mut told = [0; 9];
        rustix::rand::getrandom(&mut told[..8], rustix::rand::GetRandomFlags::empty())
            .map_err(std::io::Error::from)?;
        // Never zero, which a zeroed pointer would name.
        told[0] |= 1;
        told[8] = atomics.code();
        bootstrap.put("job-id", &told)?;
    }
    bootstrap.fence()?;
    let told = bootstrap.get(0, "job-id")?;
    let Ok([id @ .., theirs]) = <[u8; 9]>::try_from(told.as_slice()) else {
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
