//! Reductions.

use std::ffi::{c_int, c_void};

use hydrant::{TeamRank, half, num_complex};

use super::{
    collectives::apart,
    objects::TEAMS,
    types::{
        HYDRANT_BF16, HYDRANT_C32, HYDRANT_C64, HYDRANT_F16, HYDRANT_F32, HYDRANT_F64, HYDRANT_I8,
        HYDRANT_I16, HYDRANT_I32, HYDRANT_I64, HYDRANT_U8, HYDRANT_U16, HYDRANT_U32, HYDRANT_U64,
        hydrant_op, hydrant_team, hydrant_type, no_type, reduction,
    },
};
use crate::{
    edge::{argument, edge, input, output, times},
    status::Result,
};

/// Runs a block with `$T` as the Rust type of a number of C.
macro_rules! with_type {
    ($number:expr, |$T:ident| $body:expr) => {
        with_type!(@ $number, $T, $body,
            HYDRANT_U8 u8, HYDRANT_I8 i8, HYDRANT_U16 u16, HYDRANT_I16 i16, HYDRANT_U32 u32,
            HYDRANT_I32 i32, HYDRANT_U64 u64, HYDRANT_I64 i64, HYDRANT_F32 f32, HYDRANT_F64 f64,
            HYDRANT_F16 half::f16, HYDRANT_BF16 half::bf16,
            HYDRANT_C32 num_complex::Complex<f32>, HYDRANT_C64 num_complex::Complex<f64>)
    };
    (@ $number:expr, $T:ident, $body:expr, $($known:ident $type:ty),+) => {
        match $number {
            $($known => {
                type $T = $type;
                $body
            })+
            other => return Err(no_type(other)),
        }
    };
}
pub(super) use with_type;

/// A function of C that makes one element of two: it changes the first, and only reads the second.
pub type hydrant_combine_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, into: *mut c_void, with: *const c_void)>;

/// Reduces count elements of every member, index by index, to the member root. There the result is stored. Elsewhere
/// result is ignored, unless mine is null: then the elements of this member lie in result, at the root, too. Elements are
/// combined in the order of members, so that the result does not depend on the algorithm.
///
/// Errors: as hydrant_barrier; HYDRANT_ERROR_RANK, HYDRANT_ERROR_OPERATION if the type has no such operation,
/// HYDRANT_ERROR_ARGUMENT, HYDRANT_ERROR_ALIGNMENT, HYDRANT_ERROR_OVERLAP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_reduce(
    team: *mut hydrant_team,
    root: u32,
    mine: *const c_void,
    result: *mut c_void,
    count: usize,
    r#type: hydrant_type,
    op: hydrant_op,
) -> c_int {
    edge("hydrant_reduce", || {
        let (team, op) = (TEAMS.get(team)?, reduction(op)?);
        let team = team.team();
        let is_root = team.rank().0 == root;
        with_type!(r#type, |T| {
            let bytes = times(count, size_of::<T>(), "the elements")?;
            let source = if mine.is_null() {
                result.cast_const()
            } else {
                mine
            };
            if is_root && !mine.is_null() {
                apart((mine, bytes), (result, bytes))?;
                crate::edge::lent(result, bytes, "the room for the result")?;
            }
            // SAFETY: 1. and 2. C1 and C2.
            let data: &[T] = unsafe { input(source.cast(), count, "the elements")? };
            if let Some(reduced) = team.reduce(TeamRank(root), data, op)? {
                // SAFETY: 1. and 2. C1 and C2. `data` is not used any more.
                let room = unsafe { output(result.cast::<T>(), count, "the room for the result")? };
                room.copy_from_slice(&reduced);
            }
        });
        Ok(())
    })
}

/// Reduces count elements of every member, index by index, on all members, as hydrant_reduce. If mine is null, the
/// elements of this member lie in result.
///
/// Errors: as hydrant_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_all_reduce(
    team: *mut hydrant_team,
    mine: *const c_void,
    result: *mut c_void,
    count: usize,
    r#type: hydrant_type,
    op: hydrant_op,
) -> c_int {
    edge("hydrant_all_reduce", || {
        let (team, op) = (TEAMS.get(team)?, reduction(op)?);
        with_type!(r#type, |T| {
            // SAFETY: 1. and 2. C1 and C2.
            let data = unsafe { own::<T>(mine, result, count)? };
            Ok(team.team().all_reduce(data, op)?)
        })
    })
}

