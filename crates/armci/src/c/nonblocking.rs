//! The functions of `armci.h` that begin operations, and those that wait for them.

use std::ffi::{c_double, c_float, c_int, c_long, c_void};

use super::{
    armci::{armci_giov_t, armci_hdl_t, handle, strides, vectors},
    process::{armci, code, or_die},
};
use crate::{Armci, Error, Result};

/// Begins ARMCI_Put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbPut(
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            handle(nb_handle, |handle| {
                armci.put_nb(src.cast(), dst.cast(), bytes, proc, handle)
            })
        }
    };
    code("ARMCI_NbPut", act())
}

/// Begins ARMCI_Get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbGet(
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            handle(nb_handle, |handle| {
                armci.get_nb(src.cast(), dst.cast(), bytes, proc, handle)
            })
        }
    };
    code("ARMCI_NbGet", act())
}

/// Begins ARMCI_PutS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbPutS(
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let strides = strides(src_stride_arr, dst_stride_arr, count, stride_levels)?;
            let armci = armci()?;
            handle(nb_handle, |handle| {
                armci.put_strided_nb(src_ptr.cast(), dst_ptr.cast(), strides, proc, handle)
            })
        }
    };
    code("ARMCI_NbPutS", act())
}

/// Begins ARMCI_GetS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbGetS(
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let strides = strides(src_stride_arr, dst_stride_arr, count, stride_levels)?;
            let armci = armci()?;
            handle(nb_handle, |handle| {
                armci.get_strided_nb(src_ptr.cast(), dst_ptr.cast(), strides, proc, handle)
            })
        }
    };
    code("ARMCI_NbGetS", act())
}

/// Begins ARMCI_PutV.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbPutV(
    darr: *mut armci_giov_t,
    len: c_int,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let vectors = vectors(darr, len)?;
            let armci = armci()?;
            handle(nb_handle, |handle| {
                armci.put_vector_nb(&vectors, proc, handle)
            })
        }
    };
    code("ARMCI_NbPutV", act())
}

/// Begins ARMCI_GetV.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbGetV(
    darr: *mut armci_giov_t,
    len: c_int,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let vectors = vectors(darr, len)?;
            let armci = armci()?;
            handle(nb_handle, |handle| {
                armci.get_vector_nb(&vectors, proc, handle)
            })
        }
    };
    code("ARMCI_NbGetV", act())
}

/// Begins ARMCI_AccS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbAccS(
    optype: c_int,
    scale: *mut c_void,
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            let scale = Armci::scale(optype, scale.cast())?;
            let strides = strides(src_stride_arr, dst_stride_arr, count, stride_levels)?;
            let (src, dst) = (src_ptr.cast(), dst_ptr.cast());
            handle(nb_handle, |handle| {
                armci.accumulate_strided_nb(&scale, src, dst, strides, proc, handle)
            })
        }
    };
    code("ARMCI_NbAccS", act())
}

/// Begins ARMCI_AccV.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbAccV(
    op: c_int,
    scale: *mut c_void,
    darr: *mut armci_giov_t,
    len: c_int,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            let scale = Armci::scale(op, scale.cast())?;
            let vectors = vectors(darr, len)?;
            handle(nb_handle, |handle| {
                armci.accumulate_vector_nb(&scale, &vectors, proc, handle)
            })
        }
    };
    code("ARMCI_NbAccV", act())
}

/// Waits for what was begun with a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Wait(nb_handle: *mut armci_hdl_t) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            handle(nb_handle, |handle| armci.wait(handle))
        }
    };
    code("ARMCI_Wait", act())
}

/// Whether what was begun with a handle is under way: 0 if it is complete, 1 if not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Test(nb_handle: *mut armci_hdl_t) -> c_int {
    let mut done = true;
    let mut act = || -> Result<()> {
        let armci = armci()?;
        // SAFETY: what C's caller promises.
        done = unsafe {
            handle(nb_handle, |handle| {
                handle.map_or(Ok(true), |it| armci.test(it))
            })
        }?;
        Ok(())
    };
    match code("ARMCI_Test", act()) {
        0 => c_int::from(!done),
        code => code,
    }
}

/// Waits for what was begun with implicit handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_WaitAll() -> c_int {
    let act = || -> Result<()> { armci()?.wait(None) };
    code("ARMCI_WaitAll", act())
}

/// Waits for what was begun with implicit handles, to one process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_WaitProc(proc: c_int) -> c_int {
    let act = || -> Result<()> { armci()?.wait_process(proc) };
    code("ARMCI_WaitProc", act())
}

/// Makes a handle gather what is begun with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_SET_AGGREGATE_HANDLE(nb_handle: *mut armci_hdl_t) {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe {
            handle(nb_handle, |handle| {
                handle.ok_or(Error::Null { what: "a handle" })?.is_aggregate = 1;
                Ok(())
            })
        }
    };
    or_die("ARMCI_SET_AGGREGATE_HANDLE", act());
}

/// Sends what a handle gathered, and stops it from gathering.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_UNSET_AGGREGATE_HANDLE(nb_handle: *mut armci_hdl_t) {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            handle(nb_handle, |handle| {
                armci.stop_gathering(handle.ok_or(Error::Null { what: "a handle" })?)
            })
        }
    };
    or_die("ARMCI_UNSET_AGGREGATE_HANDLE", act());
}

/// Begins ARMCI_PutValueInt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbPutValueInt(
    src: c_int,
    dst: *mut c_void,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            handle(nb_handle, |handle| {
                armci.put_value_nb(src, dst.cast(), proc, handle)
            })
        }
    };
    code("ARMCI_NbPutValueInt", act())
}

/// Begins ARMCI_PutValueLong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbPutValueLong(
    src: c_long,
    dst: *mut c_void,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            handle(nb_handle, |handle| {
                armci.put_value_nb(src, dst.cast(), proc, handle)
            })
        }
    };
    code("ARMCI_NbPutValueLong", act())
}

/// Begins ARMCI_PutValueFloat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbPutValueFloat(
    src: c_float,
    dst: *mut c_void,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            handle(nb_handle, |handle| {
                armci.put_value_nb(src, dst.cast(), proc, handle)
            })
        }
    };
    code("ARMCI_NbPutValueFloat", act())
}

/// Begins ARMCI_PutValueDouble.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbPutValueDouble(
    src: c_double,
    dst: *mut c_void,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            handle(nb_handle, |handle| {
                armci.put_value_nb(src, dst.cast(), proc, handle)
            })
        }
    };
    code("ARMCI_NbPutValueDouble", act())
}
