//! The functions of `message.h`: the start and the end, messages, barriers and broadcasts.

mod reductions;

use std::ffi::{c_char, c_double, c_int, c_void};

use super::{
    arguments::{bytes, group_at, read_bytes, room},
    armci::ARMCI_Group,
    process::{self, message_or_die, or_die, or_die_unless_forked},
};
use crate::{MessageScope, error::count};

pub use reductions::*;

/// Joins the job. Messages then work until armci_msg_finalize, even after ARMCI_Finalize. First
/// begins MPI, if the program is linked with it and has not begun it. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_init(argc: *mut c_int, argv: *mut *mut *mut c_char) {
    // SAFETY: 1. C5.
    let begun = unsafe { process::begin_mpi(argc, argv) };
    or_die(
        "armci_msg_init",
        begun.and_then(|_| process::begin_messages(None)),
    );
}

/// Ends the job, and MPI if it was begun. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_finalize() {
    or_die_unless_forked("armci_msg_finalize", process::end_messages());
}

/// Ends the job, with all its processes, with a status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_abort(code: c_int) {
    process::die(code)
}

/// This process's number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_me() -> c_int {
    message_or_die("armci_msg_me", |armci| Ok(armci.me()))
}

/// The number of processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_nproc() -> c_int {
    message_or_die("armci_msg_nproc", |armci| Ok(armci.processes()))
}

/// Seconds since a fixed time in the past.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_timer() -> c_double {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` has room for a time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as c_double + now.tv_nsec as c_double * 1e-9
}

/// Waits for all processes. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_barrier() {
    message_or_die("armci_msg_barrier", |armci| Ok(armci.job().barrier()?));
}

/// Sends bytes to a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_snd(tag: c_int, buffer: *mut c_void, len: c_int, to: c_int) {
    message_or_die("armci_msg_snd", |armci| {
        let len = count(len.into(), 0, "the number of bytes")?;
        // SAFETY: 1. and 2. C1 and C2, for the buffer.
        let bytes = unsafe { read_bytes(buffer, len) }?;
        armci.send(tag, bytes, to)
    });
}

/// Waits for a message, in the name of a function. Returns the sender.
///
/// # Safety
/// 1. and 2. as [`bytes`], for the buffer.
/// 3. `msglen` is null or has room for a number that no other code uses meanwhile.
unsafe fn receive(
    function: &str,
    tag: c_int,
    (buffer, buflen): (*mut c_void, c_int),
    msglen: *mut c_int,
    from: Option<c_int>,
) -> c_int {
    message_or_die(function, |armci| {
        let room = count(buflen.into(), 0, "the number of bytes")?;
        // SAFETY: 1. and 2. The caller's conditions 1 and 2.
        let bytes = unsafe { bytes(buffer, room) }?;
        let (from, len) = armci.receive(tag, bytes, from)?;
        // SAFETY: `msglen` is null or has room for a number, by the caller's condition 3.
        if let Some(msglen) = unsafe { msglen.as_mut() } {
            *msglen = len as c_int;
        }
        Ok(from)
    })
}

/// Waits for a message from a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_rcv(
    tag: c_int,
    buffer: *mut c_void,
    buflen: c_int,
    msglen: *mut c_int,
    from: c_int,
) {
    // SAFETY: 1. to 3. C1 and C2, for the buffer and the length.
    unsafe { receive("armci_msg_rcv", tag, (buffer, buflen), msglen, Some(from)) };
}

/// Waits for a message from any process. Returns the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_rcvany(
    tag: c_int,
    buffer: *mut c_void,
    buflen: c_int,
    msglen: *mut c_int,
) -> c_int {
    // SAFETY: 1. to 3. C1 and C2, for the buffer and the length.
    unsafe { receive("armci_msg_rcvany", tag, (buffer, buflen), msglen, None) }
}

/// Broadcasts bytes of a process to all. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_bcast(buffer: *mut c_void, len: c_int, root: c_int) {
    message_or_die("armci_msg_bcast", |armci| {
        let len = count(len.into(), 0, "the number of bytes")?;
        // SAFETY: 1. and 2. C1 and C2, for the buffer.
        let bytes = unsafe { bytes(buffer, len) }?;
        armci.broadcast(MessageScope::All, bytes, root)
    });
}

