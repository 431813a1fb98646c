//! Checks that memory which the caller names by address lies apart from the mapped memory that it is
//! copied to or from.

use super::unmapped::ByteRun;
use crate::{Error, Result, memory::Mapped};

/// Checks that no run of a mapped part shares a byte with a run of other memory, which is counted from `here`. The
/// spans are the start and the length of all runs of the part, then those of the other memory.
///
/// # Errors
/// [`Error::Overlap`].
pub(super) fn check_apart<I: Iterator<Item = ByteRun>>(
    mapped: &Mapped,
    here: *const u8,
    (there_start, there_span, here_start, here_span): (usize, usize, usize, usize),
    runs: impl Fn() -> I,
) -> Result<()> {
    let there = (mapped.window.as_ptr().addr()).wrapping_add(there_start);
    let first = here.addr().wrapping_add(here_start);
    let ahead = first.wrapping_sub(there);
    // The other memory nearly always lies elsewhere.
    if ahead >= there_span && ahead.wrapping_neg() >= here_span {
        return Ok(());
    }
    let window = mapped.window.as_ptr().addr();
    let both = runs().flat_map(|run| {
        let sides = [(window, run.there), (here.addr(), run.here)];
        sides.map(|(base, at)| (base.wrapping_add(at), run.len))
    });
    // An even place is the part's, an odd one that of the other memory.
    let mut both: Vec<(usize, usize, usize)> = (both.enumerate())
        .map(|(place, (start, len))| (start, len, place % 2))
        .collect();
    both.sort_unstable();
    let mut ends = [0; 2];
    for (start, len, side) in both {
        if start < ends[1 - side] {
            return Err(Error::Overlap {
                addr: first,
                len: here_span,
            });
        }
        ends[side] = ends[side].max(start + len);
    }
    Ok(())
}
