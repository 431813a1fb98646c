//! Sections of memory that a pointer names.

use std::ops::Range;

use bytemuck::Pod;

use super::{
    nest,
    pieces::{check_fit, named_twice},
    pointed::{self, Resolved, resolve},
    section::Section,
};
use crate::{
    GlobalPtr, Result,
    memory::{Registry, check_range},
    transfer::Transfer,
};

/// Puts the elements that `from` names of `data` where `section` says, from where `to` points.
///
/// # Errors
/// As [`Job::put_section_to`](crate::Job::put_section_to).
pub(crate) fn put<T: Pod>(
    transfer: &Transfer,
    memory: &Registry,
    (to, section): (GlobalPtr<T>, &Section),
    data: &[T],
    from: &Section,
) -> Result<()> {
    if let Resolved::Symmetric(memory, index) = resolve(transfer, memory, &to)? {
        return memory.put_section(to.rank(), &section.offset(index)?, data, from);
    }
    check_fit(section, data.len(), from)?;
    if section.overlaps_itself() {
        return Err(named_twice(section));
    }
    each_piece(&to, section, from, |there, here| {
        pointed::put(transfer, memory, there, &data[here])
    })
}

/// Gets the elements that `section` names, from where `from` points, into those of `data` that `to`
/// names.
///
/// # Errors
/// As [`Job::get_section_from`](crate::Job::get_section_from).
pub(crate) fn get<T: Pod>(
    transfer: &Transfer,
    memory: &Registry,
    (from, section): (GlobalPtr<T>, &Section),
    data: &mut [T],
    to: &Section,
) -> Result<()> {
    if let Resolved::Symmetric(memory, index) = resolve(transfer, memory, &from)? {
        return memory.get_section(from.rank(), &section.offset(index)?, data, to);
    }
    check_fit(section, data.len(), to)?;
    if to.overlaps_itself() {
        return Err(named_twice(to));
    }
    each_piece(&from, section, to, |there, here| {
        pointed::get(transfer, memory, there, &mut data[here])
    })
}

/// Does each piece of an exposed buffer, the last one first: it reaches furthest, so that its owner
/// refuses what leaves the buffer before anything is copied.
fn each_piece<T: Pod>(
    pointer: &GlobalPtr<T>,
    remote: &Section,
    local: &Section,
    mut act: impl FnMut(GlobalPtr<T>, Range<usize>) -> Result<()>,
) -> Result<()> {
    let first = i64::try_from(pointer.bytes_in()).unwrap_or(i64::MAX);
    let len = (i64::MAX - first) as usize / size_of::<T>();
    // A pointer to before the buffer names nothing, even if the last piece would lie within.
    check_range(remote.start(), remote.span(), len)?;
    let pieces: Vec<_> = nest::pieces(remote, local).collect();
    let last = pieces.len().saturating_sub(1);
    for (there, here, count) in pieces[last..].iter().chain(&pieces[..last]) {
        act(pointer.offset(*there as isize), *here..here + count)?;
    }
    Ok(())
}
