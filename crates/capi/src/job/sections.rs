//! Puts and gets of strided sections and of lists of runs.

use std::ffi::{c_int, c_void};

use hydrant::{IoVector, Level, Rank, Section};

use super::{
    objects::{JOBS, with_memory},
    types::{hydrant_job, hydrant_memory, hydrant_pointer, hydrant_section},
};
use crate::{
    edge::{base, edge, given, input, output, overflow},
    status::Result,
};

/// Puts the bytes that from names, counted from the source, to the bytes of a rank's part that to names, in order. The
/// shapes may differ. The put is remotely complete on return. Other threads may use the bytes between the runs.
///
/// Errors: as hydrant_put; HYDRANT_ERROR_LENGTH if the sections differ in their number of bytes, HYDRANT_ERROR_OVERLAP if
/// to names a byte twice, HYDRANT_ERROR_OVERFLOW, HYDRANT_ERROR_ARGUMENT for too many levels. Nothing is put then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put_section(
    memory: *mut hydrant_memory,
    rank: u32,
    to: *const hydrant_section,
    source: *const c_void,
    from: *const hydrant_section,
) -> c_int {
    edge("hydrant_put_section", || {
        // SAFETY: 1. and 2. C1 and C2.
        let to = unsafe { section(to, "the remote section")? };
        // SAFETY: 1. and 2. C1 and C2.
        let from = unsafe { local_section(from)? };
        let source = base(source, end_of(&from), "the source")?;
        with_memory(memory, |it| {
            // SAFETY: 1. and 2. C1 and C2, for each run.
            Ok(unsafe { it.bytes.put_section_raw(Rank(rank), &to, source, &from) }?)
        })
    })
}

/// Gets the bytes of a rank's part that from names to the bytes that to names, counted from the target, in order.
///
/// Errors: as hydrant_put_section.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_get_section(
    memory: *const hydrant_memory,
    rank: u32,
    from: *const hydrant_section,
    target: *mut c_void,
    to: *const hydrant_section,
) -> c_int {
    edge("hydrant_get_section", || {
        // SAFETY: 1. and 2. C1 and C2.
        let from = unsafe { section(from, "the remote section")? };
        // SAFETY: 1. and 2. C1 and C2.
        let to = unsafe { local_section(to)? };
        let target = base(target, end_of(&to), "the target")?.cast_mut();
        with_memory(memory, |it| {
            // SAFETY: 1. and 2. C1 and C2, for each run.
            Ok(unsafe { it.bytes.get_section_raw(Rank(rank), &from, target, &to) }?)
        })
    })
}

/// As hydrant_put_section, with the remote section counted from a pointer. All bytes from the first to the last of the
/// local section count as used.
///
/// Errors: as hydrant_put_section and hydrant_put_to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put_section_to(
    job: *mut hydrant_job,
    pointer: *const hydrant_pointer,
    to: *const hydrant_section,
    source: *const c_void,
    from: *const hydrant_section,
) -> c_int {
    edge("hydrant_put_section_to", || {
        // SAFETY: 1. and 2. C1 and C2.
        let pointer = unsafe { given(pointer, "the pointer")? };
        // SAFETY: 1. and 2. C1 and C2.
        let to = unsafe { section(to, "the remote section")? };
        // SAFETY: 1. and 2. C1 and C2.
        let from = unsafe { local_section(from)? };
        // SAFETY: 1. and 2. C1 and C2.
        let data: &[u8] = unsafe { input(source.cast(), end_of(&from), "the source")? };
        Ok((JOBS.get(job)?.job).put_section_to(pointer.global(), &to, data, &from)?)
    })
}

/// As hydrant_get_section, with the remote section counted from a pointer. All bytes from the first to the last of the
/// local section count as used.
///
/// Errors: as hydrant_put_section and hydrant_put_to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_get_section_from(
    job: *mut hydrant_job,
    pointer: *const hydrant_pointer,
    from: *const hydrant_section,
    target: *mut c_void,
    to: *const hydrant_section,
) -> c_int {
    edge("hydrant_get_section_from", || {
        // SAFETY: 1. and 2. C1 and C2.
        let pointer = unsafe { given(pointer, "the pointer")? };
        // SAFETY: 1. and 2. C1 and C2.
        let from = unsafe { section(from, "the remote section")? };
        // SAFETY: 1. and 2. C1 and C2.
        let to = unsafe { local_section(to)? };
        // SAFETY: 1. and 2. C1 and C2.
        let data: &mut [u8] = unsafe { output(target.cast(), end_of(&to), "the target")? };
        Ok((JOBS.get(job)?.job).get_section_from(pointer.global(), &from, data, &to)?)
    })
}

/// Puts count runs of run bytes each, in order: from the source at each offset in local, to a rank's part at the offset in
/// remote with the same index. The put is remotely complete on return. Other threads may use the bytes between the runs.
///
/// Errors: as hydrant_put. Nothing is put if a run leaves the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put_list(
    memory: *mut hydrant_memory,
    rank: u32,
    run: usize,
    count: usize,
    remote: *const usize,
    source: *const c_void,
    local: *const usize,
) -> c_int {
    edge("hydrant_put_list", || {
        // SAFETY: 1. and 2. C1 and C2.
        let (list, end) = unsafe { list(run, count, remote, local)? };
        let source = base(source, end, "the source")?;
        with_memory(memory, |it| {
            // SAFETY: 1. and 2. C1 and C2, for each run.
            Ok(unsafe { it.bytes.put_vector_raw(Rank(rank), &list, source) }?)
        })
    })
}

