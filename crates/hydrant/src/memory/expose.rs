//! Exposes a buffer of this rank to its peers.

#![allow(unsafe_code)] // lends memory that stays allocated until its guard or scope ends

use std::{marker::PhantomData, mem::ManuallyDrop, ptr::NonNull, sync::Arc};

use bytemuck::Pod;
use hydrant_conduit::{Key, Window};

use super::{GlobalPtr, Registry, View, check_range, view::ViewOwner};
use crate::{Error, Result, progress, registration::BulkRegistration, transfer::Transfer};

/// The loan of a buffer, ended when it is dropped or by its scope.
pub(crate) struct Loan {
    transfer: Arc<Transfer>,
    memory: Arc<Registry>,
    key: Key,
}

impl Loan {
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// Returns whether the loan belongs to the process that this one was forked from. The network
    /// does not use the child's copy of the buffer, and the child must not end the loan.
    fn is_elsewhere(&self) -> bool {
        self.transfer.progress.is_forked()
    }

    /// Ends the loan in a handler, which cannot wait for that. The buffer is freed afterwards.
    fn end_later<T: Pod>(&self, buffer: OwnedBuffer<T>) {
        self.memory.withdraw(self.key.0);
        let buffer = BufferToFree(ManuallyDrop::new(buffer));
        (self.transfer).unlend_later(self.key, move || buffer.free());
    }

    /// Ends the loan. Returns `true` if no peer accesses the buffer any more. Returns `false` if
    /// this thread cannot wait for that; the buffer must then never be freed.
    #[must_use = "the buffer may still be in use"]
    fn end(&self) -> bool {
        if self.is_elsewhere() {
            return true;
        }
        self.memory.withdraw(self.key.0);
        let progress = &self.transfer.progress;
        progress.abort_on_unwind(|| self.transfer.unlend(self.key))
    }
}

/// A buffer that a guard owns, freed when dropped. The buffer is kept by a pointer. A `Box` claims
/// to be the only access to its memory, again each time it is moved. That would invalidate the
/// pointers by which the window, the conduit and peers reach the memory.
struct OwnedBuffer<T> {
    buffer: NonNull<[T]>,
}

// SAFETY: this owns the elements, as a `Box` does.
unsafe impl<T: Send> Send for OwnedBuffer<T> {}
// SAFETY: as for `Send`: this owns the elements.
unsafe impl<T: Sync> Sync for OwnedBuffer<T> {}

/// A buffer that is only to be freed. If this is dropped, the buffer is leaked: the job has ended
/// before the loan, and peers may use the buffer until their end.
struct BufferToFree<T>(ManuallyDrop<OwnedBuffer<T>>);

// SAFETY: the elements are plain data, which is neither read nor dropped. Only their memory is
// freed, which any thread may do.
unsafe impl<T: Pod> Send for BufferToFree<T> {}

impl<T: Pod> BufferToFree<T> {
    fn free(self) {
        drop(ManuallyDrop::into_inner(self.0));
    }
}

impl<T> OwnedBuffer<T> {
    fn new(buffer: Vec<T>) -> Self {
        Self {
            buffer: NonNull::from(Box::leak(buffer.into_boxed_slice())),
        }
    }

    fn into_box(self) -> Box<[T]> {
        let owned = ManuallyDrop::new(self);
        // SAFETY: `new` leaked a box, and this was its only owner and is not dropped.
        unsafe { Box::from_raw(owned.buffer.as_ptr()) }
    }
}

impl<T> Drop for OwnedBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: `new` leaked a box, and this was its only owner.
        drop(unsafe { Box::from_raw(self.buffer.as_ptr()) });
    }
}

/// A buffer that peers may put to and get from, through its [`pointer`](Self::pointer).
///
/// The drop of the guard revokes every access, and returns when none is in flight.
/// [`Job::expose`](crate::Job::expose) makes a guard that owns the buffer.
/// [`Scope::expose`](crate::Scope::expose) borrows the buffer for the scope.
pub struct Exposed<'a, T: Pod> {
    loan: Loan,
    window: Window,
    len: usize,
    owned: Option<OwnedBuffer<T>>,
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
        let owned = OwnedBuffer::new(buffer);
        // SAFETY: 1. and 2. the buffer moves into the guard, which ends the loan before it frees the
        // buffer, and reaches it only by its window.
        let mut exposed = unsafe { Exposed::new(transfer, memory, owned.buffer)? };
        exposed.owned = Some(owned);
        Ok(exposed)
    }

    /// As [`owning`](Self::owning), for a task, which does not block.
    ///
    /// # Errors
    /// As [`owning`](Self::owning).
    pub(crate) async fn owning_later(
        transfer: &Arc<Transfer>,
        memory: &Arc<Registry>,
        buffer: Vec<T>,
    ) -> Result<Self> {
        let owned = OwnedBuffer::new(buffer);
        let (addr, bytes) = (
            owned.buffer.cast::<u8>(),
            owned.buffer.len() * size_of::<T>(),
        );
        let start = addr.as_ptr().expose_provenance() as u64;
        transfer.make_ready(start, bytes as u64).await;
        let lend = |base: *mut u8, bytes| {
            // SAFETY: 1. and 2. as in `owning`.
            unsafe { transfer.lend_at_once(base, bytes) }
        };
        // SAFETY: 1. as in `owning`. 2. `lend` lends its arguments, and the memory is ready.
        let mut exposed = unsafe { Exposed::lent(transfer, memory, owned.buffer, lend)? };
        exposed.owned = Some(owned);
        Ok(exposed)
    }
}

