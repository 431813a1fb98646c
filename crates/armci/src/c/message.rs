//! The functions of `message.h`.

use std::ffi::{CStr, c_char, c_double, c_float, c_int, c_long, c_longlong, c_void};

use super::{
    arguments::group_at,
    armci::ARMCI_Group,
    process::{self, message_or_die, or_die, or_die_unless_forked},
};
use crate::{
    Element, MessageScope, Reduction, Result,
    error::{count, not_null},
};

/// Bytes of C that may be changed.
unsafe fn bytes<'a>(at: *mut c_void, len: usize) -> Result<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    not_null(at, "a buffer")?;
    // SAFETY: C's caller passes `len` bytes.
    Ok(unsafe { std::slice::from_raw_parts_mut(at.cast(), len) })
}

/// Bytes of C that are only read. Other threads may read them too.
unsafe fn read_bytes<'a>(at: *const c_void, len: usize) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    not_null(at, "a buffer")?;
    // SAFETY: the caller promises `len` bytes.
    Ok(unsafe { std::slice::from_raw_parts(at.cast(), len) })
}

/// The bytes, the reduction and the type of C's elements.
unsafe fn elements<'a>(
    x: *mut c_void,
    n: c_int,
    op: *mut c_char,
    code: c_int,
) -> Result<(&'a mut [u8], Reduction, Element)> {
    let element = Element::of_code(code)?;
    let number = count(n.into(), 0, "the number of elements")?;
    not_null(op, "the name of a reduction")?;
    // SAFETY: C's caller passes pointers as the header says.
    let name = unsafe { CStr::from_ptr(op) }.to_bytes();
    let reduction = Reduction::of_name(name, element)?;
    // SAFETY: C's caller passes pointers as the header says.
    let bytes = unsafe { bytes(x, number * element.bytes())? };
    Ok((bytes, reduction, element))
}

/// Joins the job. Messages then work until armci_msg_finalize, even after ARMCI_Finalize. First
/// begins MPI, if the program is linked with it and has not begun it. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_init(argc: *mut c_int, argv: *mut *mut *mut c_char) {
    let begun = process::begin_mpi(argc, argv);
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
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_snd", |armci| unsafe {
        let len = count(len.into(), 0, "the number of bytes")?;
        armci.send(tag, read_bytes(buffer, len)?, to)
    });
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
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_rcv", |armci| unsafe {
        let room = count(buflen.into(), 0, "the number of bytes")?;
        let (from, len) = armci.receive(tag, bytes(buffer, room)?, Some(from))?;
        if let Some(msglen) = msglen.as_mut() {
            *msglen = len as c_int;
        }
        Ok(from)
    });
}

/// Waits for a message from any process. Returns the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_rcvany(
    tag: c_int,
    buffer: *mut c_void,
    buflen: c_int,
    msglen: *mut c_int,
) -> c_int {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_rcvany", |armci| unsafe {
        let room = count(buflen.into(), 0, "the number of bytes")?;
        let (from, len) = armci.receive(tag, bytes(buffer, room)?, None)?;
        if let Some(msglen) = msglen.as_mut() {
            *msglen = len as c_int;
        }
        Ok(from)
    })
}

/// Broadcasts bytes of a process to all. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_bcast(buffer: *mut c_void, len: c_int, root: c_int) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_bcast", |armci| unsafe {
        let len = count(len.into(), 0, "the number of bytes")?;
        armci.broadcast(MessageScope::All, bytes(buffer, len)?, root)
    });
}

/// Broadcasts bytes of a process to all. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_brdcst(buffer: *mut c_void, len: c_int, root: c_int) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_brdcst", |armci| unsafe {
        let len = count(len.into(), 0, "the number of bytes")?;
        armci.broadcast(MessageScope::All, bytes(buffer, len)?, root)
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
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_bcast_scope", |armci| unsafe {
        let len = count(len.into(), 0, "the number of bytes")?;
        armci.broadcast(MessageScope::of_code(scope)?, bytes(buffer, len)?, root)
    });
}

/// Broadcasts bytes of a node's first process to all processes of the node. Collective over the
/// node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_clus_brdcst(buf: *mut c_void, len: c_int) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_clus_brdcst", |armci| unsafe {
        let root = armci.processes_of(-1)?[0] as c_int;
        let len = count(len.into(), 0, "the number of bytes")?;
        armci.broadcast(MessageScope::Node, bytes(buf, len)?, root)
    });
}