/// Gets count runs of run bytes each, in order: from a rank's part at each offset in remote, to the target at the offset in
/// local with the same index.
///
/// Errors: as hydrant_put_list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_get_list(
    memory: *const hydrant_memory,
    rank: u32,
    run: usize,
    count: usize,
    remote: *const usize,
    target: *mut c_void,
    local: *const usize,
) -> c_int {
    edge("hydrant_get_list", || {
        // SAFETY: 1. and 2. C1 and C2.
        let (list, end) = unsafe { list(run, count, remote, local)? };
        let target = base(target, end, "the target")?.cast_mut();
        with_memory(memory, |it| {
            // SAFETY: 1. and 2. C1 and C2, for each run.
            Ok(unsafe { it.bytes.get_vector_raw(Rank(rank), &list, target) }?)
        })
    })
}

/// As hydrant_put_list, with remote offsets counted from a pointer. All bytes from the source to the last of the runs
/// count as used.
///
/// Errors: as hydrant_put_list and hydrant_put_to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put_list_to(
    job: *mut hydrant_job,
    pointer: *const hydrant_pointer,
    run: usize,
    count: usize,
    remote: *const usize,
    source: *const c_void,
    local: *const usize,
) -> c_int {
    edge("hydrant_put_list_to", || {
        // SAFETY: 1. and 2. C1 and C2.
        let pointer = unsafe { given(pointer, "the pointer")? };
        // SAFETY: 1. and 2. C1 and C2.
        let (list, end) = unsafe { list(run, count, remote, local)? };
        // SAFETY: 1. and 2. C1 and C2.
        let data: &[u8] = unsafe { input(source.cast(), end, "the source")? };
        Ok((JOBS.get(job)?.job).put_vector_to(pointer.global(), &[list], data)?)
    })
}

/// As hydrant_get_list, with remote offsets counted from a pointer. All bytes from the target to the last of the runs
/// count as used.
///
/// Errors: as hydrant_put_list and hydrant_put_to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_get_list_from(
    job: *mut hydrant_job,
    pointer: *const hydrant_pointer,
    run: usize,
    count: usize,
    remote: *const usize,
    target: *mut c_void,
    local: *const usize,
) -> c_int {
    edge("hydrant_get_list_from", || {
        // SAFETY: 1. and 2. C1 and C2.
        let pointer = unsafe { given(pointer, "the pointer")? };
        // SAFETY: 1. and 2. C1 and C2.
        let (list, end) = unsafe { list(run, count, remote, local)? };
        // SAFETY: 1. and 2. C1 and C2.
        let data: &mut [u8] = unsafe { output(target.cast(), end, "the target")? };
        Ok((JOBS.get(job)?.job).get_vector_from(pointer.global(), &[list], data)?)
    })
}

/// The section that C describes.
///
/// # Safety
/// 1. `section` is null, or leads to a section whose levels are null or as many as it says.
/// 2. No other code writes to them meanwhile.
pub(super) unsafe fn section(section: *const hydrant_section, what: &str) -> Result<Section> {
    // SAFETY: 1. and 2. the caller's conditions 1 and 2.
    let it = unsafe { given(section, what)? };
    // More levels than are possible are not read.
    let count = it.level_count.min(Section::MOST_LEVELS + 1);
    // SAFETY: 1. and 2. the caller's conditions 1 and 2.
    let levels = unsafe { input(it.levels, count, "the list of levels")? };
    let levels: Vec<Level> = (levels.iter())
        .map(|level| Level {
            count: level.count,
            stride: level.stride,
        })
        .collect();
    Ok(Section::new(it.start, it.run, &levels)?)
}

/// The section of this process's memory that C describes. If it is empty, it begins at 0, so that it needs no memory.
///
/// # Safety
/// 1. and 2. as [`section`].
pub(super) unsafe fn local_section(given: *const hydrant_section) -> Result<Section> {
    // SAFETY: 1. and 2. the caller's conditions 1 and 2.
    let found = unsafe { section(given, "the local section")? };
    if found.is_empty() {
        return Ok(Section::run(0, 0)?);
    }
    Ok(found)
}

/// Returns the bytes of a buffer that ends with a section.
pub(super) fn end_of(section: &Section) -> usize {
    // A section that was made reaches no further than an address.
    section.start() + section.span()
}

/// The list of runs that C describes, and the bytes of a buffer that ends with the last local run.
///
/// # Safety
/// 1. The lists are null, or have `count` entries.
/// 2. No other code writes to them while the result lives.
pub(super) unsafe fn list<'a>(
    run: usize,
    count: usize,
    remote: *const usize,
    local: *const usize,
) -> Result<(IoVector<'a>, usize)> {
    // SAFETY: 1. and 2. the caller's conditions 1 and 2.
    let remote = unsafe { input(remote, count, "the list of remote offsets")? };
    // SAFETY: 1. and 2. the caller's conditions 1 and 2.
    let local = unsafe { input(local, count, "the list of local offsets")? };
    let end = match local.iter().max() {
        Some(last) if run > 0 => last.checked_add(run),
        _ => Some(0),
    };
    let end = end.ok_or_else(|| overflow("the list of local offsets"))?;
    Ok((IoVector { remote, local, run }, end))
}
