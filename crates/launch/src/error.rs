//! Errors between a rank and its launcher.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The reason why a rank could not join its job, or could not reach the other ranks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The environment shows a launcher that offers no service Hydrant can use.
    #[error("{seen}, but {why}; {fix}")]
    LauncherUnusable {
        /// The signs of the launcher in the environment.
        seen: String,
        /// The missing part.
        why: String,
        /// The remedy.
        fix: String,
    },

    /// A variable that the launcher set cannot be understood.
    #[error("the launcher's variable {name} is `{value}`, which is not {expected}")]
    BadVariable {
        /// The variable.
        name: String,
        /// Its value.
        value: String,
        /// The expected form.
        expected: &'static str,
    },

    /// No [`BootstrapKind`](crate::BootstrapKind) has this name.
    #[error("`{0}` is no way to join a job; there are auto, alone, pmi1, pmix and mpi")]
    UnknownKind(String),

    /// [`join()`](crate::join()) was called twice. A launcher lets a process join once.
    #[error("this process has joined its job before, and a launcher lets each process join once")]
    AlreadyJoined,

    /// The launcher is gone, or cannot be reached.
    #[error("the launcher was lost over {service} while {doing}: {source}")]
    LauncherLost {
        /// The service.
        service: &'static str,
        /// The rank's activity at that time.
        doing: String,
        /// The system's error.
        source: io::Error,
    },

    /// The launcher did not answer in time.
    #[error("the launcher did not answer over {service} within {after:?} while {doing}")]
    TimedOut {
        /// The service.
        service: &'static str,
        /// The rank's activity at that time.
        doing: String,
        /// The time limit that passed.
        after: Duration,
    },

    /// The launcher's answer breaks the protocol.
    #[error("the launcher broke the {service} protocol while {doing}: {got}")]
    Protocol {
        /// The service.
        service: &'static str,
        /// The rank's activity at that time.
        doing: String,
        /// The unexpected answer.
        got: String,
    },

    /// The launcher refused a request.
    #[error("the launcher refused over {service} while {doing}: {why}")]
    Refused {
        /// The service.
        service: &'static str,
        /// The rank's activity at that time.
        doing: String,
        /// The launcher's reason.
        why: String,
    },

    /// Libpmix is needed and cannot be opened.
    #[error(
        "PMIX_NAMESPACE says that a PMIx launcher started this process, but libpmix cannot be opened \
         (tried {}): {why}; install it (Debian: libpmix2) or start the job with `hydrant run` or \
         `srun --mpi=pmi2`",
        .tried.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoLibpmix {
        /// The names that were tried.
        tried: Vec<PathBuf>,
        /// The loader's error for the last name.
        why: String,
    },

    /// A rank ended, so a fence can never be complete.
    #[error("rank {rank} ended before the fence, which can now never be complete")]
    RankEnded {
        /// The rank that ended.
        rank: u32,
    },

    /// A rank ended the job with [`abort`](crate::Bootstrap::abort).
    #[error("rank {rank} ended the job with status {status}: {why}")]
    Aborted {
        /// The rank that aborted.
        rank: u32,
        /// The status it gave.
        status: i32,
        /// The reason it gave.
        why: String,
    },

    /// The rank is not in the job.
    #[error("rank {rank} is not in this job of {size} ranks")]
    RankOutOfRange {
        /// The requested rank.
        rank: u32,
        /// The size of the job.
        size: u32,
    },

    /// The rank put nothing under this key.
    #[error("rank {from} put nothing under the key `{key}` before the last fence")]
    NoSuchKey {
        /// The rank whose value was requested.
        from: u32,
        /// The requested key.
        key: String,
    },

    /// This rank has put the key before.
    #[error("this rank has already put the key `{key}`, and a key can be put once")]
    KeyTaken {
        /// The key.
        key: String,
    },

    /// The key has characters that some launcher cannot carry.
    #[error(
        "the key `{key}` is empty or has characters other than printable ASCII without blanks and `=`"
    )]
    BadKey {
        /// The key.
        key: String,
    },

    /// The key is longer than some launcher can carry.
    #[error("the key `{key}` has {len} bytes; the limit is {limit}")]
    KeyTooLong {
        /// The key.
        key: String,
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        limit: usize,
    },

    /// The value is longer than the key-value space takes.
    #[error("the value for the key `{key}` has {len} bytes; the limit is {limit}")]
    ValueTooLong {
        /// The key.
        key: String,
        /// The value's length in bytes.
        len: usize,
        /// The limit in bytes.
        limit: usize,
    },

    /// The kernel returned no random bytes for the job's secret.
    #[error("no random bytes for the job's secret: {0}")]
    Random(#[source] io::Error),

    /// A thread for libpmix's blocking calls could not be started.
    #[error("the thread that calls libpmix could not be started: {0}")]
    Thread(#[source] io::Error),
}
