//! Puts and gets of one value.

#![allow(unsafe_code)] // memory is named by its address

use super::{Handle, PutOrGet, gathered::GatherBuffer};
use crate::{Armci, Result, memory::Location};

impl Armci {
    /// Puts a value. It is complete at the process as a [put](Self::put) is. ARMCI's `PutValueInt`
    /// and its like.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Safety
    /// 1. If the process is this one and ARMCI did not allocate `dst`, it is writable for a `T`,
    ///    and no other code uses it meanwhile.
    pub unsafe fn put_value<T: hydrant::Pod>(
        &self,
        value: T,
        dst: *mut T,
        proc: i32,
    ) -> Result<()> {
        // SAFETY: 1. The value is a variable of this function.
        // 2. The caller's condition 1.
        unsafe { self.put_bytes((&raw const value).cast(), dst.cast(), size_of::<T>(), proc) }
    }

    /// Begins a put of a value, which is copied. ARMCI's `NbPutValueInt` and its like.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Safety
    /// 1. as [`put_value`](Self::put_value).
    pub unsafe fn put_value_nb<T: hydrant::Pod>(
        &self,
        value: T,
        dst: *mut T,
        proc: i32,
        handle: Option<&mut Handle>,
    ) -> Result<()> {
        match self.memory.find(proc, dst.cast(), size_of::<T>())? {
            Location::Arena(offset) if !self.memory.is_mapped(proc as usize) => {
                let there = (proc as usize, offset);
                let bytes = hydrant::bytemuck::bytes_of(&value).into();
                let local = (GatherBuffer::Value(bytes), size_of::<T>());
                // SAFETY: 1 and 2. Only this operation knows the copy of the value.
                unsafe { self.begin_far(PutOrGet::Put, there, local, handle) }
            }
            // SAFETY: 1. The caller's condition 1.
            _ => unsafe { self.put_value(value, dst, proc) },
        }
    }

    /// Gets a value. ARMCI's `GetValueInt` and its like.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Safety
    /// 1. If the process is this one and ARMCI did not allocate `src`, it is readable for a `T`,
    ///    and no other code writes to it meanwhile.
    pub unsafe fn get_value<T: hydrant::Pod>(&self, src: *mut T, proc: i32) -> Result<T> {
        let mut value = T::zeroed();
        // SAFETY: 1. The value is a variable of this function.
        // 2. The caller's condition 1.
        unsafe { self.get_bytes(src.cast(), (&raw mut value).cast(), size_of::<T>(), proc)? };
        Ok(value)
    }
}
