//! Collectives that move data. Each is called by all members of a team, in the same order, by one thread at a time.

use std::ffi::{c_int, c_void};

use hydrant::{Blocks, TeamRank};

use super::{objects::TEAMS, types::hydrant_team};
use crate::{
    edge::{edge, input, not_null, output, overflow, times},
    status::{CallFailure, HYDRANT_ERROR_OVERLAP, Result},
};

/// Waits for all members of the team. A rank's blocking puts are remotely complete before.
///
/// Errors of every collective: HYDRANT_ERROR_MISMATCH if members call another collective or give other sizes,
/// HYDRANT_ERROR_TURN if another thread is in a collective of the team, HYDRANT_ERROR_PEER_LOST,
/// HYDRANT_ERROR_PEER_ENDED, HYDRANT_ERROR_JOB_OVER, HYDRANT_ERROR_IN_HANDLER, HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_barrier(team: *mut hydrant_team) -> c_int {
    edge("hydrant_barrier", || {
        Ok(TEAMS.get(team)?.team().barrier()?)
    })
}

/// Notifies the members that this one has come to a barrier. hydrant_barrier_wait waits for them.
///
/// Errors: as hydrant_barrier; HYDRANT_ERROR_TURN if it was notified before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_barrier_notify(team: *mut hydrant_team) -> c_int {
    edge("hydrant_barrier_notify", || {
        Ok(TEAMS.get(team)?.team().notify(None)?)
    })
}

/// Waits until all members have come to the notified barrier.
///
/// Errors: as hydrant_barrier; HYDRANT_ERROR_TURN if it was not notified.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_barrier_wait(team: *mut hydrant_team) -> c_int {
    edge("hydrant_barrier_wait", || {
        Ok(TEAMS.get(team)?.team().wait(None)?)
    })
}

/// Brings the bytes of the member root to all members.
///
/// Errors: as hydrant_barrier; HYDRANT_ERROR_RANK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_broadcast(
    team: *mut hydrant_team,
    root: u32,
    data: *mut c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_broadcast", || {
        // SAFETY: 1. and 2. C1 and C2.
        let data: &mut [u8] = unsafe { output(data.cast(), bytes, "the data")? };
        Ok(TEAMS.get(team)?.team().broadcast(TeamRank(root), data)?)
    })
}

/// Gathers bytes of every member at the member root, in the order of members. There all has room for as many bytes of
/// each; elsewhere it is ignored.
///
/// Errors: as hydrant_barrier; HYDRANT_ERROR_RANK, HYDRANT_ERROR_OVERLAP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_gather(
    team: *mut hydrant_team,
    root: u32,
    mine: *const c_void,
    bytes: usize,
    all: *mut c_void,
) -> c_int {
    edge("hydrant_gather", || {
        let team = TEAMS.get(team)?;
        let team = team.team();
        // SAFETY: 1. and 2. C1 and C2.
        let data: &[u8] = unsafe { input(mine.cast(), bytes, "this member's data")? };
        let room = if team.rank().0 == root {
            let len = times(team.size() as usize, bytes, "the gathered data")?;
            apart((mine, bytes), (all, len))?;
            // SAFETY: 1. and 2. C1 and C2.
            Some(unsafe { output(all.cast(), len, "the room for all data")? })
        } else {
            None
        };
        Ok(team.gather_into(TeamRank(root), data, room)?)
    })
}

/// Gathers blocks of any length at the member root. There counts has the bytes of each member's block, and displacements
/// the offset of each in all; null stands for one block behind the other. Elsewhere the three are ignored.
///
/// Errors: as hydrant_gather; HYDRANT_ERROR_LENGTH if a member sends another number of bytes, HYDRANT_ERROR_OVERFLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_gather_v(
    team: *mut hydrant_team,
    root: u32,
    mine: *const c_void,
    bytes: usize,
    all: *mut c_void,
    counts: *const usize,
    displacements: *const usize,
) -> c_int {
    edge("hydrant_gather_v", || {
        let team = TEAMS.get(team)?;
        let team = team.team();
        // SAFETY: 1. and 2. C1 and C2.
        let data: &[u8] = unsafe { input(mine.cast(), bytes, "this member's data")? };
        let room = if team.rank().0 == root {
            // SAFETY: 1. and 2. C1 and C2.
            let (blocks, len) = unsafe { blocks(team.size(), counts, displacements)? };
            apart((mine, bytes), (all, len))?;
            // SAFETY: 1. and 2. C1 and C2.
            Some((
                unsafe { output(all.cast(), len, "the room for all data")? },
                blocks,
            ))
        } else {
            None
        };
        Ok(team.gather_v_into(TeamRank(root), data, room)?)
    })
}

