//! The ongoing transfer of an operation.

#![allow(unsafe_code)] // memory is named by its address

use hydrant::{BackgroundHandle, RawOperation, Result as Hydrant};

/// The ongoing transfer of an operation.
pub(crate) enum TransferWork {
    /// A single operation of the network.
    Raw(RawOperation),
    /// Runs that were copied into messages; `None` once the messages were waited for.
    Packed(Option<BackgroundHandle<()>>),
    /// Runs that arrive in messages; `None` once they were stored.
    Unpacked(Option<(BackgroundHandle<Vec<u8>>, Destinations)>),
}

/// The destinations of the runs of a get, and the bytes of each.
pub(crate) struct Destinations(pub(super) Vec<(*mut u8, usize)>);

// SAFETY: no other code uses the memory until the handle was waited for, in any thread, by the
// conditions of `begin_packed`.
unsafe impl Send for Destinations {}

impl Destinations {
    fn fill(self, mut bytes: &[u8]) {
        for (to, len) in self.0 {
            let (run, rest) = bytes.split_at(len);
            // SAFETY: the memory is writable until the handle was waited for, by the conditions of
            // `begin_packed`. The message is another allocation.
            unsafe { std::ptr::copy_nonoverlapping(run.as_ptr(), to, len) };
            bytes = rest;
        }
    }
}

impl TransferWork {
    /// Returns true if the next operation on the same memory may begin as soon as this one has
    /// left.
    pub(super) fn keeps_order(&self) -> bool {
        matches!(self, Self::Raw(raw) if raw.keeps_order())
    }

    /// Returns true if the transfer is known to be over.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Self::Raw(raw) => raw.is_complete(),
            Self::Packed(begun) => begun.is_none(),
            Self::Unpacked(begun) => begun.is_none(),
        }
    }

    pub(super) fn wait_local(&mut self) -> Hydrant<()> {
        match self {
            Self::Raw(raw) => raw.wait_local(),
            Self::Packed(_) => Ok(()),
            Self::Unpacked(_) => self.wait(),
        }
    }

    pub(super) fn wait(&mut self) -> Hydrant<()> {
        match self {
            Self::Raw(raw) => raw.wait(),
            // Where the caller may not wait, as in a handler, the transfer stays as it is.
            Self::Packed(begun) => {
                begun.as_ref().map_or(Ok(()), BackgroundHandle::wait_over)?;
                begun.take().map_or(Ok(()), BackgroundHandle::wait)
            }
            Self::Unpacked(begun) => {
                begun.as_ref().map_or(Ok(()), |it| it.0.wait_over())?;
                let Some((begun, destinations)) = begun.take() else {
                    return Ok(());
                };
                destinations.fill(&begun.wait()?);
                Ok(())
            }
        }
    }

    pub(super) fn test(&mut self) -> Hydrant<bool> {
        let tested = match self {
            Self::Raw(raw) => return raw.test(),
            Self::Packed(begun) => begun.as_mut().map_or(Ok(true), BackgroundHandle::test),
            Self::Unpacked(begun) => begun.as_mut().map_or(Ok(true), |it| it.0.test()),
        };
        match tested {
            Ok(true) => self.wait().map(|()| true),
            Ok(false) => Ok(false),
            Err(cause) => {
                // The caller gets the error, so the transfer counts as over.
                *self = Self::Packed(None);
                Err(cause)
            }
        }
    }
}