/// Broadcasts bytes of a process to all. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_brdcst(buffer: *mut c_void, len: c_int, root: c_int) {
    message_or_die("armci_msg_brdcst", |armci| {
        let len = count(len.into(), 0, "the number of bytes")?;
        // SAFETY: 1. and 2. C1 and C2, for the buffer.
        let bytes = unsafe { bytes(buffer, len) }?;
        armci.broadcast(MessageScope::All, bytes, root)
    });
}

/// Broadcasts bytes of a process to all processes of a scope. Collective over the scope.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_bcast_scope(
    scope: c_int,
    buffer: *mut c_void,
    len: c_int,
    root: c_int,
) {
    message_or_die("armci_msg_bcast_scope", |armci| {
        let len = count(len.into(), 0, "the number of bytes")?;
        // SAFETY: 1. and 2. C1 and C2, for the buffer.
        let bytes = unsafe { bytes(buffer, len) }?;
        armci.broadcast(MessageScope::of_code(scope)?, bytes, root)
    });
}

/// Broadcasts bytes of a node's first process to all processes of the node. Collective over the
/// node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_clus_brdcst(buf: *mut c_void, len: c_int) {
    message_or_die("armci_msg_clus_brdcst", |armci| {
        let root = armci.processes_of(-1)?[0] as c_int;
        let len = count(len.into(), 0, "the number of bytes")?;
        // SAFETY: 1. and 2. C1 and C2, for the buffer.
        let bytes = unsafe { bytes(buf, len) }?;
        armci.broadcast(MessageScope::Node, bytes, root)
    });
}

/// Waits for all members of a group. Collective over the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_barrier(group: *mut ARMCI_Group) {
    message_or_die("armci_msg_group_barrier", |armci| {
        // SAFETY: 1. and 2. C1 and C2, for the group.
        let group = unsafe { group_at(group) }?;
        armci.group_barrier(group)
    });
}

/// Broadcasts bytes of a member to the other members of a scope. The root is given by its number
/// among all processes. Collective over the members of the scope.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_bcast_scope(
    scope: c_int,
    buf: *mut c_void,
    len: c_int,
    root: c_int,
    group: *mut ARMCI_Group,
) {
    message_or_die("armci_msg_group_bcast_scope", |armci| {
        let len = count(len.into(), 0, "the number of bytes")?;
        let scope = MessageScope::of_code(scope)?;
        // SAFETY: 1. and 2. C1 and C2, for the group.
        let group = unsafe { group_at(group) }?;
        // SAFETY: 1. and 2. C1 and C2, for the buffer.
        let bytes = unsafe { bytes(buf, len) }?;
        armci.group_broadcast(group, scope, bytes, root)
    });
}

/// Broadcasts bytes from one member of a group to the members after it, by their numbers in the
/// group. Collective over these members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_grp_clus_brdcst(
    buf: *mut c_void,
    len: c_int,
    grp_master: c_int,
    grp_clus_nproc: c_int,
    mastergroup: *mut ARMCI_Group,
) {
    message_or_die("armci_grp_clus_brdcst", |armci| {
        let len = count(len.into(), 0, "the number of bytes")?;
        let part = (grp_master, grp_clus_nproc);
        // SAFETY: 1. and 2. C1 and C2, for the group.
        let group = unsafe { group_at(mastergroup) }?;
        // SAFETY: 1. and 2. C1 and C2, for the buffer.
        let bytes = unsafe { bytes(buf, len) }?;
        armci.group_part_broadcast(group, part, bytes)
    });
}

/// The neighbours of this process in a binary tree of a scope; -1 for none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_bintree(
    scope: c_int,
    Root: *mut c_int,
    Up: *mut c_int,
    Left: *mut c_int,
    Right: *mut c_int,
) {
    message_or_die("armci_msg_bintree", |armci| {
        let tree = armci.tree(MessageScope::of_code(scope)?);
        for (at, value) in [
            (Root, tree.root),
            (Up, tree.up),
            (Left, tree.left),
            (Right, tree.right),
        ] {
            // SAFETY: 1. and 2. C1 and C2, for a number.
            unsafe { room(at, "where a number goes") }?.write(value);
        }
        Ok(())
    });
}
