//! Lending a buffer of one's own to the peers.

#![allow(unsafe_code)] // registers memory whose lifetime the guard or its scope keeps

use std::{marker::PhantomData, mem::ManuallyDrop, ptr::NonNull, sync::Arc};

use bytemuck::Pod;
use hydrant_conduit::{Key, Window};

use super::{GlobalPtr, Registry, View, check_range, view::Owner};
use crate::{Error, Result, progress, transfer::Transfer};

/// The registration of a buffer; revoked when dropped, or by its scope.
pub(crate) struct Loan {
    transfer: Arc<Transfer>,
    memory: Arc<Registry>,
    key: Key,
}

impl Loan {
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// Returns whether the loan belongs to the process that this one was forked from. The network does not use the
    /// child's copy of the buffer, and the child must not end the loan.
    fn is_elsewhere(&self) -> bool {
        self.transfer.progress.is_forked()
    }

    /// Ends the loan in a handler, where nobody may wait for that; the buffer is freed after it.
    fn end_later<T: Pod>(&self, buffer: Owned<T>) {
        self.memory.withdraw(self.key.0);
        let buffer = Leftover(ManuallyDrop::new(buffer));
        (self.transfer).unlend_later(self.key, move || buffer.free());
    }

    /// Ends the loan. `true`: no peer touches the buffer any more; `false`: that cannot be
    /// waited for here, and the buffer must never be freed.
    #[must_use = "the buffer may still be in use"]
    fn end(&self) -> bool {
        if self.is_elsewhere() {
            return true;
        }
        self.memory.withdraw(self.key.0);
        let progress = &self.transfer.progress;
        progress.to_the_end(|| self.transfer.unlend(self.key))
    }
}

/// A buffer that a guard owns, freed when dropped. It is kept by a pointer: a `Box` says that it
/// is the only way to its memory, again each time it is moved, and then the pointers by which the
/// window, the conduit and peers reach it would be void.
struct Owned<T> {
    buffer: NonNull<[T]>,
}

// SAFETY: it owns the elements, as a `Box` does.
unsafe impl<T: Send> Send for Owned<T> {}
// SAFETY: the same.
unsafe impl<T: Sync> Sync for Owned<T> {}

/// A buffer that is only to be freed. If it is dropped it is leaked: the job has ended before its
/// loan, and peers may use it to their own end.
struct Leftover<T>(ManuallyDrop<Owned<T>>);

// SAFETY: its elements are plain data, of which nothing is read or dropped: only their memory is freed,
// which any thread may do.
unsafe impl<T: Pod> Send for Leftover<T> {}

impl<T: Pod> Leftover<T> {
    fn free(self) {
        drop(ManuallyDrop::into_inner(self.0));
    }
}

impl<T> Owned<T> {
    fn new(buffer: Vec<T>) -> Self {
        Self {
            buffer: NonNull::from(Box::leak(buffer.into_boxed_slice())),
        }
    }

    fn into_box(self) -> Box<[T]> {
        let owned = ManuallyDrop::new(self);
        // SAFETY: `new` leaked a box, and this, which is not dropped, was its only owner.
        unsafe { Box::from_raw(owned.buffer.as_ptr()) }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: `new` leaked a box, and this was its only owner.
        drop(unsafe { Box::from_raw(self.buffer.as_ptr()) });
    }
}

/// A buffer that peers may put to and get from, through its [`pointer`](Self::pointer).
///
/// Dropping the guard revokes every access and returns when none is under way.
/// Made by [`Job::expose`](crate::Job::expose), which owns the buffer, or
/// [`Scope::expose`](crate::Scope::expose), which borrows it for the scope.
pub struct Exposed<'a, T: Pod> {
    loan: Loan,
    window: Window,
    len: usize,
    owned: Option<Owned<T>>,
    _buffer: PhantomData<&'a mut [T]>,
}

impl<T: Pod> Exposed<'static, T> {
    /// Exposes a buffer that the guard owns.
    ///
    /// # Errors
    /// [`Error::ZeroSized`], [`Error::Conduit`] if there are too many.
    pub(crate) fn owning(
        transfer: &Arc<Transfer>,
        memory: &Arc<Registry>,
        buffer: Vec<T>,
    ) -> Result<Self> {
        let owned = Owned::new(buffer);
        // SAFETY: the buffer goes into the guard, which revokes before it lets go of it.
        let mut exposed = unsafe { Exposed::new(transfer, memory, owned.buffer)? };
        exposed.owned = Some(owned);
        Ok(exposed)
    }

    /// As [`owning`](Self::owning), for a task, which does not wait.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn owning_later(
        transfer: &Arc<Transfer>,
        memory: &Arc<Registry>,
        buffer: Vec<T>,
    ) -> Result<Self> {
        let owned = Owned::new(buffer);
        let (addr, bytes) = (
            owned.buffer.cast::<u8>(),
            owned.buffer.len() * size_of::<T>(),
        );
        let start = addr.as_ptr().expose_provenance() as u64;
        transfer.make_ready(start, bytes as u64).await;
        let lend = |base: *mut u8, bytes| {
            // SAFETY: as in `owning`.
            unsafe { transfer.lend_at_once(base, bytes) }
        };
        // SAFETY: as in `owning`.
        let mut exposed = unsafe { Exposed::lent(transfer, memory, owned.buffer, lend)? };
        exposed.owned = Some(owned);
        Ok(exposed)
    }
}

