//! Mutexes.

use std::ffi::c_int;

use crate::c::process::{call, call_or_die};

/// Makes `num` mutexes of this process. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Create_mutexes(num: c_int) -> c_int {
    call("ARMCI_Create_mutexes", |armci| armci.create_mutexes(num))
}

/// Destroys the mutexes. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Destroy_mutexes() -> c_int {
    call("ARMCI_Destroy_mutexes", |armci| armci.destroy_mutexes())
}

/// Locks a mutex of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Lock(mutex: c_int, proc: c_int) {
    call_or_die("ARMCI_Lock", |armci| armci.lock(mutex, proc));
}

/// Unlocks a mutex of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Unlock(mutex: c_int, proc: c_int) {
    call_or_die("ARMCI_Unlock", |armci| armci.unlock(mutex, proc));
}
