//! The bare network between rank 0 and its partner: the reference where memory is registered.

use std::{cell::RefCell, io};

use hydrant::{Job, Rank};
use hydrant_ofi::{BareAccess, OfiOptions};
use hydrant_verbs::{Opcode, VerbsOptions};

use crate::error::BenchError;

/// The peer of rank 0 in all operations of two ranks.
pub(crate) const PARTNER: Rank = Rank(1);

/// The bytes on each side of the bare network's operations: the longest operation.
pub(crate) const LARGEST: usize = 16 << 20;

/// The sizes whose bandwidth is measured, with as many operations in flight as fill the largest
/// size.
pub(crate) const BULK: [usize; 3] = [64 << 10, 1 << 20, 16 << 20];

/// The words of the longest address of an end.
const ADDRESS_WORDS: usize = hydrant_ofi::BareEndpoint::ADDRESS_WORDS;

/// An end of the bare network.
pub(crate) enum BareNetwork {
    /// A queue pair.
    Verbs(Box<hydrant_verbs::Bare>),
    /// An endpoint of libfabric.
    Ofi(hydrant_ofi::BareEndpoint),
}

/// Connects rank 0 and its partner beside the job, if the job uses such a network. Collective.
pub(crate) fn connect(job: &Job) -> hydrant::Result<Option<RefCell<BareNetwork>>> {
    let peer = match job.rank() {
        Rank(0) => PARTNER,
        PARTNER => Rank(0),
        other => other,
    };
    if !is_known(job) || job.size() < 2 {
        return Ok(None);
    }
    let addresses = job.alloc::<u64>(ADDRESS_WORDS)?;
    let mut bare = None;
    if peer != job.rank() {
        let open = BareNetwork::open(job).map_err(BenchError::Network)?;
        addresses.put(peer, 0, &open.address().map_err(BenchError::Network)?)?;
        bare = Some(open);
    }
    job.barrier()?;
    let mut address = [0; ADDRESS_WORDS];
    addresses.local()?.read(0, &mut address)?;
    // The end that serves is ready before the other one connects.
    for turn in [PARTNER, Rank(0)] {
        if let Some(bare) = bare.as_mut().filter(|_| job.rank() == turn) {
            let serves = turn == PARTNER;
            bare.connect(address, serves).map_err(BenchError::Network)?;
        }
        job.barrier()?;
    }
    job.free(addresses)?;
    Ok(bare.map(RefCell::new))
}

/// Returns true if the job's network can be used without Hydrant. All ranks get the same answer.
pub(crate) fn is_known(job: &Job) -> bool {
    let caps = job.conduit();
    caps.registration.is_some() && ["verbs", "ofi"].contains(&caps.name)
}

impl BareNetwork {
    fn open(job: &Job) -> io::Result<Self> {
        let settings = job.settings();
        if job.conduit().name == "verbs" {
            let options = VerbsOptions {
                devices: settings.verbs_device.clone(),
                gid_index: settings.verbs_gid,
                ..VerbsOptions::default()
            };
            let bare = hydrant_verbs::Bare::open(&options, job.rank().0, LARGEST)?;
            return Ok(Self::Verbs(Box::new(bare)));
        }
        let options = OfiOptions {
            provider: settings.ofi_provider.clone(),
            interface: settings.ofi_interface.clone(),
            ..OfiOptions::default()
        };
        Ok(Self::Ofi(hydrant_ofi::BareEndpoint::open(
            &options, LARGEST,
        )?))
    }

    fn address(&self) -> io::Result<[u64; ADDRESS_WORDS]> {
        match self {
            Self::Verbs(bare) => {
                let mut words = [0; ADDRESS_WORDS];
                words[..hydrant_verbs::Bare::ADDRESS_WORDS].copy_from_slice(&bare.address());
                Ok(words)
            }
            Self::Ofi(bare) => bare.address(),
        }
    }

    fn connect(&mut self, address: [u64; ADDRESS_WORDS], serves: bool) -> io::Result<()> {
        match self {
            Self::Verbs(bare) => {
                let words = address.first_chunk();
                bare.connect(*words.expect("the longest address is longer"))
            }
            Self::Ofi(bare) => bare.connect(address, serves),
        }
    }

    /// Returns the bytes that this end keeps registered.
    pub(crate) fn registered_bytes(&self) -> usize {
        match self {
            Self::Verbs(bare) => bare.registered_bytes(),
            Self::Ofi(bare) => bare.registered_bytes(),
        }
    }

    /// Writes or reads `len` bytes, and waits for the completion.
    #[inline]
    pub(crate) fn once(&mut self, access: BareAccess, len: usize) -> io::Result<()> {
        match self {
            Self::Verbs(bare) => bare.once(opcode(access), len),
            Self::Ofi(bare) => bare.once(access, len),
        }
    }

    /// Writes or reads `count` blocks of `len` bytes, and waits for all.
    pub(crate) fn stream(&mut self, access: BareAccess, len: usize, count: u64) -> io::Result<()> {
        match self {
            Self::Verbs(bare) => bare.stream(opcode(access), len, count),
            Self::Ofi(bare) => bare.stream(access, len, count),
        }
    }

    /// Sends `len` bytes, and waits for as many back.
    #[inline]
    pub(crate) fn ping(&mut self, len: usize) -> io::Result<()> {
        match self {
            Self::Verbs(bare) => bare.ping(len),
            Self::Ofi(bare) => bare.ping(len),
        }
    }

    /// Answers a [`ping`](Self::ping) of the other end.
    #[inline]
    pub(crate) fn pong(&mut self, len: usize) -> io::Result<()> {
        match self {
            Self::Verbs(bare) => bare.pong(len),
            Self::Ofi(bare) => bare.pong(len),
        }
    }
}

fn opcode(access: BareAccess) -> Opcode {
    match access {
        BareAccess::Write => Opcode::Write,
        BareAccess::Read => Opcode::Read,
    }
}
