//! The functions of `armci.h` that put, get, accumulate and change words, and are done when they return.

use std::ffi::{c_double, c_float, c_int, c_long, c_void};

use super::{
    armci::{armci_giov_t, strides, vectors},
    process::{armci, code, or_die},
};
use crate::{
    Armci, Error, Result, Rmw,
    error::{count, not_null},
};

/// Gives a word of a process another value.
pub const ARMCI_SWAP: c_int = 10;
/// The same, of a `long`.
pub const ARMCI_SWAP_LONG: c_int = 11;
/// Adds to a word of a process.
pub const ARMCI_FETCH_AND_ADD: c_int = 12;
/// The same, of a `long`.
pub const ARMCI_FETCH_AND_ADD_LONG: c_int = 13;

/// Puts bytes to a process; the source is free when it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Put(
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    proc: c_int,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.put(src.cast(), dst.cast(), bytes, proc) }
    };
    code("ARMCI_Put", act())
}

/// Gets bytes of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Get(
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    proc: c_int,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.get(src.cast(), dst.cast(), bytes, proc) }
    };
    code("ARMCI_Get", act())
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
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.put_flag((src.cast(), dst.cast()), bytes, (f, v), proc) }
    };
    code("ARMCI_Put_flag", act())
}

/// Adds a scale's multiple of elements to those of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Acc(
    optype: c_int,
    scale: *mut c_void,
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    proc: c_int,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            armci()?.accumulate(
                &Armci::scale(optype, scale.cast())?,
                src.cast(),
                dst.cast(),
                bytes,
                proc,
            )
        }
    };
    code("ARMCI_Acc", act())
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
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let strides = strides(src_stride_arr, dst_stride_arr, count, stride_levels)?;
            armci()?.put_strided(src_ptr.cast(), dst_ptr.cast(), strides, proc)
        }
    };
    code("ARMCI_PutS", act())
}

/// Gets a section of an array of a process.
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
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let strides = strides(src_stride_arr, dst_stride_arr, count, stride_levels)?;
            armci()?.get_strided(src_ptr.cast(), dst_ptr.cast(), strides, proc)
        }
    };
    code("ARMCI_GetS", act())
}

/// Adds a scale's multiple of a section of an array to one of a process.
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
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            let scale = Armci::scale(optype, scale.cast())?;
            let strides = strides(src_stride_arr, dst_stride_arr, count, stride_levels)?;
            armci.accumulate_strided(&scale, src_ptr.cast(), dst_ptr.cast(), strides, proc)
        }
    };
    code("ARMCI_AccS", act())
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
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            let strides = strides(src_stride_arr, dst_stride_arr, count, stride_levels)?;
            armci.put_strided_flag((src_ptr.cast(), dst_ptr.cast()), strides, (flag, val), proc)
        }
    };
    code("ARMCI_PutS_flag", act())
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
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            let strides = strides(src_stride_arr, dst_stride_arr, count, stride_levels)?;
            armci.put_strided_flag((src_ptr.cast(), dst_ptr.cast()), strides, (flag, val), proc)
        }
    };
    code("ARMCI_PutS_flag_dir", act())
}

/// Puts runs of bytes to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutV(darr: *mut armci_giov_t, len: c_int, proc: c_int) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.put_vector(&vectors(darr, len)?, proc) }
    };
    code("ARMCI_PutV", act())
}

/// Gets runs of bytes of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetV(darr: *mut armci_giov_t, len: c_int, proc: c_int) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.get_vector(&vectors(darr, len)?, proc) }
    };
    code("ARMCI_GetV", act())
}

/// Adds a scale's multiple of runs of elements to those of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_AccV(
    op: c_int,
    scale: *mut c_void,
    darr: *mut armci_giov_t,
    len: c_int,
    proc: c_int,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let scale = Armci::scale(op, scale.cast())?;
            armci()?.accumulate_vector(&scale, &vectors(darr, len)?, proc)
        }
    };
    code("ARMCI_AccV", act())
}

/// Puts a value to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutValueInt(src: c_int, dst: *mut c_void, proc: c_int) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.put_value(src, dst.cast(), proc) }
    };
    code("ARMCI_PutValueInt", act())
}

/// Gets a value of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetValueInt(src: *mut c_void, proc: c_int) -> c_int {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.get_value(src.cast::<c_int>(), proc) }
    };
    or_die("ARMCI_GetValueInt", act())
}

/// Puts a value to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutValueLong(src: c_long, dst: *mut c_void, proc: c_int) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.put_value(src, dst.cast(), proc) }
    };
    code("ARMCI_PutValueLong", act())
}

/// Gets a value of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetValueLong(src: *mut c_void, proc: c_int) -> c_long {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.get_value(src.cast::<c_long>(), proc) }
    };
    or_die("ARMCI_GetValueLong", act())
}

/// Puts a value to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutValueFloat(src: c_float, dst: *mut c_void, proc: c_int) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.put_value(src, dst.cast(), proc) }
    };
    code("ARMCI_PutValueFloat", act())
}

/// Gets a value of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetValueFloat(src: *mut c_void, proc: c_int) -> c_float {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.get_value(src.cast::<c_float>(), proc) }
    };
    or_die("ARMCI_GetValueFloat", act())
}

/// Puts a value to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutValueDouble(
    src: c_double,
    dst: *mut c_void,
    proc: c_int,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.put_value(src, dst.cast(), proc) }
    };
    code("ARMCI_PutValueDouble", act())
}

/// Gets a value of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GetValueDouble(src: *mut c_void, proc: c_int) -> c_double {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.get_value(src.cast::<c_double>(), proc) }
    };
    or_die("ARMCI_GetValueDouble", act())
}

/// Changes a word of a process at once, and stores what it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Rmw(
    op: c_int,
    ploc: *mut c_void,
    prem: *mut c_void,
    extra: c_int,
    proc: c_int,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
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
        }
    };
    code("ARMCI_Rmw", act())
}

/// Copies bytes of this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Copy(src: *mut c_void, dst: *mut c_void, n: c_int) {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
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

/// Notifies a process, after all that this one put there: how often it did.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_notify(proc: c_int) -> c_int {
    let act = || -> Result<_> { armci()?.notify(proc) };
    or_die("armci_notify", act())
}

/// Waits for the next notification of a process; how many there were.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_notify_wait(proc: c_int, pval: *mut c_int) -> c_int {
    let act = || -> Result<()> {
        let waited = armci()?.notify_wait(proc)?;
        // SAFETY: null, or where a number fits, says C's caller.
        if let Some(value) = unsafe { pval.as_mut() } {
            *value = waited;
        }
        Ok(())
    };
    code("armci_notify_wait", act())
}
