//! Accumulates: additions of multiples of elements to those of a rank.

use std::ffi::{c_int, c_void};

use hydrant::{Factor, Number, Rank};

use super::{
    objects::with_memory,
    sections::{end_of, list, local_section, section},
    types::{
        HYDRANT_C32, HYDRANT_C64, HYDRANT_F32, HYDRANT_F64, HYDRANT_I32, HYDRANT_I64, HYDRANT_U32,
        HYDRANT_U64, hydrant_memory, hydrant_section, hydrant_type,
    },
};
use crate::{
    edge::{argument, base, edge, input},
    status::Result,
};

/// Adds factor times each element of the source to the elements from an offset of a rank's part on. The type is
/// HYDRANT_I32, HYDRANT_U32, HYDRANT_I64, HYDRANT_U64, HYDRANT_F32, HYDRANT_F64, HYDRANT_C32 or HYDRANT_C64. The factor
/// leads to one element; null stands for one. The addition is done on return. It is atomic for each element with respect
/// to other accumulates, and not to puts and atomic operations. Bytes are those of whole elements, which may begin at any
/// offset.
///
/// Errors: as hydrant_put; HYDRANT_ERROR_LENGTH if the bytes are no whole elements, HYDRANT_ERROR_ARGUMENT for another type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_accumulate(
    memory: *mut hydrant_memory,
    rank: u32,
    offset: usize,
    r#type: hydrant_type,
    factor: *const c_void,
    source: *const c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_accumulate", || {
        // SAFETY: 1. C1 and C2.
        let factor = unsafe { factor_of(r#type, factor)? };
        // SAFETY: 1. and 2. C1 and C2.
        let data = unsafe { input(source.cast(), bytes, "the source")? };
        with_memory(memory, |it| {
            Ok(it
                .bytes
                .accumulate_bytes(Rank(rank), offset, &factor, data)?)
        })
    })
}

/// As hydrant_accumulate, for sections: see hydrant_put_section. A byte that to names twice is added to twice.
///
/// Errors: as hydrant_accumulate and hydrant_put_section.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_accumulate_section(
    memory: *mut hydrant_memory,
    rank: u32,
    to: *const hydrant_section,
    r#type: hydrant_type,
    factor: *const c_void,
    source: *const c_void,
    from: *const hydrant_section,
) -> c_int {
    edge("hydrant_accumulate_section", || {
        // SAFETY: 1. C1 and C2.
        let factor = unsafe { factor_of(r#type, factor)? };
        // SAFETY: 1. and 2. C1 and C2.
        let to = unsafe { section(to, "the remote section")? };
        // SAFETY: 1. and 2. C1 and C2.
        let from = unsafe { local_section(from)? };
        let source = base(source, end_of(&from), "the source")?;
        with_memory(memory, |it| {
            let rank = Rank(rank);
            // SAFETY: 1. and 2. C1 and C2, for each run.
            Ok(unsafe { (it.bytes).accumulate_section_raw(rank, &to, &factor, source, &from) }?)
        })
    })
}

/// As hydrant_accumulate, for a list of runs: see hydrant_put_list.
///
/// Errors: as hydrant_accumulate and hydrant_put_list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_accumulate_list(
    memory: *mut hydrant_memory,
    rank: u32,
    run: usize,
    count: usize,
    remote: *const usize,
    r#type: hydrant_type,
    factor: *const c_void,
    source: *const c_void,
    local: *const usize,
) -> c_int {
    edge("hydrant_accumulate_list", || {
        // SAFETY: 1. C1 and C2.
        let factor = unsafe { factor_of(r#type, factor)? };
        // SAFETY: 1. and 2. C1 and C2.
        let (list, end) = unsafe { list(run, count, remote, local)? };
        let source = base(source, end, "the source")?;
        with_memory(memory, |it| {
            // SAFETY: 1. and 2. C1 and C2, for each run.
            Ok(unsafe { (it.bytes).accumulate_vector_raw(Rank(rank), &list, &factor, source) }?)
        })
    })
}

/// The factor of C.
///
/// # Safety
/// 1. `factor` is null, or readable for an element of the type, and no other code writes to it meanwhile.
unsafe fn factor_of(number: hydrant_type, factor: *const c_void) -> Result<Factor> {
    let number = match number {
        HYDRANT_I32 | HYDRANT_U32 => Number::I32,
        HYDRANT_I64 | HYDRANT_U64 => Number::I64,
        HYDRANT_F32 => Number::F32,
        HYDRANT_F64 => Number::F64,
        HYDRANT_C32 => Number::C32,
        HYDRANT_C64 => Number::C64,
        other => {
            return Err(argument(format!(
                "{other} is no type of accumulated elements"
            )));
        }
    };
    let mut one = [0; 16];
    let bytes = if factor.is_null() {
        match number {
            Number::I32 | Number::I64 => one[0] = 1,
            Number::F32 | Number::C32 => one[..4].copy_from_slice(&1_f32.to_ne_bytes()),
            Number::F64 | Number::C64 => one[..8].copy_from_slice(&1_f64.to_ne_bytes()),
        }
        &one[..number.size()]
    } else {
        // SAFETY: 1. and 2. the caller's condition 1.
        unsafe { input(factor.cast(), number.size(), "the factor")? }
    };
    Factor::from_bytes(number, bytes).ok_or_else(|| argument("a factor of another size"))
}
