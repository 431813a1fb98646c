//! The functions of `armcix.h`: ARMCI-MPI's additions.

use std::{collections::BTreeMap, ffi::c_int, sync::Arc};

use parking_lot::Mutex;

use super::{
    arguments::{group_at, room},
    armci::ARMCI_Group,
    communicators,
    process::{armci, call, call_or_die, code},
};
use crate::{Error, MutexSet, Result, error::not_null};

/// The sets of mutexes that exist, by the address that names each.
static SETS: Mutex<BTreeMap<usize, Arc<armcix_mutex_hdl_s>>> = Mutex::new(BTreeMap::new());

/// A set of mutexes of a group, apart from the mutexes of ARMCI_Create_mutexes.
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct armcix_mutex_hdl_s(MutexSet);

/// Names a set of mutexes.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type armcix_mutex_hdl_t = *mut armcix_mutex_hdl_s;

/// Makes a group of the members of another that pass the same color, in the order of their keys.
/// Members with a negative color get no group: -1. Collective over the other group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCIX_Group_split(
    parent: *mut ARMCI_Group,
    color: c_int,
    key: c_int,
    new_group: *mut ARMCI_Group,
) -> c_int {
    call("ARMCIX_Group_split", |armci| {
        // SAFETY: 1. and 2. C1 and C2, for the parent.
        let parent = unsafe { group_at(parent) }?;
        // SAFETY: 1. and 2. C1 and C2, for the new group.
        let room = unsafe { room(new_group, "where a group goes") };
        // A process without room takes part, so that the others do not wait for it.
        let (wanted, room) = match room {
            Ok(room) => {
                room.write(-1);
                (Ok((color, key)), Some(room))
            }
            Err(error) => (Err(error), None),
        };
        if let (Some(group), Some(room)) = (armci.group_split_wanted(parent, wanted)?, room) {
            room.write(group.0);
            communicators::add(armci, group)?;
        }
        Ok(())
    })
}

/// Makes a group of the same members. Collective over them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCIX_Group_dup(
    parent: *mut ARMCI_Group,
    new_group: *mut ARMCI_Group,
) -> c_int {
    // SAFETY: C1 and C2 of the caller are those of the called function.
    unsafe { ARMCIX_Group_split(parent, 0, 0, new_group) }
}

/// Makes `count` mutexes of this process. Returns null after an error. Collective over a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCIX_Create_mutexes_hdl(
    count: c_int,
    pgroup: *mut ARMCI_Group,
) -> armcix_mutex_hdl_t {
    let mut made = std::ptr::null_mut();
    let mut act = || -> Result<()> {
        // SAFETY: 1. and 2. C1 and C2, for the group.
        let group = unsafe { group_at(pgroup) };
        let set = armci()?.create_mutex_set(count, group?)?;
        let set = Arc::new(armcix_mutex_hdl_s(set));
        made = Arc::as_ptr(&set).cast_mut();
        SETS.lock().insert(made.addr(), set);
        Ok(())
    };
    code("ARMCIX_Create_mutexes_hdl", act());
    made
}

/// Destroys mutexes. Collective over their group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCIX_Destroy_mutexes_hdl(hdl: armcix_mutex_hdl_t) -> c_int {
    call("ARMCIX_Destroy_mutexes_hdl", |armci| {
        not_null(hdl, "a set of mutexes")?;
        let set = SETS.lock().remove(&hdl.addr());
        armci.end_mutex_set(&set.ok_or(Error::NoMutexSet)?.0)
    })
}

/// Locks a mutex of a process. `proc` is the process's number among all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCIX_Lock_hdl(hdl: armcix_mutex_hdl_t, mutex: c_int, proc: c_int) {
    call_or_die("ARMCIX_Lock_hdl", |armci| {
        armci.lock_in(&set_of(hdl)?.0, mutex, proc)
    });
}

/// Locks a mutex of a process if it is free. Returns 0 if it locked the mutex, 1 if not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCIX_Trylock_hdl(
    hdl: armcix_mutex_hdl_t,
    mutex: c_int,
    proc: c_int,
) -> c_int {
    call_or_die("ARMCIX_Trylock_hdl", |armci| {
        let locked = armci.try_lock_in(&set_of(hdl)?.0, mutex, proc)?;
        Ok(c_int::from(!locked))
    })
}

/// Unlocks a mutex of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCIX_Unlock_hdl(hdl: armcix_mutex_hdl_t, mutex: c_int, proc: c_int) {
    call_or_die("ARMCIX_Unlock_hdl", |armci| {
        armci.unlock_in(&set_of(hdl)?.0, mutex, proc)
    });
}

/// Does nothing: the service thread serves other processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCIX_Progress() {}

fn set_of(hdl: armcix_mutex_hdl_t) -> Result<Arc<armcix_mutex_hdl_s>> {
    not_null(hdl, "a set of mutexes")?;
    let set = SETS.lock().get(&hdl.addr()).cloned();
    set.ok_or(Error::NoMutexSet)
}
