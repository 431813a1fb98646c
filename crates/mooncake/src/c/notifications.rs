//! Messages of engines to each other.

#![allow(unsafe_code)] // names and pointers of C

use std::{
    ffi::{c_char, c_int},
    ptr::null_mut,
};

use super::transfers::parts_of;
use crate::{
    edge::{edge, edge_or, not_null},
    engine::TransferEngine,
    failure::{EngineFailure, MEMORY, METADATA},
    segments::Freshness,
    types::{notify_msg, transfer_engine_t},
};

/// Takes all messages that have come, and stores their number. Returns an array for freeNotifsMsgBuf, or null if there
/// are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getNotifsFromEngine(
    engine: transfer_engine_t,
    size: *mut c_int,
) -> *mut notify_msg {
    edge_or("getNotifsFromEngine", null_mut(), || {
        not_null(size, "the place of the number")?;
        // SAFETY: C1 and C2, and it is neither null nor misaligned.
        unsafe { size.write(0) };
        let all = TransferEngine::get(engine)?.core.notifications.take();
        if all.is_empty() {
            return Ok(null_mut());
        }
        // SAFETY: a number of bytes above 0.
        let array = unsafe { libc::calloc(all.len(), size_of::<notify_msg>()) };
        let array = array.cast::<notify_msg>();
        if array.is_null() {
            let text = format!("there is no memory for {} notifications", all.len());
            return Err(EngineFailure::new(MEMORY, text));
        }
        // SAFETY: the new memory has so many places, of which all bytes are 0.
        let places = unsafe { std::slice::from_raw_parts_mut(array, all.len()) };
        for (place, notification) in places.iter_mut().zip(&all) {
            *place = notify_msg {
                name: copy(&notification.name),
                msg: copy(&notification.text),
            };
        }
        // SAFETY: C1 and C2, as above. There are at most 65,536.
        unsafe { size.write(all.len() as c_int) };
        Ok(array)
    })
}

/// Copies a text for C. Returns null if there is no memory.
fn copy(text: &[u8]) -> *mut c_char {
    // SAFETY: a number of bytes above 0.
    let to = unsafe { libc::calloc(text.len() + 1, 1) }.cast::<c_char>();
    if !to.is_null() {
        // SAFETY: the new memory has one byte more than the text.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len()) };
    }
    to
}

/// Frees what getNotifsFromEngine returned, with the number that it stored. Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freeNotifsMsgBuf(msg: *mut notify_msg, size: c_int) -> c_int {
    edge("freeNotifsMsgBuf", || {
        if msg.is_null() {
            return Ok(0);
        }
        not_null(msg, "the array")?;
        let size =
            usize::try_from(size).map_err(|_| EngineFailure::argument("the number is negative"))?;
        // SAFETY: C4.
        let notifications = unsafe { std::slice::from_raw_parts(msg, size) };
        for notification in notifications {
            for text in [notification.name, notification.msg] {
                // SAFETY: C4: memory of `calloc`, or null.
                unsafe { libc::free(text.cast()) };
            }
        }
        // SAFETY: C4.
        unsafe { libc::free(msg.cast()) };
        Ok(0)
    })
}

/// Sends a message to the engine of a segment. When this returns 0, that engine has it.
///
/// Returns -1 for a message that cannot be sent. It is -200 if there is no such segment, or the engine has too many
/// messages. Other negative numbers say that the engine is not reached within 3 seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genNotifyInEngine(
    engine: transfer_engine_t,
    target_id: u64,
    notify_msg: notify_msg,
) -> c_int {
    edge("genNotifyInEngine", || {
        let engine = TransferEngine::get(engine)?;
        // SAFETY: 1. C1 and C2.
        let (name, text) = unsafe { parts_of(&notify_msg)? };
        let segment = i64::try_from(target_id)
            .ok()
            .and_then(|number| engine.segments.get(number));
        let segment = segment.ok_or_else(|| {
            let text =
                format!("there is no segment {target_id}: it was not opened, or is forgotten");
            EngineFailure::new(METADATA, text)
        })?;
        let link = segment.link(&engine.core, Freshness::Cached)?;
        link.notify(&engine.core, name, text)?;
        Ok(0)
    })
}
