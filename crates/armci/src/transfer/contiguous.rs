//! Puts and gets of bytes that follow each other.

#![allow(unsafe_code)] // memory is named by its address

use hydrant::Error as Hydrant;

use super::{
    Direction, Handle,
    gathered::Local,
    outstanding::{IMPLICIT, Kind, Operation},
    packed::Work,
};
use crate::{
    Armci, Result,
    error::{count, not_null},
    memory::{Memory, Place},
};

/// A handler's puts of so many bytes take them along: it cannot wait until their source is free.
const SHORT: usize = 128;

impl Armci {
    /// Puts bytes from `src` to `dst` of a process; `src` is free when this returns. ARMCI's `Put`.
    ///
    /// # Errors
    /// [`Error`](crate::Error), of which each cause is a variant.
    ///
    /// # Safety
    /// 1. `src` is readable for `bytes`, and nobody writes to it meanwhile.
    /// 2. If the process is this one and ARMCI did not allocate `dst`, it is writable for `bytes`, and
    ///    nobody else uses it.
    #[inline]
    pub unsafe fn put(&self, src: *const u8, dst: *mut u8, bytes: i32, proc: i32) -> Result<()> {
        // Less than none is more than any allocation has: one comparison finds both.
        // SAFETY: the caller's promise.
        if !src.is_null() && unsafe { self.put_last(src, dst, bytes as usize, proc) } {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.put_checked(src, dst, bytes, proc) }
    }

