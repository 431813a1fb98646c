//! The nodes. Processes of a node share their memory.

use std::ffi::c_int;

use super::{ARMCI_Group, armci_domain_t};
use crate::{
    Armci, Error, Result,
    c::{
        arguments::group_at,
        process::{armci, call_or_die, messages, or_die},
    },
};

/// Returns 1 if the memory of another process is mapped here, as on a node with several processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Uses_shm() -> c_int {
    let uses = |armci: &Armci| Ok(armci.processes_of(-1)?.len() > 1);
    c_int::from(armci().and_then(uses).unwrap_or(false))
}

/// Returns 1 if the memory of other members of a group is mapped here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Uses_shm_grp(group: *mut ARMCI_Group) -> c_int {
    call_or_die("ARMCI_Uses_shm_grp", |armci| {
        // SAFETY: 1. and 2. C1 and C2, for the group.
        let group = unsafe { group_at(group) }?;
        let members = armci.members(group)?;
        let near = |proc: &&usize| armci.is_mapped(**proc as c_int).unwrap_or(false);
        Ok(c_int::from(members.iter().filter(near).count() > 1))
    })
}

/// Returns 1 if a process is on the node of this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Same_node(proc: c_int) -> c_int {
    let act = || -> Result<_> { Ok(c_int::from(messages()?.is_mapped(proc)?)) };
    or_die("ARMCI_Same_node", act())
}

/// Returns 1 if a process is on the node of this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_sameclusnode(proc: c_int) -> c_int {
    let act = || -> Result<_> { Ok(c_int::from(messages()?.is_mapped(proc)?)) };
    or_die("armci_sameclusnode", act())
}

/// The number of processes of a node. A negative number means the node of this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_nprocs(_domain: armci_domain_t, id: c_int) -> c_int {
    let act = || -> Result<_> { Ok(messages()?.processes_of(id)?.len() as c_int) };
    or_die("armci_domain_nprocs", act())
}

/// The node of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_id(_domain: armci_domain_t, glob_proc_id: c_int) -> c_int {
    let act = || -> Result<_> { messages()?.node_of(glob_proc_id) };
    or_die("armci_domain_id", act())
}

/// The number of a process of a node. A negative node number means the node of this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_glob_proc_id(
    _domain: armci_domain_t,
    id: c_int,
    loc_proc_id: c_int,
) -> c_int {
    let act = || -> Result<_> {
        let all = messages()?.processes_of(id)?;
        let found = usize::try_from(loc_proc_id).ok().and_then(|at| all.get(at));
        found.map(|proc| *proc as c_int).ok_or(Error::NoProcess {
            proc: loc_proc_id,
            processes: all.len(),
        })
    };
    or_die("armci_domain_glob_proc_id", act())
}

/// This process's node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_my_id(_domain: armci_domain_t) -> c_int {
    let act = || -> Result<_> {
        let armci = messages()?;
        armci.node_of(armci.me())
    };
    or_die("armci_domain_my_id", act())
}

/// The number of nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_count(_domain: armci_domain_t) -> c_int {
    let act = || -> Result<_> { Ok(messages()?.nodes()) };
    or_die("armci_domain_count", act())
}

/// Returns 1 if a process is on the node of this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_same_id(_domain: armci_domain_t, proc: c_int) -> c_int {
    let act = || -> Result<_> {
        let armci = messages()?;
        Ok(c_int::from(
            armci.node_of(proc)? == armci.node_of(armci.me())?,
        ))
    };
    or_die("armci_domain_same_id", act())
}
