//! The functions of `armci.h` that put, get, accumulate and change words, and wait until that is
//! done.

use std::ffi::{c_char, c_double, c_float, c_int, c_long, c_void};

use super::{
    arguments::{strides, vectors},
    armci::armci_giov_t,
    process::{armci, call, call_or_die, code, or_die},
};
use crate::{
    Armci, Error, Result, Rmw, Word,
    error::{count, not_null},
};

/// Gives a word of a process another value.
pub const ARMCI_SWAP: c_int = 10;
/// As ARMCI_SWAP, for a `long`.
pub const ARMCI_SWAP_LONG: c_int = 11;
/// Adds to a word of a process.
pub const ARMCI_FETCH_AND_ADD: c_int = 12;
/// As ARMCI_FETCH_AND_ADD, for a `long`.
pub const ARMCI_FETCH_AND_ADD_LONG: c_int = 13;

/// Puts bytes to a process. On return the source is free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Put(
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    proc: c_int,
) -> c_int {
    call("ARMCI_Put", |armci| {
        // SAFETY: 1. and 2. C1 and C2, for both sides.
        unsafe { armci.put(src.cast(), dst.cast(), bytes, proc) }
    })
}

/// Gets bytes from a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Get(
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    proc: c_int,
) -> c_int {
    call("ARMCI_Get", |armci| {
        // SAFETY: 1. and 2. C1 and C2, for both sides.
        unsafe { armci.get(src.cast(), dst.cast(), bytes, proc) }
    })
}

/// Puts bytes to a process, then a number into a flag there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Put_flag(
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    f: *mut c_int,
    v: c_int,
    proc: c_int,
) -> c_int {
    call("ARMCI_Put_flag", |armci| {
        // SAFETY: 1. and 2. C1 and C2, for both sides and the flag.
        unsafe { armci.put_flag((src.cast(), dst.cast()), bytes, (f, v), proc) }
    })
}

/// Multiplies elements by a scale, and adds them to elements of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Acc(
    optype: c_int,
    scale: *mut c_void,
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    proc: c_int,
) -> c_int {
    call("ARMCI_Acc", |armci| {
        // SAFETY: 1. C1, for the scale.
        let scale = unsafe { Armci::scale(optype, scale.cast()) }?;
        // SAFETY: 1. and 2. C1 and C2, for both sides.
        unsafe { armci.accumulate(&scale, src.cast(), dst.cast(), bytes, proc) }
    })
}

/// Puts a section of an array to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutS(
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    proc: c_int,
) -> c_int {
    call("ARMCI_PutS", |armci| {
        // SAFETY: 1. to 3. C1 and C2, for the lists of strides and counts.
        let strides = unsafe { strides(src_stride_arr, dst_stride_arr, count, stride_levels) }?;
        // SAFETY: 1. and 2. C1 and C2, for both sides.
        unsafe { armci.put_strided(src_ptr.cast(), dst_ptr.cast(), strides, proc) }
    })
}

/// Gets a section of an array from a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetS(
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    proc: c_int,
) -> c_int {
    call("ARMCI_GetS", |armci| {
        // SAFETY: 1. to 3. C1 and C2, for the lists of strides and counts.
        let strides = unsafe { strides(src_stride_arr, dst_stride_arr, count, stride_levels) }?;
        // SAFETY: 1. and 2. C1 and C2, for both sides.
        unsafe { armci.get_strided(src_ptr.cast(), dst_ptr.cast(), strides, proc) }
    })
}

/// Multiplies a section of an array by a scale, and adds it to a section of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_AccS(
    optype: c_int,
    scale: *mut c_void,
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    proc: c_int,
) -> c_int {
    call("ARMCI_AccS", |armci| {
        // SAFETY: 1. C1, for the scale.
        let scale = unsafe { Armci::scale(optype, scale.cast()) }?;
        // SAFETY: 1. to 3. C1 and C2, for the lists of strides and counts.
        let strides = unsafe { strides(src_stride_arr, dst_stride_arr, count, stride_levels) }?;
        // SAFETY: 1. and 2. C1 and C2, for both sides.
        unsafe { armci.accumulate_strided(&scale, src_ptr.cast(), dst_ptr.cast(), strides, proc) }
    })
}

/// Puts a section of an array to a process, then a number into a flag there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutS_flag(
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    flag: *mut c_int,
    val: c_int,
    proc: c_int,
) -> c_int {
    call("ARMCI_PutS_flag", |armci| {
        // SAFETY: 1. to 3. C1 and C2, for the lists of strides and counts.
        let strides = unsafe { strides(src_stride_arr, dst_stride_arr, count, stride_levels) }?;
        // SAFETY: 1. and 2. C1 and C2, for both sides and the flag.
        unsafe {
            armci.put_strided_flag((src_ptr.cast(), dst_ptr.cast()), strides, (flag, val), proc)
        }
    })
}

