//! Words of 32 and 64 bits in symmetric memory, which C names by their offset in bytes.

use hydrant::Symmetric;

use super::objects::MemoryObject;
use crate::status::{CallFailure, HYDRANT_ERROR_ALIGNMENT, HYDRANT_ERROR_BOUNDS, Result};

/// Returns the index of the word of 64 bits at an offset.
pub(super) fn word_at(memory: &MemoryObject, offset: usize) -> Result<usize> {
    index_of(&memory.words, memory.bytes.len(), offset)
}

pub(super) fn words_at(memory: &MemoryObject, offsets: &[usize]) -> Result<Vec<usize>> {
    offsets.iter().map(|at| word_at(memory, *at)).collect()
}

/// Returns the index of the element at a byte offset.
#[inline]
pub(super) fn index_of<T: hydrant::Pod>(
    memory: &Symmetric<T>,
    bytes: usize,
    offset: usize,
) -> Result<usize> {
    let size = size_of::<T>();
    let (index, rest) = (offset / size, offset % size);
    if rest != 0 {
        let text = format!("offset {offset} is not a multiple of {size}, the bytes of the word");
        return Err(CallFailure::new(HYDRANT_ERROR_ALIGNMENT, text));
    }
    if index >= memory.len() {
        let text = format!("{size} bytes at offset {offset} are out of bounds: there are {bytes}");
        return Err(CallFailure::new(HYDRANT_ERROR_BOUNDS, text));
    }
    Ok(index)
}
