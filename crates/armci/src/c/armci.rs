//! The functions of `armci.h`.

use std::ffi::{c_char, c_double, c_float, c_int, c_long, c_ulong, c_void};

use super::process::{self, armci, code, messages, or_die};
use crate::{
    Armci, Error, Group, Handle, Result, Rmw, Strides, Vector,
    error::{count, not_null},
};

/// Runs of equally many bytes: from the places of one list to those of the other.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct armci_giov_t {
    /// Where runs are read.
    pub src_ptr_array: *mut *mut c_void,
    /// Where they are written.
    pub dst_ptr_array: *mut *mut c_void,
    /// How many there are.
    pub ptr_array_len: c_int,
    /// Bytes of each.
    pub bytes: c_int,
}

/// A number of bytes.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type armci_size_t = c_long;

/// The handle of non-blocking operations, which ARMCI_INIT_HANDLE makes one of none.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct armci_hdl_t {
    /// A number, and whether it gathers.
    pub data: [c_int; 4],
    /// Not used.
    pub dummy: [c_double; 72],
}

/// Names a group of processes.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type ARMCI_Group = c_int;

/// Names a way to group processes by their nodes.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type armci_domain_t = c_int;

/// Memory that one process allocated, as others are told of it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct armci_meminfo_t {
    /// Where its process has it.
    pub armci_addr: *mut c_char,
    /// The same.
    pub addr: *mut c_char,
    /// Its bytes.
    pub size: usize,
    /// Its process.
    pub cpid: c_int,
    /// Not used.
    pub idlist: [c_long; 128],
}

/// The handle in what C has.
unsafe fn handle<R>(
    handle: *mut armci_hdl_t,
    act: impl FnOnce(Option<&mut Handle>) -> Result<R>,
) -> Result<R> {
    // SAFETY: null or a handle, says the caller.
    let Some(known) = (unsafe { handle.as_mut() }) else {
        return act(None);
    };
    let mut inner = Handle {
        number: known.data[0],
        is_aggregate: known.data[2],
    };
    let done = act(Some(&mut inner));
    known.data[0] = inner.number;
    known.data[2] = inner.is_aggregate;
    done
}

/// The strides and counts of so many levels. Without levels nobody looks at strides.
unsafe fn strides<'a>(
    src: *mut c_int,
    dst: *mut c_int,
    count: *mut c_int,
    levels: c_int,
) -> Result<Strides<'a>> {
    let number = usize::try_from(levels).ok();
    let number = number.filter(|number| *number <= crate::MAX_STRIDE_LEVEL);
    let number = number.ok_or(Error::StrideLevels { levels })?;
    not_null(count, "the list of counts")?;
    let list = |list: *mut c_int, what| -> Result<&'a [c_int]> {
        if number == 0 {
            return Ok(&[]);
        }
        not_null(list, what)?;
        // SAFETY: a stride for each level, says the caller.
        Ok(unsafe { std::slice::from_raw_parts(list, number) })
    };
    Ok(Strides {
        src: list(src, "the list of strides of the source")?,
        dst: list(dst, "the list of strides of the destination")?,
        // SAFETY: one more, says the caller.
        count: unsafe { std::slice::from_raw_parts(count, number + 1) },
    })
}

/// The vectors of descriptors.
unsafe fn vectors<'a>(descriptors: *mut armci_giov_t, len: c_int) -> Result<Vec<Vector<'a>>> {
    let len = count(len.into(), 1, "the number of descriptors")?;
    not_null(descriptors, "the list of descriptors")?;
    // SAFETY: so many, says the caller.
    let descriptors = unsafe { std::slice::from_raw_parts(descriptors, len) };
    let vector = |it: &armci_giov_t| {
        not_null(it.src_ptr_array, "a list of sources")?;
        not_null(it.dst_ptr_array, "a list of destinations")?;
        let runs = count(
            it.ptr_array_len.into(),
            1,
            "the number of runs of a descriptor",
        )?;
        // SAFETY: as many as it says, says the caller.
        let list =
            |list: *mut *mut c_void| unsafe { std::slice::from_raw_parts(list.cast(), runs) };
        Ok(Vector {
            src: list(it.src_ptr_array),
            dst: list(it.dst_ptr_array),
            bytes: count(it.bytes.into(), 1, "the number of bytes of a run")?,
        })
    };
    descriptors.iter().map(vector).collect()
}

