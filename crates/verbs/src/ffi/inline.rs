//! What the header defines inline: calls through the provider's table of functions.

use std::{
    ffi::{c_int, c_uint},
    mem::{offset_of, size_of},
    ptr,
};

use super::{
    IBV_WC_WITH_IMM, Libibverbs, ibv_context, ibv_cq, ibv_device_attr_ex, ibv_port_attr, ibv_qp,
    ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc, verbs_context,
};

/// What a provider without the function answers.
const MISSING: c_int = libc::EOPNOTSUPP;

/// Posts work to a send queue.
///
/// # Safety
/// 1. The queue pair exists.
/// 2. The list and what it names are as `ibv_post_send(3)` wants them.
#[inline]
pub(crate) unsafe fn ibv_post_send(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: &mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: 1. an existing queue pair has a context with its provider's table.
    match unsafe { (*(*qp).context).ops.post_send } {
        // SAFETY: 1., 2.
        Some(post) => unsafe { post(qp, list, bad) },
        None => MISSING,
    }
}

/// Posts buffers to a shared receive queue.
///
/// # Safety
/// As [`ibv_post_send`], for `ibv_post_srq_recv(3)`.
#[inline]
pub(crate) unsafe fn ibv_post_srq_recv(
    srq: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: an existing queue has a context with its provider's table.
    match unsafe { (*(*srq).context).ops.post_srq_recv } {
        // SAFETY: handed on.
        Some(post) => unsafe { post(srq, list, bad) },
        None => MISSING,
    }
}

/// Posts buffers to the receive queue of a queue pair.
///
/// # Safety
/// As [`ibv_post_send`], for `ibv_post_recv(3)`.
#[inline]
pub(crate) unsafe fn ibv_post_recv(
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: an existing queue pair has a context with its provider's table.
    match unsafe { (*(*qp).context).ops.post_recv } {
        // SAFETY: handed on.
        Some(post) => unsafe { post(qp, list, bad) },
        None => MISSING,
    }
}

impl ibv_wc {
    /// The immediate data of what was received; all ones where it brought none.
    #[inline]
    pub(crate) fn immediate(&self) -> u32 {
        if self.wc_flags & IBV_WC_WITH_IMM == 0 {
            return u32::MAX;
        }
        // SAFETY: a field of the union that any bits are good for.
        u32::from_be(unsafe { self.__bindgen_anon_1.imm_data })
    }
}

/// Takes completions out of a queue: how many, or a negative number.
///
/// # Safety
/// The queue exists.
#[inline]
pub(crate) unsafe fn ibv_poll_cq(cq: *mut ibv_cq, into: &mut [ibv_wc]) -> c_int {
    let most = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
    // SAFETY: an existing queue has a context with its provider's table.
    match unsafe { (*(*cq).context).ops.poll_cq } {
        // SAFETY: there is room for `most`.
        Some(poll) => unsafe { poll(cq, most, into.as_mut_ptr()) },
        None => -MISSING,
    }
}

/// Has the next completion reported on the queue's channel.
///
/// # Safety
/// The queue exists.
#[inline]
pub(crate) unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: an existing queue has a context with its provider's table.
    match unsafe { (*(*cq).context).ops.req_notify_cq } {
        // SAFETY: handed on.
        Some(arm) => unsafe { arm(cq, solicited_only) },
        None => MISSING,
    }
}

/// The extended context around one, if its library has it and it reaches as far as a field.
///
/// # Safety
/// The context is open.
unsafe fn extended(context: *mut ibv_context, field: usize) -> Option<*mut verbs_context> {
    // SAFETY: open, says the caller.
    let marked = unsafe { (*context).abi_compat };
    // `__VERBS_ABI_IS_EXTENDED`: a pointer before the first one.
    if marked.addr() != usize::MAX {
        return None;
    }
    let around: *mut verbs_context = context
        .wrapping_byte_sub(offset_of!(verbs_context, context))
        .cast();
    // SAFETY: so marked, the context is the last field of an extended one, which says how far
    // it reaches to the front.
    let reach = unsafe { (*around).sz };
    (reach >= size_of::<verbs_context>() - field).then_some(around)
}

/// What a port is like.
///
/// The symbol `ibv_query_port` fills the shorter structure of old; the whole one comes from
/// the extended context.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn query_port(
    lib: &Libibverbs,
    context: *mut ibv_context,
    port: u8,
    into: &mut ibv_port_attr,
) -> c_int {
    // SAFETY: open, says the caller.
    let around = unsafe { extended(context, offset_of!(verbs_context, query_port)) };
    // SAFETY: just found.
    if let Some(query) = around.and_then(|around| unsafe { (*around).query_port }) {
        // SAFETY: as long as it says.
        return unsafe { query(context, port, into, size_of::<ibv_port_attr>()) };
    }
    // SAFETY: the shorter structure is the beginning of the longer one.
    unsafe { lib.ibv_query_port(context, port, ptr::from_mut(into).cast()) }
}

/// What a device is like, on-demand paging included, if its library can say.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn query_device_ex(
    context: *mut ibv_context,
    into: &mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: open, says the caller.
    let around = unsafe { extended(context, offset_of!(verbs_context, query_device_ex)) };
    // SAFETY: just found.
    match around.and_then(|around| unsafe { (*around).query_device_ex }) {
        // SAFETY: as long as it says; no input is asked for.
        Some(query) => unsafe {
            query(context, ptr::null(), into, size_of::<ibv_device_attr_ex>())
        },
        None => MISSING,
    }
}

/// A mask as functions take it.
pub(crate) fn mask(bits: c_uint) -> c_int {
    bits as c_int
}
