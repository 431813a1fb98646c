//! This process's ARMCI, which the functions of C look up themselves.

use std::{
    ffi::{CStr, c_char, c_int},
    io::Write,
    process, ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use hydrant::Job;
use hydrant_conduit::fork;
use parking_lot::Mutex;

use super::{callers::from_caller, communicators, faults};
use crate::{
    Armci, Error, Result,
    mpi::{self, Communicator},
};

/// ARMCI, while it is initialized; null before and after. It is never freed, because another thread
/// may be using it.
static ARMCI: AtomicPtr<Armci> = AtomicPtr::new(ptr::null_mut());

/// The ARMCI that messages use, while messages are initialized. It is the same as [`ARMCI`], which
/// ends earlier.
static MESSAGES: AtomicPtr<Armci> = AtomicPtr::new(ptr::null_mut());

/// In a forked child, the parent's ARMCI. The child has neither of the two above.
static PARENT: AtomicPtr<Armci> = AtomicPtr::new(ptr::null_mut());

/// True while the last job has ended without an error.
static ENDED_WELL: AtomicBool = AtomicBool::new(false);

/// The counts of initialization.
static INITIALIZED: Mutex<InitCounts> = Mutex::new(InitCounts {
    armci: 0,
    is_once: false,
    messages: false,
    limit: None,
});

struct InitCounts {
    /// The calls of `ARMCI_Init` without a call of `ARMCI_Finalize`.
    armci: u32,
    /// True if later calls do not count.
    is_once: bool,
    /// True if `armci_msg_init` was called.
    messages: bool,
    /// The greatest number of bytes that a process may allocate, if it was set.
    limit: Option<usize>,
}

/// ARMCI, if it is initialized.
#[inline]
pub(super) fn armci() -> Result<&'static Armci> {
    // SAFETY: the pointer is null, or leads to an ARMCI that is never freed.
    unsafe { ARMCI.load(Acquire).as_ref() }.ok_or_else(not_initialized)
}

/// The ARMCI that messages use, if messages are initialized.
pub(super) fn messages() -> Result<&'static Armci> {
    // SAFETY: the pointer is null, or leads to an ARMCI that is never freed.
    unsafe { MESSAGES.load(Acquire).as_ref() }.ok_or_else(not_initialized)
}

/// The reason why there is no ARMCI.
#[cold]
fn not_initialized() -> Error {
    check_not_forked().err().unwrap_or(Error::NotInitialized)
}

/// Checks that this process joined the job, and is no forked child of one that did. The check comes before
/// any lock, because a thread that the child lacks may hold the lock.
///
/// # Errors
/// [`hydrant::Error::Forked`].
pub(super) fn check_not_forked() -> Result<()> {
    // SAFETY: the pointer is null, or leads to an ARMCI that is never freed.
    match unsafe { PARENT.load(Acquire).as_ref() } {
        Some(parent) => {
            let rank = parent.job().rank();
            Err(hydrant::Error::Forked { rank }.into())
        }
        None => Ok(()),
    }
}

/// Takes ARMCI from a forked child, before `fork` returns there. So the functions need no check of
/// their own.
fn leave_to_parent() {
    let parent = MESSAGES.swap(ptr::null_mut(), AcqRel);
    if !parent.is_null() {
        PARENT.store(parent, Release);
    }
    ARMCI.store(ptr::null_mut(), Release);
}

/// Joins the job, unless it was joined before, with all processes or with those of a communicator.
pub(super) fn begin_messages(given: Option<Communicator>) -> Result<()> {
    check_not_forked()?;
    let mut counts = INITIALIZED.lock();
    counts.messages = true;
    join(&counts, given)
}

/// Begins MPI before ARMCI joins the job, if the program has MPI and has not begun it.
///
/// # Safety
/// 1. The arguments are null, or those of the program's `main`.
pub(super) unsafe fn begin_mpi(argc: *mut c_int, argv: *mut *mut *mut c_char) -> Result<bool> {
    let _counts = INITIALIZED.lock();
    if MESSAGES.load(Acquire).is_null() {
        // SAFETY: 1. The caller's condition 1.
        unsafe { mpi::begin(argc, argv) }
    } else {
        Ok(false)
    }
}