/// Bytes to allocate, if there is a list for where they are.
fn listed(list: *mut *mut c_void, bytes: armci_size_t) -> Result<usize> {
    not_null(list, "the list of addresses")?;
    count(bytes, 0, "the number of bytes")
}

/// Writes addresses into a list of as many.
unsafe fn fill(list: *mut *mut c_void, addresses: &[*mut u8]) {
    for (at, address) in addresses.iter().enumerate() {
        // SAFETY: the list has room for them, says the caller.
        unsafe { *list.add(at) = address.cast() };
    }
}

/// Initializes ARMCI, and joins the job. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Init() -> c_int {
    code("ARMCI_Init", process::begin_armci())
}

/// As ARMCI_Init; the arguments are left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Init_args(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> c_int {
    code("ARMCI_Init_args", process::begin_armci())
}

/// Whether ARMCI is initialized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Initialized() -> c_int {
    c_int::from(process::begun() > 0)
}

/// Ends ARMCI, and the job, unless armci_msg_init began it. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Finalize() {
    or_die("ARMCI_Finalize", process::end_armci());
}

/// Says a message and a number, and ends the job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Error(msg: *mut c_char, code: c_int) {
    // SAFETY: what C's caller promises.
    unsafe { process::say(msg, code) };
    process::die(code)
}

/// Does nothing: what a process has goes with it, however it ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Cleanup() {}

/// Waits until all processes have come, and all that they did is done. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Barrier() {
    let act = || -> Result<_> { armci()?.barrier() };
    or_die("ARMCI_Barrier", act());
}

/// Waits until all that this process did to the memory of a process is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Fence(proc: c_int) {
    let act = || -> Result<_> { armci()?.fence(proc) };
    or_die("ARMCI_Fence", act());
}

/// As ARMCI_Fence, of all processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_AllFence() {
    let act = || -> Result<_> { armci()?.all_fence() };
    or_die("ARMCI_AllFence", act());
}

/// As ARMCI_Fence, of the processes of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GroupFence(group: *mut ARMCI_Group) {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            for proc in armci.members(group_at(group)?)?.iter() {
                armci.fence(*proc as c_int)?;
            }
            Ok(())
        }
    };
    or_die("ARMCI_GroupFence", act());
}

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

/// As ARMCI_AccS, which is complete when it returns.
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
    _nb_handle: *mut armci_hdl_t,
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
    code("ARMCI_NbAccS", act())
}

/// As ARMCI_AccV, which is complete when it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_NbAccV(
    op: c_int,
    scale: *mut c_void,
    darr: *mut armci_giov_t,
    len: c_int,
    proc: c_int,
    _nb_handle: *mut armci_hdl_t,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let scale = Armci::scale(op, scale.cast())?;
            armci()?.accumulate_vector(&scale, &vectors(darr, len)?, proc)
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

/// Puts a value to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_PutValueInt(src: c_int, dst: *mut c_void, proc: c_int) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.put_value(src, dst.cast(), proc) }
    };
    code("ARMCI_PutValueInt", act())
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

/// Allocates memory of all processes, and lists where it is. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc(ptr_arr: *mut *mut c_void, bytes: armci_size_t) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let addresses = armci()?.malloc_wanted(listed(ptr_arr, bytes))?;
            fill(ptr_arr, &addresses);
            Ok(())
        }
    };
    code("ARMCI_Malloc", act())
}

/// Frees memory of ARMCI_Malloc, of which this process's part is given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Free(ptr: *mut c_void) -> c_int {
    let act = || -> Result<()> { armci()?.free(ptr.cast()) };
    code("ARMCI_Free", act())
}

