//! The start of a job: starts its ranks, and lets them find each other.
//!
//! A rank calls [`join()`] and gets a [`Bootstrap`]: its rank, the size of the job, and a small
//! key-value space. Ranks exchange a few bytes through it before their conduit works: an address,
//! the owner of a file descriptor, the job's secret. The service behind the bootstrap depends on
//! the program's launcher:
//!
//! | started by | service | module |
//! |---|---|---|
//! | nobody | a job of one | `alone` |
//! | [`launcher`] (`hydrant run`), `mpiexec.hydra`, `srun --mpi=pmi2` | the PMI-1 wire protocol | `pmi1` |
//! | `mpirun` of Open MPI, `srun --mpi=pmix` | libpmix, opened at run time | `pmix` |
//! | any of these, of a program that has initialized MPI | the program's MPI collectives | `mpi` |
//! | a test | threads of one process | [`local()`] |
//!
//! An unusable launcher in the environment is an error that names the fix, never a silent job of
//! one.
//!
//! [`launcher`] is the other side. It starts ranks on this host, or on several hosts by a remote
//! shell. It serves them PMI-1, and makes sure that no rank outlives the job. [`hosts()`] finds the
//! ranks that share a host. [`Subset`] makes some ranks of a job a job of their own.

mod alone;
mod detect;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod join;
pub mod launcher;
mod local;
mod mpi;
mod options;
mod pmi1;
mod pmix;
mod subset;

use std::fmt;
use std::str::FromStr;

pub use error::Error;
pub use host::{HOST_ID, Site, host_id, hosts, placement, proc_is_own};
pub use join::{join, join_with};
pub use local::{LocalBootstrap, local};
pub use options::JoinOptions;
pub use subset::Subset;

/// The longest key [`Bootstrap::put`] takes, in bytes.
///
/// PMI-1 servers allow 64. The rank and the number of a chunk take a part of that.
pub const MAX_KEY: usize = 40;

/// The key that a rank puts when it fails, before its peers can fail in consequence. The launcher
/// of this crate then takes the job's status from that rank. Other launchers ignore the key.
pub const FAILING: &str = "failing";

/// The key that a rank puts when it fails for the loss of another rank. The end of that other rank
/// decides the job's status.
pub const BEREFT: &str = "bereft";

/// The processors that the [`launcher`] has for the ranks of a host, as `0,4,5`. The launcher sets
/// the variable for each rank and overwrites an earlier value.
pub const HOST_CPUS: &str = "HYDRANT_HOST_CPUS";

/// The longest value [`Bootstrap::put`] takes, in bytes.
pub const MAX_VALUE: usize = 64 * 1024;

/// The length of a job's secret, in bytes.
pub const SECRET_BYTES: usize = 16;

/// A rank's view of its job, and the key-value space that all ranks share.
///
/// Each rank puts a key at most once. A value stays for the life of the job, through any number of
/// fences.
pub trait Bootstrap: Send {
    /// This process's rank, from 0.
    fn rank(&self) -> u32;

    /// The number of ranks in the job.
    fn size(&self) -> u32;

    /// The name of the service: `alone`, `local`, `mpi`, `pmi1` or `pmix`.
    fn name(&self) -> &'static str;

    /// Puts `value` under `key` for the other ranks, visible after the next fence.
    ///
    /// The value is any bytes, at most [`MAX_VALUE`]. The key is printable ASCII without blanks or
    /// `=`, at most [`MAX_KEY`] bytes, and new.
    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Error>;

    /// Waits for every rank. Values put before the fence can be got after it.
    fn fence(&mut self) -> Result<(), Error>;

    /// Returns the value that rank `from` put under `key`.
    fn get(&mut self, from: u32, key: &str) -> Result<Vec<u8>, Error>;

    /// Asks the launcher to end the job with `status`. The caller exits afterwards.
    fn abort(&mut self, status: i32, why: &str);

    /// Leaves the job cleanly. The caller must not put, get or fence afterwards.
    fn finalize(&mut self) -> Result<(), Error>;

    /// Returns the job's secret, which other processes do not know. Collective, and called once.
    ///
    /// Rank 0 draws the secret. It travels only through the key-value space, which only the job's
    /// own ranks can read: never through the environment, a file or an argument.
    fn secret(&mut self) -> Result<[u8; SECRET_BYTES], Error> {
        const KEY: &str = "secret";
        if self.rank() == 0 {
            let mut fresh = [0; SECRET_BYTES];
            fill_random(&mut fresh).map_err(Error::Random)?;
            self.put(KEY, &fresh)?;
        }
        self.fence()?;
        let got = self.get(0, KEY)?;
        got.as_slice().try_into().map_err(|_| Error::Protocol {
            service: self.name(),
            doing: "reading the job's secret".into(),
            got: format!("{} bytes where {SECRET_BYTES} were expected", got.len()),
        })
    }
}

