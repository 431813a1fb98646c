//! Batches of transfers. These functions return positive numbers if they fail.

#![allow(unsafe_code)] // names and pointers of C

use std::ffi::{c_char, c_int};

use crate::{
    batches::TaskState,
    edge::{batch_edge, edge_or, input, not_null, text, write_text},
    engine::TransferEngine,
    failure::{EngineFailure, NO_TRANSPORT, Result},
    transfer::{self, TaskOpcode, TransferTask},
    types::{
        INVALID_BATCH, OPCODE_READ, OPCODE_WRITE, STATUS_COMPLETED, STATUS_FAILED, STATUS_WAITING,
        batch_id_t, notify_msg, transfer_engine_t, transfer_request, transfer_status,
    },
    wire::MAX_NOTIFICATION,
};

/// Allocates a batch for at most `batch_size` tasks, over its whole life. Returns INVALID_BATCH without an engine.
#[unsafe(no_mangle)]
pub extern "C" fn allocateBatchID(engine: transfer_engine_t, batch_size: usize) -> batch_id_t {
    edge_or("allocateBatchID", INVALID_BATCH, || {
        Ok(TransferEngine::get(engine)?.add_batch(batch_size))
    })
}

/// Adds `count` tasks to a batch, numbered on from those it has, and begins to transfer them. A short transfer is over
/// when this returns. The first use of a peer's memory asks the peer, for at most 3 seconds.
///
/// Each task ends as STATUS_COMPLETED or STATUS_FAILED, without a call for it. If one fails, those of the same call that
/// are not done fail, too. Nothing of these lands any more when getTransferStatus says so.
///
/// Returns 0, or a number above it, with nothing added. It is 1 for arguments that cannot be used, such as a segment
/// that was not opened. It is 2 if there are too many tasks for the batch, and 8 if no transport is installed. A peer
/// that is not reached fails the tasks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn submitTransfer(
    engine: transfer_engine_t,
    batch_id: batch_id_t,
    entries: *mut transfer_request,
    count: usize,
) -> c_int {
    batch_edge("submitTransfer", || {
        // SAFETY: 1. C1 and C2.
        unsafe { submit(engine, batch_id, (entries, count), None) }
    })
}

/// As submitTransfer, and sends a message to the target of the first task once all tasks of the batch are there. Nobody
/// has to wait or poll for that. If a task fails, no message is sent. If the message cannot be sent, the tasks fail.
/// `count` is at least 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn submitTransferWithNotify(
    engine: transfer_engine_t,
    batch_id: batch_id_t,
    entries: *mut transfer_request,
    count: usize,
    notify_msg: notify_msg,
) -> c_int {
    batch_edge("submitTransferWithNotify", || {
        if count == 0 {
            let text = "a notification needs a task, whose target gets it";
            return Err(EngineFailure::argument(text));
        }
        // SAFETY: 1. C1 and C2.
        unsafe { submit(engine, batch_id, (entries, count), Some(notify_msg)) }
    })
}

/// # Safety
/// 1. The caller fulfils C1 and C2.
unsafe fn submit(
    engine: transfer_engine_t,
    batch: batch_id_t,
    (entries, count): (*mut transfer_request, usize),
    notification: Option<notify_msg>,
) -> Result<c_int> {
    let engine = TransferEngine::get(engine)?;
    let batch = engine.batch(batch)?;
    // SAFETY: 1. and 2. C1 and C2.
    let entries = unsafe { input(entries.cast_const(), count, "the list of tasks")? };
    // SAFETY: 1. C1 and C2.
    let notification = notification.map(|it| unsafe { parts_of(&it) });
    let notification = notification.transpose()?;
    if !engine.has_transport() {
        let text =
            "the engine has no transport: call installTransport, or create it with auto_discover";
        return Err(EngineFailure::new(NO_TRANSPORT, text));
    }
    let tasks = entries.iter().enumerate().map(|(index, entry)| {
        task(&engine, entry).map_err(|what| {
            let text = format!("entry {index} of the list: {what}");
            EngineFailure::argument(text)
        })
    });
    let tasks = tasks.collect::<Result<Vec<_>>>()?;
    let added = batch.add(tasks.iter().map(|task| task.len).collect())?;
    if tasks.is_empty() {
        return Ok(0);
    }
    // A message comes after all data of the batch.
    let notification = notification.filter(|_| added.wait_for_others());
    // SAFETY: 1. C2: the memory of a task stays as it is until the task has ended, and freed engines wait for that.
    match unsafe { transfer::begin(&engine.core, &tasks, notification) } {
        Ok(transfer) => added.begin(transfer),
        Err((culprit, text)) => added.fail(culprit, text),
    }
    Ok(0)
}

