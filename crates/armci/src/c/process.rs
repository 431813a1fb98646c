//! This process's ARMCI, which the functions of C find by themselves.

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

/// ARMCI, while it is initialized; null before and after. What it points to is never freed, for another
/// thread may be using it.
static ARMCI: AtomicPtr<Armci> = AtomicPtr::new(ptr::null_mut());

/// What processes talk by, while that is initialized; the same as [`ARMCI`], which ends earlier.
static MESSAGES: AtomicPtr<Armci> = AtomicPtr::new(ptr::null_mut());

/// In a forked child, the parent's message context: the child has neither of the two above.
static PARENT: AtomicPtr<Armci> = AtomicPtr::new(ptr::null_mut());

/// True while the last job has ended in good order.
static ENDED_WELL: AtomicBool = AtomicBool::new(false);

/// How often it was initialized.
static BEGUN: Mutex<Begun> = Mutex::new(Begun {
    armci: 0,
    is_once: false,
    messages: false,
    limit: None,
});

struct Begun {
    /// Calls of `ARMCI_Init` without one of `ARMCI_Finalize`.
    armci: u32,
    /// True if later calls do not count.
    is_once: bool,
    /// Whether `armci_msg_init` was called.
    messages: bool,
    /// Bytes that a process may allocate, if that was set.
    limit: Option<usize>,
}

/// ARMCI, if it is initialized.
#[inline]
pub(super) fn armci() -> Result<&'static Armci> {
    // SAFETY: it is null or leads to what is never freed.
    unsafe { ARMCI.load(Acquire).as_ref() }.ok_or_else(not_initialized)
}

/// What processes talk by, if that is initialized.
pub(super) fn messages() -> Result<&'static Armci> {
    // SAFETY: as above.
    unsafe { MESSAGES.load(Acquire).as_ref() }.ok_or_else(not_initialized)
}

/// The reason why there is no ARMCI.
#[cold]
fn not_initialized() -> Error {
    forked().err().unwrap_or(Error::NotInitialized)
}

/// Checks that this process is the one that joined. The check comes before any lock, because a thread of the parent
/// that the child lacks may hold it.
///
/// # Errors
/// [`hydrant::Error::Forked`].
pub(super) fn forked() -> Result<()> {
    // SAFETY: as above.
    match unsafe { PARENT.load(Acquire).as_ref() } {
        Some(parent) => {
            let rank = parent.job().rank();
            Err(hydrant::Error::Forked { rank }.into())
        }
        None => Ok(()),
    }
}

/// Takes the parent's contexts from a child, before `fork` returns there. So no function needs a check of its own.
fn leave_to_parent() {
    let parent = MESSAGES.swap(ptr::null_mut(), AcqRel);
    if !parent.is_null() {
        PARENT.store(parent, Release);
    }
    ARMCI.store(ptr::null_mut(), Release);
}

/// Joins the job, unless it was joined before, with all processes or those of a communicator.
pub(super) fn begin_messages(given: Option<Communicator>) -> Result<()> {
    forked()?;
    let mut begun = BEGUN.lock();
    begun.messages = true;
    join(&begun, given)
}

/// Begins MPI, if the program has it and has not begun it, before ARMCI joins the job.
pub(super) fn begin_mpi(argc: *mut c_int, argv: *mut *mut *mut c_char) -> Result<bool> {
    let _begun = BEGUN.lock();
    match MESSAGES.load(Acquire).is_null() {
        true => mpi::begin(argc, argv),
        false => Ok(false),
    }
}

/// Lets the exit of the process end MPI, if the program did not and ended ARMCI in good order. A forked child leaves
/// MPI to its parent, whose connections it has.
pub(super) fn end_mpi_at_exit() {
    extern "C" fn end() {
        if ENDED_WELL.load(Acquire)
            && !fork::is_child()
            && let Err(cause) = mpi::end()
        {
            tell(&cause.to_string());
        }
    }
    // SAFETY: the function does not unwind, and the library stays loaded, because it has threads.
    if unsafe { libc::atexit(end) } != 0 {
        tell("MPI is not ended with the process: call MPI_Finalize");
    }
}

pub(super) fn begin_armci(given: Option<Communicator>) -> Result<()> {
    forked()?;
    let mut begun = BEGUN.lock();
    join(&begun, given)?;
    if !begun.is_once {
        begun.armci += 1;
    }
    ARMCI.store(MESSAGES.load(Acquire), Release);
    Ok(())
}

/// As [`begin_armci`], but the first call of [`end_armci`] ends it. Global Arrays begins ARMCI this way, begins it
/// once more and ends it once.
pub(super) fn begin_armci_once(given: Communicator) -> Result<()> {
    begin_armci(Some(given))?;
    let mut begun = BEGUN.lock();
    begun.is_once = begun.armci == 1;
    Ok(())
}

