//! The functions of `armci.h` that put, get, accumulate and change words, and wait until that is
//! done.

use std::ffi::{c_char, c_double, c_float, c_int, c_long, c_void};

use super::{
    arguments::{strides, vectors},
    armci::armci_giov_t,
    process::{armci, call, call_or_die, code, or_die},
};
use crate::{
    Armci, Error, Result, Rmw,
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
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_Put", |armci| unsafe {
        armci.put(src.cast(), dst.cast(), bytes, proc)
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
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_Get", |armci| unsafe {
        armci.get(src.cast(), dst.cast(), bytes, proc)
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
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_Put_flag", |armci| unsafe {
        armci.put_flag((src.cast(), dst.cast()), bytes, (f, v), proc)
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
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_Acc", |armci| unsafe {
        armci.accumulate(
            &Armci::scale(optype, scale.cast())?,
            src.cast(),
            dst.cast(),
            bytes,
            proc,
        )
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
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_PutS", |armci| unsafe {
        let strides = strides(src_stride_arr, dst_stride_arr, count, stride_levels)?;
        armci.put_strided(src_ptr.cast(), dst_ptr.cast(), strides, proc)
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
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_GetS", |armci| unsafe {
        let strides = strides(src_stride_arr, dst_stride_arr, count, stride_levels)?;
        armci.get_strided(src_ptr.cast(), dst_ptr.cast(), strides, proc)
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
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_AccS", |armci| unsafe {
        let scale = Armci::scale(optype, scale.cast())?;
        let strides = strides(src_stride_arr, dst_stride_arr, count, stride_levels)?;
        armci.accumulate_strided(&scale, src_ptr.cast(), dst_ptr.cast(), strides, proc)
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
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_PutS_flag", |armci| unsafe {
        let strides = strides(src_stride_arr, dst_stride_arr, count, stride_levels)?;
        armci.put_strided_flag((src_ptr.cast(), dst_ptr.cast()), strides, (flag, val), proc)
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
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_PutS_flag_dir", |armci| unsafe {
        let strides = strides(src_stride_arr, dst_stride_arr, count, stride_levels)?;
        armci.put_strided_flag((src_ptr.cast(), dst_ptr.cast()), strides, (flag, val), proc)
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
        // SAFETY: C's caller passes pointers as the header says.
        let strides = unsafe { strides(stride_arr, stride_arr, count, stride_levels)? };
        // SAFETY: C's caller passes pointers as the header says.
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
        // SAFETY: C's caller passes pointers as the header says.
        let strides = unsafe { strides(stride_arr, stride_arr, count, stride_levels)? };
        // SAFETY: C's caller passes pointers as the header says.
        unsafe { strides.unpack(ptr.cast(), buf.cast()) }
    };
    or_die("armci_read_strided", act());
}

/// Puts runs of bytes to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutV(darr: *mut armci_giov_t, len: c_int, proc: c_int) -> c_int {
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_PutV", |armci| unsafe {
        armci.put_vector(&vectors(darr, len)?, proc)
    })
}

/// Gets runs of bytes from a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetV(darr: *mut armci_giov_t, len: c_int, proc: c_int) -> c_int {
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_GetV", |armci| unsafe {
        armci.get_vector(&vectors(darr, len)?, proc)
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
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_AccV", |armci| unsafe {
        let scale = Armci::scale(op, scale.cast())?;
        armci.accumulate_vector(&scale, &vectors(darr, len)?, proc)
    })
}

/// Puts a value to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutValueInt(src: c_int, dst: *mut c_void, proc: c_int) -> c_int {
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_PutValueInt", |armci| unsafe {
        armci.put_value(src, dst.cast(), proc)
    })
}

/// Gets a value from a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetValueInt(src: *mut c_void, proc: c_int) -> c_int {
    // SAFETY: C's caller passes pointers as the header says.
    call_or_die("ARMCI_GetValueInt", |armci| unsafe {
        armci.get_value(src.cast::<c_int>(), proc)
    })
}

/// Puts a value to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutValueLong(src: c_long, dst: *mut c_void, proc: c_int) -> c_int {
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_PutValueLong", |armci| unsafe {
        armci.put_value(src, dst.cast(), proc)
    })
}

/// Gets a value from a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetValueLong(src: *mut c_void, proc: c_int) -> c_long {
    // SAFETY: C's caller passes pointers as the header says.
    call_or_die("ARMCI_GetValueLong", |armci| unsafe {
        armci.get_value(src.cast::<c_long>(), proc)
    })
}

/// Puts a value to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutValueFloat(src: c_float, dst: *mut c_void, proc: c_int) -> c_int {
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_PutValueFloat", |armci| unsafe {
        armci.put_value(src, dst.cast(), proc)
    })
}

/// Gets a value from a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetValueFloat(src: *mut c_void, proc: c_int) -> c_float {
    // SAFETY: C's caller passes pointers as the header says.
    call_or_die("ARMCI_GetValueFloat", |armci| unsafe {
        armci.get_value(src.cast::<c_float>(), proc)
    })
}

/// Puts a value to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutValueDouble(
    src: c_double,
    dst: *mut c_void,
    proc: c_int,
) -> c_int {
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_PutValueDouble", |armci| unsafe {
        armci.put_value(src, dst.cast(), proc)
    })
}

/// Gets a value from a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetValueDouble(src: *mut c_void, proc: c_int) -> c_double {
    // SAFETY: C's caller passes pointers as the header says.
    call_or_die("ARMCI_GetValueDouble", |armci| unsafe {
        armci.get_value(src.cast::<c_double>(), proc)
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
    // SAFETY: C's caller passes pointers as the header says.
    call("ARMCI_Rmw", |armci| unsafe {
        not_null(ploc, "the own word")?;
        let (own, own_long) = (ploc.cast::<c_int>(), ploc.cast::<c_long>());
        let (word, long) = (prem.cast(), prem.cast());
        match op {
            ARMCI_SWAP => *own = armci.read_modify_write(Rmw::Swap, word, *own, proc)?,
            ARMCI_FETCH_AND_ADD => {
                *own = armci.read_modify_write(Rmw::FetchAndAdd, word, extra, proc)?;
            }
            ARMCI_SWAP_LONG => {
                *own_long = armci.read_modify_write(Rmw::Swap, long, *own_long, proc)?;
            }
            ARMCI_FETCH_AND_ADD_LONG => {
                let extra = extra.into();
                *own_long = armci.read_modify_write(Rmw::FetchAndAdd, long, extra, proc)?;
            }
            code => {
                return Err(Error::Code {
                    what: "a read-modify-write",
                    code,
                });
            }
        }
        Ok(())
    })
}

/// Copies bytes within this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Copy(src: *mut c_void, dst: *mut c_void, n: c_int) {
    let act = || -> Result<_> {
        // SAFETY: C's caller passes pointers as the header says.
        unsafe {
            let bytes = count(n.into(), 0, "the number of bytes")?;
            not_null(src, "the source of a copy")?;
            not_null(dst, "the destination of a copy")?;
            std::ptr::copy(src.cast::<u8>(), dst.cast::<u8>(), bytes);
            Ok(())
        }
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
        // SAFETY: C's caller passes null, or room for a number.
        if let Some(value) = unsafe { pval.as_mut() } {
            *value = waited;
        }
        Ok(())
    };
    code("armci_notify_wait", act())
}
