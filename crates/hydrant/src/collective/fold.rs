//! Functions of users that fold elements.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::team::Team;
use crate::Pod;

impl Team {
    /// Runs a user's function while the other members wait. If the function panics, only the end of this
    /// rank can tell them.
    pub(super) fn run_user_function<R>(&self, run: impl FnOnce() -> R) -> R {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|cause| {
            // The panic may fall between two phases.
            self.abandon();
            self.progress.conduit().leave(false);
            resume_unwind(cause)
        })
    }
}

/// A fold by a function of two elements: combines the second slice into the first, element by element, with
/// the first on the left.
pub(super) fn fold_with<T: Pod>(combine: impl Fn(T, T) -> T) -> impl Fn(&mut [T], &[T]) {
    move |into, with| {
        for (into, with) in into.iter_mut().zip(with) {
            *into = combine(*into, *with);
        }
    }
}

/// Folds all blocks of `len` elements into the first, from the left.
pub(super) fn fold_blocks<T: Pod>(blocks: &mut [T], len: usize, fold: &impl Fn(&mut [T], &[T])) {
    let (first, rest) = blocks.split_at_mut(len);
    for block in rest.chunks(len.max(1)) {
        fold(first, block);
    }
}