fn join(begun: &Begun, given: Option<Communicator>) -> Result<()> {
    if let Ok(armci) = messages() {
        return given.map_or(Ok(()), |given| communicators::check_same(armci, given));
    }
    // Who has the log of another library sees Hydrant's there.
    let _ = hydrant::log_to_stderr();
    let mut builder = Job::builder()?;
    if let Some(Communicator(given)) = given {
        builder = builder.mpi_communicator(given);
    }
    let job = builder.join()?;
    let megabytes = std::env::var("ARMCI_DEFAULT_SHMMAX");
    let megabytes = megabytes.ok().and_then(|text| text.trim().parse().ok());
    let limit = begun
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

/// Ends ARMCI, with the last call of as many as began it, and the job, unless
/// [messages](begin_messages) are to go on. A further call does nothing, as in ARMCI.
pub(super) fn end_armci() -> Result<()> {
    forked()?;
    let mut begun = BEGUN.lock();
    match begun.armci {
        0 => return Ok(()),
        1 => {}
        _ => {
            begun.armci -= 1;
            return Ok(());
        }
    }
    // The end of the job is a barrier, too, and tells those that wait for this process.
    if begun.messages {
        armci()?.barrier()?;
    } else {
        armci()?.all_fence()?;
    }
    begun.armci = 0;
    begun.is_once = false;
    ARMCI.store(ptr::null_mut(), Release);
    if begun.messages { Ok(()) } else { end_job() }
}

pub(super) fn end_messages() -> Result<()> {
    forked()?;
    let mut begun = BEGUN.lock();
    begun.messages = false;
    begun.armci = 0;
    begun.is_once = false;
    if !ARMCI.swap(ptr::null_mut(), AcqRel).is_null() {
        messages()?.all_fence()?;
    }
    end_job()?;
    mpi::end()
}

/// Ends the job, unless that was done.
fn end_job() -> Result<()> {
    if MESSAGES.load(Acquire).is_null() {
        return Ok(());
    }
    let ended = messages()?.job().finalize();
    MESSAGES.store(ptr::null_mut(), Release);
    ended?;
    communicators::end()?;
    ENDED_WELL.store(true, Release);
    Ok(())
}

/// How often `ARMCI_Init` was called without `ARMCI_Finalize`.
pub(super) fn begun() -> u32 {
    forked().map_or(0, |()| BEGUN.lock().armci)
}

/// Sets how many bytes a process may allocate; before it is initialized.
pub(super) fn set_limit(bytes: usize) {
    BEGUN.lock().limit = Some(bytes);
}

/// What a function does with ARMCI, as [`code`] tells it.
#[inline(always)]
pub(super) fn call(function: &str, act: impl FnOnce(&'static Armci) -> Result<()>) -> c_int {
    code(function, armci().and_then(|armci| from_caller(armci, act)))
}

/// What a function finds with ARMCI, as [`or_die`] tells it.
#[inline(always)]
pub(super) fn found<T>(function: &str, act: impl FnOnce(&'static Armci) -> Result<T>) -> T {
    or_die(function, armci().and_then(|armci| from_caller(armci, act)))
}

/// What a function finds by what processes talk by, as [`or_die`] tells it.
#[inline]
pub(super) fn talk<T>(function: &str, act: impl FnOnce(&'static Armci) -> Result<T>) -> T {
    or_die(function, messages().and_then(act))
}

/// ARMCI's number for how a function ended, which says the reason of an error.
#[inline]
pub(super) fn code(function: &str, outcome: Result<()>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(cause) => refused(function, &cause),
    }
}

/// What a function found; after an error, the job ends.
#[inline]
pub(super) fn or_die<T>(function: &str, outcome: Result<T>) -> T {
    match outcome {
        Ok(found) => found,
        Err(cause) => {
            let code = refused(function, &cause);
            match cause {
                // The job ends already, with the status of the process that failed.
                Error::Hydrant(hydrant::Error::PeerLost(_)) => match job() {
                    Some(job) => job.exit_for_loss(code),
                    None => process::exit(code),
                },
                _ => die(code),
            }
        }
    }
}

/// Ends a function that has no meaning in a forked child: there it reports the error, and the child goes on.
pub(super) fn or_die_unless_forked(function: &str, outcome: Result<()>) {
    match outcome {
        Err(cause @ Error::Hydrant(hydrant::Error::Forked { .. })) => _ = refused(function, &cause),
        outcome => or_die(function, outcome),
    }
}

#[cold]
fn refused(function: &str, cause: &Error) -> c_int {
    tell(&format!("{function}: {cause}"));
    cause.code()
}

/// Ends the job with a status, which is never that of success.
pub(super) fn die(status: c_int) -> ! {
    let status = if status == 0 { 1 } else { status };
    match job() {
        Some(job) => job.abort(status),
        None => process::exit(status),
    }
}

/// Says something on the standard error output, with this process's number.
pub(super) unsafe fn say(message: *const c_char, code: c_int) {
    let text = match message.is_null() {
        true => std::borrow::Cow::Borrowed(""),
        // SAFETY: a string of C, says the caller.
        false => unsafe { CStr::from_ptr(message) }.to_string_lossy(),
    };
    tell(&format!("{text} {code}"));
}

/// Says something on the standard error output, whole, for all processes of a job may share it.
pub(super) fn tell(text: &str) {
    let line = format!("{}{text}\n", name());
    // Who has closed it hears nothing.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn job() -> Option<&'static Job> {
    messages().ok().map(Armci::job)
}

fn name() -> String {
    job().map_or(String::new(), |job| format!("{}: ", job.rank()))
}