/// Reduces the elements of every member, and gives each member count elements of the result, in the order of members. So
/// data has count elements for each member.
///
/// Errors: as hydrant_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_reduce_scatter(
    team: *mut hydrant_team,
    data: *const c_void,
    mine: *mut c_void,
    count: usize,
    r#type: hydrant_type,
    op: hydrant_op,
) -> c_int {
    edge("hydrant_reduce_scatter", || {
        let (team, op) = (TEAMS.get(team)?, reduction(op)?);
        let team = team.team();
        let all = times(count, team.size() as usize, "the elements")?;
        with_type!(r#type, |T| {
            let bytes = times(all, size_of::<T>(), "the elements")?;
            apart((data, bytes), (mine, count * size_of::<T>()))?;
            // SAFETY: 1. and 2. C1 and C2.
            let data: &[T] = unsafe { input(data.cast(), all, "the elements")? };
            // SAFETY: 1. and 2. C1 and C2.
            let mine = unsafe { output(mine.cast(), count, "the room for the result")? };
            Ok(team.reduce_scatter(data, mine, op)?)
        })
    })
}

/// Reduces the elements of the members up to this one, itself included. If mine is null, they lie in result.
///
/// Errors: as hydrant_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_scan(
    team: *mut hydrant_team,
    mine: *const c_void,
    result: *mut c_void,
    count: usize,
    r#type: hydrant_type,
    op: hydrant_op,
) -> c_int {
    edge("hydrant_scan", || {
        let (team, op) = (TEAMS.get(team)?, reduction(op)?);
        with_type!(r#type, |T| {
            // SAFETY: 1. and 2. C1 and C2.
            let data = unsafe { own::<T>(mine, result, count)? };
            Ok(team.team().scan(data, op)?)
        })
    })
}

/// Reduces the elements of the members before this one. The first member gets the element that changes nothing. If mine
/// is null, this member's elements lie in result.
///
/// Errors: as hydrant_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_exclusive_scan(
    team: *mut hydrant_team,
    mine: *const c_void,
    result: *mut c_void,
    count: usize,
    r#type: hydrant_type,
    op: hydrant_op,
) -> c_int {
    edge("hydrant_exclusive_scan", || {
        let (team, op) = (TEAMS.get(team)?, reduction(op)?);
        with_type!(r#type, |T| {
            // SAFETY: 1. and 2. C1 and C2.
            let data = unsafe { own::<T>(mine, result, count)? };
            Ok(team.team().exclusive_scan(data, op)?)
        })
    })
}

/// Reduces count elements of every member on all members by a function of the program, in the order of members. An
/// element has 1, 2, 4, 8, 16, 32 or 64 bytes. The function gets user and two elements, which are aligned to 16 bytes or
/// to their size. It must be the same on all members, and calls nothing of this library. If mine is null, the elements of
/// this member lie in result.
///
/// Errors: as hydrant_reduce; HYDRANT_ERROR_ARGUMENT for elements of another size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_all_reduce_with(
    team: *mut hydrant_team,
    mine: *const c_void,
    result: *mut c_void,
    count: usize,
    element_bytes: usize,
    combine: hydrant_combine_fn,
    user: *mut c_void,
) -> c_int {
    edge("hydrant_all_reduce_with", || {
        let Some(combine) = combine else {
            return Err(argument("the function is null"));
        };
        macro_rules! by_size {
            ($($bytes:literal),+) => {
                match element_bytes {
                    $($bytes => {
                        // SAFETY: 1. and 2. C1 and C2.
                        let data = unsafe { own::<[u8; $bytes]>(mine, result, count)? };
                        Ok(TEAMS.get(team)?.team().all_reduce_with(data, |into, with| {
                            let (mut into, with) = (Aligned(into), Aligned(with));
                            // SAFETY: C3; both are elements that nobody else uses.
                            unsafe { combine(user, (&raw mut into).cast(), (&raw const with).cast()) };
                            into.0
                        })?)
                    })+
                    other => Err(argument(format!("an element of {other} bytes"))),
                }
            };
        }
        by_size!(1, 2, 4, 8, 16, 32, 64)
    })
}

/// An element that a function of C may use as any type.
#[repr(C, align(64))]
struct Aligned<T>(T);

/// Returns the elements of a member, in the room for their result.
///
/// # Safety
/// 1. and 2. as [`output`], for `result`, and as [`input`], for `mine`, unless it is null.
unsafe fn own<'a, T: hydrant::Pod>(
    mine: *const c_void,
    result: *mut c_void,
    count: usize,
) -> Result<&'a mut [T]> {
    let bytes = times(count, size_of::<T>(), "the elements")?;
    apart((mine, bytes), (result, bytes))?;
    // SAFETY: 1. and 2. the caller's conditions 1 and 2.
    let room = unsafe { output(result.cast::<T>(), count, "the room for the result")? };
    if !mine.is_null() {
        // SAFETY: 1. and 2. the caller's conditions 1 and 2.
        room.copy_from_slice(unsafe { input(mine.cast(), count, "the elements")? });
    }
    Ok(room)
}
