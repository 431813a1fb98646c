//! Atomic operations by NICs.
//!
//! NICs add and compare-and-swap. All other operations are loops of compare-and-swaps, and the first one
//! guesses the word to learn its value. Each operation sees exactly the bits that the previous one left. A
//! load reads eight bytes; on this rank's own part a processor reads them. So nobody sees a word half
//! changed.

use std::{
    fmt,
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use bytemuck::Pod;
use hydrant_conduit::{Atomic, Atomicity, Caps};

use super::{by_message, by_message::Verb, by_message::WordKind, sealed::Sealed};
use crate::{
    AtomicsKind, Error, Rank, Result, Settings, Strategy, memory::Symmetric, transfer::Transfer,
};

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

impl<T: Pod + Sealed> Symmetric<T> {
    /// Has the owner's NIC operate on the word. The operation is done there on return.
    pub(super) fn by_nic(
        &self,
        transfer: &Transfer,
        rank: Rank,
        offset: usize,
        (verb, operands): (Verb, [T; 2]),
    ) -> Result<T> {
        let block = self.block();
        let mapped = block.part(rank)?.mapped.as_ref();
        if let Some(word) = mapped.and_then(|mapped| T::word(&mapped.window, offset))
            && verb == Verb::Load
        {
            return Ok(T::load(word));
        }
        let at = (block.offset + offset) as u64;
        let [value, expected] = operands.map(T::to_bits);
        let was = match (verb, T::KIND) {
            (Verb::Load, _) => transfer.word(rank, at)?,
            (Verb::Add, WordKind::Word64) => transfer.atomic(rank, at, Atomic::Add(value))?,
            (Verb::CompareSwap, _) => {
                transfer.atomic(rank, at, Atomic::CompareSwap { expected, value })?
            }
            (verb, kind) => {
                let becomes = |was| after(was, kind, verb, [value, expected]);
                let mut expected = 0;
                loop {
                    let value = becomes(expected);
                    let was = transfer.atomic(rank, at, Atomic::CompareSwap { expected, value })?;
                    if was == expected {
                        break was;
                    }
                    expected = was;
                }
            }
        };
        Ok(T::of_bits(was))
    }
}

/// Has the owner's NIC change the word at offset `at` of its segment, without blocking. Returns the old
/// value.
pub(super) async fn change_later(
    transfer: Arc<Transfer>,
    rank: Rank,
    at: u64,
    (verb, kind): (Verb, WordKind),
    [value, expected]: [u64; 2],
) -> Result<u64> {
    match (verb, kind) {
        (Verb::Load, _) => transfer.word_later(rank, at).await,
        (Verb::Add, WordKind::Word64) => transfer.atomic_later(rank, at, Atomic::Add(value)).await,
        (Verb::CompareSwap, _) => {
            let operation = Atomic::CompareSwap { expected, value };
            transfer.atomic_later(rank, at, operation).await
        }
        _ => {
            let mut guess = 0;
            loop {
                let operation = Atomic::CompareSwap {
                    expected: guess,
                    value: after(guess, kind, verb, [value, expected]),
                };
                let was = transfer.atomic_later(rank, at, operation).await?;
                if was == guess {
                    return Ok(was);
                }
                guess = was;
            }
        }
    }
}

/// The value of a word after an operation.
fn after(was: u64, kind: WordKind, verb: Verb, operands: [u64; 2]) -> u64 {
    let word = AtomicU64::new(was);
    // Types rule out operations that are not possible, such as bitwise ones on floats.
    let _ = by_message::apply_wide(&word, kind, verb, operands);
    word.load(Relaxed)
}
