//! One-sided operations on the job itself: by pointers, in scopes, on signals, and their
//! completion.

use super::Job;
use crate::{
    BackgroundHandle, Context, Exposed, GetHandle, GlobalAtomic, GlobalPtr, IoVector, PackedPtr,
    Pod, PutHandle, Refused, Result, Scope, Section, Signal, progress,
    rma::{
        handles,
        pointed::{self, Resolved},
        pointed_sections::{self, Means},
        signal,
    },
};

impl Job {
    /// Puts `data` to the memory that `to` points to. The put is remotely complete on return.
    ///
    /// # Errors
    /// - As [`Symmetric::put`](crate::Symmetric::put).
    /// - [`Error::ForeignHandle`](crate::Error::ForeignHandle) for a pointer of another job.
    /// - [`Error::ForgedPointer`](crate::Error::ForgedPointer) for a pointer that no job made.
    /// - [`Error::Misaligned`](crate::Error::Misaligned).
    /// - [`Error::Revoked`](crate::Error::Revoked) if the exposed buffer was taken back.
    pub fn put_to<T: Pod>(&self, to: GlobalPtr<T>, data: &[T]) -> Result<()> {
        let core = self.core();
        pointed::put(&core.transfer, &core.memory, to, data)
    }

    /// Gets elements from the memory that `from` points to.
    ///
    /// # Errors
    /// As [`put_to`](Self::put_to).
    pub fn get_from<T: Pod>(&self, from: GlobalPtr<T>, data: &mut [T]) -> Result<()> {
        let core = self.core();
        pointed::get(&core.transfer, &core.memory, from, data)
    }

    /// Puts the elements of `data` that `from` names to the elements of `section`, counted from
    /// `to`. On an exposed buffer, a get of one element goes first.
    ///
    /// # Errors
    /// As [`put_to`](Self::put_to) and [`Symmetric::put_section`](crate::Symmetric::put_section).
    /// Nothing is put if the section leaves the memory.
    pub fn put_section_to<T: Pod>(
        &self,
        to: GlobalPtr<T>,
        section: &Section,
        data: &[T],
        from: &Section,
    ) -> Result<()> {
        pointed_sections::put(self.means(), (to, section), data, from)
    }

    /// Gets the elements of `section`, counted from `from`, into the elements of `data` that `to`
    /// names.
    ///
    /// # Errors
    /// As [`put_section_to`](Self::put_section_to).
    pub fn get_section_from<T: Pod>(
        &self,
        from: GlobalPtr<T>,
        section: &Section,
        data: &mut [T],
        to: &Section,
    ) -> Result<()> {
        pointed_sections::get(self.means(), (from, section), data, to)
    }

