//! Two sections of equally many elements side by side: the first element of one goes with the first
//! of the other, whatever the shapes.

use hydrant_conduit::memory::Runs;

use super::section::{Level, Section};

/// Makes `runs` the loops that two sections have in common, for elements of so many bytes; none
/// where their shapes do not divide each other. Both lie within memory that there is, and are not
/// empty.
#[inline]
pub(super) fn loops(runs: &mut Runs, remote: &Section, local: &Section, size: usize) -> Option<()> {
    let mut theirs = remote.levels().iter().copied();
    let mut ours = local.levels().iter().copied();
    let (mut there, mut here) = (theirs.next(), ours.next());
    runs.reset(size);
    // Neighbours are a run where nothing is within them: a section may go down its columns first.
    let mut is_inmost = true;
    // Both have equally many elements, so they end together.
    while let (Some(outer), Some(inner)) = (there, here) {
        let count = outer.count.min(inner.count);
        there = rest(outer, count)?.or_else(|| theirs.next());
        here = rest(inner, count)?.or_else(|| ours.next());
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

/// What of a level is left when so many of it are taken together: none if that does not come out
/// even, and within that none if nothing is left.
fn rest(level: Level, taken: usize) -> Option<Option<Level>> {
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

/// The pieces that are runs on both sides: where each begins in `remote` and in `local`, and how
/// many elements it has.
pub(super) fn pieces(
    remote: &Section,
    local: &Section,
) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
    let mut sides = [side(remote), side(local)];
    std::iter::from_fn(move || {
        let [Some((there, most)), Some((here, more))] = sides.each_mut().map(Side::current) else {
            return None;
        };
        let count = most.min(more);
        sides.iter_mut().for_each(|side| side.advance(count));
        Some((there, here, count))
    })
}

/// The runs of a section, taken piece by piece.
struct Side<I: Iterator> {
    starts: std::iter::Peekable<I>,
    run: usize,
    /// Elements taken of the next run.
    taken: usize,
}

fn side(section: &Section) -> Side<impl Iterator<Item = usize> + use<>> {
    Side {
        starts: section.starts().peekable(),
        run: section.run_len(),
        taken: 0,
    }
}

impl<I: Iterator<Item = usize>> Side<I> {
    /// Where the next piece begins, and how long it may be.
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
