//! Atomic operations by NICs.
//!
//! They add and compare-and-swap; everything else is made of compare-and-swaps, the first of
//! which is a guess that says what there is. Between all of them a word is whatever the last left
//! there, to the bit. Loads are reads of eight bytes, on the own part by the processor: a word
//! is never seen half changed.

use std::{
    fmt,
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use bytemuck::Pod;
use hydrant_conduit::{Atomic, Atomicity, Caps};

use super::{by_message, by_message::Kind, by_message::Verb, sealed::Sealed};
use crate::{
    AtomicsKind, Error, Rank, Result, Settings, Strategy, memory::Symmetric, transfer::Transfer,
};

/// Who changes words of 64 bits in a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Processors.
    Processors,
    /// The NIC of the owner, for everybody.
    Nics,
    /// The same, and processors where the word is mapped: the two respect each other.
    Both,
}

impl Way {
    /// The way of a job: the same at every rank, as settings and capabilities are.
    ///
    /// # Errors
    /// [`Error::Setting`] if NICs are asked for and cannot.
    pub(crate) fn choose(settings: &Settings, caps: &Caps) -> Result<Self> {
        let way = match able(settings, caps) {
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

    /// Whether no processor changes a word of 64 bits.
    pub(crate) fn spares_processors(self) -> bool {
        self == Self::Nics
    }

    /// What ranks compare.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Processors => "words of 64 bits changed by processors",
            Self::Nics => "words of 64 bits changed by NICs",
            Self::Both => "words of 64 bits changed by NICs and processors",
        })
    }
}

/// Among what operations of the network would be atomic, or why there are none.
fn able(settings: &Settings, caps: &Caps) -> Result<Atomicity, String> {
    let conduit = caps.name;
    let atomics = (caps.atomics)
        .ok_or_else(|| format!("the conduit {conduit} has no atomic operations of its own"))?;
    let strategy = settings.registration.strategy;
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
    /// Has the owner's NIC do it; done there when this returns.
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
            (Verb::Add, Kind::Word64) => transfer.atomic(rank, at, Atomic::Add(value))?,
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

/// Has the owner's NIC change the word at `at` of its segment, while the caller does something else:
/// what it was.
pub(super) async fn later(
    transfer: Arc<Transfer>,
    rank: Rank,
    at: u64,
    (verb, kind): (Verb, Kind),
    [value, expected]: [u64; 2],
) -> Result<u64> {
    match (verb, kind) {
        (Verb::Load, _) => transfer.word_later(rank, at).await,
        (Verb::Add, Kind::Word64) => transfer.atomic_later(rank, at, Atomic::Add(value)).await,
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

/// What an operation makes of a word.
fn after(was: u64, kind: Kind, verb: Verb, operands: [u64; 2]) -> u64 {
    let word = AtomicU64::new(was);
    // What cannot be done, as the bitwise operations to a float, nobody can ask for.
    let _ = by_message::apply_wide(&word, kind, verb, operands);
    word.load(Relaxed)
}
