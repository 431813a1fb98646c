//! The end of engines by a signal: `enableGracefulShutdown`.
//!
//! The handler only writes the signal's number to a pipe. A thread reads it, destroys the engines, and raises the
//! signal again with the handler that was there before.

#![allow(unsafe_code)] // signals

use std::{
    ffi::{c_int, c_void},
    io::{self, Read},
    mem::MaybeUninit,
    os::{
        fd::{IntoRawFd, RawFd},
        unix::net::UnixStream,
    },
    process,
    sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst},
    thread,
};

use parking_lot::Mutex;

use crate::{
    engine::TransferEngine,
    failure::{EngineFailure, Result, SOCKET},
};

/// The signals that end engines.
const SIGNALS: [c_int; 2] = [libc::SIGTERM, libc::SIGINT];

/// The pipe's end for the handler.
static TO_THREAD: AtomicI32 = AtomicI32::new(-1);
/// The process of the thread.
static PROCESS: AtomicU32 = AtomicU32::new(0);

static STATE: Mutex<ShutdownState> = Mutex::new(ShutdownState {
    engines: Vec::new(),
    before: None,
});

struct ShutdownState {
    /// The numbers of the engines.
    engines: Vec<usize>,
    /// The handlers that were there before.
    before: Option<[libc::sigaction; 2]>,
}

/// Has an engine destroyed by SIGTERM and SIGINT.
///
/// # Errors
/// The sentence.
pub(crate) fn enable(engine: *mut c_void) -> Result<()> {
    let mut state = STATE.lock();
    if !state.engines.contains(&engine.addr()) {
        state.engines.push(engine.addr());
    }
    if state.before.is_some() {
        return Ok(());
    }
    let failed = |cause: io::Error| {
        let text = format!("signals cannot be taken: {cause}");
        EngineFailure::new(SOCKET, text)
    };
    let (from_handler, to_thread) = UnixStream::pair().map_err(failed)?;
    to_thread.set_nonblocking(true).map_err(failed)?;
    thread::Builder::new()
        .name("hydrant-signals".to_owned())
        .spawn(move || wait(from_handler))
        .map_err(failed)?;
    PROCESS.store(process::id(), SeqCst);
    TO_THREAD.store(to_thread.into_raw_fd(), SeqCst);
    let mut before = [default_action(); 2];
    for (signal, before) in SIGNALS.into_iter().zip(&mut before) {
        let mut action = default_action();
        let handler: extern "C" fn(c_int) = handle;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: both structures are valid, and the handler calls only functions that handlers may call.
        if unsafe { libc::sigaction(signal, &action, before) } != 0 {
            return Err(failed(io::Error::last_os_error()));
        }
    }
    state.before = Some(before);
    Ok(())
}

/// Returns the action of a signal that nobody handles.
fn default_action() -> libc::sigaction {
    // SAFETY: all bytes 0 are an action: SIG_DFL, with no flags and no signals blocked.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

extern "C" fn handle(signal: c_int) {
    if own_process() as u32 != PROCESS.load(SeqCst) {
        // A child that was forked has no thread, and must not end its parent's engines.
        return raise_with(signal, &default_action());
    }
    // SAFETY: each thread has its own.
    let errno_place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let errno = unsafe { *errno_place };
    let number = signal as u8;
    let pipe: RawFd = TO_THREAD.load(SeqCst);
    // SAFETY: a handler may write, and the byte is valid.
    let _ = unsafe { libc::write(pipe, (&raw const number).cast(), 1) };
    // SAFETY: as above.
    unsafe { *errno_place = errno };
}

/// Raises a signal with another action. A handler may do so.
fn raise_with(signal: c_int, action: &libc::sigaction) {
    // SAFETY: the action is valid: it was the kernel's before, or is the default.
    unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) };
    // SAFETY: a process may signal itself.
    unsafe { libc::kill(own_process(), signal) };
}

/// Returns the number of this process, also in a handler.
fn own_process() -> libc::pid_t {
    // SAFETY: it has no conditions.
    unsafe { libc::getpid() }
}

fn wait(mut from_handler: UnixStream) {
    let mut number = [0];
    if from_handler.read_exact(&mut number).is_err() {
        return;
    }
    let (engines, before) = {
        let mut state = STATE.lock();
        (std::mem::take(&mut state.engines), state.before)
    };
    for number in engines {
        // The program may have destroyed it before.
        let _ = TransferEngine::destroy(std::ptr::without_provenance_mut(number));
    }
    let signal = c_int::from(number[0]);
    let place = SIGNALS.iter().position(|other| *other == signal);
    if let (Some(place), Some(before)) = (place, before) {
        raise_with(signal, &before[place]);
    }
}
