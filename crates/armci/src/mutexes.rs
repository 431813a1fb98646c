//! ARMCI's mutexes: one set of them at a time.

use std::{mem, sync::Arc};

use hydrant::{Mutexes, Rank};

use crate::{Armci, Error, Result, error::count, transfer::is_too_early};

impl Armci {
    /// Makes mutexes, `count` of this process; others may make another number. Collective. ARMCI's
    /// `Create_mutexes`.
    ///
    /// # Errors
    /// [`Error::MutexesExist`], [`Error::Number`], [`Error::Hydrant`].
    pub fn create_mutexes(&self, number: i32) -> Result<()> {
        let wanted = match self.mutexes.read().is_some() {
            true => Err(Error::MutexesExist),
            false => count(number.into(), 0, "the number of mutexes"),
        };
        let wanted = self.all_can(wanted)?;
        let made = self.job.mutexes(wanted)?;
        *self.mutexes.write() = Some(Arc::new(made));
        Ok(())
    }

    /// Does away with the mutexes. Collective. ARMCI's `Destroy_mutexes`.
    ///
    /// # Errors
    /// [`Error::NoMutexes`]; [`Error::Hydrant`] if some process has one locked.
    pub fn destroy_mutexes(&self) -> Result<()> {
        let mutexes = self.mutexes()?;
        self.job.free_mutexes(&mutexes)?;
        *self.mutexes.write() = None;
        Ok(())
    }

    /// Locks a mutex of a process. ARMCI's `Lock`.
    ///
    /// # Errors
    /// [`Error::NoMutexes`], [`Error::NoMutex`], [`Error::NoProcess`]; [`Error::Hydrant`] if this thread has it, or if a
    /// process ended that had it or waited for it.
    #[inline]
    pub fn lock(&self, mutex: i32, proc: i32) -> Result<()> {
        let proc = self.memory.process(proc)?;
        let mutexes = self.mutexes.read();
        let Some(all) = &*mutexes else {
            return Err(Error::NoMutexes);
        };
        let number = count(mutex.into(), 0, "the number of a mutex")?;
        let locked = all.lock(Rank(proc as u32), number);
        mem::forget(locked.map_err(|cause| named(cause, mutex, proc as i32))?);
        Ok(())
    }

    /// Unlocks a mutex of a process, once all is done that this process did to that one's memory. ARMCI's
    /// `Unlock`.
    ///
    /// # Errors
    /// [`Error::NoMutexes`], [`Error::NoProcess`]; [`Error::Hydrant`] if this process has not locked it. What befell
    /// an operation is told when the mutex is free.
    #[inline]
    pub fn unlock(&self, mutex: i32, proc: i32) -> Result<()> {
        let number = self.memory.process(proc)?;
        let fenced = self.fence(proc);
        if is_too_early(&fenced) {
            return fenced;
        }
        let mutexes = self.mutexes.read();
        let Some(all) = &*mutexes else {
            return Err(Error::NoMutexes);
        };
        let at = count(mutex.into(), 0, "the number of a mutex")?;
        // What befell an operation is no reason to have others wait for the mutex for ever.
        let unlocked = all.unlock(Rank(number as u32), at);
        unlocked.map_err(|cause| named(cause, mutex, proc))?;
        fenced
    }

    fn mutexes(&self) -> Result<Arc<Mutexes>> {
        self.mutexes.read().clone().ok_or(Error::NoMutexes)
    }
}

/// Names the mutex where there is none of that number.
#[cold]
fn named(cause: hydrant::Error, mutex: i32, proc: i32) -> Error {
    match cause {
        hydrant::Error::OutOfBounds { len, .. } => Error::NoMutex {
            mutex,
            proc,
            mutexes: len as u64,
        },
        cause => cause.into(),
    }
}
