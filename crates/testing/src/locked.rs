//! A process that may lock little memory, and pins of its own.

use std::{
    fs, io,
    os::fd::{FromRawFd, OwnedFd},
    ptr,
};

use rustix::{
    mm::{MapFlags, ProtFlags, mmap_anonymous},
    process::{Resource, Rlimit, geteuid, getppid, setrlimit},
    thread::{CapabilitySet, capabilities, set_capabilities},
};

/// Allows this process to lock so many bytes, whatever its privileges. Call it in the process's first thread, before there
/// are others.
///
/// The kernel counts the memory that all processes of a user lock for `io_uring`. Where this process may, it becomes
/// another user: the same as other children of its parent with the same `account`, which is below 16. So tests beside
/// this one do not count.
///
/// # Panics
/// If the system refuses less.
#[allow(unsafe_code)] // system calls that concern all threads
pub fn limit_locked_memory(bytes: u64, account: u32) {
    let limit = Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    setrlimit(Resource::Memlock, limit).expect("less is always allowed");
    if geteuid().is_root() {
        let parent = getppid().map_or(0, |parent| parent.as_raw_nonzero().get() as u32);
        let user = (1 << 24) + 16 * parent + account;
        // SAFETY: the call takes no pointer.
        let changed = unsafe { libc::setresuid(user, user, user) };
        if changed == 0 {
            // `/proc/self` stays readable.
            // SAFETY: the call takes no pointer.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
            return;
        }
    }
    let mut able = capabilities(None).expect("the capabilities");
    able.effective.remove(CapabilitySet::IPC_LOCK);
    able.permitted.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, able).expect("fewer are always allowed");
}

/// Has the kernel pin new memory for an `io_uring` of the program, which holds it.
///
/// # Panics
/// If the system refuses.
#[allow(unsafe_code)] // system calls that only libc offers
pub fn pin(bytes: usize) -> OwnedFd {
    const REGISTER_BUFFERS: u32 = 0;
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the call takes no pointer.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    // SAFETY: the kernel chooses the address of new memory.
    let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, rights, MapFlags::PRIVATE) };
    // `struct io_uring_params`
    let mut params = [0_u32; 30];
    // SAFETY: the kernel reads and writes the parameters.
    let made = unsafe { libc::syscall(libc::SYS_io_uring_setup, 2, params.as_mut_ptr()) };
    assert!(made >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the kernel has just returned this descriptor.
    let ring = unsafe { OwnedFd::from_raw_fd(made as i32) };
    let buffer = libc::iovec {
        iov_base: base.expect("memory"),
        iov_len: bytes,
    };
    // SAFETY: the kernel reads one buffer, whose pages are never unmapped.
    let pinned = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            made,
            REGISTER_BUFFERS,
            &raw const buffer,
            1,
        )
    };
    assert_eq!(pinned, 0, "{}", io::Error::last_os_error());
    ring
}

/// Returns the bytes that the kernel has pinned of this process's memory (`VmPin`).
///
/// # Panics
/// If the kernel does not tell.
pub fn pinned() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("the own status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let kilobytes = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    kilobytes
        .and_then(|it| it.parse::<u64>().ok())
        .expect("a number of kB")
        << 10
}
