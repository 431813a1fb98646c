//! Initialization and end of ARMCI.

use std::ffi::{c_char, c_int};

use crate::c::process::{self, code, or_die_unless_forked};

/// Initializes ARMCI, and joins the job. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Init() -> c_int {
    code("ARMCI_Init", process::begin_armci(None))
}

/// As ARMCI_Init. First begins MPI, if the program is linked with it and has not begun it. The
/// program then ends MPI, or its exit does if ARMCI was finalized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Init_args(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
    // SAFETY: 1. C5.
    let begun = unsafe { process::begin_mpi(argc, argv) };
    let begun = begun.and_then(|is_ours| {
        if is_ours {
            process::end_mpi_at_exit();
        }
        process::begin_armci(None)
    });
    code("ARMCI_Init_args", begun)
}

/// As ARMCI_Init. Any thread may call ARMCI, for every requested thread level.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Init_thread(_armci_requested: c_int) -> c_int {
    code("ARMCI_Init_thread", process::begin_armci(None))
}

/// Returns 1 if ARMCI is initialized, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Initialized() -> c_int {
    c_int::from(process::init_count() > 0)
}

/// Ends ARMCI, and also the job unless armci_msg_init began it. Does nothing if ARMCI is not
/// initialized. Returns 0, as in ARMCI-MPI. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Finalize() -> c_int {
    or_die_unless_forked("ARMCI_Finalize", process::end_armci());
    0
}

/// Prints a message and a number, and ends the job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Error(msg: *const c_char, code: c_int) {
    // SAFETY: 1. C3.
    unsafe { process::print_message(msg, code) };
    process::die(code)
}

/// Does nothing: all resources of a process go with it, however it ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Cleanup() {}

/// Prints that a program's assertion does not hold, and ends the job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dassertp_fail(
    cond_string: *const c_char,
    file: *const c_char,
    func: *const c_char,
    line: std::ffi::c_uint,
    code: c_int,
) -> c_int {
    let text = |text: *const c_char| {
        if text.is_null() {
            return String::new();
        }
        // SAFETY: `text` is not null, so it is text, by C3.
        unsafe { std::ffi::CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    };
    process::print_line(&format!(
        "{}:{line}: {}: {} does not hold",
        text(file),
        text(func),
        text(cond_string)
    ));
    process::die(code)
}
