//! One-sided operations on the job itself: through pointers, in scopes, on signals, and their
//! completion.

use super::Job;
use crate::{
    Begun, Context, Exposed, GetHandle, GlobalAtomic, GlobalPtr, IoVector, PackedPtr, Pod,
    PutHandle, Refused, Result, Scope, Section, Signal, progress,
    rma::{
        handles,
        pointed::{self, Resolved},
        pointed_sections::{self, Means},
        signal,
    },
};

impl Job {
    /// Puts `data` to where `to` points. Remotely complete on return.
    ///
    /// # Errors
    /// As [`Symmetric::put`](crate::Symmetric::put);
    /// [`Error::ForeignHandle`](crate::Error::ForeignHandle) for a pointer
    /// of another job, [`Error::ForgedPointer`](crate::Error::ForgedPointer) for one that no job
    /// made, [`Error::Misaligned`](crate::Error::Misaligned),
    /// [`Error::Revoked`](crate::Error::Revoked) if the exposed buffer was taken back.
    pub fn put_to<T: Pod>(&self, to: GlobalPtr<T>, data: &[T]) -> Result<()> {
        let core = self.core();
        pointed::put(&core.transfer, &core.memory, to, data)
    }

    /// Gets elements from where `from` points.
    ///
    /// # Errors
    /// As [`put_to`](Self::put_to).
    pub fn get_from<T: Pod>(&self, from: GlobalPtr<T>, data: &mut [T]) -> Result<()> {
        let core = self.core();
        pointed::get(&core.transfer, &core.memory, from, data)
    }

    /// Puts the elements that `from` names of `data` where `section` says, counted from where `to`
    /// points. On an exposed buffer a get of one element goes before.
    ///
    /// # Errors
    /// As [`put_to`](Self::put_to) and [`Symmetric::put_section`](crate::Symmetric::put_section);
    /// nothing is put if the section leaves the memory.
    pub fn put_section_to<T: Pod>(
        &self,
        to: GlobalPtr<T>,
        section: &Section,
        data: &[T],
        from: &Section,
    ) -> Result<()> {
        pointed_sections::put(self.means(), (to, section), data, from)
    }

    /// Gets the elements that `section` names, counted from where `from` points, into those of `data`
    /// that `to` names.
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

    /// Puts the runs of `data` that `vectors` list, in order, with places counted from where `to`
    /// points.
    ///
    /// # Errors
    /// As [`put_to`](Self::put_to) and [`Symmetric::put_vector`](crate::Symmetric::put_vector);
    /// nothing is put if a run leaves the memory.
    pub fn put_vector_to<T: Pod>(
        &self,
        to: GlobalPtr<T>,
        vectors: &[IoVector<'_>],
        data: &[T],
    ) -> Result<()> {
        pointed_sections::put_vector(self.means(), (to, vectors), data)
    }

    /// Gets the runs that `vectors` list, with places counted from where `from` points, into `data`, in
    /// order.
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

    /// What memory that a pointer names is reached by.
    fn means(&self) -> Means<'_> {
        let core = self.core();
        Means {
            transfer: &core.transfer,
            memory: &core.memory,
            calls: core.messages.calls(),
        }
    }

    /// Begins to put `data` to where `to` points.
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

    /// Begins to get as many elements as `buffer` has, in their place, from where `from` points.
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

    /// A pointer in eight bytes, which one atomic store publishes. It takes as many bits as the number
    /// of the element, that of the rank, and the name of the memory do, and 13: with a million ranks and
    /// the first 64 thousand allocations, those of allocations of 32 thousand elements, with 64 ranks
    /// 500 million.
    ///
    /// # Errors
    /// [`Error::PointerTooWide`](crate::Error::PointerTooWide) if it does not fit;
    /// [`Error::ForeignHandle`](crate::Error::ForeignHandle),
    /// [`Error::ForgedPointer`](crate::Error::ForgedPointer),
    /// [`Error::Misaligned`](crate::Error::Misaligned) between two elements.
    pub fn pack<T: Pod>(&self, pointer: GlobalPtr<T>) -> Result<PackedPtr<T>> {
        PackedPtr::pack(&pointer, (self.progress().id, self.size()))
    }

    /// The pointer that was [packed](Self::pack), by whatever rank of the job. As any other it is
    /// checked when it is used, and then one to memory that is gone is an error.
    ///
    /// # Errors
    /// [`Error::ForgedPointer`](crate::Error::ForgedPointer) for a null one and for bits that no
    /// pointer has, [`Error::RankOutOfRange`](crate::Error::RankOutOfRange).
    pub fn unpack<T: Pod>(&self, packed: PackedPtr<T>) -> Result<GlobalPtr<T>> {
        packed.unpack((self.progress().id, self.size()))
    }

