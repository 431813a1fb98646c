//! Groups of processes.

use std::ffi::c_int;

use super::ARMCI_Group;
use crate::{
    Error, Result,
    c::{
        arguments::{group_at, room},
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
    call_or_die("ARMCI_Group_create", |armci| {
        // SAFETY: 1. and 2. C1 and C2, for the list.
        let list = unsafe { members(n, pid_list) }?;
        // SAFETY: 1. and 2. C1 and C2, for the new group.
        let group_out = unsafe { room(group_out, "where a group goes") }?;
        let group = armci.group_of(list, armci.default_group())?;
        group_out.write(group.0);
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
    call_or_die("ARMCI_Group_create_child", |armci| {
        // SAFETY: 1. and 2. C1 and C2, for the list.
        let list = unsafe { members(n, pid_list) }?;
        // SAFETY: 1. and 2. C1 and C2, for the parent.
        let parent = unsafe { group_at(group_parent) }?;
        // SAFETY: 1. and 2. C1 and C2, for the new group.
        let group_out = unsafe { room(group_out, "where a group goes") }?;
        let group = armci.group_of(list, parent)?;
        group_out.write(group.0);
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
    call_or_die("ARMCI_Group_free", |armci| {
        // SAFETY: 1. and 2. C1 and C2, for the group.
        let group = unsafe { group_at(group) }?;
        armci.group_free(group)?;
        communicators::remove(group)
    });
}

/// Stores this process's number in a group. For a process that is no member, stores and returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_rank(group: *mut ARMCI_Group, rank: *mut c_int) -> c_int {
    let mut found = None;
    let mut act = || -> Result<()> {
        // SAFETY: 1. and 2. C1 and C2, for the group.
        let group = unsafe { group_at(group) };
        found = armci()?.group_rank(group?)?;
        // SAFETY: 1. and 2. C1 and C2, for the number.
        unsafe { room(rank, "where a number goes") }?.write(found.unwrap_or(-1));
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
    call_or_die("ARMCI_Group_size", |armci| {
        // SAFETY: 1. and 2. C1 and C2, for the group.
        let group = unsafe { group_at(group) }?;
        // SAFETY: 1. and 2. C1 and C2, for the number.
        let size = unsafe { room(size, "where a number goes") }?;
        size.write(armci.members(group)?.len() as c_int);
        Ok(())
    });
}

/// Sets the group that new groups are made of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_set_default(group: *mut ARMCI_Group) {
    call_or_die("ARMCI_Group_set_default", |armci| {
        // SAFETY: 1. and 2. C1 and C2, for the group.
        let group = unsafe { group_at(group) }?;
        armci.set_default_group(group)
    });
}

/// Stores the group that new groups are made of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_get_default(group_out: *mut ARMCI_Group) {
    call_or_die("ARMCI_Group_get_default", |armci| {
        // SAFETY: 1. and 2. C1 and C2, for the group.
        let group_out = unsafe { room(group_out, "where a group goes") }?;
        group_out.write(armci.default_group().0);
        Ok(())
    });
}

/// Stores the group of all processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_get_world(group_out: *mut ARMCI_Group) {
    call_or_die("ARMCI_Group_get_world", |_| {
        // SAFETY: 1. and 2. C1 and C2, for the group.
        unsafe { room(group_out, "where a group goes") }?.write(0);
        Ok(())
    });
}

/// The process of a member of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Absolute_id(group: *mut ARMCI_Group, group_rank: c_int) -> c_int {
    call_or_die("ARMCI_Absolute_id", |armci| {
        // SAFETY: 1. and 2. C1 and C2, for the group.
        let group = unsafe { group_at(group) }?;
        let members = armci.members(group)?;
        let found = usize::try_from(group_rank)
            .ok()
            .and_then(|at| members.get(at));
        found.map(|proc| *proc as c_int).ok_or(Error::NoProcess {
            proc: group_rank,
            processes: members.len(),
        })
    })
}
