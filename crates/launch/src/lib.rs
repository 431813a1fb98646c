//! How the ranks of a job start and find each other.
//!
//! A rank calls [`join()`] and gets a [`Bootstrap`]: its rank, the size of the
//! job, and a small key-value space. Through it ranks exchange the few bytes (an
//! address, a file descriptor's owner, the job's secret) that they need before
//! their conduit works. Which service provides it depends on who started the
//! program:
//!
//! | started by | service | module |
//! |---|---|---|
//! | nobody | a job of one | `alone` |
//! | [`launcher`] (`hydrant run`), `mpiexec.hydra`, `srun --mpi=pmi2` | the PMI-1 wire protocol | `pmi1` |
//! | `mpirun` of Open MPI, `srun --mpi=pmix` | libpmix, opened at run time | `pmix` |
//! | any of these, of a program that has initialized MPI | its MPI's collectives | `mpi` |
//! | a test | threads of one process | [`local()`] |
//!
//! A launcher that is seen but cannot be used is an error that names the fix,
//! never a silent job of one.
//!
//! [`launcher`] is the other side: it starts ranks on this host, or by a remote
//! shell on several, serves them PMI-1, and makes sure that none of them outlives
//! the job. [`hosts()`] says which ranks share a host, and [`Subset`] makes a job of
//! its own out of some ranks of a job.

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
/// PMI-1 servers allow 64, of which the rank and the number of a chunk take a part.
pub const MAX_KEY: usize = 40;

/// The key that a rank puts when it fails, before its peers can fail in consequence: the
/// launcher of this crate then knows whose status is the job's. Others ignore it.
pub const FAILING: &str = "failing";

/// The key that a rank puts when it fails for the loss of another. The end of that other rank decides the job's
/// status.
pub const BEREFT: &str = "bereft";

/// The processors that the [`launcher`] has for the ranks of a host, as `0,4,5`: it sets it for each rank, whatever
/// it was before.
pub const HOST_CPUS: &str = "HYDRANT_HOST_CPUS";

/// The longest value [`Bootstrap::put`] takes, in bytes.
pub const MAX_VALUE: usize = 64 * 1024;

/// The length of a job's secret, in bytes.
pub const SECRET_BYTES: usize = 16;

/// A rank's place in its job, and the key-value space it shares with the others.
///
/// A key is put at most once by each rank; what was put stays for the life of
/// the job, through any number of fences.
pub trait Bootstrap: Send {
    /// This process's rank, from 0.
    fn rank(&self) -> u32;

    /// How many ranks the job has.
    fn size(&self) -> u32;

    /// Which service this is: `alone`, `local`, `mpi`, `pmi1` or `pmix`.
    fn name(&self) -> &'static str;

    /// Leaves `value` under `key` for the other ranks, visible after the next fence.
    ///
    /// Any bytes, at most [`MAX_VALUE`] of them. The key is printable ASCII
    /// without blanks or `=`, at most [`MAX_KEY`] bytes, and new.
    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Error>;

    /// Waits for every rank; what was put before it can be got after it.
    fn fence(&mut self) -> Result<(), Error>;

    /// What rank `from` put under `key`.
    fn get(&mut self, from: u32, key: &str) -> Result<Vec<u8>, Error>;

    /// Tells the launcher to end the job with `status`. The caller exits after it.
    fn abort(&mut self, status: i32, why: &str);

    /// Leaves the job cleanly. Nothing may be put, got or fenced after it.
    fn finalize(&mut self) -> Result<(), Error>;

    /// The job's secret, which strangers lack. Collective, and called once.
    ///
    /// Rank 0 draws it and it travels through the key-value space alone, which
    /// only the job's own ranks can read: never through the environment, a
    /// file or an argument.
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

/// Which service [`join()`] shall use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// MPI's, if the program has initialized it; else the one seen in the environment; none seen is a job
    /// of one.
    #[default]
    Auto,
    /// A job of one, whatever the environment says.
    Alone,
    /// The PMI-1 wire protocol, on `PMI_FD` or to `PMI_PORT`.
    Pmi1,
    /// PMIx, through libpmix.
    Pmix,
    /// The MPI that the program initialized.
    Mpi,
}

impl Kind {
    /// Every kind, in the order in which they are documented.
    pub const ALL: [Kind; 5] = [Kind::Auto, Kind::Alone, Kind::Pmi1, Kind::Pmix, Kind::Mpi];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Auto => "auto",
            Kind::Alone => "alone",
            Kind::Pmi1 => "pmi1",
            Kind::Pmix => "pmix",
            Kind::Mpi => "mpi",
        })
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Kind, Error> {
        Kind::ALL
            .into_iter()
            .find(|kind| kind.to_string() == text)
            .ok_or_else(|| Error::UnknownKind(text.into()))
    }
}

/// What a process that aborts with `status` ends with: its last eight bits, as the kernel cuts it,
/// but 1 where that would turn a failure into a success, as of 256.
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

/// Refuses a key that some service could not carry.
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

/// Refuses a value longer than [`MAX_VALUE`].
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

/// Refuses a rank that the job does not have.
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
    fn a_kind_reads_back_what_it_prints() {
        for kind in Kind::ALL {
            assert_eq!(kind.to_string().parse::<Kind>().unwrap(), kind);
        }
        let error = "pmi2".parse::<Kind>().unwrap_err();
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