impl<'a, T: Pod> Exposed<'a, T> {
    /// # Safety
    /// Until the loan has ended:
    /// 1. The buffer stays allocated.
    /// 2. Nothing but the guard's window reads or writes it.
    pub(crate) unsafe fn new(
        transfer: &Arc<Transfer>,
        memory: &Arc<Registry>,
        buffer: NonNull<[T]>,
    ) -> Result<Self> {
        // SAFETY: 1. and 2. the caller's conditions 1 and 2, which last as long as the loan.
        let lend = |base: *mut u8, bytes| unsafe { transfer.lend(base, bytes) };
        // SAFETY: 1. The caller's conditions 1 and 2. 2. `lend` lends its arguments.
        unsafe { Self::lent(transfer, memory, buffer, lend) }
    }

    /// Makes the guard of a buffer that `lend` lends.
    ///
    /// # Safety
    /// 1. Conditions 1 and 2 of [`new`](Self::new) hold.
    /// 2. `lend` lends its arguments.
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
        // No overflow: the slice has that many bytes.
        let bytes = len * size_of::<T>();
        let base = buffer.cast::<u8>();
        let key = lend(base.as_ptr(), bytes)?;
        // SAFETY: 1. and 2. by the caller's condition 1. The window is only given out with the guard,
        // and to the registry, which uses it until the loan begins to end. 3. `T` is `Pod`.
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

    /// Returns the number of exposed elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no element is exposed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a pointer to element `index`, for peers.
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

    /// Registers the buffer in the background, before it is used, as
    /// [`Job::register_in_background`](crate::Job::register_in_background) does.
    ///
    /// # Errors
    /// [`Error::JobOver`], [`Error::Forked`].
    pub fn register_in_background(&self) -> Result<BulkRegistration> {
        let transfer = &self.loan.transfer;
        transfer.progress.check_origin()?;
        let bytes = self.len * size_of::<T>();
        Ok(transfer.register_in_background(self.window.addr() as u64, bytes as u64))
    }

    /// Returns a view of the buffer, to which peers may be writing.
    pub fn view(&self) -> View<'_, T> {
        View::new(
            &self.window,
            self.len,
            ViewOwner::Loan(&self.loan.transfer.progress),
        )
    }
}

impl<T: Pod> Exposed<'static, T> {
    /// Ends the exposure and returns the buffer.
    ///
    /// # Panics
    /// In a handler, if the network needs registered memory. A handler cannot wait for peers, so
    /// the buffer is leaked.
    pub fn take_back(mut self) -> Box<[T]> {
        if !self.loan.end() {
            // Forgotten before this unwinds: the guard is dropped then, finds no loan to end, and
            // must not free a buffer that peers still use.
            std::mem::forget(self.owned.take());
            panic!("an exposed buffer was taken back in a handler");
        }
        self.owned
            .take()
            .map(OwnedBuffer::into_box)
            .unwrap_or_default()
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

    /// Peers write by a pointer that was taken before the guard was moved. Miri follows the
    /// provenance of pointers, so the test shows most under Miri.
    #[test]
    fn an_owned_buffer_may_be_moved_while_others_reach_it() {
        let owned = OwnedBuffer::new(vec![1_u64; 4]);
        let peer = owned.buffer.cast::<u64>();
        let kept = Some(owned);
        // SAFETY: within the buffer, which no other code uses now.
        unsafe { peer.as_ptr().wrapping_add(2).write(7) };
        let moved = kept;
        // SAFETY: as above.
        unsafe { peer.as_ptr().wrapping_add(3).write(8) };
        let back = moved.map(OwnedBuffer::into_box);
        assert_eq!(back.as_deref(), Some([1, 1, 7, 8].as_slice()));
        drop(OwnedBuffer::new(vec![5_u64; 4]));
        drop(OwnedBuffer::<u64>::new(Vec::new()));
    }
}