/// Allocates memory of this process; null if there is no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc_local(bytes: armci_size_t) -> *mut c_void {
    let mut found = std::ptr::null_mut();
    let mut act = || -> Result<()> {
        found = armci()?.malloc_local(bytes)?;
        Ok(())
    };
    code("ARMCI_Malloc_local", act());
    found.cast()
}

/// Frees memory of ARMCI_Malloc_local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Free_local(ptr: *mut c_void) -> c_int {
    let act = || -> Result<()> { armci()?.free(ptr.cast()) };
    code("ARMCI_Free_local", act())
}

/// As ARMCI_Malloc, of the members of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc_group(
    ptr_arr: *mut *mut c_void,
    bytes: armci_size_t,
    group: *mut ARMCI_Group,
) -> c_int {
    let act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        unsafe {
            let wanted = listed(ptr_arr, bytes);
            let addresses = armci()?.malloc_group_wanted(wanted, group_at(group)?)?;
            fill(ptr_arr, &addresses);
            Ok(())
        }
    };
    code("ARMCI_Malloc_group", act())
}

/// Frees memory of ARMCI_Malloc_group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Free_group(ptr: *mut c_void, _group: *mut ARMCI_Group) -> c_int {
    let act = || -> Result<()> { armci()?.free(ptr.cast()) };
    code("ARMCI_Free_group", act())
}

/// Allocates memory of this process that others are told of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memget(bytes: usize, meminfo: *mut armci_meminfo_t, _memflg: c_int) {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe {
            not_null(meminfo, "the description of memory")?;
            let armci = armci()?;
            let at = armci.malloc_local(bytes.try_into().unwrap_or(c_long::MAX))?;
            *meminfo = armci_meminfo_t {
                armci_addr: at.cast(),
                addr: at.cast(),
                size: bytes,
                cpid: armci.me(),
                idlist: [0; 128],
            };
            Ok(())
        }
    };
    or_die("ARMCI_Memget", act());
}

/// Where this process finds memory of ARMCI_Memget, so many bytes from its start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memat(meminfo: *mut armci_meminfo_t, offset: c_long) -> *mut c_void {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe {
            not_null(meminfo, "the description of memory")?;
            let known = &*meminfo;
            let at = armci()?.attach(known.addr.cast(), known.size, known.cpid)?;
            Ok(at.wrapping_offset(offset as isize).cast())
        }
    };
    or_die("ARMCI_Memat", act())
}

/// Ends the use of memory that another process has; nothing need be done for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memdt(_meminfo: *mut armci_meminfo_t, _offset: c_long) {}

/// Frees memory of ARMCI_Memget, at the process that has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memctl(meminfo: *mut armci_meminfo_t) {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe {
            not_null(meminfo, "the description of memory")?;
            let (armci, known) = (armci()?, &*meminfo);
            if known.cpid == armci.me() {
                armci.free(known.addr.cast())?;
            }
            Ok(())
        }
    };
    or_die("ARMCI_Memctl", act());
}

/// Sets how many bytes a process may allocate at most. Before ARMCI_Init.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Set_shm_limit(shmemlimit: c_ulong) {
    process::set_limit(shmemlimit as usize);
}

/// Whether any process's memory is mapped here, as on nodes with several.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Uses_shm() -> c_int {
    let uses = |armci: &Armci| Ok(armci.processes_of(-1)?.len() > 1);
    c_int::from(armci().and_then(uses).unwrap_or(false))
}

/// Whether memory of other members of a group is mapped here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Uses_shm_grp(group: *mut ARMCI_Group) -> c_int {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            let members = armci.members(group_at(group)?)?;
            let near = |proc: &&usize| armci.is_mapped(**proc as c_int).unwrap_or(false);
            Ok(c_int::from(members.iter().filter(near).count() > 1))
        }
    };
    or_die("ARMCI_Uses_shm_grp", act())
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