/// Makes the exit of the process end MPI, if ARMCI ended without an error and the program did not
/// end MPI. A forked child leaves MPI to its parent, whose connections it inherited.
pub(super) fn end_mpi_at_exit() {
    extern "C" fn end() {
        if ENDED_WELL.load(Acquire)
            && !fork::is_child()
            && let Err(cause) = mpi::end()
        {
            print_line(&cause.to_string());
        }
    }
    // SAFETY: `end` does not unwind. The library stays loaded, because it has threads.
    if unsafe { libc::atexit(end) } != 0 {
        print_line("MPI is not ended with the process: call MPI_Finalize");
    }
}

pub(super) fn begin_armci(given: Option<Communicator>) -> Result<()> {
    check_not_forked()?;
    let mut counts = INITIALIZED.lock();
    join(&counts, given)?;
    if !counts.is_once {
        counts.armci += 1;
    }
    ARMCI.store(MESSAGES.load(Acquire), Release);
    Ok(())
}

/// As [`begin_armci`], but the first call of [`end_armci`] ends ARMCI. Global Arrays begins ARMCI
/// this way, then begins it again and ends it once.
pub(super) fn begin_armci_once(given: Communicator) -> Result<()> {
    begin_armci(Some(given))?;
    let mut counts = INITIALIZED.lock();
    counts.is_once = counts.armci == 1;
    Ok(())
}

fn join(counts: &InitCounts, given: Option<Communicator>) -> Result<()> {
    if let Ok(armci) = messages() {
        return given.map_or(Ok(()), |given| communicators::check_same(armci, given));
    }
    // If the program has set up a log of its own, Hydrant's messages go there.
    let _ = hydrant::log_to_stderr();
    let mut builder = Job::builder()?;
    if let Some(Communicator(given)) = given {
        builder = builder.mpi_communicator(given);
    }
    let job = builder.join()?;
    let megabytes = std::env::var("ARMCI_DEFAULT_SHMMAX");
    let megabytes = megabytes.ok().and_then(|text| text.trim().parse().ok());
    let limit = counts
        .limit
        .or(megabytes.map(|megabytes: usize| megabytes << 20));
    let armci = Armci::new(&job, limit)?;
    ENDED_WELL.store(false, Release);
    fork::in_child(leave_to_parent);
    communicators::begin(&armci, given)?;
    faults::explain(armci.me());
    MESSAGES.store(Box::into_raw(Box::new(armci)), Release);
    Ok(())
}

/// Ends ARMCI at the last of as many calls as began it. Also ends the job, unless
/// [messages](begin_messages) are still in use. A further call does nothing, as in ARMCI.
pub(super) fn end_armci() -> Result<()> {
    check_not_forked()?;
    let mut counts = INITIALIZED.lock();
    match counts.armci {
        0 => return Ok(()),
        1 => {}
        _ => {
            counts.armci -= 1;
            return Ok(());
        }
    }
    // The end of the job is also a barrier, and wakes the processes that wait for this one.
    if counts.messages {
        armci()?.barrier()?;
    } else {
        armci()?.all_fence()?;
    }
    counts.armci = 0;
    counts.is_once = false;
    ARMCI.store(ptr::null_mut(), Release);
    if counts.messages { Ok(()) } else { end_job() }
}

pub(super) fn end_messages() -> Result<()> {
    check_not_forked()?;
    let mut counts = INITIALIZED.lock();
    counts.messages = false;
    counts.armci = 0;
    counts.is_once = false;
    if !ARMCI.swap(ptr::null_mut(), AcqRel).is_null() {
        messages()?.all_fence()?;
    }
    end_job()?;
    mpi::end()
}

