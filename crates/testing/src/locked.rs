//! A process that may lock little memory.

use rustix::{
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
