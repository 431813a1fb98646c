//! Puts and gets of sections and vectors in memory that a pointer names.

use bytemuck::Pod;

use super::{
    pieces::{self, check_fit, named_twice, runs_of},
    pointed::{self, Resolved, resolve},
    section::Section,
    unmapped::{MemoryName, Unmapped},
    vectors::{self, IoVector, all_runs, in_bytes, share_elements},
};
use crate::{
    GlobalPtr, Result,
    memory::{Registry, Symmetric, check_range},
    message::Calls,
    transfer::Transfer,
};

/// The rooms by which a job reaches memory that a pointer names.
#[derive(Clone, Copy)]
pub(crate) struct Means<'a> {
    pub(crate) transfer: &'a Transfer,
    pub(crate) memory: &'a Registry,
    pub(crate) calls: &'a Calls,
}

/// Puts the elements of `data` that `from` names to the elements of `section`, counted from `to`.
///
/// # Errors
/// As [`Job::put_section_to`](crate::Job::put_section_to).
pub(crate) fn put<T: Pod>(
    means: Means<'_>,
    (to, section): (GlobalPtr<T>, &Section),
    data: &[T],
    from: &Section,
) -> Result<()> {
    let unmapped = match means.find(&to)? {
        FoundMemory::Symmetric(memory, index) => {
            return memory.put_section(to.rank(), &section.offset(index)?, data, from);
        }
        FoundMemory::Exposed(unmapped) => unmapped,
    };
    check_fit(section, data.len(), from)?;
    check_end(means, &to, (section.start(), section.span()))?;
    if section.overlaps_itself() {
        return Err(named_twice(section));
    }
    let (extent, runs) = (
        pieces::extent::<T>(section, from),
        runs_of::<T>(section, from),
    );
    unmapped.put(bytemuck::cast_slice(data), extent, runs)
}

/// Gets the elements of `section`, counted from `from`, into the elements of `data` that `to`
/// names.
///
/// # Errors
/// As [`Job::get_section_from`](crate::Job::get_section_from).
pub(crate) fn get<T: Pod>(
    means: Means<'_>,
    (from, section): (GlobalPtr<T>, &Section),
    data: &mut [T],
    to: &Section,
) -> Result<()> {
    let unmapped = match means.find(&from)? {
        FoundMemory::Symmetric(memory, index) => {
            return memory.get_section(from.rank(), &section.offset(index)?, data, to);
        }
        FoundMemory::Exposed(unmapped) => unmapped,
    };
    check_fit(section, data.len(), to)?;
    check_end(means, &from, (section.start(), section.span()))?;
    if to.overlaps_itself() {
        return Err(named_twice(to));
    }
    let (extent, runs) = (pieces::extent::<T>(section, to), runs_of::<T>(section, to));
    unmapped.get(bytemuck::cast_slice_mut(data), extent, runs)
}

/// Puts the runs of `data` that `vectors` list, counted from `to`.
///
/// # Errors
/// As [`Job::put_vector_to`](crate::Job::put_vector_to).
pub(crate) fn put_vector<T: Pod>(
    means: Means<'_>,
    (to, vectors): (GlobalPtr<T>, &[IoVector<'_>]),
    data: &[T],
) -> Result<()> {
    let unmapped = match means.find(&to)? {
        FoundMemory::Symmetric(memory, index) => {
            return memory.put_vector_from(to.rank(), index, vectors, data);
        }
        FoundMemory::Exposed(unmapped) => unmapped,
    };
    check_vectors(means, &to, vectors, data.len())?;
    let mut runs = all_runs(vectors);
    if share_elements(runs.clone().map(|(there, _, run)| (there, run))) {
        return runs.try_for_each(|(there, here, run)| {
            let there = to.offset(there as isize);
            pointed::put(means.transfer, means.memory, there, &data[here..here + run])
        });
    }
    let extent = vectors::extent::<T>(runs.clone());
    unmapped.put(bytemuck::cast_slice(data), extent, in_bytes::<T>(runs))
}

/// Gets the runs that `vectors` list, counted from `from`, into `data`.
///
/// # Errors
/// As [`Job::get_vector_from`](crate::Job::get_vector_from).
pub(crate) fn get_vector<T: Pod>(
    means: Means<'_>,
    (from, vectors): (GlobalPtr<T>, &[IoVector<'_>]),
    data: &mut [T],
) -> Result<()> {
    let unmapped = match means.find(&from)? {
        FoundMemory::Symmetric(memory, index) => {
            return memory.get_vector_from(from.rank(), index, vectors, data);
        }
        FoundMemory::Exposed(unmapped) => unmapped,
    };
    check_vectors(means, &from, vectors, data.len())?;
    let mut runs = all_runs(vectors);
    if share_elements(runs.clone().map(|(_, here, run)| (here, run))) {
        return runs.try_for_each(|(there, here, run)| {
            let there = from.offset(there as isize);
            pointed::get(
                means.transfer,
                means.memory,
                there,
                &mut data[here..here + run],
            )
        });
    }
    let extent = vectors::extent::<T>(runs.clone());
    unmapped.get(bytemuck::cast_slice_mut(data), extent, in_bytes::<T>(runs))
}

/// The memory that a pointer names.
enum FoundMemory<'a, T> {
    Symmetric(Symmetric<T>, usize),
    Exposed(Unmapped<'a>),
}

impl<'a> Means<'a> {
    fn find<T: Pod>(self, pointer: &GlobalPtr<T>) -> Result<FoundMemory<'a, T>> {
        let at = match resolve(self.transfer, self.memory, pointer)? {
            Resolved::Symmetric(memory, index) => return Ok(FoundMemory::Symmetric(memory, index)),
            Resolved::Extent(at) => at,
        };
        Ok(FoundMemory::Exposed(Unmapped {
            transfer: self.transfer,
            calls: self.calls,
            rank: pointer.rank(),
            at,
            name: MemoryName::Exposed(at.key.0),
        }))
    }
}

/// Has the owner refuse elements that leave its exposed buffer: `span` elements from `start` on.
/// This gets the last of them, before anything is copied or buffers are allocated for a large
/// section.
fn check_end<T: Pod>(
    means: Means<'_>,
    pointer: &GlobalPtr<T>,
    (start, span): (usize, usize),
) -> Result<()> {
    let first = i64::try_from(pointer.bytes_in()).unwrap_or(i64::MAX);
    let len = (i64::MAX - first) as usize / size_of::<T>();
    // A pointer to before the buffer names no element, even if the last element would lie within.
    check_range(start, span, len)?;
    if span == 0 {
        return Ok(());
    }
    let last = pointer.offset((start + span - 1) as isize);
    pointed::get(means.transfer, means.memory, last, &mut [T::zeroed()])
}

/// Checks vectors as a whole, as [`check_end`] does.
fn check_vectors<T: Pod>(
    means: Means<'_>,
    pointer: &GlobalPtr<T>,
    vectors: &[IoVector<'_>],
    buffer: usize,
) -> Result<()> {
    vectors::check(vectors, (0, usize::MAX), buffer)?;
    let ends = all_runs(vectors).map(|(there, _, run)| there + run);
    let first = all_runs(vectors)
        .map(|(there, ..)| there)
        .min()
        .unwrap_or(0);
    check_end(means, pointer, (first, ends.max().unwrap_or(0) - first))
}
