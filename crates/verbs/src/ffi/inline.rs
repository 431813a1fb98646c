//! The functions that the header defines inline: calls through the provider's table.

use std::{
    ffi::{c_int, c_uint},
    mem::{offset_of, size_of},
    ptr,
};

use super::{
    IBV_WC_WITH_IMM, Libibverbs, ibv_context, ibv_cq, ibv_device_attr_ex, ibv_port_attr, ibv_qp,
    ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc, verbs_context,
};

/// The result where the provider lacks the function.
const MISSING: c_int = libc::EOPNOTSUPP;

/// Posts work to a send queue.
///
/// # Safety
/// 1. The queue pair exists.
/// 2. The list, and the memory that it names, meet the conditions of `ibv_post_send(3)`.
#[inline]
pub(crate) unsafe fn ibv_post_send(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: &mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's condition 1: an existing queue pair has a context.
    let context = unsafe { (*qp).context };
    // SAFETY: the context of an existing queue pair has its provider's table.
    match unsafe { (*context).ops.post_send } {
        // SAFETY: the caller's conditions 1 and 2.
        Some(post) => unsafe { post(qp, list, bad) },
        None => MISSING,
    }
}

/// Posts buffers to a shared receive queue.
///
/// # Safety
/// 1. The shared receive queue exists.
/// 2. The list, and the memory that it names, meet the conditions of `ibv_post_srq_recv(3)`.
#[inline]
pub(crate) unsafe fn ibv_post_srq_recv(
    srq: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's condition 1: an existing queue has a context.
    let context = unsafe { (*srq).context };
    // SAFETY: the context of an existing queue has its provider's table.
    match unsafe { (*context).ops.post_srq_recv } {
        // SAFETY: the caller's conditions 1 and 2.
        Some(post) => unsafe { post(srq, list, bad) },
        None => MISSING,
    }
}

/// Posts buffers to the receive queue of a queue pair.
///
/// # Safety
/// 1. The queue pair exists.
/// 2. The list, and the memory that it names, meet the conditions of `ibv_post_recv(3)`.
#[inline]
pub(crate) unsafe fn ibv_post_recv(
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's condition 1: an existing queue pair has a context.
    let context = unsafe { (*qp).context };
    // SAFETY: the context of an existing queue pair has its provider's table.
    match unsafe { (*context).ops.post_recv } {
        // SAFETY: the caller's conditions 1 and 2.
        Some(post) => unsafe { post(qp, list, bad) },
        None => MISSING,
    }
}

impl ibv_wc {
    /// The immediate data of a received message; all ones if it had none.
    #[inline]
    pub(crate) fn immediate(&self) -> u32 {
        if self.wc_flags & IBV_WC_WITH_IMM == 0 {
            return u32::MAX;
        }
        // SAFETY: any bits are valid for this integer field of the union.
        u32::from_be(unsafe { self.__bindgen_anon_1.imm_data })
    }
}

/// Takes completions out of a queue. Returns how many, or a negative error number.
///
/// # Safety
/// 1. The queue exists.
#[inline]
pub(crate) unsafe fn ibv_poll_cq(cq: *mut ibv_cq, into: &mut [ibv_wc]) -> c_int {
    let most = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
    // SAFETY: the queue exists, by the caller's condition 1, and so has a context.
    let context = unsafe { (*cq).context };
    // SAFETY: the context of an existing queue has its provider's table.
    match unsafe { (*context).ops.poll_cq } {
        // SAFETY: the queue exists, by the caller's condition 1. `into` has room for `most` completions.
        Some(poll) => unsafe { poll(cq, most, into.as_mut_ptr()) },
        None => -MISSING,
    }
}

/// Arms a queue: its channel receives an event for the next completion.
///
/// # Safety
/// 1. The queue exists.
#[inline]
pub(crate) unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the queue exists, by the caller's condition 1, and so has a context.
    let context = unsafe { (*cq).context };
    // SAFETY: the context of an existing queue has its provider's table.
    match unsafe { (*context).ops.req_notify_cq } {
        // SAFETY: the queue exists, by the caller's condition 1.
        Some(arm) => unsafe { arm(cq, solicited_only) },
        None => MISSING,
    }
}

/// Returns the extended context around a context, if the library has one that includes the field at
/// this offset.
///
/// # Safety
/// 1. The context is open.
unsafe fn extended(context: *mut ibv_context, field: usize) -> Option<*mut verbs_context> {
    // SAFETY: the context is open, by the caller's condition 1.
    let marked = unsafe { (*context).abi_compat };
    // `__VERBS_ABI_IS_EXTENDED` is the pointer of all ones.
    if marked.addr() != usize::MAX {
        return None;
    }
    let around: *mut verbs_context = context
        .wrapping_byte_sub(offset_of!(verbs_context, context))
        .cast();
    // SAFETY: a context with this mark is the last field of an extended one, whose `sz` gives its
    // size towards the front.
    let reach = unsafe { (*around).sz };
    (reach >= size_of::<verbs_context>() - field).then_some(around)
}

/// Queries the attributes of a port.
///
/// The symbol `ibv_query_port` fills an older, shorter structure. The extended context fills all of
/// it.
///
/// # Safety
/// 1. The context is open.
pub(crate) unsafe fn query_port(
    lib: &Libibverbs,
    context: *mut ibv_context,
    port: u8,
    into: &mut ibv_port_attr,
) -> c_int {
    // SAFETY: 1. The caller's condition 1.
    let around = unsafe { extended(context, offset_of!(verbs_context, query_port)) };
    // SAFETY: `extended` returned it, and it includes this field.
    if let Some(query) = around.and_then(|around| unsafe { (*around).query_port }) {
        // SAFETY: the context is open, and `into` has the size that is passed.
        return unsafe { query(context, port, into, size_of::<ibv_port_attr>()) };
    }
    // SAFETY: the context is open, and the shorter structure is the beginning of the longer one.
    unsafe { lib.ibv_query_port(context, port, ptr::from_mut(into).cast()) }
}

/// Queries the attributes of a device, including on-demand paging, if its library supports that.
///
/// # Safety
/// 1. The context is open.
pub(crate) unsafe fn query_device_ex(
    context: *mut ibv_context,
    into: &mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: 1. The caller's condition 1.
    let around = unsafe { extended(context, offset_of!(verbs_context, query_device_ex)) };
    // SAFETY: `extended` returned it, and it includes this field.
    match around.and_then(|around| unsafe { (*around).query_device_ex }) {
        // SAFETY: the context is open, and `into` has the size that is passed. The input may be null.
        Some(query) => unsafe {
            query(context, ptr::null(), into, size_of::<ibv_device_attr_ex>())
        },
        None => MISSING,
    }
}

/// Converts a mask to the type that the functions take.
pub(crate) fn mask(bits: c_uint) -> c_int {
    bits as c_int
}
