//! Teams.

use std::{ffi::c_int, sync::Arc};

use hydrant::{Rank, TeamRank};

use super::{
    objects::{JOBS, TEAMS, TeamObject},
    types::{HYDRANT_NO_COLOR, HYDRANT_NO_RANK, hydrant_job, hydrant_team},
};
use crate::edge::{argument, edge, fill, optional, output, room};

/// Stores the team of all ranks, whose team ranks are the ranks of the job. It is not freed.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_world(
    job: *mut hydrant_job,
    team: *mut *mut hydrant_team,
) -> c_int {
    edge("hydrant_world", || {
        // SAFETY: 1. and 2. C1 and C2.
        let team = unsafe { room(team, "the place of the team")? };
        team.write(JOBS.get(job)?.world()?);
        Ok(())
    })
}

/// Makes a team of the members that give the same color, numbered by key and, where keys are equal, by their rank in this
/// team. A member that gives HYDRANT_NO_COLOR gets no team, and null is stored. Collective over the team.
///
/// Errors: HYDRANT_ERROR_MEMORY at every member if there is no room for another team; as hydrant_barrier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_team_split(
    team: *mut hydrant_team,
    color: u32,
    key: u32,
    part: *mut *mut hydrant_team,
) -> c_int {
    edge("hydrant_team_split", || {
        // SAFETY: 1. and 2. C1 and C2.
        let part = unsafe { room(part, "the place of the new team")? };
        let whole = TEAMS.get(team)?;
        let color = Some(color).filter(|color| *color != HYDRANT_NO_COLOR);
        part.write(match whole.team().split(color, key)? {
            None => std::ptr::null_mut(),
            Some(made) => TEAMS.insert(TeamObject {
                job: Arc::clone(&whole.job),
                part: Some(made),
            })?,
        });
        Ok(())
    })
}

/// Frees this rank's handle of a team. Every member frees its own; not collective. Null is ignored.
///
/// Errors: HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_ARGUMENT for the team of all ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_team_free(team: *mut hydrant_team) -> c_int {
    edge("hydrant_team_free", || {
        if team.is_null() {
            return Ok(());
        }
        if TEAMS.get(team)?.part.is_none() {
            return Err(argument("the team of all ranks is not freed"));
        }
        drop(TEAMS.remove(team)?);
        Ok(())
    })
}

/// Stores this rank's number in the team.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_team_rank(team: *const hydrant_team, rank: *mut u32) -> c_int {
    edge("hydrant_team_rank", || {
        // SAFETY: 1. and 2. C1 and C2.
        let rank = unsafe { room(rank, "the place of the rank")? };
        rank.write(TEAMS.get(team)?.team().rank().0);
        Ok(())
    })
}

/// Stores the number of members of the team.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_team_size(team: *const hydrant_team, size: *mut u32) -> c_int {
    edge("hydrant_team_size", || {
        // SAFETY: 1. and 2. C1 and C2.
        let size = unsafe { room(size, "the place of the size")? };
        size.write(TEAMS.get(team)?.team().size());
        Ok(())
    })
}

/// Stores the rank in the job of a member.
///
/// Errors: HYDRANT_ERROR_RANK, HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_team_job_rank(
    team: *const hydrant_team,
    team_rank: u32,
    rank: *mut u32,
) -> c_int {
    edge("hydrant_team_job_rank", || {
        // SAFETY: 1. and 2. C1 and C2.
        let rank = unsafe { room(rank, "the place of the rank")? };
        rank.write(TEAMS.get(team)?.team().job_rank(TeamRank(team_rank))?.0);
        Ok(())
    })
}

/// Stores the team rank of a rank of the job; HYDRANT_NO_RANK if it is no member.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_team_rank_of(
    team: *const hydrant_team,
    rank: u32,
    team_rank: *mut u32,
) -> c_int {
    edge("hydrant_team_rank_of", || {
        // SAFETY: 1. and 2. C1 and C2.
        let team_rank = unsafe { room(team_rank, "the place of the rank")? };
        let found = TEAMS.get(team)?.team().team_rank(Rank(rank));
        team_rank.write(found.map_or(HYDRANT_NO_RANK, |found| found.0));
        Ok(())
    })
}

/// Stores the ranks in the job of the members, by their rank in the team. At most room ranks are stored, and the number
/// of members is stored in count, which may be null.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_team_members(
    team: *const hydrant_team,
    ranks: *mut u32,
    room: usize,
    count: *mut usize,
) -> c_int {
    edge("hydrant_team_members", || {
        // SAFETY: 1. and 2. C1 and C2; any bytes are a rank.
        let ranks = unsafe { output(ranks.cast(), room, "the list of ranks")? };
        let team = TEAMS.get(team)?;
        let members = team.team().members().iter().map(|rank| rank.0);
        // SAFETY: 1. and 2. C1 and C2.
        fill(members, ranks, unsafe { optional(count) });
        Ok(())
    })
}
