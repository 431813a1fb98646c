//! Collectives that go on while the program computes. Those of a team are done in the order in which they began, and
//! may pair with blocking ones of other members. Their sources may be used again on return. Results are stored when the
//! operation is waited for, or a test of it is true.

use std::{
    ffi::{c_int, c_void},
    sync::Arc,
};

use hydrant::{BackgroundHandle, Pod, TeamRank, half, num_complex};

use super::{
    objects::{TEAMS, TeamObject},
    reductions::with_type,
    types::{
        HYDRANT_BF16, HYDRANT_C32, HYDRANT_C64, HYDRANT_F16, HYDRANT_F32, HYDRANT_F64, HYDRANT_I8,
        HYDRANT_I16, HYDRANT_I32, HYDRANT_I64, HYDRANT_U8, HYDRANT_U16, HYDRANT_U32, HYDRANT_U64,
        hydrant_op, hydrant_team, hydrant_type, no_type, reduction,
    },
};
use crate::{
    edge::{edge, input, lent, room, times},
    operations::{hydrant_operation, keep_background, work::ResultPlace},
    status::Result,
};

/// Begins to wait for all members of the team. The operation is complete when all have begun it.
///
/// Errors: as hydrant_barrier, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_barrier_nb(
    team: *mut hydrant_team,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_barrier_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        let team = TEAMS.get(team)?;
        operation.write(keep_background(&team.job, team.team().barrier_nb()?, drop)?);
        Ok(())
    })
}

/// Begins to bring the bytes of the member root to all members. They are stored in data at the end.
///
/// Errors: as hydrant_broadcast, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_broadcast_nb(
    team: *mut hydrant_team,
    root: u32,
    data: *mut c_void,
    bytes: usize,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_broadcast_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        // SAFETY: 1. and 2. C1 and C2.
        let given: &[u8] = unsafe { input(data.cast_const().cast(), bytes, "the data")? };
        let team = TEAMS.get(team)?;
        let begun = (team.team()).broadcast_nb(TeamRank(root), given.to_vec())?;
        operation.write(keep(&team, begun, data)?);
        Ok(())
    })
}

/// Begins to gather bytes of every member at all members, as hydrant_all_gather with this member's bytes in mine.
///
/// Errors: as hydrant_all_gather, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_all_gather_nb(
    team: *mut hydrant_team,
    mine: *const c_void,
    bytes: usize,
    all: *mut c_void,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_all_gather_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        // SAFETY: 1. and 2. C1 and C2.
        let data: &[u8] = unsafe { input(mine.cast(), bytes, "this member's data")? };
        let team = TEAMS.get(team)?;
        let len = times(team.team().size() as usize, bytes, "the gathered data")?;
        lent(all, len, "the room for all data")?;
        let begun = team.team().all_gather_nb(data.to_vec())?;
        operation.write(keep(&team, begun, all)?);
        Ok(())
    })
}

/// Begins to give each member its part of this member's bytes, and to get a part from each, as hydrant_all_to_all with
/// this member's bytes in parts.
///
/// Errors: as hydrant_all_to_all, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_all_to_all_nb(
    team: *mut hydrant_team,
    parts: *const c_void,
    into: *mut c_void,
    bytes: usize,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_all_to_all_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        let team = TEAMS.get(team)?;
        let len = times(
            team.team().size() as usize,
            bytes,
            "the data of all members",
        )?;
        // SAFETY: 1. and 2. C1 and C2.
        let data: &[u8] = unsafe { input(parts.cast(), len, "the parts for all members")? };
        lent(into, len, "the room for all parts")?;
        let begun = team.team().all_to_all_nb(data.to_vec())?;
        operation.write(keep(&team, begun, into)?);
        Ok(())
    })
}

/// Begins to reduce count elements of every member to the member root, as hydrant_reduce with this member's elements in
/// mine. Elsewhere than at the root result is ignored.
///
/// Errors: as hydrant_reduce, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_reduce_nb(
    team: *mut hydrant_team,
    root: u32,
    mine: *const c_void,
    result: *mut c_void,
    count: usize,
    r#type: hydrant_type,
    op: hydrant_op,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_reduce_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        let (team, op) = (TEAMS.get(team)?, reduction(op)?);
        let is_root = team.team().rank().0 == root;
        operation.write(with_type!(r#type, |T| {
            // SAFETY: 1. and 2. C1 and C2.
            let data: &[T] = unsafe { input(mine.cast(), count, "the elements")? };
            if is_root {
                lent(result, size_of_val(data), "the room for the result")?;
            }
            let begun = team.team().reduce_nb(TeamRank(root), data.to_vec(), op)?;
            let target = ResultPlace(result.cast::<u8>());
            keep_background(&team.job, begun, move |reduced: Option<Vec<T>>| {
                if let Some(reduced) = reduced {
                    // SAFETY: 1. C1 and C2, until the operation is over.
                    unsafe { target.store_all(&reduced) };
                }
            })?
        }));
        Ok(())
    })
}

/// Begins to reduce count elements of every member on all members, as hydrant_all_reduce with this member's elements in
/// mine.
///
/// Errors: as hydrant_reduce, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_all_reduce_nb(
    team: *mut hydrant_team,
    mine: *const c_void,
    result: *mut c_void,
    count: usize,
    r#type: hydrant_type,
    op: hydrant_op,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_all_reduce_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        let (team, op) = (TEAMS.get(team)?, reduction(op)?);
        operation.write(with_type!(r#type, |T| {
            // SAFETY: 1. and 2. C1 and C2.
            let data: &[T] = unsafe { input(mine.cast(), count, "the elements")? };
            lent(result, size_of_val(data), "the room for the result")?;
            keep(&team, team.team().all_reduce_nb(data.to_vec(), op)?, result)?
        }));
        Ok(())
    })
}

/// Begins to reduce the elements of the members up to this one, as hydrant_scan with this member's elements in mine.
///
/// Errors: as hydrant_reduce, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_scan_nb(
    team: *mut hydrant_team,
    mine: *const c_void,
    result: *mut c_void,
    count: usize,
    r#type: hydrant_type,
    op: hydrant_op,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_scan_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        let (team, op) = (TEAMS.get(team)?, reduction(op)?);
        operation.write(with_type!(r#type, |T| {
            // SAFETY: 1. and 2. C1 and C2.
            let data: &[T] = unsafe { input(mine.cast(), count, "the elements")? };
            lent(result, size_of_val(data), "the room for the result")?;
            keep(&team, team.team().scan_nb(data.to_vec(), op)?, result)?
        }));
        Ok(())
    })
}

/// Returns the handle of a collective whose result goes to a place of C.
fn keep<T: Pod + Send>(
    team: &Arc<TeamObject>,
    begun: BackgroundHandle<Vec<T>>,
    into: *mut c_void,
) -> Result<*mut hydrant_operation> {
    let target = ResultPlace(into.cast::<u8>());
    keep_background(&team.job, begun, move |result: Vec<T>| {
        // SAFETY: 1. C1 and C2, until the operation is over.
        unsafe { target.store_all(&result) };
    })
}
