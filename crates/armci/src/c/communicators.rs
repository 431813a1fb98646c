//! MPI communicators for all processes of ARMCI and for its groups, if MPI is initialized.

use parking_lot::Mutex;

use crate::{
    Armci, Error, Group, Result,
    mpi::{self, Communicator},
};

/// The communicators of this process and its groups.
static KNOWN: Mutex<Option<Communicators>> = Mutex::new(None);

struct Communicators {
    all: Communicator,
    /// The groups in the order in which they were made, which is the same at all members.
    groups: Vec<(Group, Communicator)>,
}

/// Makes a communicator of all processes of ARMCI, if `given`, or MPI's world, has the same processes. Collective.
pub(super) fn begin(armci: &Armci, given: Option<Communicator>) -> Result<()> {
    let of = given.unwrap_or_else(Communicator::world);
    // An MPI library that does not know the launcher makes each process a job of its own.
    let fits = mpi::may_call() && of.size_and_rank()? == (armci.job().size(), armci.me() as u32);
    if do_all(armci, Group::default(), fits)? {
        let all = of.duplicate()?;
        let groups = Vec::new();
        *KNOWN.lock() = Some(Communicators { all, groups });
    }
    Ok(())
}

/// Checks that a communicator has the processes of the ARMCI that was begun before.
pub(super) fn check_same(armci: &Armci, given: Communicator) -> Result<()> {
    let (size, rank) = given.size_and_rank()?;
    let own = (armci.job().size(), armci.me() as u32);
    if (size, rank) == own {
        return Ok(());
    }
    Err(Error::Mpi {
        doing: "beginning with a communicator",
        why: format!(
            "it has {size} processes, of which this is {rank}, and ARMCI was begun before with {}, of which this is {}",
            own.0, own.1
        ),
    })
}

/// Makes the communicator of a new group, if there is one of all processes. Collective over the members.
pub(super) fn add(armci: &Armci, group: Group) -> Result<()> {
    let Some(all) = KNOWN.lock().as_ref().map(|known| known.all) else {
        return Ok(());
    };
    if armci.group_rank(group)?.is_none() || !do_all(armci, group, mpi::may_call())? {
        return Ok(());
    }
    let made = all.of_members(&armci.members(group)?)?;
    if let Some(known) = KNOWN.lock().as_mut() {
        known.groups.push((group, made));
    }
    Ok(())
}

/// Returns true if all members may take part in a collective MPI call. Collective over them.
fn do_all(armci: &Armci, group: Group, may: bool) -> Result<bool> {
    let answers = armci.group_all_gather(group, [may.into(), 0])?;
    Ok(answers.iter().all(|[may, _]| *may == 1))
}

/// Frees the communicator of a group.
pub(super) fn remove(group: Group) -> Result<()> {
    let gone = KNOWN.lock().as_mut().and_then(|known| {
        let at = known.groups.iter().position(|(other, _)| *other == group)?;
        Some(known.groups.remove(at).1)
    });
    gone.map_or(Ok(()), Communicator::free)
}

/// The communicator of a group.
///
/// # Errors
/// [`Error::NoGroup`], [`Error::Mpi`] if there is none.
pub(super) fn of(armci: &Armci, group: Group) -> Result<Communicator> {
    armci.members(group)?;
    let known = KNOWN.lock();
    let found = known.as_ref().and_then(|known| match group.0 {
        0 => Some(known.all),
        _ => {
            let mut groups = known.groups.iter();
            let found = groups.find(|(other, _)| *other == group)?;
            Some(found.1)
        }
    });
    found.ok_or_else(|| Error::Mpi {
        doing: "looking for the communicator of a group",
        why: "there is none: begin MPI before ARMCI, by the launcher that it knows, and make groups in a thread that \
              may call MPI; only members of a group have one"
            .into(),
    })
}

/// Frees all communicators, even if one fails.
pub(super) fn end() -> Result<()> {
    let Some(known) = KNOWN.lock().take() else {
        return Ok(());
    };
    let groups = known.groups.into_iter().map(|(_, made)| made);
    let all = groups.chain([known.all]);
    let mut outcome = Ok(());
    for made in all {
        outcome = outcome.and(made.free());
    }
    outcome
}
