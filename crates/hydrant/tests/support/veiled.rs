//! A job whose ranks are threads of the test and reach no memory but their own directly, as
//! over a network.

#![allow(unsafe_code)] // implements the contract

use hydrant::{Job, JobBuilder, Rank};
use hydrant_conduit::{Conduit, Forward, WakeWord, Window};

/// A conduit that does not show the memory of peers.
struct Veiled(Box<dyn Conduit>);

/// A builder with a small heap.
pub(crate) fn builder() -> JobBuilder {
    Job::builder()
        .expect("the settings are valid")
        .heap(64 << 20)
        .through(|conduit| Box::new(Veiled(conduit)))
}

// SAFETY: every call is handed on to a conduit that keeps the contract, which may map less.
unsafe impl Forward for Veiled {
    fn inner(&self) -> &dyn Conduit {
        &*self.0
    }

    fn window(&self, peer: Rank) -> Option<&Window> {
        (self.0.window(peer)).filter(|_| peer == self.0.rank())
    }

    fn wake_word(&self, peer: Rank) -> Option<&WakeWord> {
        (self.0.wake_word(peer)).filter(|_| peer == self.0.rank())
    }
}
