//! Allocating memory: by all processes, by a group, or by one process.

use std::ffi::{c_char, c_int, c_long, c_ulong, c_void};

use super::{ARMCI_Group, armci_meminfo_t, armci_size_t};
use crate::{
    Result,
    c::{
        arguments::{group_at, room},
        process::{self, armci, call, call_or_die, code},
    },
    error::{count, not_null},
};

/// Allocates memory at all processes, and lists its addresses. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc(ptr_arr: *mut *mut c_void, bytes: armci_size_t) -> c_int {
    // SAFETY: 1. and 2. C1 and C2, for the list.
    unsafe { malloc("ARMCI_Malloc", ptr_arr, bytes) }
}

/// Frees this process's part of memory from ARMCI_Malloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Free(ptr: *mut c_void) -> c_int {
    call("ARMCI_Free", |armci| armci.free(ptr.cast()))
}

/// As ARMCI_Malloc. All devices are the same, and their names are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc_memdev(
    ptr_arr: *mut *mut c_void,
    bytes: armci_size_t,
    _device: *const c_char,
) -> c_int {
    // SAFETY: 1. and 2. C1 and C2, for the list.
    unsafe { malloc("ARMCI_Malloc_memdev", ptr_arr, bytes) }
}

/// Frees memory from ARMCI_Malloc_memdev or ARMCI_Malloc_group_memdev.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Free_memdev(ptr: *mut c_void) -> c_int {
    call("ARMCI_Free_memdev", |armci| armci.free(ptr.cast()))
}

/// As ARMCI_Malloc, in the name of a function.
///
/// # Safety
/// If `ptr_arr` is not null:
/// 1. It has room for an address of each process.
/// 2. No other code uses it meanwhile.
unsafe fn malloc(function: &str, ptr_arr: *mut *mut c_void, bytes: armci_size_t) -> c_int {
    call(function, |armci| {
        let addresses = armci.malloc_wanted(checked_bytes(ptr_arr, bytes))?;
        // SAFETY: 1. and 2. The caller's conditions 1 and 2.
        unsafe { fill(ptr_arr, &addresses) };
        Ok(())
    })
}

/// Allocates memory of this process. Returns null if there is no more.
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

/// Frees memory from ARMCI_Malloc_local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Free_local(ptr: *mut c_void) -> c_int {
    call("ARMCI_Free_local", |armci| armci.free(ptr.cast()))
}

/// As ARMCI_Malloc, for the members of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc_group(
    ptr_arr: *mut *mut c_void,
    bytes: armci_size_t,
    group: *mut ARMCI_Group,
) -> c_int {
    // SAFETY: 1. to 4. C1 and C2, for the list and the group.
    unsafe { malloc_group("ARMCI_Malloc_group", ptr_arr, bytes, group) }
}

/// As ARMCI_Malloc_group. All devices are the same, and their names are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc_group_memdev(
    ptr_arr: *mut *mut c_void,
    bytes: armci_size_t,
    group: *mut ARMCI_Group,
    _device: *const c_char,
) -> c_int {
    // SAFETY: 1. to 4. C1 and C2, for the list and the group.
    unsafe { malloc_group("ARMCI_Malloc_group_memdev", ptr_arr, bytes, group) }
}

/// As ARMCI_Malloc_group, in the name of a function.
///
/// # Safety
/// 1. and 2. as [`malloc`], for the members of the group.
/// 3. and 4. as 1. and 2. of [`group_at`].
unsafe fn malloc_group(
    function: &str,
    ptr_arr: *mut *mut c_void,
    bytes: armci_size_t,
    group: *mut ARMCI_Group,
) -> c_int {
    call(function, |armci| {
        let wanted = checked_bytes(ptr_arr, bytes);
        // SAFETY: 1. and 2. The caller's conditions 3 and 4.
        let group = unsafe { group_at(group) }?;
        let addresses = armci.malloc_group_wanted(wanted, group)?;
        // SAFETY: 1. and 2. The caller's conditions 1 and 2.
        unsafe { fill(ptr_arr, &addresses) };
        Ok(())
    })
}

/// Frees memory from ARMCI_Malloc_group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Free_group(ptr: *mut c_void, _group: *mut ARMCI_Group) -> c_int {
    call("ARMCI_Free_group", |armci| armci.free(ptr.cast()))
}

/// Allocates memory of this process, and describes it for other processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memget(bytes: usize, meminfo: *mut armci_meminfo_t, _memflg: c_int) {
    call_or_die("ARMCI_Memget", |armci| {
        // SAFETY: 1. and 2. C1 and C2, for the description.
        let meminfo = unsafe { room(meminfo, "the description of memory") }?;
        let at = armci.malloc_local(bytes.try_into().unwrap_or(c_long::MAX))?;
        meminfo.write(armci_meminfo_t {
            armci_addr: at.cast(),
            addr: at.cast(),
            size: bytes,
            cpid: armci.me(),
            idlist: [0; 128],
        });
        Ok(())
    });
}

/// Returns the address by which this process names memory from ARMCI_Memget, `offset` bytes from
/// its start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memat(meminfo: *mut armci_meminfo_t, offset: c_long) -> *mut c_void {
    call_or_die("ARMCI_Memat", |armci| {
        not_null(meminfo, "the description of memory")?;
        // SAFETY: `meminfo` is a description that no other code writes to, by C1 and C2.
        let known = unsafe { &*meminfo };
        let at = armci.attach(known.addr.cast(), known.size, known.cpid)?;
        Ok(at.wrapping_offset(offset as isize).cast())
    })
}

/// Ends the use of another process's memory. There is nothing to do for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memdt(_meminfo: *mut armci_meminfo_t, _offset: c_long) {}

/// Frees memory from ARMCI_Memget, at the process that allocated it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memctl(meminfo: *mut armci_meminfo_t) {
    call_or_die("ARMCI_Memctl", |armci| {
        not_null(meminfo, "the description of memory")?;
        // SAFETY: `meminfo` is a description that no other code writes to, by C1 and C2.
        let known = unsafe { &*meminfo };
        if known.cpid == armci.me() {
            armci.free(known.addr.cast())?;
        }
        Ok(())
    });
}

/// Does nothing: the memory of each process is known from the start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_set_mem_offset(_ptr: *mut c_void) {}

/// Does nothing: a process may always load and store in its own memory. ARMCI-MPI needs this call
/// for that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Access_begin(_ptr: *mut c_void) {}

/// Does nothing, as ARMCI_Access_begin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Access_end(_ptr: *mut c_void) {}

/// Sets the greatest number of bytes that a process may allocate. Call this before ARMCI_Init.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Set_shm_limit(shmemlimit: c_ulong) {
    process::set_limit(shmemlimit as usize);
}

/// Checks the list of addresses and the number of bytes of an allocation.
fn checked_bytes(list: *mut *mut c_void, bytes: armci_size_t) -> Result<usize> {
    not_null(list, "the list of addresses")?;
    count(bytes, 0, "the number of bytes")
}

/// Writes addresses into a list.
///
/// # Safety
/// 1. The list has room for all addresses.
/// 2. No other code uses it meanwhile.
unsafe fn fill(list: *mut *mut c_void, addresses: &[*mut u8]) {
    // SAFETY: the list has room, by the caller's condition 1. The addresses are another allocation,
    // by condition 2.
    unsafe { list.copy_from_nonoverlapping(addresses.as_ptr().cast(), addresses.len()) };
}
