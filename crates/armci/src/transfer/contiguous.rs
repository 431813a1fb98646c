//! Puts and gets of contiguous bytes.

#![allow(unsafe_code)] // memory is named by its address

use hydrant::Error as Hydrant;

use super::{
    Handle, PutOrGet,
    gathered::GatherBuffer,
    missed::IMPLICIT,
    outstanding::{OperationKind, OutstandingOperation},
    work::TransferWork,
};
use crate::{
    Armci, Result,
    error::{count, not_null},
    memory::{Location, Memory},
};

/// The longest put of a handler, in bytes. A handler cannot wait until the source is free, so such
/// a put copies its source.
const SHORT: usize = 128;

impl Armci {
    /// Puts bytes from `src` to `dst` of a process. On return `src` is free. ARMCI's `Put`.
    ///
    /// # Errors
    /// Any [`Error`](crate::Error): each variant is one cause.
    ///
    /// # Safety
    /// 1. `src` is readable for `bytes`, and no other code writes to it meanwhile.
    /// 2. If the process is this one and ARMCI did not allocate `dst`, it is writable for `bytes`, and no
    ///    other code uses it meanwhile.
    #[inline]
    pub unsafe fn put(&self, src: *const u8, dst: *mut u8, bytes: i32, proc: i32) -> Result<()> {
        // A negative number becomes larger than any allocation, so one comparison finds both errors.
        // SAFETY: 1 and 2. The caller's condition 1.
        if !src.is_null() && unsafe { self.put_last(src, dst, bytes as usize, proc) } {
            return Ok(());
        }
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.put_checked(src, dst, bytes, proc) }
    }

    /// The slow path of [`put`](Self::put), which checks each argument.
    ///
    /// # Safety
    /// 1. and 2. as [`put`](Self::put).
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
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.put_anywhere(src, dst, bytes, proc) }
    }

    /// Puts bytes to mapped memory, if they lie in the allocation that the last lookup found.
    /// Returns true if it did.
    ///
    /// # Safety
    /// 1. `src` is readable for `bytes`, if any allocation has that many.
    /// 2. No other code writes to it meanwhile.
    #[inline(always)]
    unsafe fn put_last(&self, src: *const u8, dst: *mut u8, bytes: usize, proc: i32) -> bool {
        let Some(offset) = self.memory.find_last(proc, dst, bytes) else {
            return false;
        };
        let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
        // SAFETY: 1. The caller's condition 1: the lookup found an allocation with that many bytes.
        // 2. The caller's condition 2.
        unsafe { arena.put_raw_at_once(rank, offset, src, bytes) }
    }

    /// As [`put`](Self::put), with a checked number of bytes and source.
    ///
    /// # Safety
    /// 1. and 2. as [`put`](Self::put).
    #[inline]
    pub(crate) unsafe fn put_bytes(
        &self,
        src: *const u8,
        dst: *mut u8,
        bytes: usize,
        proc: i32,
    ) -> Result<()> {
        // SAFETY: 1 and 2. The caller's condition 1.
        if unsafe { self.put_last(src, dst, bytes, proc) } {
            return Ok(());
        }
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.put_anywhere(src, dst, bytes, proc) }
    }

    /// The slow path of [`put_bytes`](Self::put_bytes), for any location of the destination.
    ///
    /// # Safety
    /// 1. and 2. as [`put`](Self::put).
    #[inline(never)]
    unsafe fn put_anywhere(
        &self,
        src: *const u8,
        dst: *mut u8,
        bytes: usize,
        proc: i32,
    ) -> Result<()> {
        let offset = match self.memory.find(proc, dst, bytes)? {
            Location::Arena(offset) => offset,
            Location::Own(dst) => {
                // SAFETY: the source is readable by the caller's condition 1, and the destination writable by
                // condition 2. They may overlap.
                unsafe { std::ptr::copy(src, dst, bytes) };
                return Ok(());
            }
        };
        let proc = proc as usize;
        if self.memory.is_mapped(proc) {
            // SAFETY: the source is readable and nobody writes to it, by the caller's condition 1.
            let data = unsafe { std::slice::from_raw_parts(src, bytes) };
            let arena = &self.memory.arena;
            return match arena.put(Memory::rank(proc), offset, data) {
                // A source that overlaps its destination is copied first.
                Err(Hydrant::Overlap { .. }) => {
                    let copy = data.to_vec();
                    Ok(arena.put(Memory::rank(proc), offset, &copy)?)
                }
                done => Ok(done?),
            };
        }
        // SAFETY: 1. The caller's condition 1.
        unsafe { self.put_far(src, (proc, offset), bytes) }
    }

    /// Puts bytes to memory that is not mapped here.
    ///
    /// # Safety
    /// 1. `src` is readable for `bytes`, and no other code writes to it meanwhile.
    #[cold]
    unsafe fn put_far(
        &self,
        src: *const u8,
        (proc, offset): (usize, usize),
        bytes: usize,
    ) -> Result<()> {
        // Once the put has begun, only waiting frees the source.
        if let Err(refused) = hydrant::may_wait("a put whose source is free when it returns") {
            if bytes > SHORT {
                return Err(refused.into());
            }
            // A handler's short put takes a copy along, and nobody waits for it.
            // SAFETY: the source is readable and nobody writes to it, by the caller's condition 1.
            let value =
                GatherBuffer::Value(unsafe { std::slice::from_raw_parts(src, bytes) }.into());
            // SAFETY: 1 and 2. Only this operation knows the copy.
            return unsafe { self.begin_far(PutOrGet::Put, (proc, offset), (value, bytes), None) };
        }
        let range = offset..offset + bytes;
        self.settle(proc, &range)?;
        let rank = Memory::rank(proc);
        // The put reads the caller's own memory, however short. A copy would be memory of the system's choice,
        // and its pages would have to be registered. If the network copied the source, the put is already
        // locally complete.
        // SAFETY: 1 and 2. The caller's condition 1. This function waits until the source is free.
        let mut raw = unsafe { self.memory.arena.put_raw_nb(rank, offset, src, bytes)? };
        if raw.is_complete() {
            return Ok(());
        }
        raw.wait_local()?;
        let operation = OutstandingOperation::new(
            IMPLICIT,
            OperationKind::Transfer,
            range,
            TransferWork::Raw(raw),
            None,
        );
        self.outstanding.add(proc, operation)
    }

    /// Gets bytes from `src` of a process to `dst`. ARMCI's `Get`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Safety
    /// 1. `dst` is writable for `bytes`, and no other code uses it meanwhile.
    /// 2. If the process is this one and ARMCI did not allocate `src`, it is readable for `bytes`, and no
    ///    other code writes to it meanwhile.
    #[inline]
    pub unsafe fn get(&self, src: *mut u8, dst: *mut u8, bytes: i32, proc: i32) -> Result<()> {
        // One comparison finds both errors, as in `put`.
        // SAFETY: 1 and 2. The caller's condition 1.
        if !dst.is_null() && unsafe { self.get_last(src, dst, bytes as usize, proc) } {
            return Ok(());
        }
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.get_checked(src, dst, bytes, proc) }
    }

    /// The slow path of [`get`](Self::get), which checks each argument.
    ///
    /// # Safety
    /// 1. and 2. as [`get`](Self::get).
    #[inline(never)]
    unsafe fn get_checked(&self, src: *mut u8, dst: *mut u8, bytes: i32, proc: i32) -> Result<()> {
        let bytes = count(bytes.into(), 0, "the number of bytes")?;
        not_null(dst, "the destination of a get")?;
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.get_anywhere(src, dst, bytes, proc) }
    }

    /// As [`put_last`](Self::put_last), for a get.
    ///
    /// # Safety
    /// 1. `dst` is writable for `bytes`, if any allocation has that many.
    /// 2. No other code uses it meanwhile.
    #[inline(always)]
    unsafe fn get_last(&self, src: *mut u8, dst: *mut u8, bytes: usize, proc: i32) -> bool {
        let Some(offset) = self.memory.find_last(proc, src, bytes) else {
            return false;
        };
        let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
        // SAFETY: 1. The caller's condition 1: the lookup found an allocation with that many bytes.
        // 2. The caller's condition 2.
        unsafe { arena.get_raw_at_once(rank, offset, dst, bytes) }
    }

    /// As [`get`](Self::get), with a checked number of bytes and destination.
    ///
    /// # Safety
    /// 1. and 2. as [`get`](Self::get).
    #[inline]
    pub(crate) unsafe fn get_bytes(
        &self,
        src: *mut u8,
        dst: *mut u8,
        bytes: usize,
        proc: i32,
    ) -> Result<()> {
        // SAFETY: 1 and 2. The caller's condition 1.
        if unsafe { self.get_last(src, dst, bytes, proc) } {
            return Ok(());
        }
        // SAFETY: 1 and 2. The caller's conditions 1 and 2.
        unsafe { self.get_anywhere(src, dst, bytes, proc) }
    }

    /// The slow path of [`get_bytes`](Self::get_bytes), for any location of the source.
    ///
    /// # Safety
    /// 1. and 2. as [`get`](Self::get).
    #[inline(never)]
    unsafe fn get_anywhere(
        &self,
        src: *mut u8,
        dst: *mut u8,
        bytes: usize,
        proc: i32,
    ) -> Result<()> {
        let offset = match self.memory.find(proc, src, bytes)? {
            Location::Arena(offset) => offset,
            Location::Own(src) => {
                // SAFETY: the destination is writable by the caller's condition 1, and the source readable by
                // condition 2. They may overlap.
                unsafe { std::ptr::copy(src, dst, bytes) };
                return Ok(());
            }
        };
        let proc = proc as usize;
        if !self.memory.is_mapped(proc) {
            self.settle(proc, &(offset..offset + bytes))?;
        }
        // SAFETY: the destination is writable and nobody else uses it, by the caller's condition 1.
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

    /// Begins a [put](Self::put). `src` is free once the handle was waited for. `None` means an
    /// implicit handle. ARMCI's `NbPut`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Safety
    /// 1. and 2. as [`put`](Self::put), until the handle was waited for.
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
            Location::Arena(offset) if !self.memory.is_mapped(proc as usize) => {
                let there = (proc as usize, offset);
                let local = (GatherBuffer::Memory(src.cast_mut()), len);
                // SAFETY: 1 and 2. The caller's condition 1.
                unsafe { self.begin_far(PutOrGet::Put, there, local, handle) }
            }
            // SAFETY: 1 and 2. The caller's conditions 1 and 2.
            _ => unsafe { self.put_bytes(src, dst, len, proc) },
        }
    }

    /// Begins a [get](Self::get). The data is at `dst` once the handle was waited for. ARMCI's
    /// `NbGet`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Safety
    /// 1. and 2. as [`get`](Self::get), until the handle was waited for.
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
            Location::Arena(offset) if !self.memory.is_mapped(proc as usize) => {
                let there = (proc as usize, offset);
                // SAFETY: 1 and 2. The caller's condition 1.
                unsafe {
                    self.begin_far(
                        PutOrGet::Get,
                        there,
                        (GatherBuffer::Memory(dst), len),
                        handle,
                    )
                }
            }
            // SAFETY: 1 and 2. The caller's conditions 1 and 2.
            _ => unsafe { self.get_bytes(src, dst, len, proc) },
        }
    }

    /// Puts bytes, then an `int` at `flag` of the same process. A process that sees the `int` sees
    /// the bytes. ARMCI's `Put_flag`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Safety
    /// 1. and 2. as [`put`](Self::put), for the bytes and for the flag.
    pub unsafe fn put_flag(
        &self,
        (src, dst): (*const u8, *mut u8),
        bytes: i32,
        flag: (*mut i32, i32),
        proc: i32,
    ) -> Result<()> {
        self.memory.find(proc, flag.0.cast(), size_of::<i32>())?;
        // SAFETY: 1 and 2. The caller's conditions 1 and 2, for the bytes.
        unsafe { self.put(src, dst, bytes, proc)? };
        // SAFETY: 1. The caller's condition 2, for the flag.
        unsafe { self.set_flag(flag, proc) }
    }

    /// Completes this process's puts to `proc`, then puts a flag there.
    ///
    /// # Safety
    /// 1. If the process is this one and ARMCI did not allocate the flag, it is writable, and no other
    ///    code uses it meanwhile.
    pub(crate) unsafe fn set_flag(&self, (flag, value): (*mut i32, i32), proc: i32) -> Result<()> {
        self.fence(proc)?;
        // SAFETY: 1. The value is a variable of this function.
        // 2. The caller's condition 1.
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