/// The service that [`join()`] uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BootstrapKind {
    /// MPI if the program has initialized it, else the service seen in the environment, else a job
    /// of one.
    #[default]
    Auto,
    /// A job of one, even if the environment shows a launcher.
    Alone,
    /// The PMI-1 wire protocol, on `PMI_FD` or to `PMI_PORT`.
    Pmi1,
    /// PMIx, through libpmix.
    Pmix,
    /// The MPI that the program initialized.
    Mpi,
}

impl BootstrapKind {
    /// Every kind, in documented order.
    pub const ALL: [BootstrapKind; 5] = [
        BootstrapKind::Auto,
        BootstrapKind::Alone,
        BootstrapKind::Pmi1,
        BootstrapKind::Pmix,
        BootstrapKind::Mpi,
    ];
}

impl fmt::Display for BootstrapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            BootstrapKind::Auto => "auto",
            BootstrapKind::Alone => "alone",
            BootstrapKind::Pmi1 => "pmi1",
            BootstrapKind::Pmix => "pmix",
            BootstrapKind::Mpi => "mpi",
        })
    }
}

impl FromStr for BootstrapKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<BootstrapKind, Error> {
        BootstrapKind::ALL
            .into_iter()
            .find(|kind| kind.to_string() == text)
            .ok_or_else(|| Error::UnknownKind(text.into()))
    }
}

/// Returns the exit status of a process that aborts with `status`: its last eight bits, as the
/// kernel cuts it. A failure never becomes 0: 256 gives 1.
pub fn exit_status(status: i32) -> u8 {
    match (status & 0xff) as u8 {
        0 if status != 0 => 1,
        cut => cut,
    }
}

/// Fills `bytes` from the kernel's random generator.
fn fill_random(bytes: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::io::retry_on_intr(|| {
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
        })?;
    }
    Ok(())
}

/// Returns an error for a key that some service cannot carry.
fn check_key(key: &str) -> Result<(), Error> {
    if key.len() > MAX_KEY {
        return Err(Error::KeyTooLong {
            key: key.into(),
            len: key.len(),
            limit: MAX_KEY,
        });
    }
    if key.is_empty() || !key.bytes().all(|b| b.is_ascii_graphic() && b != b'=') {
        return Err(Error::BadKey { key: key.into() });
    }
    Ok(())
}

/// Returns an error for a value longer than [`MAX_VALUE`].
fn check_value(key: &str, value: &[u8]) -> Result<(), Error> {
    if value.len() > MAX_VALUE {
        return Err(Error::ValueTooLong {
            key: key.into(),
            len: value.len(),
            limit: MAX_VALUE,
        });
    }
    Ok(())
}

/// Returns an error for a rank that the job does not have.
fn check_rank(rank: u32, size: u32) -> Result<(), Error> {
    if rank >= size {
        return Err(Error::RankOutOfRange { rank, size });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_parses_its_own_name() {
        for kind in BootstrapKind::ALL {
            assert_eq!(kind.to_string().parse::<BootstrapKind>().unwrap(), kind);
        }
        let error = "pmi2".parse::<BootstrapKind>().unwrap_err();
        assert!(error.to_string().contains("`pmi2`"), "{error}");
        assert!(error.to_string().contains("pmix"), "{error}");
    }

    #[test]
    fn no_failure_is_cut_to_a_success() {
        for (status, cut) in [(0, 0), (1, 1), (255, 255), (256, 1), (257, 1), (-1, 255)] {
            assert_eq!(exit_status(status), cut, "{status}");
        }
        assert!((1..=70_000).all(|status| exit_status(status) != 0 && exit_status(-status) != 0));
    }

    #[test]
    fn keys_and_values_are_checked() {
        assert!(check_key("address.0").is_ok());
        assert!(matches!(check_key(""), Err(Error::BadKey { .. })));
        assert!(matches!(check_key("a b"), Err(Error::BadKey { .. })));
        assert!(matches!(check_key("a=b"), Err(Error::BadKey { .. })));
        assert!(matches!(check_key("ä"), Err(Error::BadKey { .. })));
        let long = "k".repeat(MAX_KEY + 1);
        assert!(matches!(
            check_key(&long),
            Err(Error::KeyTooLong {
                len: 41,
                limit: 40,
                ..
            })
        ));
        assert!(check_value("k", &vec![0; MAX_VALUE]).is_ok());
        assert!(matches!(
            check_value("k", &vec![0; MAX_VALUE + 1]),
            Err(Error::ValueTooLong { .. })
        ));
    }
}