/// Makes mutexes, so many of this process. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Create_mutexes(num: c_int) -> c_int {
    let act = || -> Result<()> { armci()?.create_mutexes(num) };
    code("ARMCI_Create_mutexes", act())
}

/// Does away with the mutexes. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Destroy_mutexes() -> c_int {
    let act = || -> Result<()> { armci()?.destroy_mutexes() };
    code("ARMCI_Destroy_mutexes", act())
}

/// Locks a mutex of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Lock(mutex: c_int, proc: c_int) {
    let act = || -> Result<_> { armci()?.lock(mutex, proc) };
    or_die("ARMCI_Lock", act());
}

/// Unlocks a mutex of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Unlock(mutex: c_int, proc: c_int) {
    let act = || -> Result<_> { armci()?.unlock(mutex, proc) };
    or_die("ARMCI_Unlock", act());
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

/// Whether a process is on this one's node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Same_node(proc: c_int) -> c_int {
    let act = || -> Result<_> { Ok(c_int::from(messages()?.is_mapped(proc)?)) };
    or_die("ARMCI_Same_node", act())
}

/// Whether a process is on this one's node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_sameclusnode(proc: c_int) -> c_int {
    let act = || -> Result<_> { Ok(c_int::from(messages()?.is_mapped(proc)?)) };
    or_die("armci_sameclusnode", act())
}

/// How many processes a node has; this process's, if the number is negative.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_nprocs(_domain: armci_domain_t, id: c_int) -> c_int {
    let act = || -> Result<_> { Ok(messages()?.processes_of(id)?.len() as c_int) };
    or_die("armci_domain_nprocs", act())
}

/// The node of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_id(_domain: armci_domain_t, glob_proc_id: c_int) -> c_int {
    let act = || -> Result<_> { messages()?.node_of(glob_proc_id) };
    or_die("armci_domain_id", act())
}

/// The number of a process of a node; of this process's, if the node's number is negative.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_glob_proc_id(
    _domain: armci_domain_t,
    id: c_int,
    loc_proc_id: c_int,
) -> c_int {
    let act = || -> Result<_> {
        let all = messages()?.processes_of(id)?;
        let found = usize::try_from(loc_proc_id).ok().and_then(|at| all.get(at));
        found.map(|proc| *proc as c_int).ok_or(Error::NoProcess {
            proc: loc_proc_id,
            processes: all.len(),
        })
    };
    or_die("armci_domain_glob_proc_id", act())
}

/// This process's node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_my_id(_domain: armci_domain_t) -> c_int {
    let act = || -> Result<_> {
        let armci = messages()?;
        armci.node_of(armci.me())
    };
    or_die("armci_domain_my_id", act())
}

/// How many nodes there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_count(_domain: armci_domain_t) -> c_int {
    let act = || -> Result<_> { Ok(messages()?.nodes()) };
    or_die("armci_domain_count", act())
}

/// Whether a process is on this one's node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_same_id(_domain: armci_domain_t, proc: c_int) -> c_int {
    let act = || -> Result<_> {
        let armci = messages()?;
        Ok(c_int::from(
            armci.node_of(proc)? == armci.node_of(armci.me())?,
        ))
    };
    or_die("armci_domain_same_id", act())
}

/// The group that C names.
pub(super) unsafe fn group_at(group: *mut ARMCI_Group) -> Result<Group> {
    not_null(group, "a group")?;
    // SAFETY: what C's caller promises.
    Ok(Group(unsafe { *group }))
}

/// Makes a group of members of the default one. Collective over those.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_create(
    n: c_int,
    pid_list: *mut c_int,
    group_out: *mut ARMCI_Group,
) {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            let len = count(n.into(), 1, "the number of members")?;
            not_null(pid_list, "the list of members")?;
            not_null(group_out, "where a group goes")?;
            let list = std::slice::from_raw_parts(pid_list, len);
            *group_out = armci.group_of(list, armci.default_group())?.0;
            Ok(())
        }
    };
    or_die("ARMCI_Group_create", act());
}

