//! The functions of `message.h` that combine or select elements of several processes.

use std::ffi::{CStr, c_char, c_double, c_float, c_int, c_long, c_longlong, c_void};

use crate::{
    Element, MessageScope, Reduction, Result,
    c::{
        arguments::{bytes, group_at},
        armci::ARMCI_Group,
        process::message_or_die,
    },
    error::{count, not_null},
};

/// The bytes, the reduction and the type of C's elements.
///
/// # Safety
/// 1. and 2. as [`bytes`], for `n` elements.
/// 3. `op` is null or text.
unsafe fn elements<'a>(
    x: *mut c_void,
    n: c_int,
    op: *mut c_char,
    code: c_int,
) -> Result<(&'a mut [u8], Reduction, Element)> {
    let element = Element::of_code(code)?;
    let number = count(n.into(), 0, "the number of elements")?;
    not_null(op, "the name of a reduction")?;
    // SAFETY: `op` is text, by the caller's condition 3.
    let name = unsafe { CStr::from_ptr(op) }.to_bytes();
    let reduction = Reduction::of_name(name, element)?;
    // SAFETY: 1. and 2. The caller's conditions 1 and 2.
    let bytes = unsafe { bytes(x, number * element.bytes()) }?;
    Ok((bytes, reduction, element))
}

/// Combines elements of all processes of a scope, in the name of a function.
///
/// # Safety
/// 1. to 3. as [`elements`].
unsafe fn all_reduce(
    function: &str,
    scope: Result<MessageScope>,
    x: *mut c_void,
    n: c_int,
    op: *mut c_char,
    code: c_int,
) {
    message_or_die(function, |armci| {
        // SAFETY: 1. to 3. The caller's conditions 1 to 3.
        let (bytes, reduction, element) = unsafe { elements(x, n, op, code) }?;
        armci.all_reduce(scope?, bytes, reduction, element)
    });
}

/// As [`all_reduce`], for the members of a group that are in the scope.
///
/// # Safety
/// 1. to 3. as [`elements`].
/// 4. and 5. as 1. and 2. of [`group_at`].
unsafe fn group_all_reduce(
    function: &str,
    (group, scope): (*mut ARMCI_Group, Result<MessageScope>),
    x: *mut c_void,
    n: c_int,
    op: *mut c_char,
    code: c_int,
) {
    message_or_die(function, |armci| {
        // SAFETY: 1. to 3. The caller's conditions 1 to 3.
        let (bytes, reduction, element) = unsafe { elements(x, n, op, code) }?;
        // SAFETY: 1. and 2. The caller's conditions 4 and 5.
        let group = unsafe { group_at(group) }?;
        armci.group_all_reduce(group, scope?, bytes, reduction, element)
    });
}

/// Combines elements of all processes. The first process gets the result. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_reduce(x: *mut c_void, n: c_int, op: *mut c_char, type_: c_int) {
    message_or_die("armci_msg_reduce", |armci| {
        // SAFETY: 1. to 3. C1 to C3.
        let (bytes, reduction, element) = unsafe { elements(x.cast(), n, op, type_) }?;
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
    message_or_die("armci_msg_reduce_scope", |armci| {
        // SAFETY: 1. to 3. C1 to C3.
        let (bytes, reduction, element) = unsafe { elements(x.cast(), n, op, type_) }?;
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
    // SAFETY: 1. to 3. C1 to C3.
    unsafe {
        all_reduce(
            "armci_msg_gop_scope",
            MessageScope::of_code(scope),
            x.cast(),
            n,
            op,
            type_,
        )
    };
}

/// Combines elements of all processes. Each process gets the result. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_igop(x: *mut c_int, n: c_int, op: *mut c_char) {
    // SAFETY: 1. to 3. C1 to C3.
    unsafe {
        all_reduce(
            "armci_msg_igop",
            Ok(MessageScope::All),
            x.cast(),
            n,
            op,
            -99,
        )
    };
}

/// Combines elements of all processes of a node. Each of them gets the result. Collective over the node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_clus_igop(x: *mut c_int, n: c_int, op: *mut c_char) {
    // SAFETY: 1. to 3. C1 to C3.
    unsafe {
        all_reduce(
            "armci_msg_clus_igop",
            Ok(MessageScope::Node),
            x.cast(),
            n,
            op,
            -99,
        )
    };
}

/// Combines elements of all members of a group. Each member gets the result. Collective over the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_igop(
    x: *mut c_int,
    n: c_int,
    op: *mut c_char,
    group: *mut ARMCI_Group,
) {
    let members = (group, Ok(MessageScope::All));
    // SAFETY: 1. to 5. C1 to C3, for the elements and the group.
    unsafe { group_all_reduce("armci_msg_group_igop", members, x.cast(), n, op, -99) };
}

/// Combines elements of all processes. Each process gets the result. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_lgop(x: *mut c_long, n: c_int, op: *mut c_char) {
    // SAFETY: 1. to 3. C1 to C3.
    unsafe {
        all_reduce(
            "armci_msg_lgop",
            Ok(MessageScope::All),
            x.cast(),
            n,
            op,
            -101,
        )
    };
}

/// Combines elements of all processes of a node. Each of them gets the result. Collective over the node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_clus_lgop(x: *mut c_long, n: c_int, op: *mut c_char) {
    // SAFETY: 1. to 3. C1 to C3.
    unsafe {
        all_reduce(
            "armci_msg_clus_lgop",
            Ok(MessageScope::Node),
            x.cast(),
            n,
            op,
            -101,
        )
    };
}

