//! Active messages: requests that run a handler on another rank, and their replies.

use std::{
    cell::Cell,
    ffi::{c_int, c_void},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use hydrant::{HandlerContext, Rank};

use super::{
    objects::{JOBS, JobObject, with_memory},
    types::{hydrant_job, hydrant_memory, hydrant_message},
};
use crate::{
    edge::{edge, input, not_null, room},
    status::{CallFailure, HYDRANT_ERROR_HANDLE, Result},
};

/// A handler of requests and replies. It gets user as it was registered, the message, the arguments and the payload,
/// which may be used until it returns. It may reply once to a request, send requests, access memory that is mapped, and
/// begin operations; it may not wait. Each rank runs one handler at a time, in any of its threads. It returns by itself:
/// no exception or longjmp may leave it.
pub type hydrant_handler_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        message: *mut hydrant_message,
        arguments: *const u64,
        argument_count: usize,
        payload: *const c_void,
        bytes: usize,
    ),
>;

/// The first argument of a handler of C.
struct User(*mut c_void);

// SAFETY: C allows any thread to call the handler (C3).
unsafe impl Send for User {}
// SAFETY: as for `Send`; a rank runs one handler at a time.
unsafe impl Sync for User {}

impl User {
    /// A method, so that a closure takes the whole.
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// The message that this thread handles.
#[derive(Clone, Copy)]
struct Current {
    /// The handle that C has.
    handle: usize,
    context: *mut HandlerContext<'static>,
    job: *const JobObject,
}

thread_local! {
    static CURRENT: Cell<Option<Current>> = const { Cell::new(None) };
}

/// Ends the handling of a message.
struct Handling(Option<Current>);

impl Drop for Handling {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Registers a handler, and stores its number, which is the same on every rank: they count from 0. A peer may send to the
/// handler before this returns here. Every rank registers the same handlers in
/// the same order. When this returns, every rank has the handler. Collective.
///
/// Errors: HYDRANT_ERROR_HANDLER if there are too many, HYDRANT_ERROR_MISMATCH, HYDRANT_ERROR_PEER_LOST,
/// HYDRANT_ERROR_NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_register_handler(
    job: *mut hydrant_job,
    function: hydrant_handler_fn,
    user: *mut c_void,
    handler: *mut u32,
) -> c_int {
    edge("hydrant_register_handler", || {
        // SAFETY: 1. and 2. C1 and C2.
        let handler = unsafe { room(handler, "the place of the handler's number")? };
        let Some(function) = function else {
            return not_null(std::ptr::null::<u8>(), "the function");
        };
        let job = JOBS.get(job)?;
        let (here, user) = (Arc::downgrade(&job), User(user));
        let made = job.job.handler(move |context, arguments, payload| {
            handle(&here, context, |message| {
                let (user, count) = (user.pointer(), arguments.len());
                let (arguments, bytes) = (arguments.as_ptr(), payload.len());
                // SAFETY: C3.
                unsafe {
                    function(
                        user,
                        message,
                        arguments,
                        count,
                        payload.as_ptr().cast(),
                        bytes,
                    );
                }
            });
        })?;
        handler.write(made.number().into());
        Ok(())
    })
}

/// Runs a handler of C with the handle of its message.
fn handle(
    job: &Weak<JobObject>,
    context: &mut HandlerContext<'_>,
    act: impl FnOnce(*mut hydrant_message),
) {
    static MADE: AtomicU64 = AtomicU64::new(0);
    // The job's last handle is dropped only after its end.
    let Some(job) = job.upgrade() else { return };
    // As in `table.rs`: the kind, a number, and low bits that are 0.
    let bits = (MADE.fetch_add(1, Relaxed) << 6 | 8) << 28;
    let current = Current {
        handle: bits as usize,
        context: std::ptr::from_mut(context).cast(),
        job: &raw const *job,
    };
    let _handling = Handling(CURRENT.replace(Some(current)));
    act(std::ptr::without_provenance_mut(bits as usize));
}

/// Runs `act` with the message of a handle.
fn with_message<R>(
    message: *const hydrant_message,
    act: impl FnOnce(&mut HandlerContext<'_>, &JobObject) -> Result<R>,
) -> Result<R> {
    not_null(message, "the message")?;
    let current = CURRENT.get().filter(|it| it.handle == message.addr());
    let current = current.ok_or_else(|| {
        let text = "a message is valid in its handler alone, in its thread";
        CallFailure::new(HYDRANT_ERROR_HANDLE, text)
    })?;
    // SAFETY: the handler of this message runs in this thread, below `handle`, which keeps the job.
    let job = unsafe { &*current.job };
    // SAFETY: as above. `handle` has lent the context, and no call of `act` is within another.
    let context = unsafe { &mut *current.context };
    act(context, job)
}

/// Stores the rank that sent a message.
///
/// Errors: HYDRANT_ERROR_HANDLE outside the message's handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_message_source(
    message: *const hydrant_message,
    rank: *mut u32,
) -> c_int {
    edge("hydrant_message_source", || {
        // SAFETY: 1. and 2. C1 and C2.
        let rank = unsafe { room(rank, "the place of the rank")? };
        with_message(message, |context, _| {
            rank.write(context.source().0);
            Ok(())
        })
    })
}

/// Replies to a request: runs a handler on its sender. The arguments and the payload are copied before this returns. For
/// handlers alone.
///
/// Errors: HYDRANT_ERROR_REPLY after a reply or in the handler of one, HYDRANT_ERROR_HANDLER, HYDRANT_ERROR_TOO_LONG,
/// HYDRANT_ERROR_HANDLE outside the message's handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_reply(
    message: *mut hydrant_message,
    handler: u32,
    arguments: *const u64,
    argument_count: usize,
    payload: *const c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_reply", || {
        // SAFETY: 1. and 2. C1 and C2.
        let arguments = unsafe { input(arguments, argument_count, "the list of arguments")? };
        // SAFETY: 1. and 2. C1 and C2.
        let payload = unsafe { input(payload.cast(), bytes, "the payload")? };
        with_message(message, |context, job| {
            let handler = job.handler(handler)?;
            Ok(context.reply_medium(handler, arguments, payload)?)
        })
    })
}