/// Gathers bytes of every member at all members, in the order of members: all has room for as many bytes of each. If mine
/// is null, this member's bytes lie in their place in all.
///
/// Errors: as hydrant_barrier; HYDRANT_ERROR_OVERLAP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_all_gather(
    team: *mut hydrant_team,
    mine: *const c_void,
    bytes: usize,
    all: *mut c_void,
) -> c_int {
    edge("hydrant_all_gather", || {
        let team = TEAMS.get(team)?;
        let team = team.team();
        let len = times(team.size() as usize, bytes, "the gathered data")?;
        apart((mine, bytes), (all, len))?;
        // SAFETY: 1. and 2. C1 and C2.
        let room: &mut [u8] = unsafe { output(all.cast(), len, "the room for all data")? };
        if mine.is_null() {
            return Ok(team.all_gather_in_place(room)?);
        }
        // SAFETY: 1. and 2. C1 and C2.
        let data = unsafe { input(mine.cast(), bytes, "this member's data")? };
        Ok(team.all_gather_into(data, room)?)
    })
}

/// Gathers blocks of any length at all members, as hydrant_gather_v does at one. If mine is null, this member's block
/// lies in its place in all.
///
/// Errors: as hydrant_gather_v.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_all_gather_v(
    team: *mut hydrant_team,
    mine: *const c_void,
    bytes: usize,
    all: *mut c_void,
    counts: *const usize,
    displacements: *const usize,
) -> c_int {
    edge("hydrant_all_gather_v", || {
        let team = TEAMS.get(team)?;
        let team = team.team();
        // SAFETY: 1. and 2. C1 and C2.
        let (blocks, len) = unsafe { blocks(team.size(), counts, displacements)? };
        apart((mine, bytes), (all, len))?;
        // SAFETY: 1. and 2. C1 and C2.
        let room: &mut [u8] = unsafe { output(all.cast(), len, "the room for all data")? };
        if mine.is_null() {
            return Ok(team.all_gather_v_in_place(room, blocks)?);
        }
        // SAFETY: 1. and 2. C1 and C2.
        let data = unsafe { input(mine.cast(), bytes, "this member's data")? };
        Ok(team.all_gather_v_into(data, room, blocks)?)
    })
}

/// Gives each member its part of the bytes of the member root: as many bytes for each, in the order of members. Elsewhere
/// than at the root all is ignored.
///
/// Errors: as hydrant_gather.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_scatter(
    team: *mut hydrant_team,
    root: u32,
    all: *const c_void,
    mine: *mut c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_scatter", || {
        let team = TEAMS.get(team)?;
        let team = team.team();
        let data = if team.rank().0 == root {
            let len = times(team.size() as usize, bytes, "the scattered data")?;
            apart((mine, bytes), (all, len))?;
            // SAFETY: 1. and 2. C1 and C2.
            Some(unsafe { input(all.cast(), len, "the data of all members")? })
        } else {
            None
        };
        // SAFETY: 1. and 2. C1 and C2.
        let room: &mut [u8] = unsafe { output(mine.cast(), bytes, "the room of this member")? };
        Ok(team.scatter(TeamRank(root), data, room)?)
    })
}

/// Gives each member its block of the bytes of the member root; blocks of any length, as in hydrant_gather_v.
///
/// Errors: as hydrant_gather_v.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_scatter_v(
    team: *mut hydrant_team,
    root: u32,
    all: *const c_void,
    counts: *const usize,
    displacements: *const usize,
    mine: *mut c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_scatter_v", || {
        let team = TEAMS.get(team)?;
        let team = team.team();
        let data = if team.rank().0 == root {
            // SAFETY: 1. and 2. C1 and C2.
            let (blocks, len) = unsafe { blocks(team.size(), counts, displacements)? };
            apart((mine, bytes), (all, len))?;
            // SAFETY: 1. and 2. C1 and C2.
            Some((
                unsafe { input(all.cast(), len, "the data of all members")? },
                blocks,
            ))
        } else {
            None
        };
        // SAFETY: 1. and 2. C1 and C2.
        let room: &mut [u8] = unsafe { output(mine.cast(), bytes, "the room of this member")? };
        Ok(team.scatter_v(TeamRank(root), data, room)?)
    })
}

