//! Puts, gets and accumulates of generalized I/O vectors: runs of equal length, anywhere on both
//! sides (Nieplocha and Carpenter 1999, §3.1).

#![allow(unsafe_code)] // memory is named by its address

use hydrant::{Factor, IoVector};

use super::{FEW, Handle, LONG, PutOrGet, accumulate::check_whole, gathered::GatherBuffer};
use crate::{
    Armci, Error, Result,
    error::not_null,
    memory::{Location, Memory},
};

/// Runs of equal length. Run `i` goes from `src[i]` to `dst[i]`.
#[derive(Clone, Copy, Debug)]
pub struct Vector<'a> {
    /// The address from which each run is read.
    pub src: &'a [*mut u8],
    /// The address to which each run is written.
    pub dst: &'a [*mut u8],
    /// The bytes of each run.
    pub bytes: usize,
}

impl Vector<'_> {
    fn runs(&self) -> impl Iterator<Item = (*mut u8, *mut u8, usize)> + Clone {
        let pairs = self.src.iter().zip(self.dst);
        pairs.map(|(src, dst)| (*src, *dst, self.bytes))
    }
}

/// Runs of vectors in the arena of one process: the address here, the offset there, and the bytes.
struct FarRuns {
    runs: Vec<(*mut u8, usize, usize)>,
}

impl Armci {
    /// Puts runs of bytes to a process. ARMCI's `PutV`.
    ///
    /// # Errors
    /// As [`put`](Self::put). Nothing is put then, unless the network failed.
    ///
    /// # Safety
    /// 1. and 2. as [`put`](Self::put), for each run.
    pub unsafe fn put_vector(&self, vectors: &[Vector<'_>], proc: i32) -> Result<()> {
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.transfer_vector(PutOrGet::Put, vectors, proc) }
    }

    /// Gets runs of bytes of a process. ARMCI's `GetV`.
    ///
    /// # Errors
    /// As [`put_vector`](Self::put_vector).
    ///
    /// # Safety
    /// 1. and 2. as [`get`](Self::get), for each run.
    pub unsafe fn get_vector(&self, vectors: &[Vector<'_>], proc: i32) -> Result<()> {
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.transfer_vector(PutOrGet::Get, vectors, proc) }
    }

