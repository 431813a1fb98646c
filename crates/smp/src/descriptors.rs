//! How many descriptors a rank may need, and that it may have them.
//!
//! The usual soft limit of 1024 is there for programs that use `select`, and is far below what a
//! process may have. As the runtimes of Go and Java do, and as `systemd` advises, a rank that may
//! need more raises it to the hard limit, which is for the administrator to set. Where that is not
//! enough, what needs a descriptor fails with an error that names the limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for each peer: one to watch its process.
pub(crate) const WATCHED: u64 = 1;
/// Those of the rank itself and of its program, roughly.
const OWN: u64 = 128;

/// Lets this process have so many descriptors for each of so many peers, if it is not let already
/// and the hard limit is higher.
pub(crate) fn allow(peers: u64, each: u64) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = OWN + peers * each;
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= wanted);
    if enough(limit.current) {
        return;
    }
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => tracing::debug!(from = ?limit.current, to = ?limit.maximum, "more descriptors"),
        Err(cause) => tracing::debug!(%cause, "no more descriptors"),
    }
    if !enough(limit.maximum) {
        tracing::warn!(
            limit = ?limit.maximum,
            wanted,
            "if all ranks reach all others, descriptors will not do: raise RLIMIT_NOFILE (ulimit \
             -Hn, or nofile in /etc/security/limits.conf)"
        );
    }
}
