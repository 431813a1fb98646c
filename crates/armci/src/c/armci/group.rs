//! Groups of processes.

use std::ffi::c_int;

use super::ARMCI_Group;
use crate::{
    Error, Result,
    c::{
        arguments::group_at,
        communicators,
        process::{armci, call_or_die, code},
    },
    error::{count, not_null},
};

/// Makes a group of members of the default group. Collective over the new members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_create(
    n: c_int,
    pid_list: *mut c_int,
    group_out: *mut ARMCI_Group,
) {
    // SAFETY: C's caller passes pointers as the header says.
    call_or_die("ARMCI_Group_create", |armci| unsafe {
        let list = members(n, pid_list)?;
        not_null(group_out, "where a group goes")?;
        let group = armci.group_of(list, armci.default_group())?;
        *group_out = group.0;
        communicators::add(armci, group)
    });
}

/// Makes a group of members of another. Collective over the new members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_create_child(
    n: c_int,
    pid_list: *mut c_int,
    group_out: *mut ARMCI_Group,
    group_parent: *mut ARMCI_Group,
) {
    // SAFETY: C's caller passes pointers as the header says.
    call_or_die("ARMCI_Group_create_child", |armci| unsafe {
        let list = members(n, pid_list)?;
        not_null(group_out, "where a group goes")?;
        let group = armci.group_of(list, group_at(group_parent)?)?;
        *group_out = group.0;
        communicators::add(armci, group)
    });
}

/// The members that C's caller lists.
///
/// # Safety
/// If `list` is not null:
/// 1. It has `n` numbers.
/// 2. No other code writes to them while they are used.
unsafe fn members<'a>(n: c_int, list: *const c_int) -> Result<&'a [c_int]> {
    let len = count(n.into(), 1, "the number of members")?;
    not_null(list, "the list of members")?;
    // SAFETY: the list has `n` numbers and no code writes to them, by the caller's conditions 1 and
    // 2.
    Ok(unsafe { std::slice::from_raw_parts(list, len) })
}

/// Frees a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_free(group: *mut ARMCI_Group) {
    // SAFETY: C's caller passes pointers as the header says.
    call_or_die("ARMCI_Group_free", |armci| unsafe {
        let group = group_at(group)?;
        armci.group_free(group)?;
        communicators::remove(group)
    });
}

/// Stores this process's number in a group. For a process that is no member, stores and returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_rank(group: *mut ARMCI_Group, rank: *mut c_int) -> c_int {
    let mut found = None;
    let mut act = || -> Result<()> {
        // SAFETY: C's caller passes pointers as the header says.
        found = armci()?.group_rank(unsafe { group_at(group) }?)?;
        not_null(rank, "where a number goes")?;
        // SAFETY: C's caller passes pointers as the header says.
        unsafe { *rank = found.unwrap_or(-1) };
        Ok(())
    };
    match code("ARMCI_Group_rank", act()) {
        0 if found.is_none() => -1,
        code => code,
    }
}

/// Stores the number of a group's members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_size(group: *mut ARMCI_Group, size: *mut c_int) {
    // SAFETY: C's caller passes pointers as the header says.
    call_or_die("ARMCI_Group_size", |armci| unsafe {
        not_null(size, "where a number goes")?;
        *size = armci.members(group_at(group)?)?.len() as c_int;
        Ok(())
    });
}

/// Sets the group that new groups are made of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_set_default(group: *mut ARMCI_Group) {
    // SAFETY: C's caller passes pointers as the header says.
    call_or_die("ARMCI_Group_set_default", |armci| unsafe {
        armci.set_default_group(group_at(group)?)
    });
}

/// Stores the group that new groups are made of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_get_default(group_out: *mut ARMCI_Group) {
    // SAFETY: C's caller passes pointers as the header says.
    call_or_die("ARMCI_Group_get_default", |armci| unsafe {
        not_null(group_out, "where a group goes")?;
        *group_out = armci.default_group().0;
        Ok(())
    });
}

/// Stores the group of all processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_get_world(group_out: *mut ARMCI_Group) {
    // SAFETY: C's caller passes pointers as the header says.
    call_or_die("ARMCI_Group_get_world", |_| unsafe {
        not_null(group_out, "where a group goes")?;
        *group_out = 0;
        Ok(())
    });
}

/// The process of a member of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Absolute_id(group: *mut ARMCI_Group, group_rank: c_int) -> c_int {
    // SAFETY: C's caller passes pointers as the header says.
    call_or_die("ARMCI_Absolute_id", |armci| unsafe {
        let members = armci.members(group_at(group)?)?;
        let found = usize::try_from(group_rank)
            .ok()
            .and_then(|at| members.get(at));
        found.map(|proc| *proc as c_int).ok_or(Error::NoProcess {
            proc: group_rank,
            processes: members.len(),
        })
    })
}
