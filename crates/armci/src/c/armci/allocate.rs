//! Allocating memory, of all processes, of a group or of one.

use std::ffi::{c_char, c_int, c_long, c_ulong, c_void};

use super::{ARMCI_Group, armci_meminfo_t, armci_size_t};
use crate::{
    Result,
    c::{
        arguments::group_at,
        process::{self, armci, call, code, found},
    },
    error::{count, not_null},
};

/// Allocates memory of all processes, and lists where it is. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc(ptr_arr: *mut *mut c_void, bytes: armci_size_t) -> c_int {
    // SAFETY: what C's caller promises.
    unsafe { malloc("ARMCI_Malloc", ptr_arr, bytes) }
}

/// Frees memory of ARMCI_Malloc, of which this process's part is given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Free(ptr: *mut c_void) -> c_int {
    call("ARMCI_Free", |armci| armci.free(ptr.cast()))
}

/// As ARMCI_Malloc; all devices are the same, and their names are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc_memdev(
    ptr_arr: *mut *mut c_void,
    bytes: armci_size_t,
    _device: *const c_char,
) -> c_int {
    // SAFETY: what C's caller promises.
    unsafe { malloc("ARMCI_Malloc_memdev", ptr_arr, bytes) }
}

/// Frees memory of ARMCI_Malloc_memdev or ARMCI_Malloc_group_memdev.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Free_memdev(ptr: *mut c_void) -> c_int {
    call("ARMCI_Free_memdev", |armci| armci.free(ptr.cast()))
}

unsafe fn malloc(function: &str, ptr_arr: *mut *mut c_void, bytes: armci_size_t) -> c_int {
    // SAFETY: what C's caller promises.
    call(function, |armci| unsafe {
        let addresses = armci.malloc_wanted(listed(ptr_arr, bytes))?;
        fill(ptr_arr, &addresses);
        Ok(())
    })
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
    call("ARMCI_Free_local", |armci| armci.free(ptr.cast()))
}

/// As ARMCI_Malloc, of the members of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc_group(
    ptr_arr: *mut *mut c_void,
    bytes: armci_size_t,
    group: *mut ARMCI_Group,
) -> c_int {
    // SAFETY: what C's caller promises.
    unsafe { malloc_group("ARMCI_Malloc_group", ptr_arr, bytes, group) }
}

/// As ARMCI_Malloc_group; all devices are the same, and their names are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc_group_memdev(
    ptr_arr: *mut *mut c_void,
    bytes: armci_size_t,
    group: *mut ARMCI_Group,
    _device: *const c_char,
) -> c_int {
    // SAFETY: what C's caller promises.
    unsafe { malloc_group("ARMCI_Malloc_group_memdev", ptr_arr, bytes, group) }
}

unsafe fn malloc_group(
    function: &str,
    ptr_arr: *mut *mut c_void,
    bytes: armci_size_t,
    group: *mut ARMCI_Group,
) -> c_int {
    // SAFETY: what C's caller promises.
    call(function, |armci| unsafe {
        let wanted = listed(ptr_arr, bytes);
        let addresses = armci.malloc_group_wanted(wanted, group_at(group)?)?;
        fill(ptr_arr, &addresses);
        Ok(())
    })
}

/// Frees memory of ARMCI_Malloc_group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Free_group(ptr: *mut c_void, _group: *mut ARMCI_Group) -> c_int {
    call("ARMCI_Free_group", |armci| armci.free(ptr.cast()))
}

/// Allocates memory of this process that others are told of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memget(bytes: usize, meminfo: *mut armci_meminfo_t, _memflg: c_int) {
    // SAFETY: what C's caller promises.
    found("ARMCI_Memget", |armci| unsafe {
        not_null(meminfo, "the description of memory")?;
        let at = armci.malloc_local(bytes.try_into().unwrap_or(c_long::MAX))?;
        *meminfo = armci_meminfo_t {
            armci_addr: at.cast(),
            addr: at.cast(),
            size: bytes,
            cpid: armci.me(),
            idlist: [0; 128],
        };
        Ok(())
    });
}

/// Where this process finds memory of ARMCI_Memget, so many bytes from its start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memat(meminfo: *mut armci_meminfo_t, offset: c_long) -> *mut c_void {
    // SAFETY: what C's caller promises.
    found("ARMCI_Memat", |armci| unsafe {
        not_null(meminfo, "the description of memory")?;
        let known = &*meminfo;
        let at = armci.attach(known.addr.cast(), known.size, known.cpid)?;
        Ok(at.wrapping_offset(offset as isize).cast())
    })
}

/// Ends the use of memory that another process has; nothing need be done for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memdt(_meminfo: *mut armci_meminfo_t, _offset: c_long) {}

/// Frees memory of ARMCI_Memget, at the process that has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memctl(meminfo: *mut armci_meminfo_t) {
    // SAFETY: what C's caller promises.
    found("ARMCI_Memctl", |armci| unsafe {
        not_null(meminfo, "the description of memory")?;
        let known = &*meminfo;
        if known.cpid == armci.me() {
            armci.free(known.addr.cast())?;
        }
        Ok(())
    });
}

/// Does nothing: each process's memory is known from the start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_set_mem_offset(_ptr: *mut c_void) {}

/// Does nothing: a process may load and store in its own memory at any time, without ARMCI-MPI's permission.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Access_begin(_ptr: *mut c_void) {}

/// Does nothing, as ARMCI_Access_begin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Access_end(_ptr: *mut c_void) {}

/// Sets how many bytes a process may allocate at most. Before ARMCI_Init.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Set_shm_limit(shmemlimit: c_ulong) {
    process::set_limit(shmemlimit as usize);
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
