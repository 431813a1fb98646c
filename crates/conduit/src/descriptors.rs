//! Raises the limit on descriptors that a rank may need.
//!
//! The usual soft limit of 1024 protects programs that use `select`. It is far below the number
//! that a process may have. A rank that may need more raises the limit to the hard limit, which the
//! administrator sets. The runtimes of Go and Java do the same, and `systemd` advises it. If the
//! hard limit is too low, an operation that needs a descriptor fails with an error that names the
//! limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// An estimate of the descriptors of the rank itself and of its program.
const OWN: u64 = 128;

/// Raises this process's limit to at least `each` descriptors for each of `peers` peers, as far as
/// the hard limit allows.
pub fn allow(peers: u64, each: u64) {
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
            "descriptors will not suffice if every rank reaches all others: raise RLIMIT_NOFILE (ulimit \
             -Hn, or nofile in /etc/security/limits.conf)"
        );
    }
}
