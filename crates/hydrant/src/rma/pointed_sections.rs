//! Sections of memory that a pointer names.

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
    check_end(transfer, memory, &to, section)?;
    if section.overlaps_itself() {
        return Err(named_twice(section));
    }
    nest::pieces(section, from).try_for_each(|(there, here, count)| {
        let there = to.offset(there as isize);
        pointed::put(transfer, memory, there, &data[here..here + count])
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
    check_end(transfer, memory, &from, section)?;
    if to.overlaps_itself() {
        return Err(named_twice(to));
    }
    nest::pieces(section, to).try_for_each(|(there, here, count)| {
        let there = from.offset(there as isize);
        pointed::get(transfer, memory, there, &mut data[here..here + count])
    })
}

/// Has the owner refuse a section that leaves its exposed buffer, by a get of the last element, before
/// anything is copied and before room is made for so many elements as a section may name.
fn check_end<T: Pod>(
    transfer: &Transfer,
    memory: &Registry,
    pointer: &GlobalPtr<T>,
    section: &Section,
) -> Result<()> {
    let first = i64::try_from(pointer.bytes_in()).unwrap_or(i64::MAX);
    let len = (i64::MAX - first) as usize / size_of::<T>();
    // A pointer to before the buffer names nothing, even if the last element would lie within.
    check_range(section.start(), section.span(), len)?;
    if section.is_empty() {
        return Ok(());
    }
    let last = pointer.offset((section.start() + section.span() - 1) as isize);
    pointed::get(transfer, memory, last, &mut [T::zeroed()])
}
