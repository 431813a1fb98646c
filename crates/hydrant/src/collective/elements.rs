//! Elements: their bytes, and room for them.

use super::team::Team;
use crate::{Error, Pod, Result};

/// Checks that elements have a size.
///
/// # Errors
/// [`Error::ZeroSized`].
pub(super) fn sized<T: Pod>() -> Result<()> {
    if size_of::<T>() > 0 {
        Ok(())
    } else {
        Err(Error::ZeroSized {
            what: std::any::type_name::<T>(),
        })
    }
}

/// The bytes of elements; none if they have no size.
pub(super) fn bytes<T: Pod>(data: &[T]) -> &[u8] {
    if size_of::<T>() == 0 {
        &[]
    } else {
        bytemuck::cast_slice(data)
    }
}

/// As [`bytes`].
pub(super) fn bytes_mut<T: Pod>(data: &mut [T]) -> &mut [u8] {
    if size_of::<T>() == 0 {
        &mut []
    } else {
        bytemuck::cast_slice_mut(data)
    }
}

impl Team {
    /// Allocates zeroed elements to receive into.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn buffer<T: Pod>(&self, count: Option<usize>) -> Result<Vec<T>> {
        let mut buffer = Vec::new();
        match count {
            Some(count) if buffer.try_reserve_exact(count).is_ok() => {
                buffer.resize(count, T::zeroed());
                Ok(buffer)
            }
            _ => Err(Error::OutOfMemory {
                rank: self.progress.rank,
                wanted: count.map_or(u64::MAX, |count| {
                    count.saturating_mul(size_of::<T>()) as u64
                }),
                available: 0,
                remedy: "the result of a collective must fit the memory of one process",
            }),
        }
    }
}
