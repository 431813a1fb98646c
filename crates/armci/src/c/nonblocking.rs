//! The functions of `armci.h` that begin operations, and those that wait for them.

use std::ffi::{c_double, c_float, c_int, c_long, c_void};

use super::{
    arguments::{Unknown, handle, strides, vectors},
    armci::{armci_giov_t, armci_hdl_t},
    process::{armci, call, call_or_die, code, or_die},
};
use crate::{Armci, Error, Handle, Result, Strides};

/// Runs a function that begins an operation, with the handle that C passes.
///
/// # Safety
/// 1. `nb_handle` is null or points to a handle that no other code uses meanwhile.
#[inline]
unsafe fn begin(
    function: &str,
    nb_handle: *mut armci_hdl_t,
    act: impl FnOnce(&Armci, Option<&mut Handle>) -> Result<()>,
) -> c_int {
    call(function, |armci| {
        // SAFETY: 1. The caller's condition 1.
        unsafe { handle(nb_handle, Unknown::Fresh, |handle| act(armci, handle)) }
    })
}

/// Begins ARMCI_Put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbPut(
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = |armci: &Armci, handle: Option<&mut Handle>| {
        // SAFETY: 1. and 2. C1 and C2, for both sides.
        unsafe { armci.put_nb(src.cast(), dst.cast(), bytes, proc, handle) }
    };
    // SAFETY: 1. C1 and C2, for the handle.
    unsafe { begin("ARMCI_NbPut", nb_handle, act) }
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
    let act = |armci: &Armci, handle: Option<&mut Handle>| {
        // SAFETY: 1. and 2. C1 and C2, for both sides.
        unsafe { armci.get_nb(src.cast(), dst.cast(), bytes, proc, handle) }
    };
    // SAFETY: 1. C1 and C2, for the handle.
    unsafe { begin("ARMCI_NbGet", nb_handle, act) }
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
    let act = |armci: &Armci, handle: Option<&mut Handle>| {
        // SAFETY: 1. to 3. C1 and C2, for the lists of strides and counts.
        let strides = unsafe { strides(src_stride_arr, dst_stride_arr, count, stride_levels) }?;
        // SAFETY: 1. and 2. C1 and C2, for both sides.
        unsafe { armci.put_strided_nb(src_ptr.cast(), dst_ptr.cast(), strides, proc, handle) }
    };
    // SAFETY: 1. C1 and C2, for the handle.
    unsafe { begin("ARMCI_NbPutS", nb_handle, act) }
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
    let act = |armci: &Armci, handle: Option<&mut Handle>| {
        // SAFETY: 1. to 3. C1 and C2, for the lists of strides and counts.
        let strides = unsafe { strides(src_stride_arr, dst_stride_arr, count, stride_levels) }?;
        // SAFETY: 1. and 2. C1 and C2, for both sides.
        unsafe { armci.get_strided_nb(src_ptr.cast(), dst_ptr.cast(), strides, proc, handle) }
    };
    // SAFETY: 1. C1 and C2, for the handle.
    unsafe { begin("ARMCI_NbGetS", nb_handle, act) }
}

/// Begins ARMCI_PutV.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbPutV(
    darr: *mut armci_giov_t,
    len: c_int,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = |armci: &Armci, handle: Option<&mut Handle>| {
        // SAFETY: 1. to 3. C1 and C2, for the descriptors and their lists.
        let vectors = unsafe { vectors(darr, len) }?;
        // SAFETY: 1. and 2. C1 and C2, for each run.
        unsafe { armci.put_vector_nb(&vectors, proc, handle) }
    };
    // SAFETY: 1. C1 and C2, for the handle.
    unsafe { begin("ARMCI_NbPutV", nb_handle, act) }
}

/// Begins ARMCI_GetV.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbGetV(
    darr: *mut armci_giov_t,
    len: c_int,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = |armci: &Armci, handle: Option<&mut Handle>| {
        // SAFETY: 1. to 3. C1 and C2, for the descriptors and their lists.
        let vectors = unsafe { vectors(darr, len) }?;
        // SAFETY: 1. and 2. C1 and C2, for each run.
        unsafe { armci.get_vector_nb(&vectors, proc, handle) }
    };
    // SAFETY: 1. C1 and C2, for the handle.
    unsafe { begin("ARMCI_NbGetV", nb_handle, act) }
}

/// Begins ARMCI_Acc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbAcc(
    optype: c_int,
    scale: *mut c_void,
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = |armci: &Armci, handle: Option<&mut Handle>| {
        // SAFETY: 1. C1, for the scale.
        let scale = unsafe { Armci::scale(optype, scale.cast()) }?;
        let whole = Strides {
            src: &[],
            dst: &[],
            count: &[bytes],
        };
        // SAFETY: 1. and 2. C1 and C2, for both sides.
        unsafe { armci.accumulate_strided_nb(&scale, src.cast(), dst.cast(), whole, proc, handle) }
    };
    // SAFETY: 1. C1 and C2, for the handle.
    unsafe { begin("ARMCI_NbAcc", nb_handle, act) }
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
    let act = |armci: &Armci, handle: Option<&mut Handle>| {
        // SAFETY: 1. C1, for the scale.
        let scale = unsafe { Armci::scale(optype, scale.cast()) }?;
        // SAFETY: 1. to 3. C1 and C2, for the lists of strides and counts.
        let strides = unsafe { strides(src_stride_arr, dst_stride_arr, count, stride_levels) }?;
        let (src, dst) = (src_ptr.cast(), dst_ptr.cast());
        // SAFETY: 1. and 2. C1 and C2, for both sides.
        unsafe { armci.accumulate_strided_nb(&scale, src, dst, strides, proc, handle) }
    };
    // SAFETY: 1. C1 and C2, for the handle.
    unsafe { begin("ARMCI_NbAccS", nb_handle, act) }
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
    let act = |armci: &Armci, handle: Option<&mut Handle>| {
        // SAFETY: 1. C1, for the scale.
        let scale = unsafe { Armci::scale(op, scale.cast()) }?;
        // SAFETY: 1. to 3. C1 and C2, for the descriptors and their lists.
        let vectors = unsafe { vectors(darr, len) }?;
        // SAFETY: 1. and 2. C1 and C2, for each run.
        unsafe { armci.accumulate_vector_nb(&scale, &vectors, proc, handle) }
    };
    // SAFETY: 1. C1 and C2, for the handle.
    unsafe { begin("ARMCI_NbAccV", nb_handle, act) }
}

