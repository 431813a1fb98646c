//! Two-sided messages: one rank sends, another receives.

use std::{
    ffi::{c_int, c_void},
    pin::Pin,
    ptr,
    task::Context,
};

use hydrant::{AnySource, AnyTag, Rank, RawMessage, RawOperation, Source, Status, Tag};

use super::{
    objects::JOBS,
    types::{HYDRANT_ANY_SOURCE, HYDRANT_ANY_TAG, hydrant_job, hydrant_status},
};
use crate::{
    edge::{edge, input, lent, optional, output, room},
    operations::{
        hydrant_operation, keep_work,
        work::{ResultPlace, Work, keep_failure, keep_outcome},
    },
    status::Result,
};

/// Sends bytes to a rank under a tag: a number up to max_tag of hydrant_capabilities. On return the data may be used
/// again, but a short message may not have been received yet. Messages of one rank to another that fit the same receives
/// are received in the order sent.
///
/// Errors: HYDRANT_ERROR_RANK, HYDRANT_ERROR_TAG, HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_PEER_ENDED,
/// HYDRANT_ERROR_JOB_OVER, HYDRANT_ERROR_IN_HANDLER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_send(
    job: *mut hydrant_job,
    rank: u32,
    tag: u64,
    data: *const c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_send", || {
        // SAFETY: 1. and 2. C1 and C2.
        let data: &[u8] = unsafe { input(data.cast(), bytes, "the data")? };
        Ok(JOBS.get(job)?.job.send(Rank(rank), tag, data)?)
    })
}

/// Receives the first message that fits into a buffer of bytes, which may be longer. The source is a rank or
/// HYDRANT_ANY_SOURCE, the tag a number or HYDRANT_ANY_TAG. The status of the message is stored in status, which may be
/// null.
///
/// Errors: as hydrant_send; HYDRANT_ERROR_TOO_LONG for a longer message, which stays for the next receive that fits,
/// HYDRANT_ERROR_OTHERS_ENDED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_receive(
    job: *mut hydrant_job,
    source: u32,
    tag: u64,
    buffer: *mut c_void,
    bytes: usize,
    status: *mut hydrant_status,
) -> c_int {
    edge("hydrant_receive", || {
        // SAFETY: 1. and 2. C1 and C2.
        let room: &mut [u8] = unsafe { output(buffer.cast(), bytes, "the buffer")? };
        let job = JOBS.get(job)?;
        let received = job.job.receive(source_of(source), tag_of(tag), room)?;
        // SAFETY: 1. and 2. C1 and C2.
        if let Some(status) = unsafe { optional(status) } {
            status.write(received.into());
        }
        Ok(())
    })
}

/// Sends one message and receives another. Neither waits for the other.
///
/// Errors: as hydrant_send and hydrant_receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_send_receive(
    job: *mut hydrant_job,
    rank: u32,
    tag: u64,
    data: *const c_void,
    bytes: usize,
    source: u32,
    receive_tag: u64,
    buffer: *mut c_void,
    room: usize,
    status: *mut hydrant_status,
) -> c_int {
    edge("hydrant_send_receive", || {
        super::collectives::apart((data, bytes), (buffer, room))?;
        // SAFETY: 1. and 2. C1 and C2.
        let data: &[u8] = unsafe { input(data.cast(), bytes, "the data")? };
        // SAFETY: 1. and 2. C1 and C2.
        let room: &mut [u8] = unsafe { output(buffer.cast(), room, "the buffer")? };
        let (job, from) = (JOBS.get(job)?, source_of(source));
        let sent = (Rank(rank), tag, data);
        let received = job
            .job
            .send_receive(sent, (from, tag_of(receive_tag), room))?;
        // SAFETY: 1. and 2. C1 and C2.
        if let Some(status) = unsafe { optional(status) } {
            status.write(received.into());
        }
        Ok(())
    })
}

/// Begins to send bytes to a rank under a tag. The data must stay as it is until the operation is complete, which does
/// not say that the message was received.
///
/// Errors: as hydrant_send, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_send_nb(
    job: *mut hydrant_job,
    rank: u32,
    tag: u64,
    data: *const c_void,
    bytes: usize,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_send_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        let data = lent(data, bytes, "the data")?;
        let job = JOBS.get(job)?;
        // SAFETY: 1. and 2. C1 and C2, until the operation is complete.
        let message = unsafe { (job.job).send_raw_nb(Rank(rank), tag, (data, bytes), false)? };
        operation.write(keep_work(job, MessageWork::new(message, ptr::null_mut()))?);
        Ok(())
    })
}