/// Ends the job, unless it has ended.
fn end_job() -> Result<()> {
    if MESSAGES.load(Acquire).is_null() {
        return Ok(());
    }
    let ended = messages()?.job().finalize();
    // After a loss the job stays known, so that `or_die` tells the launcher why this process fails.
    if !matches!(ended, Err(hydrant::Error::PeerLost(_))) {
        MESSAGES.store(ptr::null_mut(), Release);
    }
    ended?;
    communicators::end()?;
    ENDED_WELL.store(true, Release);
    Ok(())
}

/// The number of calls of `ARMCI_Init` without `ARMCI_Finalize`.
pub(super) fn init_count() -> u32 {
    check_not_forked().map_or(0, |()| INITIALIZED.lock().armci)
}

/// Sets the greatest number of bytes that a process may allocate. Call this before ARMCI is
/// initialized.
pub(super) fn set_limit(bytes: usize) {
    INITIALIZED.lock().limit = Some(bytes);
}

/// Runs `act` with ARMCI. Returns the status, as [`code`].
#[inline(always)]
pub(super) fn call(function: &str, act: impl FnOnce(&'static Armci) -> Result<()>) -> c_int {
    code(function, armci().and_then(|armci| from_caller(armci, act)))
}

/// Runs `act` with ARMCI. Returns its value, or ends the job, as [`or_die`].
#[inline(always)]
pub(super) fn call_or_die<T>(function: &str, act: impl FnOnce(&'static Armci) -> Result<T>) -> T {
    or_die(function, armci().and_then(|armci| from_caller(armci, act)))
}

/// Runs `act` with the ARMCI that messages use. Returns its value, or ends the job, as [`or_die`].
#[inline]
pub(super) fn message_or_die<T>(
    function: &str,
    act: impl FnOnce(&'static Armci) -> Result<T>,
) -> T {
    or_die(function, messages().and_then(act))
}

/// ARMCI's number for an outcome. Prints the reason of an error.
#[inline]
pub(super) fn code(function: &str, outcome: Result<()>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(cause) => report(function, &cause),
    }
}

/// The value of an outcome. An error ends the job.
#[inline]
pub(super) fn or_die<T>(function: &str, outcome: Result<T>) -> T {
    match outcome {
        Ok(found) => found,
        Err(cause) => {
            let code = report(function, &cause);
            match cause {
                // The job is ending already, with the status of the process that failed.
                Error::Hydrant(hydrant::Error::PeerLost(_)) => match job() {
                    Some(job) => job.exit_for_loss(code),
                    None => process::exit(code),
                },
                _ => die(code),
            }
        }
    }
}

/// As [`or_die`], but a forked child reports the error and goes on.
pub(super) fn or_die_unless_forked(function: &str, outcome: Result<()>) {
    match outcome {
        Err(cause @ Error::Hydrant(hydrant::Error::Forked { .. })) => _ = report(function, &cause),
        outcome => or_die(function, outcome),
    }
}

/// Prints the reason of an error. Returns ARMCI's number for it.
#[cold]
fn report(function: &str, cause: &Error) -> c_int {
    print_line(&format!("{function}: {cause}"));
    cause.code()
}

/// Ends the job with a status. A status of 0 becomes 1.
pub(super) fn die(status: c_int) -> ! {
    let status = if status == 0 { 1 } else { status };
    match job() {
        Some(job) => job.abort(status),
        None => process::exit(status),
    }
}

/// Prints a message and a number to the standard error output, with this process's number.
///
/// # Safety
/// 1. `message` is null or a string of C.
pub(super) unsafe fn print_message(message: *const c_char, code: c_int) {
    let text = if message.is_null() {
        std::borrow::Cow::Borrowed("")
    } else {
        // SAFETY: `message` is a string of C, by the caller's condition 1.
        unsafe { CStr::from_ptr(message) }.to_string_lossy()
    };
    print_line(&format!("{text} {code}"));
}

/// Prints a line to the standard error output in one write, because all processes of a job may share it.
pub(super) fn print_line(text: &str) {
    let line = format!("{}{text}\n", name());
    // A closed output is ignored.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn job() -> Option<&'static Job> {
    messages().ok().map(Armci::job)
}

fn name() -> String {
    job().map_or(String::new(), |job| format!("{}: ", job.rank()))
}
