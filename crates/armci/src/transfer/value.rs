//! Puts and gets of one value.

#![allow(unsafe_code)] // memory is named by its address

use super::{Direction, Handle, gathered::Local};
use crate::{Armci, Result, memory::Place};

impl Armci {
    /// Puts a value; remotely complete as a [put](Self::put) is. ARMCI's `PutValueInt` and its like.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// If the process is this one and ARMCI did not allocate `dst`, it is writable for a `T`.
    pub unsafe fn put_value<T: hydrant::Pod>(
        &self,
        value: T,
        dst: *mut T,
        proc: i32,
    ) -> Result<()> {
        // SAFETY: the value is this function's own; the caller's promise.
        unsafe { self.put_bytes((&raw const value).cast(), dst.cast(), size_of::<T>(), proc) }
    }

    /// Begins a put of a value, which is taken along. ARMCI's `NbPutValueInt` and its like.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Safety
    /// As [`put_value`](Self::put_value).
    pub unsafe fn put_value_nb<T: hydrant::Pod>(
        &self,
        value: T,
        dst: *mut T,
        proc: i32,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        match self.memory.find(proc, dst.cast(), size_of::<T>())? {
            Place::Arena(offset) if !self.memory.is_mapped(proc as usize) => {
                let there = (proc as usize, offset);
                let bytes = hydrant::bytemuck::bytes_of(&value).into();
                let local = (Local::Value(bytes), size_of::<T>());
                // SAFETY: a value goes along.
                unsafe { self.begin_far(Direction::Put, there, local, handle) }
            }
            // SAFETY: the caller's promise.
            _ => unsafe { self.put_value(value, dst, proc) },
        }
    }

    /// Gets a value. ARMCI's `GetValueInt` and its like.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Safety
    /// If the process is this one and ARMCI did not allocate `src`, there is a `T`.
    pub unsafe fn get_value<T: hydrant::Pod>(&self, src: *mut T, proc: i32) -> Result<T> {
        let mut value = T::zeroed();
        // SAFETY: the value is this function's own; the caller's promise.
        unsafe { self.get_bytes(src.cast(), (&raw mut value).cast(), size_of::<T>(), proc)? };
        Ok(value)
    }
}