/// Waits for the operations that began with a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Wait(nb_handle: *mut armci_hdl_t) -> c_int {
    call("ARMCI_Wait", |armci| {
        // SAFETY: 1. C1 and C2, for the handle.
        unsafe { handle(nb_handle, Unknown::Refused, |handle| armci.wait(handle)) }
    })
}

/// Tests the operations that began with a handle. Returns 0 if they are complete, 1 if not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Test(nb_handle: *mut armci_hdl_t) -> c_int {
    let mut done = true;
    let mut act = || -> Result<()> {
        let armci = armci()?;
        let test = |handle: Option<&mut Handle>| handle.map_or(Ok(true), |it| armci.test(it));
        // SAFETY: 1. C1 and C2, for the handle.
        done = unsafe { handle(nb_handle, Unknown::Refused, test) }?;
        Ok(())
    };
    match code("ARMCI_Test", act()) {
        0 => c_int::from(!done),
        code => code,
    }
}

/// Waits for all operations that began with implicit handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_WaitAll() -> c_int {
    call("ARMCI_WaitAll", |armci| armci.wait(None))
}

/// Waits for the operations to one process that began with implicit handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_WaitProc(proc: c_int) -> c_int {
    call("ARMCI_WaitProc", |armci| armci.wait_process(proc))
}

/// Makes a handle gather the operations that begin with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_SET_AGGREGATE_HANDLE(nb_handle: *mut armci_hdl_t) {
    let mark = |handle: Option<&mut Handle>| -> Result<()> {
        handle.ok_or(Error::Null { what: "a handle" })?.is_aggregate = 1;
        Ok(())
    };
    // SAFETY: 1. C1 and C2, for the handle.
    let marked = unsafe { handle(nb_handle, Unknown::Fresh, mark) };
    or_die("ARMCI_SET_AGGREGATE_HANDLE", marked);
}

/// Sends the operations that a handle gathered, and stops it from gathering.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_UNSET_AGGREGATE_HANDLE(nb_handle: *mut armci_hdl_t) {
    call_or_die("ARMCI_UNSET_AGGREGATE_HANDLE", |armci| {
        let stop = |handle: Option<&mut Handle>| {
            armci.stop_gathering(handle.ok_or(Error::Null { what: "a handle" })?)
        };
        // SAFETY: 1. C1 and C2, for the handle.
        unsafe { handle(nb_handle, Unknown::Refused, stop) }
    });
}

/// Begins ARMCI_PutValueInt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbPutValueInt(
    src: c_int,
    dst: *mut c_void,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = |armci: &Armci, handle: Option<&mut Handle>| {
        // SAFETY: 1. C1 and C2, for a value of this process.
        unsafe { armci.put_value_nb(src, dst.cast(), proc, handle) }
    };
    // SAFETY: 1. C1 and C2, for the handle.
    unsafe { begin("ARMCI_NbPutValueInt", nb_handle, act) }
}

/// Begins ARMCI_PutValueLong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbPutValueLong(
    src: c_long,
    dst: *mut c_void,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = |armci: &Armci, handle: Option<&mut Handle>| {
        // SAFETY: 1. C1 and C2, for a value of this process.
        unsafe { armci.put_value_nb(src, dst.cast(), proc, handle) }
    };
    // SAFETY: 1. C1 and C2, for the handle.
    unsafe { begin("ARMCI_NbPutValueLong", nb_handle, act) }
}

/// Begins ARMCI_PutValueFloat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbPutValueFloat(
    src: c_float,
    dst: *mut c_void,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = |armci: &Armci, handle: Option<&mut Handle>| {
        // SAFETY: 1. C1 and C2, for a value of this process.
        unsafe { armci.put_value_nb(src, dst.cast(), proc, handle) }
    };
    // SAFETY: 1. C1 and C2, for the handle.
    unsafe { begin("ARMCI_NbPutValueFloat", nb_handle, act) }
}

/// Begins ARMCI_PutValueDouble.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbPutValueDouble(
    src: c_double,
    dst: *mut c_void,
    proc: c_int,
    nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = |armci: &Armci, handle: Option<&mut Handle>| {
        // SAFETY: 1. C1 and C2, for a value of this process.
        unsafe { armci.put_value_nb(src, dst.cast(), proc, handle) }
    };
    // SAFETY: 1. C1 and C2, for the handle.
    unsafe { begin("ARMCI_NbPutValueDouble", nb_handle, act) }
}
