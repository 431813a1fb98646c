//! Fences and barriers.

use std::ffi::c_int;

use super::ARMCI_Group;
use crate::{
    Result,
    c::{arguments::group_at, process::call_or_die},
};

/// Waits until all processes have arrived and all their operations are done. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Barrier() {
    call_or_die("ARMCI_Barrier", |armci| armci.barrier());
}

/// Waits until all operations of this process on the memory of a process are done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Fence(proc: c_int) {
    call_or_die("ARMCI_Fence", |armci| armci.fence(proc));
}

/// As ARMCI_Fence, for all processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_AllFence() {
    call_or_die("ARMCI_AllFence", |armci| armci.all_fence());
}

/// As ARMCI_Fence, for the processes of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GroupFence(group: *mut ARMCI_Group) {
    call_or_die("ARMCI_GroupFence", |armci| {
        // SAFETY: 1. and 2. C1 and C2, for the group.
        let group = unsafe { group_at(group) }?;
        let members = armci.members(group)?;
        let fenced = members.iter().map(|proc| armci.fence(*proc as c_int));
        // All processes are fenced, even if one fence fails.
        fenced.fold(Ok(()), Result::and)
    });
}