/// Begins to receive the first message that fits into a buffer, as hydrant_receive. The buffer must not be used until the
/// operation is complete. The status is stored then; it may be null.
///
/// Errors: as hydrant_receive, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_receive_nb(
    job: *mut hydrant_job,
    source: u32,
    tag: u64,
    buffer: *mut c_void,
    bytes: usize,
    status: *mut hydrant_status,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_receive_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        let buffer = lent(buffer, bytes, "the buffer")?.cast_mut();
        let job = JOBS.get(job)?;
        let (source, tag) = (source_of(source), tag_of(tag));
        // SAFETY: 1. and 2. C1 and C2, until the operation is complete.
        let message = unsafe { job.job.receive_raw_nb(source, tag, (buffer, bytes))? };
        operation.write(keep_work(job, MessageWork::new(message, status))?);
        Ok(())
    })
}

/// Waits for a message that fits, and stores its status. The message stays. Another thread may receive it first.
///
/// Errors: as hydrant_receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_probe(
    job: *mut hydrant_job,
    source: u32,
    tag: u64,
    status: *mut hydrant_status,
) -> c_int {
    edge("hydrant_probe", || {
        // SAFETY: 1. and 2. C1 and C2.
        let status = unsafe { room(status, "the place of the status")? };
        let found = (JOBS.get(job)?.job).probe(source_of(source), tag_of(tag))?;
        status.write(found.into());
        Ok(())
    })
}

/// Stores in found whether a message that fits has arrived, and if so its status. It does not wait.
///
/// Errors: as hydrant_receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_try_probe(
    job: *mut hydrant_job,
    source: u32,
    tag: u64,
    found: *mut bool,
    status: *mut hydrant_status,
) -> c_int {
    edge("hydrant_try_probe", || {
        // SAFETY: 1. and 2. C1 and C2.
        let found = unsafe { room(found, "the place of the answer")? };
        // SAFETY: 1. and 2. C1 and C2.
        let status = unsafe { optional(status) };
        let arrived = (JOBS.get(job)?.job).try_probe(source_of(source), tag_of(tag))?;
        found.write(arrived.is_some());
        if let (Some(arrived), Some(status)) = (arrived, status) {
            status.write(arrived.into());
        }
        Ok(())
    })
}

/// A send or a receive in flight.
struct MessageWork {
    message: RawMessage,
    outcome: Option<hydrant::Result<Status>>,
    status: ResultPlace<hydrant_status>,
}

impl MessageWork {
    fn new(message: RawMessage, status: *mut hydrant_status) -> Box<Self> {
        Box::new(Self {
            message,
            outcome: None,
            status: ResultPlace(status),
        })
    }
}

impl Work for MessageWork {
    fn test(&mut self) -> bool {
        self.outcome.is_some() || keep_failure(&mut self.outcome, self.message.test())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        self.outcome.is_some() || {
            let polled = Pin::new(&mut self.message).poll(context);
            keep_outcome(&mut self.outcome, polled)
        }
    }

    fn wait_local(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let outcome = self.outcome.take();
        let status = outcome.unwrap_or_else(|| self.message.wait())?;
        // SAFETY: 1. C1 and C2, for the status of a receive.
        unsafe { self.status.store(status.into()) };
        Ok(())
    }

    fn detach(self: Box<Self>, _: &mut dyn FnMut(RawOperation)) -> Option<Box<dyn Work>> {
        Some(self)
    }
}

impl From<Status> for hydrant_status {
    fn from(status: Status) -> Self {
        Self {
            tag: status.tag(),
            bytes: status.bytes(),
            source: status.source().0,
        }
    }
}

fn source_of(source: u32) -> Source {
    match source {
        HYDRANT_ANY_SOURCE => AnySource.into(),
        rank => Rank(rank).into(),
    }
}

fn tag_of(tag: u64) -> Tag {
    match tag {
        HYDRANT_ANY_TAG => AnyTag.into(),
        tag => tag.into(),
    }
}