    /// Puts the runs of `data` that `vectors` list, in order, counted from `to`.
    ///
    /// # Errors
    /// As [`put_to`](Self::put_to) and [`Symmetric::put_vector`](crate::Symmetric::put_vector).
    /// Nothing is put if a run leaves the memory.
    pub fn put_vector_to<T: Pod>(
        &self,
        to: GlobalPtr<T>,
        vectors: &[IoVector<'_>],
        data: &[T],
    ) -> Result<()> {
        pointed_sections::put_vector(self.means(), (to, vectors), data)
    }

    /// Gets the runs that `vectors` list, counted from `from`, into `data`, in order.
    ///
    /// # Errors
    /// As [`put_vector_to`](Self::put_vector_to).
    pub fn get_vector_from<T: Pod>(
        &self,
        from: GlobalPtr<T>,
        vectors: &[IoVector<'_>],
        data: &mut [T],
    ) -> Result<()> {
        pointed_sections::get_vector(self.means(), (from, vectors), data)
    }

    /// Returns the rooms that reach memory that a pointer names.
    fn means(&self) -> Means<'_> {
        let core = self.core();
        Means {
            transfer: &core.transfer,
            memory: &core.memory,
            calls: core.messages.calls(),
        }
    }

    /// Begins to put `data` to the memory that `to` points to.
    ///
    /// # Errors
    /// As [`put_to`](Self::put_to). The error gives the buffer back.
    pub fn put_to_nb<T: Pod>(
        &self,
        to: GlobalPtr<T>,
        data: Vec<T>,
    ) -> Result<PutHandle<T>, Refused<Vec<T>>> {
        let core = self.core();
        handles::put_to(&core.transfer, &core.memory, to, data)
    }

    /// Begins to get as many elements as `buffer` has from the memory that `from` points to, into
    /// `buffer`.
    ///
    /// # Errors
    /// As [`put_to`](Self::put_to). The error gives the buffer back.
    pub fn get_from_nb<T: Pod>(
        &self,
        from: GlobalPtr<T>,
        buffer: Vec<T>,
    ) -> Result<GetHandle<T>, Refused<Vec<T>>> {
        let core = self.core();
        handles::get_from(&core.transfer, &core.memory, from, buffer)
    }

    /// Packs a pointer into eight bytes, which one atomic store publishes. It takes 13 bits, and
    /// the bits of the element's index, of the rank and of the name of the memory. With a million
    /// ranks and the first 64 thousand allocations, it reaches 32 thousand elements of each. With
    /// 64 ranks, it reaches 500 million.
    ///
    /// # Errors
    /// [`Error::PointerTooWide`](crate::Error::PointerTooWide) if it does not fit;
    /// [`Error::ForeignHandle`](crate::Error::ForeignHandle),
    /// [`Error::ForgedPointer`](crate::Error::ForgedPointer),
    /// [`Error::Misaligned`](crate::Error::Misaligned) between two elements.
    pub fn pack<T: Pod>(&self, pointer: GlobalPtr<T>) -> Result<PackedPtr<T>> {
        PackedPtr::pack(&pointer, (self.progress().id, self.size()))
    }

    /// Unpacks a pointer that any rank of the job has [packed](Self::pack). It is checked when it
    /// is used, as any other pointer: a pointer to memory that is gone is then an error.
    ///
    /// # Errors
    /// [`Error::ForgedPointer`](crate::Error::ForgedPointer) for a null pointer and for bits that
    /// no pointer has, [`Error::RankOutOfRange`](crate::Error::RankOutOfRange).
    pub fn unpack<T: Pod>(&self, packed: PackedPtr<T>) -> Result<GlobalPtr<T>> {
        packed.unpack((self.progress().id, self.size()))
    }

    /// Returns the element that `pointer` names, for atomic operations. In symmetric memory they
    /// are those of [`Symmetric`](crate::Symmetric). In an exposed buffer, its owner does them.
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// # hydrant::Job::builder()?.run_local(2, |job| {
    /// let places = job.alloc::<hydrant::GlobalPtr<u64>>(1)?;
    /// let counts = job.expose(vec![0_u64; 8])?;
    /// places.put(job.right(), 0, &[counts.pointer(3)?])?;
    /// job.barrier()?;
    /// let theirs = job.atomic(places.local()?.load(0)?)?;
    /// assert_eq!(theirs.fetch_add(5)?, 0);
    /// assert_eq!(theirs.compare_swap(5, 7)?, 5);
    /// job.barrier()?;
    /// assert_eq!(counts.view().load(3)?, 7);
    /// # job.barrier()
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`put_to`](Self::put_to), for the pointer itself.
    pub fn atomic<T: Pod>(&self, pointer: GlobalPtr<T>) -> Result<GlobalAtomic<'_, T>> {
        let core = self.active()?;
        let rank = pointer.rank();
        Ok(
            match pointed::resolve(&core.transfer, &core.memory, &pointer)? {
                Resolved::Symmetric(memory, index) => GlobalAtomic::symmetric(memory, rank, index),
                Resolved::Extent(remote) => {
                    let calls = core.messages.calls();
                    GlobalAtomic::exposed(&core.transfer, &core.memory, calls, rank, remote)
                }
            },
        )
    }

    /// Puts `data` to the memory that `to` points to, then changes the word that `at` points to, on
    /// the same rank. A thread that sees the change also sees the data (OpenSHMEM's put with
    /// signal).
    ///
    /// # Errors
    /// As [`put_to`](Self::put_to), for the data or for the word: nothing is put if the pointer to
    /// the word is invalid. [`Error::RankMismatch`](crate::Error::RankMismatch) if they point to
    /// different ranks.
    pub fn put_signal_to<T: Pod>(
        &self,
        to: GlobalPtr<T>,
        data: &[T],
        at: GlobalPtr<u64>,
        signal: Signal,
    ) -> Result<()> {
        signal::check_ranks(&to, &at)?;
        let word = self.atomic(at)?;
        self.put_to(to, data)?;
        match signal {
            Signal::Set(value) => word.store(value),
            Signal::Add(value) => word.fetch_add(value).map(drop),
        }
    }

    /// Begins to put `data` to the memory that `to` points to, and then to change the word that
    /// `at` points to, on the same rank. The handle gives the buffer back when both are done.
    ///
    /// # Errors
    /// As [`put_signal_to`](Self::put_signal_to). The error gives the buffer back. The handle
    /// reports errors found later.
    pub fn put_signal_to_nb<T: Pod + Send>(
        &self,
        to: GlobalPtr<T>,
        data: Vec<T>,
        at: GlobalPtr<u64>,
        signal: Signal,
    ) -> Result<BackgroundHandle<Vec<T>>, Refused<Vec<T>>> {
        let core = match self.active() {
            Ok(core) => core,
            Err(cause) => return Err(Refused::buffer(data, cause)),
        };
        let means = (&core.transfer, &core.memory, core.messages.calls());
        signal::put_to_nb(means, to, data, at, signal)
    }

    /// Waits until all puts and gets of this rank so far are remotely complete, and all atomic
    /// operations and signals that it has begun: OpenSHMEM's quiet.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler); [`Error::PeerLost`](crate::Error::PeerLost)
    /// if any rank is lost, because a put that is a plain store does not notice a loss.
    pub fn quiet(&self) -> Result<()> {
        progress::may_wait("quiet")?;
        self.active()?.transfer.quiet()
    }

    /// Orders this rank's puts: each peer sees those before the fence no later than those after it.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler).
    pub fn fence(&self) -> Result<()> {
        progress::may_wait("fence")?;
        self.active()?.transfer.fence()
    }

    /// Returns a stream of puts that are completed separately from all others. Not collective.
    ///
    /// # Errors
    /// [`Error::JobOver`](crate::Error::JobOver).
    pub fn context(&self) -> Result<Context> {
        let core = self.active()?;
        Ok(Context::new(&core.transfer, &core.memory))
    }

    /// Waits for a future on this thread and handles messages meanwhile, for programs without an
    /// executor. It takes any future, of Hydrant's operations or not.
    ///
    /// On an executor, operations are awaited as other futures are. The rank's service thread
    /// advances them while no thread of the program does. Without it
    /// ([`JobBuilder::service`](crate::JobBuilder::service)), a task that awaits an operation is
    /// polled repeatedly.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler); [`Error::JobOver`](crate::Error::JobOver) if
    /// the job ends before the future does.
    ///
    /// # Panics
    /// If the future panics.
    pub fn wait_for<F: Future>(&self, future: F) -> Result<F::Output> {
        progress::wait_for(self.progress(), future)
    }

    /// Runs `body`, then completes every operation that it began: GASNet's access region, in the
    /// shape of [`std::thread::scope`]. Buffers used within stay borrowed until the end, also if
    /// the body panics or leaks. So nothing touches them while the network does.
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// # hydrant::Job::builder()?.run_local(2, |job| {
    /// let field = job.alloc::<u64>(16)?;
    /// let (row, mut halo) = ([1, 2, 3], [0; 2]);
    /// job.scope(|s| {
    ///     s.put(&field, job.right(), 0, &row)?;
    ///     s.get(&field, job.right(), 8, &mut halo)?;
    ///     Ok(())
    /// })?;
    /// job.barrier()?;
    /// assert_eq!(field.local()?.load(2)?, 3);
    /// # job.barrier()
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error that `body` returns; otherwise that of the first operation that failed.
    ///
    /// # Panics
    /// If `body` panics, after its operations are complete.
    pub fn scope<'env, R>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        progress::may_wait("scope")?;
        let core = self.active()?;
        Scope::run((&core.transfer, &core.two_sided, &core.memory), body)
    }

    /// Exposes a buffer to all ranks. Not collective; send them the [`pointer`](Exposed::pointer).
    ///
    /// The guard owns the buffer, so a leaked guard leaks the buffer too, and peers cannot write to
    /// anything else. To expose a borrowed buffer, see [`Scope::expose`](crate::Scope::expose).
    ///
    /// # Errors
    /// [`Error::ZeroSized`](crate::Error::ZeroSized), [`Error::Conduit`](crate::Error::Conduit) if
    /// there are too many exposed buffers.
    pub fn expose<T: Pod>(&self, buffer: Vec<T>) -> Result<Exposed<'static, T>> {
        let core = self.active()?;
        Exposed::owning(&core.transfer, &core.memory, buffer)
    }
}
