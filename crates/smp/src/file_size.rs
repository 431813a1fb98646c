//! The limit on the size of files (`ulimit -f`), which the kernel also applies to shared memory.
//!
//! A process that exceeds the limit gets SIGXFSZ, which ends it without a message. Shared
//! memory is never written to a disk, so the limit is raised while the memory gets its size.

use std::os::fd::OwnedFd;

use hydrant_conduit::Error;
use hydrant_pinning::Size;
use parking_lot::Mutex;
use rustix::{
    fs,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// Held while this process's limit is changed, so that each thread restores the limit that it
/// found.
static RAISED: Mutex<()> = Mutex::new(());

/// Sets the size of a new file to `bytes`.
///
/// # Errors
/// [`Error::System`] with the limit if this process may not raise it far enough, or with the
/// system's error.
pub fn set(file: &OwnedFd, bytes: u64) -> Result<(), Error> {
    let _raised = RAISED.lock();
    let before = getrlimit(Resource::Fsize);
    let is_enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= bytes);
    let raised = !is_enough(before.current);
    if raised {
        // Only a privileged process may exceed the hard limit.
        let maximum = before.maximum.map(|most| most.max(bytes));
        let current = Some(bytes);
        let allowed = setrlimit(Resource::Fsize, Rlimit { current, maximum });
        allowed.map_err(|_| refused(bytes, before))?;
    }
    let sized = fs::ftruncate(file, bytes);
    if raised && let Err(cause) = setrlimit(Resource::Fsize, before) {
        tracing::debug!(%cause, "the limit on the size of files stays raised");
    }
    sized.map_err(|cause| Error::system("making the shared file", cause))
}

fn refused(bytes: u64, limit: Rlimit) -> Error {
    let most = limit.maximum.or(limit.current).unwrap_or(u64::MAX);
    Error::System {
        what: "making the shared memory of the host's ranks",
        cause: format!(
            "its {} are more than a file may have here: {} (RLIMIT_FSIZE), and the limit holds for shared memory, \
             too; raise it (ulimit -f unlimited), or have ranks ask for less (HYDRANT_HEAP, HYDRANT_RING_PAYLOAD)",
            Size(bytes),
            Size(most)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_size_is_named_with_the_limit_and_the_remedy() {
        let limit = Rlimit {
            current: Some(4096),
            maximum: Some(8192),
        };
        let text = refused(1 << 20, limit).to_string();
        for word in ["1 MiB", "8 KiB", "ulimit -f", "HYDRANT_HEAP"] {
            assert!(text.contains(word), "{text}");
        }
    }
}
