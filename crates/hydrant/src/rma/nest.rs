//! Pairs the elements of two sections in order: the first of one with the first of the other,
//! whatever the shapes. Both have the same number of elements.

use hydrant_conduit::memory::Runs;

use super::section::{Level, Section};

/// Sets `runs` to the loops that two sections share, for elements of `size` bytes. Returns `None`
/// if their shapes do not divide each other. Both sections lie within existing memory and are not
/// empty.
#[inline]
pub(super) fn loops(runs: &mut Runs, remote: &Section, local: &Section, size: usize) -> Option<()> {
    let mut theirs = remote.levels().iter().copied();
    let mut ours = local.levels().iter().copied();
    let (mut there, mut here) = (theirs.next(), ours.next());
    runs.reset(size);
    // Neighbours form a run only in the innermost level, because a section may go down its columns
    // first.
    let mut is_inmost = true;
    // Both sections have the same number of elements, so they end together.
    while let (Some(outer), Some(inner)) = (there, here) {
        let count = outer.count.min(inner.count);
        there = remaining(outer, count)?.or_else(|| theirs.next());
        here = remaining(inner, count)?.or_else(|| ours.next());
        if is_inmost && outer.stride == 1 && inner.stride == 1 {
            runs.reset(count * size);
            is_inmost = false;
            continue;
        }
        is_inmost = false;
        (runs.repeat(count, outer.stride * size, inner.stride * size)).ok()?;
    }
    Some(())
}

/// Returns the rest of a level after `taken` of its repetitions are used. Returns `None` if that
/// does not divide the level, and `Some(None)` if nothing is left.
fn remaining(level: Level, taken: usize) -> Option<Option<Level>> {
    if level.count == taken {
        return Some(None);
    }
    (level.count.is_multiple_of(taken)).then(|| {
        Some(Level {
            count: level.count / taken,
            stride: level.stride * taken,
        })
    })
}

/// Returns the pieces that are runs on both cursors: the start in `remote`, the start in `local`, and
/// the number of elements.
pub(super) fn pieces(
    remote: &Section,
    local: &Section,
) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
    let mut cursors = [cursor(remote), cursor(local)];
    std::iter::from_fn(move || {
        let [Some((there, most)), Some((here, more))] = cursors.each_mut().map(RunCursor::current)
        else {
            return None;
        };
        let count = most.min(more);
        cursors.iter_mut().for_each(|cursor| cursor.advance(count));
        Some((there, here, count))
    })
}

/// The runs of a section, taken piece by piece.
struct RunCursor<I: Iterator> {
    starts: std::iter::Peekable<I>,
    run: usize,
    /// The elements already taken of the current run.
    taken: usize,
}

fn cursor(section: &Section) -> RunCursor<impl Iterator<Item = usize> + use<>> {
    RunCursor {
        starts: section.starts().peekable(),
        run: section.run_len(),
        taken: 0,
    }
}

impl<I: Iterator<Item = usize>> RunCursor<I> {
    /// Returns the start of the next piece, and its most elements.
    fn current(&mut self) -> Option<(usize, usize)> {
        let start = *self.starts.peek()?;
        Some((start + self.taken, self.run - self.taken))
    }

    fn advance(&mut self, count: usize) {
        self.taken += count;
        if self.taken == self.run {
            self.taken = 0;
            self.starts.next();
        }
    }
}