impl<'a, T: Pod> Exposed<'a, T> {
    /// # Safety
    /// Until the loan is revoked:
    /// 1. The buffer stays allocated.
    /// 2. Nothing but the guard's window reads or writes it.
    pub(crate) unsafe fn new(
        transfer: &Arc<Transfer>,
        memory: &Arc<Registry>,
        buffer: NonNull<[T]>,
    ) -> Result<Self> {
        // SAFETY: 1., 2., which cover the registration's whole life.
        let lend = |base: *mut u8, bytes| unsafe { transfer.lend(base, bytes) };
        // SAFETY: 1. Handed on. 2. It lends what it is given, by the above.
        unsafe { Self::lent(transfer, memory, buffer, lend) }
    }

    /// A buffer that `lend` lends.
    ///
    /// # Safety
    /// 1. As [`new`](Self::new).
    /// 2. `lend` lends what it is given.
    unsafe fn lent(
        transfer: &Arc<Transfer>,
        memory: &Arc<Registry>,
        buffer: NonNull<[T]>,
        lend: impl FnOnce(*mut u8, usize) -> Result<Key>,
    ) -> Result<Self> {
        if size_of::<T>() == 0 {
            let what = std::any::type_name::<T>();
            return Err(Error::ZeroSized { what });
        }
        let len = buffer.len();
        // As many as the slice has, which is a `usize`.
        let bytes = len * size_of::<T>();
        let base = buffer.cast::<u8>();
        let key = lend(base.as_ptr(), bytes)?;
        // SAFETY: (1), (2) the caller's promise, and the window is only lent out with the guard, and
        // to the registry, which uses it until the loan begins to end; (3) it is a slice of `Pod`.
        let window = unsafe { Window::new(base, bytes, Arc::new(())) };
        memory.expose(key.0, window.clone());
        Ok(Self {
            loan: Loan {
                transfer: Arc::clone(transfer),
                memory: Arc::clone(memory),
                key,
            },
            window,
            len,
            owned: None,
            _buffer: PhantomData,
        })
    }

    pub(crate) fn key(&self) -> Key {
        self.loan.key()
    }

    /// Elements exposed.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A pointer to element `index`, for peers.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn pointer(&self, index: usize) -> Result<GlobalPtr<T>> {
        check_range(index, 0, self.len)?;
        let progress = &self.loan.transfer.progress;
        let offset = (index * size_of::<T>()) as u64;
        let (job, rank) = (progress.id, progress.rank);
        Ok(GlobalPtr::extent(job, rank, self.key().0, offset))
    }

    /// The buffer, while peers may be writing to it.
    pub fn view(&self) -> View<'_, T> {
        View::new(
            &self.window,
            self.len,
            Owner::Loan(&self.loan.transfer.progress),
        )
    }
}

impl<T: Pod> Exposed<'static, T> {
    /// Ends the exposure and gives the buffer back.
    ///
    /// # Panics
    /// In a handler, if the network needs registered memory: peers cannot be waited for there,
    /// and the buffer is leaked.
    pub fn take_back(mut self) -> Box<[T]> {
        if !self.loan.end() {
            // Before this unwinds: the guard that is dropped then finds no loan to end, and is not
            // to free what peers still use.
            std::mem::forget(self.owned.take());
            panic!("an exposed buffer was taken back in a handler");
        }
        self.owned.take().map(Owned::into_box).unwrap_or_default()
    }
}

impl<T: Pod> Drop for Exposed<'_, T> {
    fn drop(&mut self) {
        if progress::may_wait("the end of an exposed buffer").is_err()
            && !self.loan.is_elsewhere()
            && let Some(buffer) = self.owned.take()
        {
            return self.loan.end_later(buffer);
        }
        if !self.loan.end() {
            std::mem::forget(self.owned.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Peers write by a pointer that was taken before the guard was moved to where it is kept.
    /// (Says something under Miri, which follows where pointers come from.)
    #[test]
    fn an_owned_buffer_may_be_moved_while_others_reach_it() {
        let owned = Owned::new(vec![1_u64; 4]);
        let peer = owned.buffer.cast::<u64>();
        let kept = Some(owned);
        // SAFETY: within the buffer, which nobody else uses now.
        unsafe { peer.add(2).write(7) };
        let moved = kept;
        // SAFETY: the same.
        unsafe { peer.add(3).write(8) };
        let back = moved.map(Owned::into_box);
        assert_eq!(back.as_deref(), Some([1, 1, 7, 8].as_slice()));
        drop(Owned::new(vec![5_u64; 4]));
        drop(Owned::<u64>::new(Vec::new()));
    }
}
