//! The profiling names of ARMCI's functions (`parmci.h`). A program that replaces these functions
//! by its own calls the library's by these names. Calls inside the library always reach its own
//! functions (`build.rs`).

use std::ffi::{c_char, c_double, c_float, c_int, c_long, c_void};

use super::{
    armci::{self, ARMCI_Group, armci_giov_t, armci_hdl_t, armci_meminfo_t, armci_size_t},
    message, nonblocking, transfer,
};

macro_rules! profiled {
    (
        $($profiled:ident = $module:ident::$name:ident($($argument:ident: $type:ty),*) $(->
        $result:ty)?;)*
    ) => {$(
        #[doc = concat!("As `", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $profiled($($argument: $type),*) $(-> $result)? {
            // SAFETY: C1 to C5 of the caller are those of the called function.
            unsafe { $module::$name($($argument),*) }
        }
    )*};
}

profiled! {
    PARMCI_Init = armci::ARMCI_Init() -> c_int;
    PARMCI_Init_args = armci::ARMCI_Init_args(
        argc: *mut c_int, argv: *mut *mut *mut c_char
    ) -> c_int;
    PARMCI_Init_thread = armci::ARMCI_Init_thread(armci_requested: c_int) -> c_int;
    PARMCI_Initialized = armci::ARMCI_Initialized() -> c_int;
    PARMCI_Finalize = armci::ARMCI_Finalize() -> c_int;
    PARMCI_Barrier = armci::ARMCI_Barrier();
    PARMCI_Fence = armci::ARMCI_Fence(proc: c_int);
    PARMCI_AllFence = armci::ARMCI_AllFence();
    PARMCI_GroupFence = armci::ARMCI_GroupFence(group: *mut ARMCI_Group);
    PARMCI_Malloc = armci::ARMCI_Malloc(ptr_arr: *mut *mut c_void, bytes: armci_size_t) -> c_int;
    PARMCI_Free = armci::ARMCI_Free(ptr: *mut c_void) -> c_int;
    PARMCI_Malloc_memdev = armci::ARMCI_Malloc_memdev(
        ptr_arr: *mut *mut c_void, bytes: armci_size_t, device: *const c_char
    ) -> c_int;
    PARMCI_Malloc_group_memdev = armci::ARMCI_Malloc_group_memdev(
        ptr_arr: *mut *mut c_void, bytes: armci_size_t, group: *mut ARMCI_Group, device: *const
        c_char
    ) -> c_int;
    PARMCI_Free_memdev = armci::ARMCI_Free_memdev(ptr: *mut c_void) -> c_int;
    PARMCI_Access_begin = armci::ARMCI_Access_begin(ptr: *mut c_void);
    PARMCI_Access_end = armci::ARMCI_Access_end(ptr: *mut c_void);
    PARMCI_Malloc_local = armci::ARMCI_Malloc_local(bytes: armci_size_t) -> *mut c_void;
    PARMCI_Free_local = armci::ARMCI_Free_local(ptr: *mut c_void) -> c_int;
    PARMCI_Memget = armci::ARMCI_Memget(bytes: usize, meminfo: *mut armci_meminfo_t, memflg: c_int);
    PARMCI_Memat = armci::ARMCI_Memat(meminfo: *mut armci_meminfo_t, offset: c_long) -> *mut c_void;
    PARMCI_Memctl = armci::ARMCI_Memctl(meminfo: *mut armci_meminfo_t);
    PARMCI_Create_mutexes = armci::ARMCI_Create_mutexes(num: c_int) -> c_int;
    PARMCI_Destroy_mutexes = armci::ARMCI_Destroy_mutexes() -> c_int;
    PARMCI_Lock = armci::ARMCI_Lock(mutex: c_int, proc: c_int);
    PARMCI_Unlock = armci::ARMCI_Unlock(mutex: c_int, proc: c_int);
    PARMCI_Put = transfer::ARMCI_Put(
        src: *mut c_void, dst: *mut c_void, bytes: c_int, proc: c_int
    ) -> c_int;
    PARMCI_Get = transfer::ARMCI_Get(
        src: *mut c_void, dst: *mut c_void, bytes: c_int, proc: c_int
    ) -> c_int;
    PARMCI_Put_flag = transfer::ARMCI_Put_flag(
        src: *mut c_void, dst: *mut c_void, bytes: c_int, f: *mut c_int, v: c_int, proc:
        c_int
    ) -> c_int;
    PARMCI_Acc = transfer::ARMCI_Acc(
        optype: c_int, scale: *mut c_void, src: *mut c_void, dst: *mut c_void, bytes: c_int,
        proc: c_int
    ) -> c_int;
    PARMCI_PutS = transfer::ARMCI_PutS(
        src_ptr: *mut c_void, src_stride_arr: *mut c_int, dst_ptr: *mut c_void,
        dst_stride_arr: *mut c_int, count: *mut c_int, stride_levels: c_int, proc: c_int
    ) -> c_int;
    PARMCI_GetS = transfer::ARMCI_GetS(
        src_ptr: *mut c_void, src_stride_arr: *mut c_int, dst_ptr: *mut c_void,
        dst_stride_arr: *mut c_int, count: *mut c_int, stride_levels: c_int, proc: c_int
    ) -> c_int;
    PARMCI_AccS = transfer::ARMCI_AccS(
        optype: c_int, scale: *mut c_void, src_ptr: *mut c_void, src_stride_arr: *mut c_int,
        dst_ptr: *mut c_void, dst_stride_arr: *mut c_int, count: *mut c_int, stride_levels:
        c_int, proc: c_int
    ) -> c_int;
    PARMCI_PutS_flag = transfer::ARMCI_PutS_flag(
        src_ptr: *mut c_void, src_stride_arr: *mut c_int, dst_ptr: *mut c_void,
        dst_stride_arr: *mut c_int, count: *mut c_int, stride_levels: c_int, flag: *mut
        c_int, val: c_int, proc: c_int
    ) -> c_int;
    PARMCI_PutS_flag_dir = transfer::ARMCI_PutS_flag_dir(
        src_ptr: *mut c_void, src_stride_arr: *mut c_int, dst_ptr: *mut c_void,
        dst_stride_arr: *mut c_int, count: *mut c_int, stride_levels: c_int, flag: *mut
        c_int, val: c_int, proc: c_int
    ) -> c_int;
    PARMCI_PutV = transfer::ARMCI_PutV(darr: *mut armci_giov_t, len: c_int, proc: c_int) -> c_int;
    PARMCI_GetV = transfer::ARMCI_GetV(darr: *mut armci_giov_t, len: c_int, proc: c_int) -> c_int;
    PARMCI_AccV = transfer::ARMCI_AccV(
        op: c_int, scale: *mut c_void, darr: *mut armci_giov_t, len: c_int, proc: c_int
    ) -> c_int;
    PARMCI_PutValueInt = transfer::ARMCI_PutValueInt(
        src: c_int, dst: *mut c_void, proc: c_int
    ) -> c_int;
    PARMCI_GetValueInt = transfer::ARMCI_GetValueInt(src: *mut c_void, proc: c_int) -> c_int;
    PARMCI_PutValueLong = transfer::ARMCI_PutValueLong(
        src: c_long, dst: *mut c_void, proc: c_int
    ) -> c_int;
    PARMCI_GetValueLong = transfer::ARMCI_GetValueLong(src: *mut c_void, proc: c_int) -> c_long;
    PARMCI_PutValueFloat = transfer::ARMCI_PutValueFloat(
        src: c_float, dst: *mut c_void, proc: c_int
    ) -> c_int;
    PARMCI_GetValueFloat = transfer::ARMCI_GetValueFloat(src: *mut c_void, proc: c_int) -> c_float;
    PARMCI_PutValueDouble = transfer::ARMCI_PutValueDouble(
        src: c_double, dst: *mut c_void, proc: c_int
    ) -> c_int;
    PARMCI_GetValueDouble = transfer::ARMCI_GetValueDouble(
        src: *mut c_void, proc: c_int
    ) -> c_double;
    PARMCI_Rmw = transfer::ARMCI_Rmw(
        op: c_int, ploc: *mut c_void, prem: *mut c_void, extra: c_int, proc: c_int
    ) -> c_int;
    parmci_notify = transfer::armci_notify(proc: c_int) -> c_int;
    parmci_notify_wait = transfer::armci_notify_wait(proc: c_int, pval: *mut c_int) -> c_int;
    PARMCI_NbPut = nonblocking::ARMCI_NbPut(
        src: *mut c_void, dst: *mut c_void, bytes: c_int, proc: c_int, nb_handle: *mut
        armci_hdl_t
    ) -> c_int;
    PARMCI_NbGet = nonblocking::ARMCI_NbGet(
        src: *mut c_void, dst: *mut c_void, bytes: c_int, proc: c_int, nb_handle: *mut
        armci_hdl_t
    ) -> c_int;
    PARMCI_NbPutS = nonblocking::ARMCI_NbPutS(
        src_ptr: *mut c_void, src_stride_arr: *mut c_int, dst_ptr: *mut c_void,
        dst_stride_arr: *mut c_int, count: *mut c_int, stride_levels: c_int, proc: c_int,
        nb_handle: *mut armci_hdl_t
    ) -> c_int;
    PARMCI_NbGetS = nonblocking::ARMCI_NbGetS(
        src_ptr: *mut c_void, src_stride_arr: *mut c_int, dst_ptr: *mut c_void,
        dst_stride_arr: *mut c_int, count: *mut c_int, stride_levels: c_int, proc: c_int,
        nb_handle: *mut armci_hdl_t
    ) -> c_int;
    PARMCI_NbPutV = nonblocking::ARMCI_NbPutV(
        darr: *mut armci_giov_t, len: c_int, proc: c_int, nb_handle: *mut armci_hdl_t
    ) -> c_int;
    PARMCI_NbGetV = nonblocking::ARMCI_NbGetV(
        darr: *mut armci_giov_t, len: c_int, proc: c_int, nb_handle: *mut armci_hdl_t
    ) -> c_int;
    PARMCI_NbAcc = nonblocking::ARMCI_NbAcc(
        optype: c_int, scale: *mut c_void, src: *mut c_void, dst: *mut c_void, bytes: c_int,
        proc: c_int, nb_handle: *mut armci_hdl_t
    ) -> c_int;
    PARMCI_NbAccS = nonblocking::ARMCI_NbAccS(
        optype: c_int, scale: *mut c_void, src_ptr: *mut c_void, src_stride_arr: *mut c_int,
        dst_ptr: *mut c_void, dst_stride_arr: *mut c_int, count: *mut c_int, stride_levels:
        c_int, proc: c_int, nb_handle: *mut armci_hdl_t
    ) -> c_int;
    PARMCI_NbAccV = nonblocking::ARMCI_NbAccV(
        op: c_int, scale: *mut c_void, darr: *mut armci_giov_t, len: c_int, proc: c_int,
        nb_handle: *mut armci_hdl_t
    ) -> c_int;
    PARMCI_Wait = nonblocking::ARMCI_Wait(nb_handle: *mut armci_hdl_t) -> c_int;
    PARMCI_Test = nonblocking::ARMCI_Test(nb_handle: *mut armci_hdl_t) -> c_int;
    PARMCI_WaitAll = nonblocking::ARMCI_WaitAll() -> c_int;
    PARMCI_WaitProc = nonblocking::ARMCI_WaitProc(proc: c_int) -> c_int;
    PARMCI_NbPutValueInt = nonblocking::ARMCI_NbPutValueInt(
        src: c_int, dst: *mut c_void, proc: c_int, nb_handle: *mut armci_hdl_t
    ) -> c_int;
    PARMCI_NbPutValueLong = nonblocking::ARMCI_NbPutValueLong(
        src: c_long, dst: *mut c_void, proc: c_int, nb_handle: *mut armci_hdl_t
    ) -> c_int;
    PARMCI_NbPutValueFloat = nonblocking::ARMCI_NbPutValueFloat(
        src: c_float, dst: *mut c_void, proc: c_int, nb_handle: *mut armci_hdl_t
    ) -> c_int;
    PARMCI_NbPutValueDouble = nonblocking::ARMCI_NbPutValueDouble(
        src: c_double, dst: *mut c_void, proc: c_int, nb_handle: *mut armci_hdl_t
    ) -> c_int;
    parmci_msg_barrier = message::armci_msg_barrier();
    parmci_msg_group_barrier = message::armci_msg_group_barrier(group: *mut ARMCI_Group);
}