/// Combines elements of all processes. The first process gets the result. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_reduce(x: *mut c_void, n: c_int, op: *mut c_char, type_: c_int) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_reduce", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, type_)?;
        armci.reduce(MessageScope::All, bytes, reduction, element)
    });
}

/// Combines elements of all processes of a scope. The first of them gets the result. Collective
/// over the scope.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_reduce_scope(
    scope: c_int,
    x: *mut c_void,
    n: c_int,
    op: *mut c_char,
    type_: c_int,
) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_reduce_scope", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, type_)?;
        armci.reduce(MessageScope::of_code(scope)?, bytes, reduction, element)
    });
}

/// Combines elements of all processes of a scope. Each of them gets the result. Collective over the
/// scope.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_gop_scope(
    scope: c_int,
    x: *mut c_void,
    n: c_int,
    op: *mut c_char,
    type_: c_int,
) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_gop_scope", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, type_)?;
        armci.all_reduce(MessageScope::of_code(scope)?, bytes, reduction, element)
    });
}

/// Combines elements of all processes. Each process gets the result. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_igop(x: *mut c_int, n: c_int, op: *mut c_char) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_igop", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, -99)?;
        armci.all_reduce(MessageScope::All, bytes, reduction, element)
    });
}

/// Combines elements of all processes of a node. Each of them gets the result. Collective over the node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_clus_igop(x: *mut c_int, n: c_int, op: *mut c_char) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_clus_igop", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, -99)?;
        armci.all_reduce(MessageScope::Node, bytes, reduction, element)
    });
}

/// Combines elements of all members of a group. Each member gets the result. Collective over the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_igop(
    x: *mut c_int,
    n: c_int,
    op: *mut c_char,
    group: *mut ARMCI_Group,
) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_group_igop", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, -99)?;
        armci.group_all_reduce(
            group_at(group)?,
            MessageScope::All,
            bytes,
            reduction,
            element,
        )
    });
}

/// Combines elements of all processes. Each process gets the result. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_lgop(x: *mut c_long, n: c_int, op: *mut c_char) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_lgop", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, -101)?;
        armci.all_reduce(MessageScope::All, bytes, reduction, element)
    });
}

/// Combines elements of all processes of a node. Each of them gets the result. Collective over the node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_clus_lgop(x: *mut c_long, n: c_int, op: *mut c_char) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_clus_lgop", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, -101)?;
        armci.all_reduce(MessageScope::Node, bytes, reduction, element)
    });
}

/// Combines elements of all members of a group. Each member gets the result. Collective over the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_lgop(
    x: *mut c_long,
    n: c_int,
    op: *mut c_char,
    group: *mut ARMCI_Group,
) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_group_lgop", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, -101)?;
        armci.group_all_reduce(
            group_at(group)?,
            MessageScope::All,
            bytes,
            reduction,
            element,
        )
    });
}

/// Combines elements of all processes. Each process gets the result. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_llgop(x: *mut c_longlong, n: c_int, op: *mut c_char) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_llgop", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, -102)?;
        armci.all_reduce(MessageScope::All, bytes, reduction, element)
    });
}

/// Combines elements of all processes of a node. Each of them gets the result. Collective over the node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_clus_llgop(x: *mut c_longlong, n: c_int, op: *mut c_char) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_clus_llgop", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, -102)?;
        armci.all_reduce(MessageScope::Node, bytes, reduction, element)
    });
}

/// Combines elements of all members of a group. Each member gets the result. Collective over the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_llgop(
    x: *mut c_longlong,
    n: c_int,
    op: *mut c_char,
    group: *mut ARMCI_Group,
) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_group_llgop", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, -102)?;
        armci.group_all_reduce(
            group_at(group)?,
            MessageScope::All,
            bytes,
            reduction,
            element,
        )
    });
}

/// Combines elements of all processes. Each process gets the result. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_fgop(x: *mut c_float, n: c_int, op: *mut c_char) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_fgop", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, -306)?;
        armci.all_reduce(MessageScope::All, bytes, reduction, element)
    });
}

/// Combines elements of all processes of a node. Each of them gets the result. Collective over the node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_clus_fgop(x: *mut c_float, n: c_int, op: *mut c_char) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_clus_fgop", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, -306)?;
        armci.all_reduce(MessageScope::Node, bytes, reduction, element)
    });
}

/// Combines elements of all members of a group. Each member gets the result. Collective over the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_fgop(
    x: *mut c_float,
    n: c_int,
    op: *mut c_char,
    group: *mut ARMCI_Group,
) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_group_fgop", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, -306)?;
        armci.group_all_reduce(
            group_at(group)?,
            MessageScope::All,
            bytes,
            reduction,
            element,
        )
    });
}

