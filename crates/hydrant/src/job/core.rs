//! What every part of a job looks at.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use hydrant_conduit::Conduit;
use hydrant_launch::Bootstrap;

use crate::{
    Error, Rank, Result, Settings,
    am::Engine,
    counters::Tally,
    memory::Registry,
    progress::{self, Pending, Progress},
    registration::Registration,
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
    pub(crate) progress: Progress,
    pub(crate) pending: Pending,
    pub(crate) am: Engine,
    pub(crate) memory: Registry,
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
        let registration = Registration::new(&*conduit, &settings.registration)?;
        if let Some(registration) = &registration {
            registration.tell(&mut *bootstrap)?;
        }
        let id = agree_on_id(&mut *bootstrap)?;
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
            tally,
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

    pub(crate) fn abort(&self, status: i32) {
        self.conduit.leave(false);
        self.bootstrap().abort(status, "the program called abort");
    }
}

/// Rank 0 draws a number; everybody uses it.
fn agree_on_id(bootstrap: &mut dyn Bootstrap) -> Result<u64> {
    if bootstrap.rank() == 0 {
        let mut id = [0; 8];
        rustix::rand::getrandom(&mut id[..], rustix::rand::GetRandomFlags::empty())
            .map_err(std::io::Error::from)?;
        // Never zero, which a zeroed pointer would name.
        id[0] |= 1;
        bootstrap.put("job-id", &id)?;
    }
    bootstrap.fence()?;
    let id = bootstrap.get(0, "job-id")?;
    let id = <[u8; 8]>::try_from(id.as_slice())
        .map_err(|_| Error::other("rank 0 published an unreadable job id"))?;
    Ok(u64::from_le_bytes(id))
}