    /// The element that `pointer` names, for atomic operations: of symmetric memory, where they are
    /// those of [`Symmetric`](crate::Symmetric), or of an exposed buffer, whose owner does them.
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
    /// As [`put_to`](Self::put_to), of the pointer itself.
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

    /// Puts `data` to where `to` points, then changes the word at `at`, a pointer to memory of the
    /// same rank; who sees the word changed sees the data (OpenSHMEM's put with signal).
    ///
    /// # Errors
    /// As [`put_to`](Self::put_to), for either: nothing is put if the signal's pointer is no good.
    /// [`Error::RankMismatch`](crate::Error::RankMismatch) if they point to different ranks.
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

    /// Begins to put `data` to where `to` points, and to change the word at `at`, a pointer to memory
    /// of the same rank, once it is there; the handle gives the buffer when both are done.
    ///
    /// # Errors
    /// As [`put_signal_to`](Self::put_signal_to), and gives the buffer back. The handle reports errors found later.
    pub fn put_signal_to_nb<T: Pod + Send>(
        &self,
        to: GlobalPtr<T>,
        data: Vec<T>,
        at: GlobalPtr<u64>,
        signal: Signal,
    ) -> Result<Begun<Vec<T>>, Refused<Vec<T>>> {
        let core = match self.active() {
            Ok(core) => core,
            Err(cause) => return Err(Refused::buffer(data, cause)),
        };
        let means = (&core.transfer, &core.memory, core.messages.calls());
        signal::put_to_nb(means, to, data, at, signal)
    }

    /// Waits until all puts and gets of this rank so far are complete, remotely, and the atomic
    /// operations and signals that were begun: OpenSHMEM's quiet.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler); [`Error::PeerLost`](crate::Error::PeerLost)
    /// if any rank is lost, for a put that is a plain store does not notice.
    pub fn quiet(&self) -> Result<()> {
        progress::may_wait("quiet")?;
        self.active()?.transfer.quiet()
    }

    /// Orders this rank's puts: those before are seen, by each peer, no later than those
    /// after.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler).
    pub fn fence(&self) -> Result<()> {
        progress::may_wait("fence")?;
        self.active()?.transfer.fence()
    }

    /// A stream of puts that are completed apart from all others. Not collective.
    ///
    /// # Errors
    /// [`Error::JobOver`](crate::Error::JobOver).
    pub fn context(&self) -> Result<Context> {
        let core = self.active()?;
        Ok(Context::new(&core.transfer, &core.memory))
    }

    /// Waits for a future on this thread, looking after messages meanwhile: for programs without an
    /// executor. The future may be any, of Hydrant's operations or not.
    ///
    /// On an executor, operations are awaited as other futures are. The rank's service thread looks
    /// after them while no thread of the program does; where there is none
    /// ([`JobBuilder::service`](crate::JobBuilder::service)), a task that awaits one is polled again
    /// and again.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler); [`Error::JobOver`](crate::Error::JobOver) if the job ends and the
    /// future does not.
    ///
    /// # Panics
    /// If the future does.
    pub fn wait_for<F: Future>(&self, future: F) -> Result<F::Output> {
        progress::wait_for(self.progress(), future)
    }

    /// Runs `body`, then completes every operation it began: GASNet's access region, in the
    /// shape of [`std::thread::scope`]. Buffers used within are borrowed until the end, so
    /// nothing can touch them while the network does, panics and leaks included.
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
    /// What `body` returns; else what befell the first operation that failed.
    ///
    /// # Panics
    /// If `body` does, after completing what it began.
    pub fn scope<'env, R>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        progress::may_wait("scope")?;
        let core = self.active()?;
        Scope::run((&core.transfer, &core.two_sided, &core.memory), body)
    }

    /// Exposes a buffer to all ranks. Not collective; send them the
    /// [`pointer`](Exposed::pointer).
    ///
    /// The guard owns the buffer, so that even a leaked guard leaves peers nothing else to
    /// write to. To expose a borrowed buffer, see [`Scope::expose`](crate::Scope::expose).
    ///
    /// # Errors
    /// [`Error::ZeroSized`](crate::Error::ZeroSized), [`Error::Conduit`](crate::Error::Conduit) if
    /// there are too many.
    pub fn expose<T: Pod>(&self, buffer: Vec<T>) -> Result<Exposed<'static, T>> {
        let core = self.active()?;
        Exposed::owning(&core.transfer, &core.memory, buffer)
    }
}
