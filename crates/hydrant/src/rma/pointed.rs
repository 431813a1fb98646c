//! Puts and gets through global pointers.

use bytemuck::Pod;
use hydrant_conduit::{Key, Posted, Remote};

use super::contiguous::place;
use crate::{
    Error, GlobalPtr, Rank, Result,
    counters::Count,
    memory::{PointerTarget, Registry, Symmetric, overlap},
    transfer::Transfer,
};

/// The memory that a checked pointer leads to.
pub(crate) enum Resolved<T> {
    /// An element of symmetric memory.
    Symmetric(Symmetric<T>, usize),
    /// An offset in an exposed buffer, which its owner checks on access.
    Extent(Remote),
}

/// Puts `data` to the memory that `to` points to. The put is remotely complete on return.
///
/// # Errors
/// As [`Job::put_to`](crate::Job::put_to).
#[track_caller]
pub(crate) fn put<T: Pod>(
    transfer: &Transfer,
    memory: &Registry,
    to: GlobalPtr<T>,
    data: &[T],
) -> Result<()> {
    match resolve(transfer, memory, &to)? {
        Resolved::Symmetric(memory, index) => memory.put(to.rank(), index, data),
        Resolved::Extent(remote) => {
            let bytes: &[u8] = bytemuck::cast_slice(data);
            let progress = &transfer.progress;
            (progress.tally).add_each([(Count::Puts, 1), (Count::PutBytes, bytes.len() as u64)]);
            (transfer.write(to.rank(), remote, bytes)).map_err(in_elements::<T>(data.len()))?;
            progress.conduit().notify(to.rank());
            Ok(())
        }
    }
}

/// Gets elements from the memory that `from` points to.
///
/// # Errors
/// As [`Job::get_from`](crate::Job::get_from).
#[track_caller]
pub(crate) fn get<T: Pod>(
    transfer: &Transfer,
    memory: &Registry,
    from: GlobalPtr<T>,
    data: &mut [T],
) -> Result<()> {
    match resolve(transfer, memory, &from)? {
        Resolved::Symmetric(memory, index) => memory.get(from.rank(), index, data),
        Resolved::Extent(remote) => {
            let count = data.len();
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(data);
            let progress = &transfer.progress;
            (progress.tally).add_each([(Count::Gets, 1), (Count::GetBytes, bytes.len() as u64)]);
            (transfer.read(from.rank(), remote, bytes)).map_err(in_elements::<T>(count))
        }
    }
}

/// Checks a pointer, except for the length of the access.
pub(crate) fn resolve<T: Pod>(
    transfer: &Transfer,
    memory: &Registry,
    pointer: &GlobalPtr<T>,
) -> Result<Resolved<T>> {
    transfer.progress.check_origin()?;
    let forged = |why| Error::ForgedPointer { why };
    let target = pointer.target().ok_or(forged("it is no pointer"))?;
    if pointer.job() != transfer.progress.id {
        return Err(Error::ForeignHandle {
            what: "global pointer",
        });
    }
    transfer.progress.check_rank(pointer.rank())?;
    let bytes = pointer.bytes_in();
    let what = std::any::type_name::<T>();
    let align = align_of::<T>();
    let size = size_of::<T>();
    if size == 0 {
        return Err(Error::ZeroSized { what });
    }
    match target {
        PointerTarget::Symmetric(number) => {
            let block = memory.find(number)?;
            let offset = usize::try_from(bytes).map_err(|_| outside(&block.len, size))?;
            if !offset.is_multiple_of(size) {
                return Err(Error::Misaligned {
                    offset: bytes,
                    align: size,
                    what,
                });
            }
            let elements = block.len / size;
            if offset / size > elements {
                return Err(outside(&block.len, size));
            }
            Ok(Resolved::Symmetric(
                Symmetric::new(block, elements),
                offset / size,
            ))
        }
        PointerTarget::Extent(key) => {
            if Key(key) == Key::ANY || Key(key) == Key::SEGMENT {
                return Err(forged("its key belongs to no exposed buffer"));
            }
            if !bytes.is_multiple_of(align as u64) {
                return Err(Error::Misaligned {
                    offset: bytes,
                    align,
                    what,
                });
            }
            // For an allocation, its own state tells.
            transfer.progress.check_running()?;
            Ok(Resolved::Extent(Remote {
                key: Key(key),
                offset: bytes,
            }))
        }
    }
}

/// The memory that a pointer names, as the conduit names it. It is held until an access has begun.
/// Meanwhile [`exclusive`](crate::Job::exclusive) refuses this memory, and memory that is allocated
/// in its place.
pub(super) struct HeldRemote<T> {
    pub(super) rank: Rank,
    pub(super) remote: Remote,
    _memory: Option<Symmetric<T>>,
}

/// Returns the conduit's name of `count` elements at a pointer.
pub(super) fn resolve_remote<T: Pod>(
    transfer: &Transfer,
    memory: &Registry,
    pointer: &GlobalPtr<T>,
    count: usize,
) -> Result<HeldRemote<T>> {
    let (remote, held) = match resolve(transfer, memory, pointer)? {
        Resolved::Symmetric(memory, index) => {
            let remote = place(memory.block(), memory.offset(index, count)?);
            (remote, Some(memory))
        }
        Resolved::Extent(remote) => (remote, None),
    };
    Ok(HeldRemote {
        rank: pointer.rank(),
        remote,
        _memory: held,
    })
}

/// Checks that a buffer lies apart from the part of a segment that it is put to or got from.
///
/// # Errors
/// [`Error::Overlap`].
pub(super) fn check_apart(
    transfer: &Transfer,
    rank: Rank,
    remote: Remote,
    bytes: &[u8],
) -> Result<()> {
    if remote.key == Key::SEGMENT
        && let Some(window) = transfer.progress.conduit().window(rank)
        && window.overlaps(remote.offset as usize, bytes.len(), bytes)
    {
        return Err(overlap(bytes));
    }
    Ok(())
}

/// Called when a write has begun: wakes waiters for the memory if the write is done.
pub(super) fn notify_if_done(transfer: &Transfer, rank: Rank, posted: Posted) {
    if posted == Posted::Done {
        transfer.progress.conduit().notify(rank);
    }
}

/// Reports in elements where an access leaves an exposed buffer.
pub(super) fn in_elements<T>(count: usize) -> impl Fn(Error) -> Error {
    let elements = |bytes: u64| (bytes / size_of::<T>().max(1) as u64) as usize;
    move |error| match error {
        Error::Conduit(hydrant_conduit::Error::OutOfExtent { offset, extent, .. }) => {
            Error::OutOfBounds {
                index: elements(offset),
                count,
                len: elements(extent),
            }
        }
        other => other,
    }
}

fn outside(len: &usize, size: usize) -> Error {
    Error::OutOfBounds {
        index: usize::MAX,
        count: 1,
        len: len / size.max(1),
    }
}
