//! Waiting until what was done to memory is done there.

use std::ffi::c_int;

use super::ARMCI_Group;
use crate::{
    Result,
    c::{arguments::group_at, process::found},
};

/// Waits until all processes have come, and all that they did is done. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Barrier() {
    found("ARMCI_Barrier", |armci| armci.barrier());
}

/// Waits until all that this process did to the memory of a process is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Fence(proc: c_int) {
    found("ARMCI_Fence", |armci| armci.fence(proc));
}

/// As ARMCI_Fence, of all processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_AllFence() {
    found("ARMCI_AllFence", |armci| armci.all_fence());
}

/// As ARMCI_Fence, of the processes of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GroupFence(group: *mut ARMCI_Group) {
    // SAFETY: what C's caller promises.
    found("ARMCI_GroupFence", |armci| unsafe {
        let members = armci.members(group_at(group)?)?;
        let fenced = members.iter().map(|proc| armci.fence(*proc as c_int));
        // All of them, whatever befell what was done to one.
        fenced.fold(Ok(()), Result::and)
    });
}
