//! Jobs on a real Slurm: a controller and three nodes on this machine, in network namespaces.
//!
//! The cases are those of `docs/clusters.md`, whose script runs as it is printed. The network
//! between the nodes is libfabric, and shared memory joins the ranks of a node.

mod cases;
mod cluster;
mod nodes;
mod table;

use rustix::process::geteuid;

use crate::error::Error;
use crate::programs;
use crate::setup;
use crate::tool::program_path;
use cluster::Cluster;

/// The programs of Slurm, and the packages of Debian that bring them.
const PROGRAMS: [&str; 4] = ["slurmctld", "slurmd", "srun", "munged"];
const PACKAGES: [&str; 4] = ["slurmctld", "slurmd", "slurm-client", "munge"];

/// The number of lines that are shown of a case that failed.
const LINES: usize = 30;

/// Runs all cases. Returns the table.
pub(crate) fn slurm() -> Result<Vec<String>, Error> {
    can_run().map_err(|why| Error::not_allowed(why.to_string()))?;
    programs::build_shipped()?;
    let programs = programs::shipped("");
    let mut cluster = Cluster::start(&programs)?;
    let rows = cases::all(&mut cluster)?;
    let mut lines = table::table(&rows);
    let mut is_wrong = false;
    for row in &rows {
        let Some(problem) = &row.problem else {
            continue;
        };
        is_wrong = true;
        lines.push(format!("{} is wrong:", row.what));
        let all: Vec<&str> = problem.lines().collect();
        let last = &all[all.len().saturating_sub(LINES)..];
        lines.extend(last.iter().map(|line| format!("    {line}")));
    }
    if is_wrong {
        Err(Error::Slurm { problems: lines })
    } else {
        Ok(lines)
    }
}

/// Installs Slurm if it is missing. The error says why the check cannot run here.
fn can_run() -> Result<(), Error> {
    let refused = |why: &str| Err(Error::NotInstalled(why.to_owned()));
    if !geteuid().is_root() {
        return refused("network namespaces and a Slurm controller need root");
    }
    let lacks = || {
        let missing = PROGRAMS.iter().filter(|it| program_path(it).is_relative());
        missing.count() > 0
    };
    if lacks() {
        setup::apt_install(&PACKAGES)?;
    }
    if lacks() {
        return refused("Slurm is missing: apt-get install slurmctld slurmd slurm-client munge");
    }
    nodes::probe()
}
