//! Puts and gets through global pointers.

use bytemuck::Pod;
use hydrant_conduit::{Key, Posted, Remote};

use super::contiguous::place;
use crate::{
    Error, GlobalPtr, Job, Rank, Result,
    counters::Count,
    job::Core,
    memory::{Symmetric, Target, overlap},
    progress,
};

/// What a pointer comes to, once checked.
pub(super) enum Resolved<T> {
    /// An element of symmetric memory.
    Symmetric(Symmetric<T>, usize),
    /// A place in an extent, which its owner's table checks on access.
    Extent(Remote),
}

impl Job {
    /// Puts `data` to where `to` points. Remotely complete on return.
    ///
    /// # Errors
    /// As [`Symmetric::put`]; [`Error::ForeignHandle`] for a pointer of another job,
    /// [`Error::ForgedPointer`] for one that no job made, [`Error::Misaligned`],
    /// [`Error::Revoked`] if the exposed buffer was taken back.
    pub fn put_to<T: Pod>(&self, to: GlobalPtr<T>, data: &[T]) -> Result<()> {
        let core = self.core();
        match core.resolve(&to)? {
            Resolved::Symmetric(memory, index) => memory.put(to.rank(), index, data),
            Resolved::Extent(remote) => {
                let bytes: &[u8] = bytemuck::cast_slice(data);
                core.tally.one(Count::Puts);
                core.tally.add(Count::PutBytes, bytes.len() as u64);
                core.write(to.rank(), remote, bytes)
                    .map_err(in_elements::<T>(data.len()))?;
                core.conduit.notify(to.rank());
                Ok(())
            }
        }
    }

    /// Gets elements from where `from` points.
    ///
    /// # Errors
    /// As [`put_to`](Self::put_to).
    pub fn get_from<T: Pod>(&self, from: GlobalPtr<T>, data: &mut [T]) -> Result<()> {
        let core = self.core();
        match core.resolve(&from)? {
            Resolved::Symmetric(memory, index) => memory.get(from.rank(), index, data),
            Resolved::Extent(remote) => {
                let count = data.len();
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(data);
                core.tally.one(Count::Gets);
                core.tally.add(Count::GetBytes, bytes.len() as u64);
                core.read(from.rank(), remote, bytes)
                    .map_err(in_elements::<T>(count))
            }
        }
    }

    /// Waits until all puts and gets of this rank so far are complete, remotely: OpenSHMEM's
    /// quiet.
    ///
    /// # Errors
    /// [`Error::InHandler`]; [`Error::PeerLost`] if any rank is lost, for a put that is a
    /// plain store does not notice.
    pub fn quiet(&self) -> Result<()> {
        progress::may_wait("quiet")?;
        self.fence()?;
        self.core().check_all_present()
    }

    /// Orders this rank's puts: those before are seen, by each peer, no later than those
    /// after.
    ///
    /// # Errors
    /// [`Error::InHandler`].
    pub fn fence(&self) -> Result<()> {
        progress::may_wait("fence")?;
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.core().glance();
        // Pending operations are ordered by none of today's conduits: wait for them.
        self.core().finish_all()
    }
}

impl Core {
    /// Checks a pointer, but for the length of the access.
    pub(super) fn resolve<T: Pod>(&self, pointer: &GlobalPtr<T>) -> Result<Resolved<T>> {
        let forged = |why| Error::ForgedPointer { why };
        let target = pointer.target().ok_or(forged("it is no pointer"))?;
        if pointer.job() != self.id {
            return Err(Error::ForeignHandle {
                what: "global pointer",
            });
        }
        self.check_rank(pointer.rank())?;
        let bytes = pointer.bytes_in();
        let what = std::any::type_name::<T>();
        let align = align_of::<T>();
        let size = size_of::<T>();
        if size == 0 {
            return Err(Error::ZeroSized { what });
        }
        match target {
            Target::Symmetric(number) => {
                let block = self.memory.find(number)?;
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
            Target::Extent(key) => {
                if Key(key) == Key::ANY || Key(key) == Key::SEGMENT {
                    return Err(forged("its key is none of an exposed buffer"));
                }
                if !bytes.is_multiple_of(align as u64) {
                    return Err(Error::Misaligned {
                        offset: bytes,
                        align,
                        what,
                    });
                }
                Ok(Resolved::Extent(Remote {
                    key: Key(key),
                    offset: bytes,
                }))
            }
        }
    }

    /// Where `count` elements at a pointer lie, as the conduit says it.
    pub(super) fn remote<T: Pod>(
        &self,
        pointer: &GlobalPtr<T>,
        count: usize,
    ) -> Result<(Rank, Remote)> {
        let remote = match self.resolve(pointer)? {
            Resolved::Symmetric(memory, index) => {
                place(memory.block(), memory.offset(index, count)?)
            }
            Resolved::Extent(remote) => remote,
        };
        Ok((pointer.rank(), remote))
    }

    /// Begins or does a write of borrowed elements; see [`Core::begin_write`].
    pub(super) fn check_apart(&self, rank: Rank, remote: Remote, bytes: &[u8]) -> Result<()> {
        if remote.key == Key::SEGMENT
            && let Some(window) = self.conduit.window(rank)
            && window.overlaps(remote.offset as usize, bytes.len(), bytes)
        {
            return Err(overlap(bytes));
        }
        Ok(())
    }

    pub(super) fn touched(&self, rank: Rank, posted: Posted) {
        if posted == Posted::Done {
            self.conduit.notify(rank);
        }
    }
}

/// Says in elements, as it was asked, where an access leaves an exposed buffer.
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