/// Gives each member its part of this member's bytes, and gets a part from each: bytes for each member, in their order.
/// If parts is null, they lie in into, and are replaced.
///
/// Errors: as hydrant_all_gather.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_all_to_all(
    team: *mut hydrant_team,
    parts: *const c_void,
    into: *mut c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_all_to_all", || {
        let team = TEAMS.get(team)?;
        let team = team.team();
        let len = times(team.size() as usize, bytes, "the data of all members")?;
        apart((parts, len), (into, len))?;
        // SAFETY: 1. and 2. C1 and C2.
        let room: &mut [u8] = unsafe { output(into.cast(), len, "the room for all parts")? };
        if parts.is_null() {
            return Ok(team.all_to_all_in_place(room)?);
        }
        // SAFETY: 1. and 2. C1 and C2.
        let data = unsafe { input(parts.cast(), len, "the parts for all members")? };
        Ok(team.all_to_all_into(data, room)?)
    })
}

/// As hydrant_all_to_all, with blocks of any length, as in hydrant_gather_v: one for each member in parts, and one from
/// each in into.
///
/// Errors: as hydrant_gather_v.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_all_to_all_v(
    team: *mut hydrant_team,
    parts: *const c_void,
    part_counts: *const usize,
    part_displacements: *const usize,
    into: *mut c_void,
    into_counts: *const usize,
    into_displacements: *const usize,
) -> c_int {
    edge("hydrant_all_to_all_v", || {
        let team = TEAMS.get(team)?;
        let team = team.team();
        // SAFETY: 1. and 2. C1 and C2.
        let (from, sent) = unsafe { blocks(team.size(), part_counts, part_displacements)? };
        // SAFETY: 1. and 2. C1 and C2.
        let (to, got) = unsafe { blocks(team.size(), into_counts, into_displacements)? };
        apart((parts, sent), (into, got))?;
        // SAFETY: 1. and 2. C1 and C2.
        let data: &[u8] = unsafe { input(parts.cast(), sent, "the parts for all members")? };
        // SAFETY: 1. and 2. C1 and C2.
        let room = unsafe { output(into.cast(), got, "the room for all parts")? };
        Ok(team.all_to_all_v_into(data, from, room, to)?)
    })
}

/// The blocks of all members, and the bytes of a buffer that ends with the last of them.
///
/// # Safety
/// 1. `counts` is null or has an entry for each member, and so is `displacements`.
/// 2. No other code writes to them while the result lives.
unsafe fn blocks<'a>(
    members: u32,
    counts: *const usize,
    displacements: *const usize,
) -> Result<(Blocks<'a>, usize)> {
    not_null(counts, "the list of counts")?;
    let members = members as usize;
    // SAFETY: 1. and 2. the caller's conditions 1 and 2.
    let counts = unsafe { input(counts, members, "the list of counts")? };
    let none = || overflow("the blocks of all members");
    if displacements.is_null() {
        let all = (counts.iter()).try_fold(0_usize, |all, count| all.checked_add(*count));
        return Ok((Blocks::packed(counts), all.ok_or_else(none)?));
    }
    // SAFETY: 1. and 2. the caller's conditions 1 and 2.
    let displacements = unsafe { input(displacements, members, "the list of displacements")? };
    let mut all = 0;
    for (at, count) in displacements
        .iter()
        .zip(counts)
        .filter(|(_, count)| **count > 0)
    {
        all = all.max(at.checked_add(*count).ok_or_else(none)?);
    }
    Ok((Blocks::at(counts, displacements), all))
}

/// Checks that two buffers share no byte. A null buffer shares none.
///
/// # Errors
/// HYDRANT_ERROR_OVERLAP; HYDRANT_ERROR_OVERFLOW for a buffer that is larger than any memory.
pub(super) fn apart<A, B>(
    (one, len): (*const A, usize),
    (other, more): (*const B, usize),
) -> Result<()> {
    let (start, begin) = (one.addr(), other.addr());
    if start == 0 || begin == 0 {
        return Ok(());
    }
    if len.max(more) > isize::MAX as usize {
        return Err(overflow("a buffer"));
    }
    let ahead = begin.wrapping_sub(start);
    if len == 0 || more == 0 || (ahead >= len && ahead.wrapping_neg() >= more) {
        return Ok(());
    }
    let text = format!("{len} bytes at {start:#x} overlap {more} bytes at {begin:#x}");
    Err(CallFailure::new(HYDRANT_ERROR_OVERLAP, text))
}
