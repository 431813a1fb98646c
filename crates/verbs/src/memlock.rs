//! The error of a process that may not pin as much memory as it wants.

use std::io;

use hydrant_conduit::{Error, memory::memlock};

/// Returns the error that names the process's limit on pinned memory, if that limit may be the
/// cause.
pub(crate) fn memlock_error(cause: &io::Error) -> Option<Error> {
    let limit = match cause.raw_os_error() {
        Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN) => memlock()?,
        _ => return None,
    };
    Some(Error::Exhausted {
        what: "bytes that this process may pin (RLIMIT_MEMLOCK)",
        limit,
        remedy: "raise it: ulimit -l, or memlock in /etc/security/limits.conf",
    })
}