/// Checks a task.
fn task(engine: &TransferEngine, entry: &transfer_request) -> Result<TransferTask, String> {
    let opcode = match entry.opcode {
        OPCODE_READ => TaskOpcode::Read,
        OPCODE_WRITE => TaskOpcode::Write,
        other => return Err(format!("there is no opcode {other}")),
    };
    let source = entry.source.cast::<u8>();
    let has_end = usize::try_from(entry.length)
        .is_ok_and(|len| source.addr().checked_add(len).is_some() && len <= isize::MAX as usize);
    if !has_end || (source.is_null() && entry.length > 0) {
        let (len, at) = (entry.length, source.addr());
        return Err(format!("there are no {len} bytes at {at:#x}"));
    }
    let target = engine.segments.get(entry.target_id.into()).ok_or_else(|| {
        let number = entry.target_id;
        format!("there is no segment {number}: it was not opened, or is forgotten")
    })?;
    Ok(TransferTask {
        opcode,
        source,
        target,
        addr: entry.target_offset,
        len: entry.length,
    })
}

/// Returns the name and the text of a notification.
///
/// # Safety
/// 1. Its strings are null, or strings of C, which nobody changes while the result lives.
pub(super) unsafe fn parts_of<'a>(notification: &notify_msg) -> Result<(&'a [u8], &'a [u8])> {
    // SAFETY: 1. the caller's condition.
    let name = unsafe { text(notification.name, "the name of the notification")? }.to_bytes();
    // SAFETY: 1. the caller's condition.
    let message = unsafe { text(notification.msg, "the text of the notification")? }.to_bytes();
    let bytes = name.len() + message.len();
    if bytes > MAX_NOTIFICATION {
        let text =
            format!("a notification of {bytes} bytes is above the limit of {MAX_NOTIFICATION}");
        return Err(EngineFailure::argument(text));
    }
    Ok((name, message))
}

/// Stores the state of a task: STATUS_WAITING, STATUS_COMPLETED or STATUS_FAILED. Returns 0; 1 if there is no such task.
/// While its data waits for a thread, the call copies up to 1 MiB of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getTransferStatus(
    engine: transfer_engine_t,
    batch_id: batch_id_t,
    task_id: usize,
    status: *mut transfer_status,
) -> c_int {
    batch_edge("getTransferStatus", || {
        let state = TransferEngine::get(engine)?
            .batch(batch_id)?
            .state(task_id)?;
        not_null(status, "the place of the status")?;
        let (number, transferred_bytes) = match state {
            TaskState::Waiting => (STATUS_WAITING, 0),
            TaskState::Completed(bytes) => (STATUS_COMPLETED, bytes),
            TaskState::Failed => (STATUS_FAILED, 0),
        };
        let found = transfer_status {
            status: number,
            transferred_bytes,
        };
        // SAFETY: C1 and C2, and it is neither null nor misaligned.
        unsafe { status.write(found) };
        Ok(0)
    })
}

/// Writes the reason why a task failed, cut to `buf_len` bytes with the 0 at its end; an empty text if it did not. Returns
/// 0; 1 if there is no such task, or no room. Only Hydrant's library has this function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_transfer_engine_task_error(
    engine: transfer_engine_t,
    batch_id: batch_id_t,
    task_id: usize,
    buf_out: *mut c_char,
    buf_len: usize,
) -> c_int {
    batch_edge("hydrant_transfer_engine_task_error", || {
        let reason = TransferEngine::get(engine)?
            .batch(batch_id)?
            .reason(task_id)?;
        // SAFETY: 1. C1 and C2.
        unsafe { write_text(&reason.unwrap_or_default(), buf_out, buf_len)? };
        Ok(0)
    })
}

/// Frees a batch. Returns 0; 4 if a task has not ended: the batch stays then.
#[unsafe(no_mangle)]
pub extern "C" fn freeBatchID(engine: transfer_engine_t, batch_id: batch_id_t) -> c_int {
    batch_edge("freeBatchID", || {
        TransferEngine::get(engine)?.free_batch(batch_id)?;
        Ok(0)
    })
}