/// Puts a section of an array to a process, then a number into a flag there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutS_flag_dir(
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    flag: *mut c_int,
    val: c_int,
    proc: c_int,
) -> c_int {
    call("ARMCI_PutS_flag_dir", |armci| {
        // SAFETY: 1. to 3. C1 and C2, for the lists of strides and counts.
        let strides = unsafe { strides(src_stride_arr, dst_stride_arr, count, stride_levels) }?;
        // SAFETY: 1. and 2. C1 and C2, for both sides and the flag.
        unsafe {
            armci.put_strided_flag((src_ptr.cast(), dst_ptr.cast()), strides, (flag, val), proc)
        }
    })
}

/// Copies a section of an array of this process into a buffer, run after run. `count` has the bytes
/// of a run, then the number of runs at each level.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_write_strided(
    ptr: *mut c_void,
    stride_levels: c_int,
    stride_arr: *mut c_int,
    count: *mut c_int,
    buf: *mut c_char,
) {
    let act = || -> Result<()> {
        // SAFETY: 1. to 3. C1 and C2, for the lists of strides and counts.
        let strides = unsafe { strides(stride_arr, stride_arr, count, stride_levels) }?;
        // SAFETY: 1. C1, for each run and the buffer. 2. C2, and the two do not overlap.
        unsafe { strides.pack(ptr.cast(), buf.cast()) }
    };
    or_die("armci_write_strided", act());
}

/// Copies a buffer into a section of an array of this process. It is the reverse of
/// armci_write_strided.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_read_strided(
    ptr: *mut c_void,
    stride_levels: c_int,
    stride_arr: *mut c_int,
    count: *mut c_int,
    buf: *mut c_char,
) {
    let act = || -> Result<()> {
        // SAFETY: 1. to 3. C1 and C2, for the lists of strides and counts.
        let strides = unsafe { strides(stride_arr, stride_arr, count, stride_levels) }?;
        // SAFETY: 1. C1, for each run and the buffer. 2. C2, and the two do not overlap.
        unsafe { strides.unpack(ptr.cast(), buf.cast()) }
    };
    or_die("armci_read_strided", act());
}

/// Puts runs of bytes to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutV(darr: *mut armci_giov_t, len: c_int, proc: c_int) -> c_int {
    call("ARMCI_PutV", |armci| {
        // SAFETY: 1. to 3. C1 and C2, for the descriptors and their lists.
        let vectors = unsafe { vectors(darr, len) }?;
        // SAFETY: 1. and 2. C1 and C2, for each run.
        unsafe { armci.put_vector(&vectors, proc) }
    })
}

/// Gets runs of bytes from a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetV(darr: *mut armci_giov_t, len: c_int, proc: c_int) -> c_int {
    call("ARMCI_GetV", |armci| {
        // SAFETY: 1. to 3. C1 and C2, for the descriptors and their lists.
        let vectors = unsafe { vectors(darr, len) }?;
        // SAFETY: 1. and 2. C1 and C2, for each run.
        unsafe { armci.get_vector(&vectors, proc) }
    })
}

/// Multiplies runs of elements by a scale, and adds them to elements of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_AccV(
    op: c_int,
    scale: *mut c_void,
    darr: *mut armci_giov_t,
    len: c_int,
    proc: c_int,
) -> c_int {
    call("ARMCI_AccV", |armci| {
        // SAFETY: 1. C1, for the scale.
        let scale = unsafe { Armci::scale(op, scale.cast()) }?;
        // SAFETY: 1. to 3. C1 and C2, for the descriptors and their lists.
        let vectors = unsafe { vectors(darr, len) }?;
        // SAFETY: 1. and 2. C1 and C2, for each run.
        unsafe { armci.accumulate_vector(&scale, &vectors, proc) }
    })
}

/// Puts a value to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutValueInt(src: c_int, dst: *mut c_void, proc: c_int) -> c_int {
    call("ARMCI_PutValueInt", |armci| {
        // SAFETY: 1. C1 and C2, for a value of this process.
        unsafe { armci.put_value(src, dst.cast(), proc) }
    })
}

/// Gets a value from a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetValueInt(src: *mut c_void, proc: c_int) -> c_int {
    call_or_die("ARMCI_GetValueInt", |armci| {
        // SAFETY: 1. C1 and C2, for a value of this process.
        unsafe { armci.get_value(src.cast::<c_int>(), proc) }
    })
}

/// Puts a value to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutValueLong(src: c_long, dst: *mut c_void, proc: c_int) -> c_int {
    call("ARMCI_PutValueLong", |armci| {
        // SAFETY: 1. C1 and C2, for a value of this process.
        unsafe { armci.put_value(src, dst.cast(), proc) }
    })
}

/// Gets a value from a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetValueLong(src: *mut c_void, proc: c_int) -> c_long {
    call_or_die("ARMCI_GetValueLong", |armci| {
        // SAFETY: 1. C1 and C2, for a value of this process.
        unsafe { armci.get_value(src.cast::<c_long>(), proc) }
    })
}

/// Puts a value to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutValueFloat(src: c_float, dst: *mut c_void, proc: c_int) -> c_int {
    call("ARMCI_PutValueFloat", |armci| {
        // SAFETY: 1. C1 and C2, for a value of this process.
        unsafe { armci.put_value(src, dst.cast(), proc) }
    })
}