/// Makes a group of members of another. Collective over those.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_create_child(
    n: c_int,
    pid_list: *mut c_int,
    group_out: *mut ARMCI_Group,
    group_parent: *mut ARMCI_Group,
) {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe {
            let armci = armci()?;
            let len = count(n.into(), 1, "the number of members")?;
            not_null(pid_list, "the list of members")?;
            not_null(group_out, "where a group goes")?;
            let list = std::slice::from_raw_parts(pid_list, len);
            *group_out = armci.group_of(list, group_at(group_parent)?)?.0;
            Ok(())
        }
    };
    or_die("ARMCI_Group_create_child", act());
}

/// Forgets a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_free(group: *mut ARMCI_Group) {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.group_free(group_at(group)?) }
    };
    or_die("ARMCI_Group_free", act());
}

/// This process's number in a group; -1, and not 0 returned, if it is no member.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_rank(group: *mut ARMCI_Group, rank: *mut c_int) -> c_int {
    let mut found = None;
    let mut act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        found = armci()?.group_rank(unsafe { group_at(group) }?)?;
        not_null(rank, "where a number goes")?;
        // SAFETY: what C's caller promises.
        unsafe { *rank = found.unwrap_or(-1) };
        Ok(())
    };
    match code("ARMCI_Group_rank", act()) {
        0 if found.is_none() => -1,
        code => code,
    }
}

/// How many members a group has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_size(group: *mut ARMCI_Group, size: *mut c_int) {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe {
            not_null(size, "where a number goes")?;
            *size = armci()?.members(group_at(group)?)?.len() as c_int;
            Ok(())
        }
    };
    or_die("ARMCI_Group_size", act());
}

/// Sets the group that new ones are made of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_set_default(group: *mut ARMCI_Group) {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe { armci()?.set_default_group(group_at(group)?) }
    };
    or_die("ARMCI_Group_set_default", act());
}

/// The group that new ones are made of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_get_default(group_out: *mut ARMCI_Group) {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe {
            not_null(group_out, "where a group goes")?;
            *group_out = armci()?.default_group().0;
            Ok(())
        }
    };
    or_die("ARMCI_Group_get_default", act());
}

/// The group of all processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_get_world(group_out: *mut ARMCI_Group) {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe {
            not_null(group_out, "where a group goes")?;
            armci()?;
            *group_out = 0;
            Ok(())
        }
    };
    or_die("ARMCI_Group_get_world", act());
}

/// The process that is a member of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Absolute_id(group: *mut ARMCI_Group, group_rank: c_int) -> c_int {
    let act = || -> Result<_> {
        // SAFETY: what C's caller promises.
        unsafe {
            let members = armci()?.members(group_at(group)?)?;
            let found = usize::try_from(group_rank)
                .ok()
                .and_then(|at| members.get(at));
            found.map(|proc| *proc as c_int).ok_or(Error::NoProcess {
                proc: group_rank,
                processes: members.len(),
            })
        }
    };
    or_die("ARMCI_Absolute_id", act())
}

/// Says that a condition does not hold that a program asserts, and ends the job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dassertp_fail(
    cond_string: *const c_char,
    file: *const c_char,
    func: *const c_char,
    line: std::ffi::c_uint,
    code: c_int,
) -> c_int {
    let text = |text: *const c_char| match text.is_null() {
        true => String::new(),
        // SAFETY: a string of C, says the caller.
        false => unsafe { std::ffi::CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned(),
    };
    process::tell(&format!(
        "{}:{line}: {}: {} does not hold",
        text(file),
        text(func),
        text(cond_string)
    ));
    process::die(code)
}

/// Gives a word of a process another value.
pub const ARMCI_SWAP: c_int = 10;
/// The same, of a `long`.
pub const ARMCI_SWAP_LONG: c_int = 11;
/// Adds to a word of a process.
pub const ARMCI_FETCH_AND_ADD: c_int = 12;
/// The same, of a `long`.
pub const ARMCI_FETCH_AND_ADD_LONG: c_int = 13;
