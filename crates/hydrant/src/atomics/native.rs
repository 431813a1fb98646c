//! Atomic operations by NICs.
//!
//! NICs add and compare-and-swap. All other operations are loops of compare-and-swaps, and the first one
//! guesses the word to learn its value. Each operation sees exactly the bits that the previous one left. A
//! load reads eight bytes; on this rank's own part a processor reads them. So nobody sees a word half
//! changed.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytemuck::Pod;
use hydrant_conduit::Atomic;

use super::{by_message, by_message::Verb, by_message::WordKind, sealed::Sealed};
use crate::{Rank, Result, memory::Symmetric, transfer::Transfer};

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
