//! Puts, gets and accumulates of generalized I/O vectors: runs of equally many bytes, anywhere on both
//! sides (Nieplocha and Carpenter 1999, §3.1).

#![allow(unsafe_code)] // memory is named by its address

use hydrant::IoVector;

use super::{Direction, FEW, Handle, LONG, Scale, accumulate::check_whole, gathered::Local};
use crate::{
    Armci, Error, Result,
    error::not_null,
    memory::{Memory, Place},
};

/// Runs of equally many bytes: the first from the first of `src` to the first of `dst`, and so on.
#[derive(Clone, Copy, Debug)]
pub struct Vector<'a> {
    /// Where each is read.
    pub src: &'a [*mut u8],
    /// Where it is written.
    pub dst: &'a [*mut u8],
    /// Bytes of each.
    pub bytes: usize,
}

impl Vector<'_> {
    fn runs(&self) -> impl Iterator<Item = (*mut u8, *mut u8, usize)> + Clone {
        let pairs = self.src.iter().zip(self.dst);
        pairs.map(|(src, dst)| (*src, *dst, self.bytes))
    }
}

/// Runs of vectors in the arena of one process: where each is on this side, and on that.
struct Far {
    runs: Vec<(*mut u8, usize, usize)>,
}

impl Armci {
    /// Puts runs of bytes to a process. ARMCI's `PutV`.
    ///
    /// # Errors
    /// As [`put`](Self::put); nothing is put then, unless the network failed.
    ///
    /// # Safety
    /// As there, of each run.
    pub unsafe fn put_vector(&self, vectors: &[Vector<'_>], proc: i32) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.at_once(Direction::Put, vectors, proc) }
    }

    /// Gets runs of bytes of a process. ARMCI's `GetV`.
    ///
    /// # Errors
    /// As [`put_vector`](Self::put_vector).
    ///
    /// # Safety
    /// As there, with the sides exchanged.
    pub unsafe fn get_vector(&self, vectors: &[Vector<'_>], proc: i32) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.at_once(Direction::Get, vectors, proc) }
    }

    /// Puts or gets, by a handle that gathers. Whatever befalls it, nothing is left that names the caller's
    /// memory.
    ///
    /// # Safety
    /// As [`put_vector`](Self::put_vector), or [`get_vector`](Self::get_vector).
    unsafe fn at_once(
        &self,
        direction: Direction,
        vectors: &[Vector<'_>],
        proc: i32,
    ) -> Result<()> {
        let number = self.memory.process(proc)?;
        if !self.memory.is_mapped(number) {
            hydrant::may_wait("runs of bytes that go through the network")?;
        }
        let mut once = Handle::GATHERING;
        // SAFETY: the caller's promise; the handle is waited for below.
        let begun = unsafe {
            match direction {
                Direction::Put => self.put_vector_nb(vectors, proc, Some(&mut once)),
                Direction::Get => self.get_vector_nb(vectors, proc, Some(&mut once)),
            }
        };
        match begun {
            Ok(()) => self.wait(Some(&mut once)),
            Err(cause) => {
                self.forget_gathered(&once)?;
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
    /// As there, until the handle was waited for.
    pub unsafe fn put_vector_nb(
        &self,
        vectors: &[Vector<'_>],
        proc: i32,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        if let Some(base) = self.near_lists(vectors, Direction::Put, proc) {
            let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
            for it in vectors {
                let list = it.dst.iter().zip(it.src);
                let list = list.map(|(dst, src)| (dst.addr().wrapping_sub(base), src.cast_const()));
                // SAFETY: the caller's promise; they are apart from the arena.
                unsafe { arena.put_list_raw(rank, it.bytes, list)? }
            }
            return Ok(());
        }
        let to = |(src, dst, bytes)| (src, dst, bytes);
        let Some(far) = self.check(vectors, proc, to)? else {
            for (src, dst, bytes) in vectors.iter().flat_map(Vector::runs) {
                // SAFETY: the caller's promise.
                unsafe { self.put_bytes(src, dst, bytes, proc)? };
            }
            return Ok(());
        };
        // SAFETY: the caller's promise.
        unsafe { self.far_runs(Direction::Put, proc as usize, far, handle) }
    }

    /// Begins to get runs of bytes. ARMCI's `NbGetV`.
    ///
    /// # Errors
    /// As [`put_vector`](Self::put_vector).
    ///
    /// # Safety
    /// As there, with the sides exchanged, until the handle was waited for.
    pub unsafe fn get_vector_nb(
        &self,
        vectors: &[Vector<'_>],
        proc: i32,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        if let Some(base) = self.near_lists(vectors, Direction::Get, proc) {
            let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
            for it in vectors {
                let list = it.src.iter().zip(it.dst);
                let list = list.map(|(src, dst)| (src.addr().wrapping_sub(base), *dst));
                // SAFETY: the caller's promise; they are apart from the arena.
                unsafe { arena.get_list_raw(rank, it.bytes, list)? }
            }
            return Ok(());
        }
        let from = |(src, dst, bytes)| (dst, src, bytes);
        let Some(far) = self.check(vectors, proc, from)? else {
            for (src, dst, bytes) in vectors.iter().flat_map(Vector::runs) {
                // SAFETY: the caller's promise.
                unsafe { self.get_bytes(src, dst, bytes, proc)? };
            }
            return Ok(());
        };
        // SAFETY: the caller's promise.
        unsafe { self.far_runs(Direction::Get, proc as usize, far, handle) }
    }

    /// Adds a scale's multiple of runs of elements to those of a process. ARMCI's `AccV`.
    ///
    /// # Errors
    /// As [`put_vector`](Self::put_vector) and [`accumulate`](Self::accumulate).
    ///
    /// # Safety
    /// As there.
    pub unsafe fn accumulate_vector(
        &self,
        scale: &Scale,
        vectors: &[Vector<'_>],
        proc: i32,
    ) -> Result<()> {
        let to = |(src, dst, bytes)| (src, dst, bytes);
        (vectors.iter()).try_for_each(|it| check_whole(scale, it.bytes))?;
        if let Some(base) = self.near_lists(vectors, Direction::Put, proc) {
            let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
            for it in vectors {
                let list = it.dst.iter().zip(it.src);
                let list = list.map(|(dst, src)| (dst.addr().wrapping_sub(base), src.cast_const()));
                // SAFETY: the caller's promise; they are apart from the arena.
                unsafe { arena.accumulate_list_raw(rank, scale, it.bytes, list)? }
            }
            return Ok(());
        }
        let Some(far) = self.check(vectors, proc, to)? else {
            for (src, dst, bytes) in vectors.iter().flat_map(Vector::runs) {
                // SAFETY: the caller's promise.
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
            // SAFETY: the caller's promise.
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

    /// Begins [`accumulate_vector`](Self::accumulate_vector); the sources are free when this returns.
    /// ARMCI's `NbAccV`.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn accumulate_vector_nb(
        &self,
        scale: &Scale,
        vectors: &[Vector<'_>],
        proc: i32,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        match self.check(vectors, proc, |(src, dst, bytes)| (src, dst, bytes))? {
            // SAFETY: the caller's promise.
            Some(far) => unsafe {
                self.begin_adding(scale, proc as usize, far.runs.iter().copied(), handle)
            },
            // SAFETY: the caller's promise.
            None => unsafe { self.accumulate_vector(scale, vectors, proc) },
        }
    }

    /// Where the arena of a process begins here, if all runs of each vector lie in one of its allocations
    /// and the other side lies apart from all of the arena. None if not, or where something is wrong.
    #[inline]
    fn near_lists(&self, vectors: &[Vector<'_>], direction: Direction, proc: i32) -> Option<usize> {
        let number = self.memory.process(proc).ok()?;
        if !self.memory.is_mapped(number) {
            return None;
        }
        let (base, len) = self.memory.arena_of(number);
        for it in vectors {
            let (there, here) = match direction {
                Direction::Put => (it.dst, it.src),
                Direction::Get => (it.src, it.dst),
            };
            let [first, ..] = there else { continue };
            let allocation = self.memory.allocation(number, *first)?;
            let most = allocation.len().checked_sub(it.bytes)?;
            // From shortly before the arena on, a run reaches into it.
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

    /// Checks all runs; those of an arena that is not mapped here.
    fn check(
        &self,
        vectors: &[Vector<'_>],
        proc: i32,
        sides: impl Fn((*mut u8, *mut u8, usize)) -> (*mut u8, *mut u8, usize),
    ) -> Result<Option<Far>> {
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
                    Place::Arena(offset) if is_far => runs.push((here, offset, bytes)),
                    _ => {}
                }
            }
        }
        Ok(is_far.then_some(Far { runs }))
    }

    /// # Safety
    /// As of what is begun.
    unsafe fn far_runs(
        &self,
        direction: Direction,
        proc: usize,
        far: Far,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        let mut handle = handle;
        let gathers = handle
            .as_ref()
            .is_some_and(|handle| handle.is_aggregate != 0);
        // As of a section: a single run goes by itself, and a few long ones.
        let few = far.runs.len() <= 1
            || far.runs.len() <= FEW && far.runs.iter().all(|(.., bytes)| *bytes >= LONG);
        if !gathers && !few {
            let runs = far.runs.iter().copied();
            // SAFETY: the caller's promise.
            return unsafe { self.begin_packed(direction, proc, runs, handle) };
        }
        for (here, offset, bytes) in far.runs {
            let local = (Local::There(here), bytes);
            // SAFETY: the caller's promise.
            unsafe { self.begin_far(direction, (proc, offset), local, handle.as_deref_mut())? };
        }
        Ok(())
    }
}
