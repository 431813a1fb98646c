//! The choice of who executes atomic operations in a job.

use std::fmt;

use hydrant_conduit::{Atomicity, Caps};

use crate::{AtomicsKind, Error, Result, Settings, Strategy};

/// The executor of atomic operations on words of 64 bits in a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AtomicsExecutor {
    /// Processors.
    Processors,
    /// The owner's NIC, for all ranks.
    Nics,
    /// NICs, and processors where the word is mapped: the two are atomic with each other.
    Both,
}

impl AtomicsExecutor {
    /// Chooses the executor of a job, from settings and capabilities that are the same at every rank.
    ///
    /// # Errors
    /// [`Error::Setting`] if NICs are asked for and cannot do it.
    pub(crate) fn choose(settings: &Settings, caps: &Caps) -> Result<Self> {
        let way = match network_atomicity(settings, caps) {
            Ok(Atomicity::Network) => Ok(Self::Nics),
            Ok(Atomicity::Everything) => Ok(Self::Both),
            Err(why) => Err(why),
        };
        match (settings.atomics, way) {
            (AtomicsKind::Messages, _) | (AtomicsKind::Auto, Err(_)) => Ok(Self::Processors),
            (AtomicsKind::Auto | AtomicsKind::Native, Ok(way)) => Ok(way),
            (AtomicsKind::Native, Err(why)) => Err(Error::Setting {
                name: "HYDRANT_ATOMICS",
                value: settings.atomics.to_string(),
                expected: format!("auto or messages: {why}"),
            }),
        }
    }

    /// Returns whether no processor changes a word of 64 bits.
    pub(crate) fn spares_processors(self) -> bool {
        self == Self::Nics
    }

    /// The value that ranks compare at the start.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for AtomicsExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Processors => "words of 64 bits changed by processors",
            Self::Nics => "words of 64 bits changed by NICs",
            Self::Both => "words of 64 bits changed by NICs and processors",
        })
    }
}

/// Returns the operations with which those of the network are atomic, or why the network has none.
fn network_atomicity(settings: &Settings, caps: &Caps) -> Result<Atomicity, String> {
    let conduit = caps.name;
    let atomics = (caps.atomics)
        .ok_or_else(|| format!("the conduit {conduit} has no atomic operations of its own"))?;
    let strategy = settings.registration;
    let keeps = matches!(
        strategy,
        Strategy::Firehose | Strategy::PinEverything | Strategy::Auto
    );
    if caps.registration.is_some() && !keeps {
        return Err(format!(
            "{strategy} does not keep registered what peers use (auto, firehose and pin-everything do)"
        ));
    }
    Ok(atomics)
}
