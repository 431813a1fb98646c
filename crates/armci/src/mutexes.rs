//! ARMCI's mutexes: one set at a time.

use std::{mem, sync::Arc};

use hydrant::{Mutexes, Rank};

use crate::{Armci, Error, Result, error::count, transfer::is_too_early};

impl Armci {
    /// Makes `number` mutexes of this process. Other processes may make a different number.
    /// Collective. ARMCI's `Create_mutexes`.
    ///
    /// # Errors
    /// [`Error::MutexesExist`], [`Error::Number`], [`Error::Hydrant`].
    pub fn create_mutexes(&self, number: i32) -> Result<()> {
        let wanted = if self.mutexes.read().is_some() {
            Err(Error::MutexesExist)
        } else {
            count(number.into(), 0, "the number of mutexes")
        };
        let wanted = self.all_can(wanted)?;
        let made = self.job.mutexes(wanted)?;
        *self.mutexes.write() = Some(Arc::new(made));
        Ok(())
    }

    /// Destroys the mutexes. Collective. ARMCI's `Destroy_mutexes`.
    ///
    /// # Errors
    /// [`Error::NoMutexes`]; [`Error::Hydrant`] if a process has locked one of them.
    pub fn destroy_mutexes(&self) -> Result<()> {
        let mutexes = self.mutexes()?;
        self.job.free_mutexes(&mutexes)?;
        *self.mutexes.write() = None;
        Ok(())
    }

    /// Locks a mutex of a process. ARMCI's `Lock`.
    ///
    /// # Errors
    /// [`Error::NoMutexes`], [`Error::NoMutex`], [`Error::NoProcess`]. [`Error::Hydrant`] if this
    /// thread already holds the mutex, or if its holder or a waiter ended.
    #[inline]
    pub fn lock(&self, mutex: i32, proc: i32) -> Result<()> {
        let proc = self.memory.process(proc)?;
        let mutexes = self.mutexes.read();
        let Some(all) = &*mutexes else {
            return Err(Error::NoMutexes);
        };
        let number = count(mutex.into(), 0, "the number of a mutex")?;
        let locked = all.lock(Rank(proc as u32), number);
        mem::forget(locked.map_err(|cause| with_mutex_named(cause, mutex, proc as i32))?);
        Ok(())
    }

    /// Completes this process's operations on the memory of `proc`, then unlocks a mutex of `proc`.
    /// ARMCI's `Unlock`.
    ///
    /// # Errors
    /// [`Error::NoMutexes`], [`Error::NoProcess`]; [`Error::Hydrant`] if this process has not
    /// locked it. If an operation failed, the mutex is unlocked before the error is returned.
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
        // A failed operation must not keep other processes waiting for the mutex.
        let unlocked = all.unlock(Rank(number as u32), at);
        unlocked.map_err(|cause| with_mutex_named(cause, mutex, proc))?;
        fenced
    }

    fn mutexes(&self) -> Result<Arc<Mutexes>> {
        self.mutexes.read().clone().ok_or(Error::NoMutexes)
    }
}

/// Names the mutex in the error if the process has no mutex of that number.
#[cold]
fn with_mutex_named(cause: hydrant::Error, mutex: i32, proc: i32) -> Error {
    match cause {
        hydrant::Error::OutOfBounds { len, .. } => Error::NoMutex {
            mutex,
            proc,
            mutexes: len as u64,
        },
        cause => cause.into(),
    }
}