/// Combines elements of all members of a group. Each member gets the result. Collective over the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_lgop(
    x: *mut c_long,
    n: c_int,
    op: *mut c_char,
    group: *mut ARMCI_Group,
) {
    let members = (group, Ok(MessageScope::All));
    // SAFETY: 1. to 5. C1 to C3, for the elements and the group.
    unsafe { group_all_reduce("armci_msg_group_lgop", members, x.cast(), n, op, -101) };
}

/// Combines elements of all processes. Each process gets the result. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_llgop(x: *mut c_longlong, n: c_int, op: *mut c_char) {
    // SAFETY: 1. to 3. C1 to C3.
    unsafe {
        all_reduce(
            "armci_msg_llgop",
            Ok(MessageScope::All),
            x.cast(),
            n,
            op,
            -102,
        )
    };
}

/// Combines elements of all processes of a node. Each of them gets the result. Collective over the node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_clus_llgop(x: *mut c_longlong, n: c_int, op: *mut c_char) {
    // SAFETY: 1. to 3. C1 to C3.
    unsafe {
        all_reduce(
            "armci_msg_clus_llgop",
            Ok(MessageScope::Node),
            x.cast(),
            n,
            op,
            -102,
        )
    };
}

/// Combines elements of all members of a group. Each member gets the result. Collective over the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_llgop(
    x: *mut c_longlong,
    n: c_int,
    op: *mut c_char,
    group: *mut ARMCI_Group,
) {
    let members = (group, Ok(MessageScope::All));
    // SAFETY: 1. to 5. C1 to C3, for the elements and the group.
    unsafe { group_all_reduce("armci_msg_group_llgop", members, x.cast(), n, op, -102) };
}

/// Combines elements of all processes. Each process gets the result. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_fgop(x: *mut c_float, n: c_int, op: *mut c_char) {
    // SAFETY: 1. to 3. C1 to C3.
    unsafe {
        all_reduce(
            "armci_msg_fgop",
            Ok(MessageScope::All),
            x.cast(),
            n,
            op,
            -306,
        )
    };
}

/// Combines elements of all processes of a node. Each of them gets the result. Collective over the node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_clus_fgop(x: *mut c_float, n: c_int, op: *mut c_char) {
    // SAFETY: 1. to 3. C1 to C3.
    unsafe {
        all_reduce(
            "armci_msg_clus_fgop",
            Ok(MessageScope::Node),
            x.cast(),
            n,
            op,
            -306,
        )
    };
}

/// Combines elements of all members of a group. Each member gets the result. Collective over the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_fgop(
    x: *mut c_float,
    n: c_int,
    op: *mut c_char,
    group: *mut ARMCI_Group,
) {
    let members = (group, Ok(MessageScope::All));
    // SAFETY: 1. to 5. C1 to C3, for the elements and the group.
    unsafe { group_all_reduce("armci_msg_group_fgop", members, x.cast(), n, op, -306) };
}

/// Combines elements of all processes. Each process gets the result. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_dgop(x: *mut c_double, n: c_int, op: *mut c_char) {
    // SAFETY: 1. to 3. C1 to C3.
    unsafe {
        all_reduce(
            "armci_msg_dgop",
            Ok(MessageScope::All),
            x.cast(),
            n,
            op,
            -307,
        )
    };
}

/// Combines elements of all processes of a node. Each of them gets the result. Collective over the node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_clus_dgop(x: *mut c_double, n: c_int, op: *mut c_char) {
    // SAFETY: 1. to 3. C1 to C3.
    unsafe {
        all_reduce(
            "armci_msg_clus_dgop",
            Ok(MessageScope::Node),
            x.cast(),
            n,
            op,
            -307,
        )
    };
}

/// Combines elements of all members of a group. Each member gets the result. Collective over the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_dgop(
    x: *mut c_double,
    n: c_int,
    op: *mut c_char,
    group: *mut ARMCI_Group,
) {
    let members = (group, Ok(MessageScope::All));
    // SAFETY: 1. to 5. C1 to C3, for the elements and the group.
    unsafe { group_all_reduce("armci_msg_group_dgop", members, x.cast(), n, op, -307) };
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
    let members = (group, MessageScope::of_code(scope));
    // SAFETY: 1. to 5. C1 to C3, for the elements and the group.
    unsafe { group_all_reduce("armci_msg_group_gop_scope", members, x.cast(), n, op, type_) };
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
    message_or_die("armci_msg_sel_scope", |armci| {
        // SAFETY: 1. to 3. C1 to C3.
        let (_, reduction, element) = unsafe { elements(x, 0, op, type_) }?;
        let len = count(n.into(), 0, "the number of bytes")?;
        let scope = MessageScope::of_code(scope)?;
        // SAFETY: 1. and 2. C1 and C2, for the buffer.
        let bytes = unsafe { bytes(x, len) }?;
        armci.select(scope, bytes, reduction, element, contribute != 0)
    });
}

/// Sums addresses: each process passes its own address and nulls. Each process gets the result.
/// Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_exchange_address(ptr_ar: *mut *mut c_void, n: c_int) {
    message_or_die("armci_exchange_address", |armci| {
        let len = count(n.into(), 0, "the number of addresses")?;
        // SAFETY: 1. and 2. C1 and C2, for the list.
        let bytes = unsafe { bytes(ptr_ar.cast(), len * size_of::<*mut c_void>()) }?;
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
    message_or_die("armci_exchange_address_grp", |armci| {
        let len = count(n.into(), 0, "the number of addresses")?;
        // SAFETY: 1. and 2. C1 and C2, for the list.
        let bytes = unsafe { bytes(ptr_arr.cast(), len * size_of::<*mut c_void>()) }?;
        // SAFETY: 1. and 2. C1 and C2, for the group.
        let group = unsafe { group_at(group) }?;
        armci.group_all_reduce(
            group,
            MessageScope::All,
            bytes,
            Reduction::Sum,
            Element::Long,
        )
    });
}
