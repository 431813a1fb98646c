//! The functions of ARMCI's headers that take or return communicators of MPI, and ARMCI-MPI's
//! functions that initialize ARMCI with one.
//!
//! A communicator is an `int` in MPICH and an address in Open MPI. So the declarations are written
//! by hand, in `armci.h` and `message.h` under the macro `MSG_COMMS_MPI`.

use std::ffi::c_int;

use super::{
    arguments::group_at,
    armci::ARMCI_Group,
    communicators,
    process::{self, armci, code, or_die},
};
use crate::mpi::Communicator;

/// Initializes ARMCI with the processes of a communicator, in its order. Returns 1, or 0 after an
/// error. The first ARMCI_Finalize ends it. Collective over these processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Init_mpi_comm(comm: usize) -> c_int {
    let begun = process::begin_armci_once(handle(comm));
    c_int::from(code("ARMCI_Init_mpi_comm", begun) == 0)
}

/// As ARMCI_Init_mpi_comm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_Init_mpi_comm(comm: usize) -> c_int {
    // SAFETY: the called function has no conditions.
    unsafe { ARMCI_Init_mpi_comm(comm) }
}

/// As ARMCI_Init, with the processes of a communicator in its order. Any thread may call ARMCI, for
/// every requested thread level.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Init_thread_comm(_armci_requested: c_int, comm: usize) -> c_int {
    let begun = process::begin_armci(Some(handle(comm)));
    code("ARMCI_Init_thread_comm", begun)
}

/// As ARMCI_Init_thread_comm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_Init_thread_comm(armci_requested: c_int, comm: usize) -> c_int {
    // SAFETY: the called function has no conditions.
    unsafe { ARMCI_Init_thread_comm(armci_requested, comm) }
}

/// As armci_msg_init, with the processes of a communicator in its order. Collective over these
/// processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_init_comm(comm: usize) {
    let begun = process::begin_messages(Some(handle(comm)));
    or_die("armci_msg_init_comm", begun);
}

/// The communicator of a group that this process is a member of. It is ARMCI's own: a program may
/// use it and must not free it. Returns `MPI_COMM_NULL` if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_group_comm(group: *mut ARMCI_Group) -> usize {
    // SAFETY: 1. and 2. C1 and C2, for the group.
    let group = unsafe { group_at(group) };
    let found = armci().and_then(|armci| communicators::of(armci, group?));
    match found {
        Ok(communicator) => communicator.0,
        Err(cause) => {
            code("armci_group_comm", Err(cause));
            Communicator::null().0
        }
    }
}

/// The communicator that C passes. For an `int` the upper half of the register is undefined.
fn handle(comm: usize) -> Communicator {
    if Communicator::is_wide() {
        Communicator(comm)
    } else {
        Communicator(comm & u32::MAX as usize)
    }
}