    /// Puts or gets with a gathering handle. On return no operation names the caller's memory, even
    /// after an error.
    ///
    /// # Safety
    /// 1. and 2. as [`put_vector`](Self::put_vector), or [`get_vector`](Self::get_vector).
    unsafe fn transfer_vector(
        &self,
        direction: PutOrGet,
        vectors: &[Vector<'_>],
        proc: i32,
    ) -> Result<()> {
        let number = self.memory.process(proc)?;
        if !self.memory.is_mapped(number) {
            hydrant::may_wait("runs of bytes that go through the network")?;
        }
        let mut once = Handle::GATHERING;
        let handle = Some(&mut once);
        let begun = match direction {
            // SAFETY: 1 and 2. The caller's conditions 1 and 2. The handle is waited for below.
            PutOrGet::Put => unsafe { self.put_vector_nb(vectors, proc, handle) },
            // SAFETY: 1 and 2. The caller's conditions 1 and 2. The handle is waited for below.
            PutOrGet::Get => unsafe { self.get_vector_nb(vectors, proc, handle) },
        };
        match begun {
            Ok(()) => self.wait(Some(&mut once)),
            Err(cause) => {
                self.forget_gathered(once.number)?;
                Err(cause)
            }
        }
    }

    /// Begins to put runs of bytes. ARMCI's `NbPutV`.
    ///
    /// # Errors
    /// As [`put_vector`](Self::put_vector).
    ///
    /// # Safety
    /// 1. and 2. as [`put_vector`](Self::put_vector), until the handle was waited for.
    pub unsafe fn put_vector_nb(
        &self,
        vectors: &[Vector<'_>],
        proc: i32,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        if let Some(base) = self.mapped_base(vectors, PutOrGet::Put, proc) {
            let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
            for it in vectors {
                let list = it.dst.iter().zip(it.src);
                let list = list.map(|(dst, src)| (dst.addr().wrapping_sub(base), src.cast_const()));
                // SAFETY: 1 and 3. The caller's condition 1, for each run.
                // 2. `mapped_base` found the runs apart from the arena.
                unsafe { arena.put_list_raw(rank, it.bytes, list)? }
            }
            return Ok(());
        }
        let to = |(src, dst, bytes)| (src, dst, bytes);
        let Some(far) = self.check(vectors, proc, to)? else {
            for (src, dst, bytes) in vectors.iter().flat_map(Vector::runs) {
                // SAFETY: 1 and 2. The caller's conditions 1 and 2, for this run.
                unsafe { self.put_bytes(src, dst, bytes, proc)? };
            }
            return Ok(());
        };
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.begin_runs(PutOrGet::Put, proc as usize, far, handle) }
    }

    /// Begins to get runs of bytes. ARMCI's `NbGetV`.
    ///
    /// # Errors
    /// As [`put_vector`](Self::put_vector).
    ///
    /// # Safety
    /// 1. and 2. as [`get_vector`](Self::get_vector), until the handle was waited for.
    pub unsafe fn get_vector_nb(
        &self,
        vectors: &[Vector<'_>],
        proc: i32,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        if let Some(base) = self.mapped_base(vectors, PutOrGet::Get, proc) {
            let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
            for it in vectors {
                let list = it.src.iter().zip(it.dst);
                let list = list.map(|(src, dst)| (src.addr().wrapping_sub(base), *dst));
                // SAFETY: 1 and 3. The caller's condition 1, for each run.
                // 2. `mapped_base` found the runs apart from the arena.
                unsafe { arena.get_list_raw(rank, it.bytes, list)? }
            }
            return Ok(());
        }
        let from = |(src, dst, bytes)| (dst, src, bytes);
        let Some(far) = self.check(vectors, proc, from)? else {
            for (src, dst, bytes) in vectors.iter().flat_map(Vector::runs) {
                // SAFETY: 1 and 2. The caller's conditions 1 and 2, for this run.
                unsafe { self.get_bytes(src, dst, bytes, proc)? };
            }
            return Ok(());
        };
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.begin_runs(PutOrGet::Get, proc as usize, far, handle) }
    }

    /// Multiplies runs of elements by a scale, and adds them to elements of a process. ARMCI's
    /// `AccV`.
    ///
    /// # Errors
    /// As [`put_vector`](Self::put_vector) and [`accumulate`](Self::accumulate).
    ///
    /// # Safety
    /// 1. and 2. as [`put_vector`](Self::put_vector).
    pub unsafe fn accumulate_vector(
        &self,
        scale: &Factor,
        vectors: &[Vector<'_>],
        proc: i32,
    ) -> Result<()> {
        let to = |(src, dst, bytes)| (src, dst, bytes);
        (vectors.iter()).try_for_each(|it| check_whole(scale, it.bytes))?;
        if let Some(base) = self.mapped_base(vectors, PutOrGet::Put, proc) {
            let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
            for it in vectors {
                let list = it.dst.iter().zip(it.src);
                let list = list.map(|(dst, src)| (dst.addr().wrapping_sub(base), src.cast_const()));
                // SAFETY: 1 and 3. The caller's condition 1, for each run.
                // 2. `mapped_base` found the runs apart from the arena.
                unsafe { arena.accumulate_list_raw(rank, scale, it.bytes, list)? }
            }
            return Ok(());
        }
        let Some(far) = self.check(vectors, proc, to)? else {
            for (src, dst, bytes) in vectors.iter().flat_map(Vector::runs) {
                // SAFETY: 1 and 2. The caller's conditions 1 and 2, for this run.
                unsafe { self.accumulate_bytes(scale, src, dst, bytes, proc)? };
            }
            return Ok(());
        };
        let proc = proc as usize;
        for (_, offset, bytes) in &far.runs {
            self.settle(proc, &(*offset..offset + bytes))?;
        }
        let mut between = Vec::with_capacity(far.runs.iter().map(|(.., bytes)| bytes).sum());
        let mut places = Vec::with_capacity(far.runs.len());
        for (src, offset, bytes) in &far.runs {
            places.push(([*offset], [between.len()], *bytes));
            // SAFETY: the run is readable and nobody writes to it, by the caller's condition 1.
            between.extend_from_slice(unsafe { std::slice::from_raw_parts(*src, *bytes) });
        }
        let all: Vec<_> = (places.iter())
            .map(|(remote, local, run)| IoVector {
                remote,
                local,
                run: *run,
            })
            .collect();
        let (arena, rank) = (&self.memory.arena, Memory::rank(proc));
        Ok(arena.accumulate_bytes_vector(rank, &all, scale, &between)?)
    }

    /// Begins [`accumulate_vector`](Self::accumulate_vector). On return the sources are free.
    /// ARMCI's `NbAccV`.
    ///
    /// # Errors
    /// As [`accumulate_vector`](Self::accumulate_vector).
    ///
    /// # Safety
    /// 1. and 2. as [`accumulate_vector`](Self::accumulate_vector).
    pub unsafe fn accumulate_vector_nb(
        &self,
        scale: &Factor,
        vectors: &[Vector<'_>],
        proc: i32,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        match self.check(vectors, proc, |(src, dst, bytes)| (src, dst, bytes))? {
            // SAFETY: 1. The caller's condition 1, for each run.
            Some(far) => unsafe {
                self.begin_adding(scale, proc as usize, far.runs.iter().copied(), handle)
            },
            // SAFETY: 1 and 2. The caller's conditions 1 and 2.
            None => unsafe { self.accumulate_vector(scale, vectors, proc) },
        }
    }

    /// The address here of the arena of `proc`. All runs of each vector must lie in one of its allocations,
    /// and the other side apart from the arena. Otherwise, and for wrong arguments, returns `None`.
    #[inline]
    fn mapped_base(&self, vectors: &[Vector<'_>], direction: PutOrGet, proc: i32) -> Option<usize> {
        let number = self.memory.process(proc).ok()?;
        if !self.memory.is_mapped(number) {
            return None;
        }
        let (base, len) = self.memory.arena_of(number);
        for it in vectors {
            let (there, here) = match direction {
                PutOrGet::Put => (it.dst, it.src),
                PutOrGet::Get => (it.src, it.dst),
            };
            let [first, ..] = there else { continue };
            let allocation = self.memory.allocation(number, *first)?;
            let most = allocation.len().checked_sub(it.bytes)?;
            // A run that begins less than its length before the arena reaches into it.
            let (before, shared) = (base.checked_sub(it.bytes)?, it.bytes + len);
            let fits = |(there, here): (&*mut u8, &*mut u8)| {
                there.addr().wrapping_sub(allocation.start) <= most
                    && here.addr().wrapping_sub(before) >= shared
                    && !here.is_null()
            };
            if there.len() != here.len() || !there.iter().zip(here).all(fits) {
                return None;
            }
        }
        Some(base)
    }

    /// Checks all runs. Returns those in an arena that is not mapped here, or `None` if the memory
    /// is mapped.
    fn check(
        &self,
        vectors: &[Vector<'_>],
        proc: i32,
        sides: impl Fn((*mut u8, *mut u8, usize)) -> (*mut u8, *mut u8, usize),
    ) -> Result<Option<FarRuns>> {
        let number = self.memory.process(proc)?;
        let is_far = !self.memory.is_mapped(number);
        let mut runs = Vec::new();
        for vector in vectors {
            if vector.src.len() != vector.dst.len() {
                return Err(Error::Null {
                    what: "an address of a vector",
                });
            }
            for run in vector.runs() {
                let (here, there, bytes) = sides(run);
                not_null(here, "an own address of a vector")?;
                match self.memory.find(proc, there, bytes)? {
                    Location::Arena(offset) if is_far => runs.push((here, offset, bytes)),
                    _ => {}
                }
            }
        }
        Ok(is_far.then_some(FarRuns { runs }))
    }

    /// Begins an operation on runs that are not mapped here.
    ///
    /// # Safety
    /// 1. and 2. as [`put_vector_nb`](Self::put_vector_nb) or [`get_vector_nb`](Self::get_vector_nb).
    unsafe fn begin_runs(
        &self,
        direction: PutOrGet,
        proc: usize,
        far: FarRuns,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        let mut handle = handle;
        let gathers = handle
            .as_ref()
            .is_some_and(|handle| handle.is_aggregate != 0);
        // A single run, or a few long ones, go one by one, as in a section.
        let few = far.runs.len() <= 1
            || far.runs.len() <= FEW && far.runs.iter().all(|(.., bytes)| *bytes >= LONG);
        if !gathers && !few {
            let runs = far.runs.iter().copied();
            // SAFETY: 1 and 2. The caller's condition 1, for each run.
            return unsafe { self.begin_packed(direction, proc, runs, handle) };
        }
        for (here, offset, bytes) in far.runs {
            let local = (GatherBuffer::Memory(here), bytes);
            // SAFETY: 1 and 2. The caller's condition 1, for this run.
            unsafe { self.begin_far(direction, (proc, offset), local, handle.as_deref_mut())? };
        }
        Ok(())
    }
}