/// Runs a handler on a rank with arguments and a payload, which may be null if it has no bytes. Both are copied before
/// this returns, and the message is in flight then. Requests from one rank to another are handled in the order sent.
///
/// Errors: HYDRANT_ERROR_RANK, HYDRANT_ERROR_HANDLER, HYDRANT_ERROR_TOO_LONG, HYDRANT_ERROR_PEER_LOST,
/// HYDRANT_ERROR_JOB_OVER; in a handler HYDRANT_ERROR_BACKLOG.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_request(
    job: *mut hydrant_job,
    rank: u32,
    handler: u32,
    arguments: *const u64,
    argument_count: usize,
    payload: *const c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_request", || {
        // SAFETY: 1. and 2. C1 and C2.
        let arguments = unsafe { input(arguments, argument_count, "the list of arguments")? };
        // SAFETY: 1. and 2. C1 and C2.
        let payload = unsafe { input(payload.cast(), bytes, "the payload")? };
        let job = JOBS.get(job)?;
        let handler = job.handler(handler)?;
        Ok(job
            .job
            .request_medium(Rank(rank), handler, arguments, payload)?)
    })
}

/// Puts bytes into the part of a rank, then runs a handler there. The offset and the number of bytes follow its
/// arguments.
///
/// Errors: as hydrant_request and hydrant_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_request_long(
    memory: *mut hydrant_memory,
    rank: u32,
    handler: u32,
    arguments: *const u64,
    argument_count: usize,
    offset: usize,
    source: *const c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_request_long", || {
        // SAFETY: 1. and 2. C1 and C2.
        let arguments = unsafe { input(arguments, argument_count, "the list of arguments")? };
        // SAFETY: 1. and 2. C1 and C2.
        let data = unsafe { input(source.cast(), bytes, "the source")? };
        with_memory(memory, |it| {
            let (job, handler) = (&it.job.job, it.job.handler(handler)?);
            Ok(job.request_long(Rank(rank), handler, arguments, &it.bytes, offset, data)?)
        })
    })
}

/// Waits until every request that this rank has sent so far was handled, those of its handlers included, and until their
/// replies were handled.
///
/// Errors: the first failure that a rank has reported since the last call, such as HYDRANT_ERROR_HANDLER;
/// HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_IN_HANDLER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_request_quiet(job: *mut hydrant_job) -> c_int {
    edge("hydrant_request_quiet", || {
        Ok(JOBS.get(job)?.job.am_quiet()?)
    })
}
