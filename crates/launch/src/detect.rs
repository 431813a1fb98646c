//! Detection of the bootstrap service that the environment offers.

use std::env;

use crate::{BootstrapKind, Error};

/// A service found in the environment, with the data needed to reach it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundService {
    /// Nobody launched this process.
    Alone,
    /// PMI-1 on an inherited file descriptor.
    Pmi1Fd {
        /// The descriptor.
        fd: i32,
        /// This process's rank.
        rank: u32,
        /// The size of the job.
        size: u32,
    },
    /// PMI-1 over TCP. The server sends the rank and the size.
    Pmi1Port {
        /// The server's address, as `host:port`.
        address: String,
        /// This process's id at the server.
        id: u32,
    },
    /// PMIx. Libpmix reads its own variables from the environment.
    Pmix,
}

/// Reads a variable of the process's environment. An empty variable counts as unset.
pub(crate) fn process_environment(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns a lookup without the variables of PMI-1 that an outer launcher left in the environment.
///
/// PMIx and PMI-1 together mean that one launcher started the other. `mpirun` closes the descriptor
/// of an outer PMI-1. A launcher of PMI-1 inside of `mpirun` gives a descriptor that `is_open`.
pub(crate) fn without_outer_pmi1(
    lookup: impl Fn(&str) -> Option<String>,
    is_open: impl Fn(i32) -> bool,
) -> impl Fn(&str) -> Option<String> {
    let fd = lookup("PMI_FD").and_then(|fd| fd.parse().ok());
    let is_outer = has_pmix(&lookup) && fd.is_some_and(|fd| !is_open(fd));
    move |name| {
        let hidden = is_outer && ["PMI_FD", "PMI_RANK", "PMI_SIZE"].contains(&name);
        lookup(name).filter(|_| !hidden)
    }
}

/// Chooses the service for `kind` from the variables that `lookup` gives.
pub(crate) fn detect(
    kind: BootstrapKind,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<FoundService, Error> {
    match kind {
        BootstrapKind::Alone => Ok(FoundService::Alone),
        BootstrapKind::Pmi1 => pmi1(&lookup)?.ok_or_else(|| Error::LauncherUnusable {
            seen: "PMI-1 was asked for".into(),
            why: "neither PMI_FD nor PMI_PORT with PMI_ID is set".into(),
            fix: "start the job with `hydrant run`, `mpiexec.hydra` or `srun --mpi=pmi2`".into(),
        }),
        BootstrapKind::Pmix if has_pmix(&lookup) => Ok(FoundService::Pmix),
        BootstrapKind::Pmix => Err(Error::LauncherUnusable {
            seen: "PMIx was asked for".into(),
            why: "PMIX_NAMESPACE and PMIX_RANK are not both set".into(),
            fix: "start the job with `mpirun` of Open MPI or `srun --mpi=pmix`".into(),
        }),
        // The program's MPI is found in the process, not in the environment.
        BootstrapKind::Auto | BootstrapKind::Mpi => match pmi1(&lookup)? {
            Some(found) => Ok(found),
            None if has_pmix(&lookup) => Ok(FoundService::Pmix),
            None => refuse_silent_launchers(&lookup).map(|()| FoundService::Alone),
        },
    }
}

fn pmi1(lookup: &impl Fn(&str) -> Option<String>) -> Result<Option<FoundService>, Error> {
    if let Some(fd) = number(lookup, "PMI_FD", "the number of a file descriptor")? {
        let required = |name| {
            number(lookup, name, "a number")?.ok_or_else(|| Error::LauncherUnusable {
                seen: "PMI_FD is set".into(),
                why: format!("{name} is not"),
                fix: "start the job with `hydrant run`, `mpiexec.hydra` or `srun --mpi=pmi2`"
                    .into(),
            })
        };
        let (rank, size) = (required("PMI_RANK")?, required("PMI_SIZE")?);
        if rank >= size {
            return Err(Error::RankOutOfRange { rank, size });
        }
        let fd = i32::try_from(fd).map_err(|_| Error::BadVariable {
            name: "PMI_FD".into(),
            value: fd.to_string(),
            expected: "the number of a file descriptor",
        })?;
        return Ok(Some(FoundService::Pmi1Fd { fd, rank, size }));
    }
    match (lookup("PMI_PORT"), number(lookup, "PMI_ID", "a number")?) {
        (Some(address), Some(id)) => Ok(Some(FoundService::Pmi1Port { address, id })),
        _ => Ok(None),
    }
}

fn has_pmix(lookup: &impl Fn(&str) -> Option<String>) -> bool {
    lookup("PMIX_NAMESPACE").is_some() && lookup("PMIX_RANK").is_some()
}

/// The libraries of MPI whose ABI is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// MPICH, or one of its derivatives: Intel MPI, MVAPICH, Cray MPICH.
    Mpich,
    OpenMpi,
}

/// The last part of each fix: the user must ask for a job of one rank.
const ALONE: &str = "a job of one must be asked for (HYDRANT_BOOTSTRAP=alone)";

/// The launchers that announce a number of ranks: the variable, the launcher's name, and the fix.
const LAUNCHERS: [(&str, &str, &str); 6] = [
    // SLURM_NTASKS is no sign of several ranks: the one shell of `salloc` or `sbatch` has it, too.
    (
        "SLURM_STEP_NUM_TASKS",
        "Slurm",
        "start it with `srun --mpi=pmi2` or `srun --mpi=pmix`",
    ),
    (
        "OMPI_COMM_WORLD_SIZE",
        "Open MPI",
        "start it with an `mpirun` that serves PMIx",
    ),
    (
        "PMI_SIZE",
        "PMI",
        "start it with `mpiexec.hydra` or `srun --mpi=pmi2`, which set PMI_FD",
    ),
    (
        "MV2_COMM_WORLD_SIZE",
        "MVAPICH",
        "start it with `mpiexec.hydra`",
    ),
    (
        "JSM_NAMESPACE_SIZE",
        "jsrun",
        "start it with a `jsrun` that serves PMIx",
    ),
    (
        "FLUX_JOB_SIZE",
        "Flux",
        "start it with `flux run -o pmi=simple`",
    ),
];

/// Returns an error if a launcher started several ranks and gave them no service to find each
/// other.
fn refuse_silent_launchers(lookup: &impl Fn(&str) -> Option<String>) -> Result<(), Error> {
    let Some((seen, fix)) = several(lookup)? else {
        return Ok(());
    };
    Err(Error::LauncherUnusable {
        seen,
        why: "it gives them no service to find each other by (neither PMI_FD nor PMIX_NAMESPACE is set)"
            .into(),
        fix: format!("{fix}, or run `hydrant run -n N PROGRAM` on one host; {ALONE}"),
    })
}

/// Returns an error if a launcher started several ranks and the program's MPI did not notice. Each
/// process is then an MPI job of its own.
pub(crate) fn refuse_stranger(
    library: Library,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<(), Error> {
    let Some((seen, _)) = several(&lookup)? else {
        return Ok(());
    };
    let (name, fix) = match library {
        Library::Mpich => (
            "MPICH, or one of its kin",
            "start it with the `mpiexec` of that MPI (mpiexec.hydra), `srun --mpi=pmi2` or `hydrant run`",
        ),
        Library::OpenMpi => (
            "Open MPI",
            "start it with the `mpirun` of Open MPI or `srun --mpi=pmix`",
        ),
    };
    Err(Error::LauncherUnusable {
        seen,
        why: format!(
            "the MPI of this program ({name}) does not know that launcher and has made each process a job of its own"
        ),
        fix: format!("{fix}, or build it with the MPI of the launcher; {ALONE}"),
    })
}

/// Finds a launcher that announces several ranks. Returns a description of the launcher, and the
/// fix.
///
/// A launcher that announces one rank is the innermost. Outer launchers may have left other counts
/// in the environment. Slurm is the outermost.
fn several(
    lookup: &impl Fn(&str) -> Option<String>,
) -> Result<Option<(String, &'static str)>, Error> {
    let mut found = None;
    for (variable, launcher, fix) in LAUNCHERS {
        match number(lookup, variable, "a number of ranks")? {
            // A step of one task may start any launcher.
            Some(0 | 1) if launcher == "Slurm" => {}
            Some(0 | 1) => return Ok(None),
            Some(ranks) if found.is_none() => {
                let seen =
                    format!("{launcher} says that this job has {ranks} ranks ({variable}={ranks})");
                found = Some((seen, fix));
            }
            _ => {}
        }
    }
    Ok(found)
}

fn number(
    lookup: &impl Fn(&str) -> Option<String>,
    name: &str,
    expected: &'static str,
) -> Result<Option<u32>, Error> {
    lookup(name)
        .map(|value| {
            value.parse().map_err(|_| Error::BadVariable {
                name: name.into(),
                value,
                expected,
            })
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<'a>(variables: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| {
            variables
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| (*v).to_owned())
        }
    }

    fn auto(variables: &[(&str, &str)]) -> Result<FoundService, Error> {
        detect(BootstrapKind::Auto, with(variables))
    }

    #[test]
    fn detection_tries_fd_then_port_then_pmix_then_alone() {
        let fd = [("PMI_FD", "5"), ("PMI_RANK", "1"), ("PMI_SIZE", "3")];
        let port = [("PMI_PORT", "host:99"), ("PMI_ID", "2")];
        let pmix = [
            ("PMIX_NAMESPACE", "job"),
            ("PMIX_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
        ];
        let all = [&fd[..], &port[..], &pmix[..]].concat();
        assert_eq!(
            auto(&all).unwrap(),
            FoundService::Pmi1Fd {
                fd: 5,
                rank: 1,
                size: 3
            }
        );
        let all = [&port[..], &pmix[..]].concat();
        assert_eq!(
            auto(&all).unwrap(),
            FoundService::Pmi1Port {
                address: "host:99".into(),
                id: 2
            }
        );
        assert_eq!(auto(&pmix).unwrap(), FoundService::Pmix);
        assert_eq!(auto(&[]).unwrap(), FoundService::Alone);
        assert_eq!(
            detect(BootstrapKind::Alone, with(&fd)).unwrap(),
            FoundService::Alone
        );
        assert_eq!(
            detect(BootstrapKind::Pmix, with(&[&fd[..], &pmix[..]].concat())).unwrap(),
            FoundService::Pmix
        );
    }

    #[test]
    fn a_launcher_without_a_service_is_an_error_that_names_the_fix() {
        for (variable, fix) in [
            ("SLURM_STEP_NUM_TASKS", "srun --mpi=pmi2"),
            ("OMPI_COMM_WORLD_SIZE", "mpirun"),
            ("PMI_SIZE", "mpiexec.hydra"),
            ("MV2_COMM_WORLD_SIZE", "mpiexec.hydra"),
            ("JSM_NAMESPACE_SIZE", "jsrun"),
            ("FLUX_JOB_SIZE", "pmi=simple"),
        ] {
            let error = auto(&[(variable, "4")]).unwrap_err();
            assert!(matches!(error, Error::LauncherUnusable { .. }));
            let text = error.to_string();
            assert!(
                text.contains(fix) && text.contains(&format!("{variable}=4")),
                "{text}"
            );
            assert_eq!(auto(&[(variable, "1")]).unwrap(), FoundService::Alone);
        }
    }

    #[test]
    fn an_mpi_that_does_not_know_the_launcher_is_an_error_that_names_the_right_launcher() {
        let pmi = [("PMI_FD", "5"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")];
        let ompi = [
            ("PMIX_NAMESPACE", "job"),
            ("PMIX_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
        ];
        for (library, variables, launcher) in [
            (Library::Mpich, &ompi[..], "mpiexec.hydra"),
            (Library::OpenMpi, &pmi[..], "`mpirun` of Open MPI"),
            (
                Library::Mpich,
                &[("SLURM_STEP_NUM_TASKS", "3")],
                "srun --mpi=pmi2",
            ),
            (
                Library::OpenMpi,
                &[("SLURM_STEP_NUM_TASKS", "3")],
                "srun --mpi=pmix",
            ),
        ] {
            let error = refuse_stranger(library, with(variables)).unwrap_err();
            assert!(error.to_string().contains(launcher), "{error}");
        }
        assert!(refuse_stranger(Library::Mpich, with(&[])).is_ok());
        // A rank that the inner launcher started as a job of one.
        let inner = [("SLURM_STEP_NUM_TASKS", "8"), ("OMPI_COMM_WORLD_SIZE", "1")];
        assert!(refuse_stranger(Library::OpenMpi, with(&inner)).is_ok());
        // A step of one task, in which another launcher starts several.
        let outer = [("SLURM_STEP_NUM_TASKS", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        assert!(refuse_stranger(Library::Mpich, with(&outer)).is_err());
    }

    #[test]
    fn the_shell_of_an_allocation_and_a_step_of_one_are_alone() {
        // `salloc -n 8`, the script of `sbatch -n 8`, and `srun -n 1` in either.
        let shell = [("SLURM_NTASKS", "8"), ("SLURM_NPROCS", "8")];
        let script = [("SLURM_NTASKS", "8"), ("SLURM_PROCID", "0")];
        let step = [("SLURM_NTASKS", "8"), ("SLURM_STEP_NUM_TASKS", "1")];
        for variables in [shell, script, step] {
            assert_eq!(auto(&variables).unwrap(), FoundService::Alone);
            assert!(refuse_stranger(Library::OpenMpi, with(&variables)).is_ok());
        }
    }

    #[test]
    fn pmi1_of_an_outer_launcher_is_hidden() {
        let pmi = [("PMI_FD", "5"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")];
        let pmix = [
            ("PMIX_NAMESPACE", "job"),
            ("PMIX_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
        ];
        let both = [&pmi[..], &pmix[..]].concat();
        let found = |variables, is_open| {
            let lookup = without_outer_pmi1(with(variables), |_| is_open);
            let stranger = refuse_stranger(Library::Mpich, &lookup);
            let found = detect(BootstrapKind::Auto, lookup).unwrap();
            (found == FoundService::Pmix, stranger.is_err())
        };
        assert_eq!(found(&both, false), (true, true));
        // `mpirun` started the launcher of PMI-1.
        assert_eq!(found(&both, true), (false, false));
        // Without PMIx a closed descriptor is an error, which names it.
        assert_eq!(found(&pmi, false), (false, false));
    }

    #[test]
    fn bad_variables_are_named() {
        for variables in [
            &[("PMI_FD", "five")][..],
            &[
                ("PMI_FD", "4294967295"),
                ("PMI_RANK", "0"),
                ("PMI_SIZE", "1"),
            ],
            &[("PMI_FD", "5"), ("PMI_RANK", "-1"), ("PMI_SIZE", "1")],
            &[("SLURM_STEP_NUM_TASKS", "many")],
        ] {
            let error = auto(variables).unwrap_err();
            assert!(matches!(error, Error::BadVariable { .. }), "{error}");
        }
        let error = auto(&[("PMI_FD", "5"), ("PMI_RANK", "0")]).unwrap_err();
        assert!(error.to_string().contains("PMI_SIZE"), "{error}");
        let error = auto(&[("PMI_FD", "5"), ("PMI_RANK", "3"), ("PMI_SIZE", "3")]).unwrap_err();
        assert!(matches!(error, Error::RankOutOfRange { rank: 3, size: 3 }));
    }

    #[test]
    fn a_requested_service_that_is_absent_is_an_error() {
        assert!(matches!(
            detect(BootstrapKind::Pmi1, with(&[])),
            Err(Error::LauncherUnusable { .. })
        ));
        assert!(matches!(
            detect(BootstrapKind::Pmix, with(&[])),
            Err(Error::LauncherUnusable { .. })
        ));
    }
}