/// Gets a value from a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetValueFloat(src: *mut c_void, proc: c_int) -> c_float {
    call_or_die("ARMCI_GetValueFloat", |armci| {
        // SAFETY: 1. C1 and C2, for a value of this process.
        unsafe { armci.get_value(src.cast::<c_float>(), proc) }
    })
}

/// Puts a value to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutValueDouble(
    src: c_double,
    dst: *mut c_void,
    proc: c_int,
) -> c_int {
    call("ARMCI_PutValueDouble", |armci| {
        // SAFETY: 1. C1 and C2, for a value of this process.
        unsafe { armci.put_value(src, dst.cast(), proc) }
    })
}

/// Gets a value from a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetValueDouble(src: *mut c_void, proc: c_int) -> c_double {
    call_or_die("ARMCI_GetValueDouble", |armci| {
        // SAFETY: 1. C1 and C2, for a value of this process.
        unsafe { armci.get_value(src.cast::<c_double>(), proc) }
    })
}

/// Changes a word of a process atomically, and stores its previous value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Rmw(
    op: c_int,
    ploc: *mut c_void,
    prem: *mut c_void,
    extra: c_int,
    proc: c_int,
) -> c_int {
    call("ARMCI_Rmw", |armci| {
        not_null(ploc, "the own word")?;
        let (own, own_long) = (ploc.cast::<c_int>(), ploc.cast::<c_long>());
        let (word, long) = (prem.cast(), prem.cast());
        match op {
            // SAFETY: 1. to 3. C1 and C2, for both words.
            ARMCI_SWAP => unsafe { swap(armci, own, word, proc) },
            // SAFETY: 1. to 3. C1 and C2, for both words.
            ARMCI_SWAP_LONG => unsafe { swap(armci, own_long, long, proc) },
            // SAFETY: 1. to 3. C1 and C2, for both words.
            ARMCI_FETCH_AND_ADD => unsafe { fetch_and_add(armci, own, word, extra, proc) },
            ARMCI_FETCH_AND_ADD_LONG => {
                let extra = c_long::from(extra);
                // SAFETY: 1. to 3. C1 and C2, for both words.
                unsafe { fetch_and_add(armci, own_long, long, extra, proc) }
            }
            code => Err(Error::Code {
                what: "a read-modify-write",
                code,
            }),
        }
    })
}

/// Exchanges the own word for a word of a process.
///
/// # Safety
/// 1. `own` is readable and writable, and no other code uses it meanwhile.
/// 2. and 3. as 1. and 2. of [`Armci::read_modify_write`].
#[inline(always)]
unsafe fn swap<W: Word>(armci: &Armci, own: *mut W, word: *mut W, proc: c_int) -> Result<()> {
    // SAFETY: `own` is readable, by the caller's condition 1.
    let value = unsafe { own.read() };
    // SAFETY: 1. and 2. The caller's conditions 2 and 3.
    let previous = unsafe { armci.read_modify_write(Rmw::Swap, word, value, proc) }?;
    // SAFETY: `own` is writable and used by no other code, by the caller's condition 1.
    unsafe { own.write(previous) };
    Ok(())
}

/// Adds a number to a word of a process, and stores the word's previous value in the own word.
///
/// # Safety
/// 1. `own` is writable, and no other code uses it meanwhile.
/// 2. and 3. as 1. and 2. of [`Armci::read_modify_write`].
#[inline(always)]
unsafe fn fetch_and_add<W: Word>(
    armci: &Armci,
    own: *mut W,
    word: *mut W,
    extra: W,
    proc: c_int,
) -> Result<()> {
    // SAFETY: 1. and 2. The caller's conditions 2 and 3.
    let previous = unsafe { armci.read_modify_write(Rmw::FetchAndAdd, word, extra, proc) }?;
    // SAFETY: `own` is writable and used by no other code, by the caller's condition 1.
    unsafe { own.write(previous) };
    Ok(())
}

/// Copies bytes within this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Copy(src: *mut c_void, dst: *mut c_void, n: c_int) {
    let act = || -> Result<_> {
        let bytes = count(n.into(), 0, "the number of bytes")?;
        not_null(src, "the source of a copy")?;
        not_null(dst, "the destination of a copy")?;
        // SAFETY: `src` is readable and `dst` writable for `bytes`, by C1 and C2. They may overlap.
        unsafe { std::ptr::copy(src.cast::<u8>(), dst.cast::<u8>(), bytes) };
        Ok(())
    };
    or_die("ARMCI_Copy", act());
}

/// Completes this process's puts to a process, then notifies it. Returns the number of
/// notifications so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_notify(proc: c_int) -> c_int {
    call_or_die("armci_notify", |armci| armci.notify(proc))
}

/// Waits for the next notification from a process. Stores the number of waits so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_notify_wait(proc: c_int, pval: *mut c_int) -> c_int {
    let act = || -> Result<()> {
        let waited = armci()?.notify_wait(proc)?;
        // SAFETY: `pval` is null or has room for a number that no other code uses, by C1 and C2.
        if let Some(value) = unsafe { pval.as_mut() } {
            *value = waited;
        }
        Ok(())
    };
    code("armci_notify_wait", act())
}