    /// As [`put`](Self::put), with all that may be wrong.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn put_checked(
        &self,
        src: *const u8,
        dst: *mut u8,
        bytes: i32,
        proc: i32,
    ) -> Result<()> {
        let bytes = count(bytes.into(), 0, "the number of bytes")?;
        not_null(src, "the source of a put")?;
        // SAFETY: the caller's promise.
        unsafe { self.put_anywhere(src, dst, bytes, proc) }
    }

    /// Puts bytes to mapped memory, into the allocation that was found there last, and says whether it did.
    ///
    /// # Safety
    /// 1. `src` is readable for `bytes`, if any allocation has as many.
    /// 2. Nobody writes to it meanwhile.
    #[inline(always)]
    unsafe fn put_last(&self, src: *const u8, dst: *mut u8, bytes: usize, proc: i32) -> bool {
        let Some(offset) = self.memory.find_last(proc, dst, bytes) else {
            return false;
        };
        let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
        // SAFETY: 1., for an allocation has as many; 2.
        unsafe { arena.put_raw_at_once(rank, offset, src, bytes) }
    }

    /// As [`put`](Self::put), of bytes that were counted.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(crate) unsafe fn put_bytes(
        &self,
        src: *const u8,
        dst: *mut u8,
        bytes: usize,
        proc: i32,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        if unsafe { self.put_last(src, dst, bytes, proc) } {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.put_anywhere(src, dst, bytes, proc) }
    }

    /// As [`put_bytes`](Self::put_bytes), wherever they go.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn put_anywhere(
        &self,
        src: *const u8,
        dst: *mut u8,
        bytes: usize,
        proc: i32,
    ) -> Result<()> {
        let offset = match self.memory.find(proc, dst, bytes)? {
            Place::Arena(offset) => offset,
            Place::Own(dst) => {
                // SAFETY: 1., 2.; they may overlap.
                unsafe { std::ptr::copy(src, dst, bytes) };
                return Ok(());
            }
        };
        let proc = proc as usize;
        if self.memory.is_mapped(proc) {
            // SAFETY: 1.
            let data = unsafe { std::slice::from_raw_parts(src, bytes) };
            let arena = &self.memory.arena;
            return match arena.put(Memory::rank(proc), offset, data) {
                // What is in its own place already, or near it, goes round by a copy.
                Err(Hydrant::Overlap { .. }) => {
                    let copy = data.to_vec();
                    Ok(arena.put(Memory::rank(proc), offset, &copy)?)
                }
                done => Ok(done?),
            };
        }
        // SAFETY: 1.
        unsafe { self.put_far(src, (proc, offset), bytes) }
    }

    /// # Safety
    /// `src` is readable for `bytes`, and nobody writes to it meanwhile.
    #[cold]
    unsafe fn put_far(
        &self,
        src: *const u8,
        (proc, offset): (usize, usize),
        bytes: usize,
    ) -> Result<()> {
        // Once it is begun, only waiting frees the source.
        if let Err(refused) = hydrant::may_wait("a put whose source is free when it returns") {
            if bytes > SHORT {
                return Err(refused.into());
            }
            // A handler's few bytes go along in a copy, which nobody waits for.
            // SAFETY: the caller's promise.
            let value = Local::Value(unsafe { std::slice::from_raw_parts(src, bytes) }.into());
            // SAFETY: a value goes along.
            return unsafe { self.begin_far(Direction::Put, (proc, offset), (value, bytes), None) };
        }
        let range = offset..offset + bytes;
        self.settle(proc, &range)?;
        let rank = Memory::rank(proc);
        // From the caller's own memory, however short: a copy would be memory of the system's choice,
        // whose pages would have to be registered. What the NIC takes along, or a message or a slot has
        // copied, is locally complete at once.
        // SAFETY: the caller's promise; it is waited for here until the source is free.
        let mut raw = unsafe { self.memory.arena.put_raw_nb(rank, offset, src, bytes)? };
        if raw.is_complete() {
            return Ok(());
        }
        raw.wait_local()?;
        let operation = Operation::new(IMPLICIT, Kind::Moves, range, Work::Raw(raw), None);
        self.outstanding.add(proc, operation)
    }

    /// Gets bytes from `src` of a process to `dst`. ARMCI's `Get`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Safety
    /// As there, with the sides exchanged.
    #[inline]
    pub unsafe fn get(&self, src: *mut u8, dst: *mut u8, bytes: i32, proc: i32) -> Result<()> {
        // As in `put`.
        // SAFETY: the caller's promise.
        if !dst.is_null() && unsafe { self.get_last(src, dst, bytes as usize, proc) } {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.get_checked(src, dst, bytes, proc) }
    }

    /// As [`get`](Self::get), with all that may be wrong.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn get_checked(&self, src: *mut u8, dst: *mut u8, bytes: i32, proc: i32) -> Result<()> {
        let bytes = count(bytes.into(), 0, "the number of bytes")?;
        not_null(dst, "the destination of a get")?;
        // SAFETY: the caller's promise.
        unsafe { self.get_anywhere(src, dst, bytes, proc) }
    }

    /// As [`put_last`](Self::put_last), the other way.
    ///
    /// # Safety
    /// 1. `dst` is writable for `bytes`, if any allocation has as many.
    /// 2. Nobody else uses it meanwhile.
    #[inline(always)]
    unsafe fn get_last(&self, src: *mut u8, dst: *mut u8, bytes: usize, proc: i32) -> bool {
        let Some(offset) = self.memory.find_last(proc, src, bytes) else {
            return false;
        };
        let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
        // SAFETY: 1., for an allocation has as many; 2.
        unsafe { arena.get_raw_at_once(rank, offset, dst, bytes) }
    }

    /// As [`get`](Self::get), of bytes that were counted.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(crate) unsafe fn get_bytes(
        &self,
        src: *mut u8,
        dst: *mut u8,
        bytes: usize,
        proc: i32,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        if unsafe { self.get_last(src, dst, bytes, proc) } {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.get_anywhere(src, dst, bytes, proc) }
    }

    /// As [`get_bytes`](Self::get_bytes), from wherever they are.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn get_anywhere(
        &self,
        src: *mut u8,
        dst: *mut u8,
        bytes: usize,
        proc: i32,
    ) -> Result<()> {
        let offset = match self.memory.find(proc, src, bytes)? {
            Place::Arena(offset) => offset,
            Place::Own(src) => {
                // SAFETY: the caller's promise; they may overlap.
                unsafe { std::ptr::copy(src, dst, bytes) };
                return Ok(());
            }
        };
        let proc = proc as usize;
        if !self.memory.is_mapped(proc) {
            self.settle(proc, &(offset..offset + bytes))?;
        }
        // SAFETY: the caller's promise.
        let data = unsafe { std::slice::from_raw_parts_mut(dst, bytes) };
        let arena = &self.memory.arena;
        match arena.get(Memory::rank(proc), offset, data) {
            Err(Hydrant::Overlap { .. }) => {
                let mut copy = vec![0; bytes];
                arena.get(Memory::rank(proc), offset, &mut copy)?;
                data.copy_from_slice(&copy);
                Ok(())
            }
            done => Ok(done?),
        }
    }

    /// Begins a [put](Self::put): `src` is free when the handle was waited for. ARMCI's `NbPut`. Without
    /// a handle it is an implicit one.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there, until the handle was waited for.
    pub unsafe fn put_nb(
        &self,
        src: *const u8,
        dst: *mut u8,
        bytes: i32,
        proc: i32,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        let len = count(bytes.into(), 0, "the number of bytes")?;
        not_null(src, "the source of a put")?;
        let there = self.memory.find(proc, dst, len)?;
        match there {
            Place::Arena(offset) if !self.memory.is_mapped(proc as usize) => {
                let there = (proc as usize, offset);
                let local = (Local::There(src.cast_mut()), len);
                // SAFETY: the caller's promise.
                unsafe { self.begin_far(Direction::Put, there, local, handle) }
            }
            // SAFETY: the caller's promise.
            _ => unsafe { self.put_bytes(src, dst, len, proc) },
        }
    }

    /// Begins a [get](Self::get): the data is there when the handle was waited for. ARMCI's `NbGet`.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there, until the handle was waited for.
    pub unsafe fn get_nb(
        &self,
        src: *mut u8,
        dst: *mut u8,
        bytes: i32,
        proc: i32,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        let len = count(bytes.into(), 0, "the number of bytes")?;
        not_null(dst, "the destination of a get")?;
        let there = self.memory.find(proc, src, len)?;
        match there {
            Place::Arena(offset) if !self.memory.is_mapped(proc as usize) => {
                let there = (proc as usize, offset);
                // SAFETY: the caller's promise.
                unsafe { self.begin_far(Direction::Get, there, (Local::There(dst), len), handle) }
            }
            // SAFETY: the caller's promise.
            _ => unsafe { self.get_bytes(src, dst, len, proc) },
        }
    }

    /// Puts bytes, then an `int` at `flag` of the same process: whoever sees that sees the bytes. ARMCI's
    /// `Put_flag`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Safety
    /// As there, for both.
    pub unsafe fn put_flag(
        &self,
        (src, dst): (*const u8, *mut u8),
        bytes: i32,
        flag: (*mut i32, i32),
        proc: i32,
    ) -> Result<()> {
        self.memory.find(proc, flag.0.cast(), size_of::<i32>())?;
        // SAFETY: the caller's promise.
        unsafe { self.put(src, dst, bytes, proc)? };
        // SAFETY: the caller's promise.
        unsafe { self.set_flag(flag, proc) }
    }

    /// Puts a flag after all that was put to the process.
    ///
    /// # Safety
    /// If the process is this one and ARMCI did not allocate the flag, it is writable.
    pub(crate) unsafe fn set_flag(&self, (flag, value): (*mut i32, i32), proc: i32) -> Result<()> {
        self.fence(proc)?;
        // SAFETY: the value is this function's own; the caller's promise.
        unsafe {
            self.put_bytes(
                (&raw const value).cast(),
                flag.cast(),
                size_of::<i32>(),
                proc,
            )
        }
    }
}
