//! The bytes of elements.

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