/// Combines elements of all processes. Each process gets the result. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_dgop(x: *mut c_double, n: c_int, op: *mut c_char) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_dgop", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, -307)?;
        armci.all_reduce(MessageScope::All, bytes, reduction, element)
    });
}

/// Combines elements of all processes of a node. Each of them gets the result. Collective over the node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_clus_dgop(x: *mut c_double, n: c_int, op: *mut c_char) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_clus_dgop", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, -307)?;
        armci.all_reduce(MessageScope::Node, bytes, reduction, element)
    });
}

/// Combines elements of all members of a group. Each member gets the result. Collective over the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_dgop(
    x: *mut c_double,
    n: c_int,
    op: *mut c_char,
    group: *mut ARMCI_Group,
) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_group_dgop", |armci| unsafe {
        let (bytes, reduction, element) = elements(x.cast(), n, op, -307)?;
        armci.group_all_reduce(
            group_at(group)?,
            MessageScope::All,
            bytes,
            reduction,
            element,
        )
    });
}

/// Combines elements of the members of a group that are in a scope. Each of them gets the result.
/// Collective over these members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_gop_scope(
    scope: c_int,
    x: *mut c_void,
    n: c_int,
    op: *mut c_char,
    type_: c_int,
    group: *mut ARMCI_Group,
) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_group_gop_scope", |armci| unsafe {
        let (bytes, reduction, element) = elements(x, n, op, type_)?;
        armci.group_all_reduce(
            group_at(group)?,
            MessageScope::of_code(scope)?,
            bytes,
            reduction,
            element,
        )
    });
}

/// Selects the process of a scope whose first element is the largest (`max`) or the smallest
/// (`min`), among those that contribute. All processes of the scope get its bytes. Collective over
/// the scope.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_sel_scope(
    scope: c_int,
    x: *mut c_void,
    n: c_int,
    op: *mut c_char,
    type_: c_int,
    contribute: c_int,
) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_sel_scope", |armci| unsafe {
        let (_, reduction, element) = elements(x, 0, op, type_)?;
        let len = count(n.into(), 0, "the number of bytes")?;
        let scope = MessageScope::of_code(scope)?;
        armci.select(scope, bytes(x, len)?, reduction, element, contribute != 0)
    });
}

/// Sums addresses: each process passes its own address and nulls. Each process gets the result.
/// Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_exchange_address(ptr_ar: *mut *mut c_void, n: c_int) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_exchange_address", |armci| unsafe {
        let len = count(n.into(), 0, "the number of addresses")?;
        let bytes = bytes(ptr_ar.cast(), len * size_of::<*mut c_void>())?;
        armci.all_reduce(MessageScope::All, bytes, Reduction::Sum, Element::Long)
    });
}

/// As armci_exchange_address, for the members of a group. Collective over the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_exchange_address_grp(
    ptr_arr: *mut *mut c_void,
    n: c_int,
    group: *mut ARMCI_Group,
) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_exchange_address_grp", |armci| unsafe {
        let len = count(n.into(), 0, "the number of addresses")?;
        let bytes = bytes(ptr_arr.cast(), len * size_of::<*mut c_void>())?;
        let group = group_at(group)?;
        armci.group_all_reduce(
            group,
            MessageScope::All,
            bytes,
            Reduction::Sum,
            Element::Long,
        )
    });
}

/// Waits for all members of a group. Collective over the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_barrier(group: *mut ARMCI_Group) {
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_group_barrier", |armci| unsafe {
        armci.group_barrier(group_at(group)?)
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
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_group_bcast_scope", |armci| unsafe {
        let len = count(len.into(), 0, "the number of bytes")?;
        let scope = MessageScope::of_code(scope)?;
        armci.group_broadcast(group_at(group)?, scope, bytes(buf, len)?, root)
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
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_grp_clus_brdcst", |armci| unsafe {
        let len = count(len.into(), 0, "the number of bytes")?;
        let part = (grp_master, grp_clus_nproc);
        armci.group_part_broadcast(group_at(mastergroup)?, part, bytes(buf, len)?)
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
    // SAFETY: C's caller passes pointers as the header says.
    message_or_die("armci_msg_bintree", |armci| unsafe {
        let tree = armci.tree(MessageScope::of_code(scope)?);
        for (at, value) in [
            (Root, tree.root),
            (Up, tree.up),
            (Left, tree.left),
            (Right, tree.right),
        ] {
            not_null(at, "where a number goes")?;
            *at = value;
        }
        Ok(())
    });
}
