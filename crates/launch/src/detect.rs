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
const LAUNCHERS: [(&str, &str, &str); 7] = [
    // Within a step, the step's count is the valid one.
    ("SLURM_STEP_NUM_TASKS", "Slurm", SRUN),
    ("SLURM_NTASKS", "Slurm", SRUN),
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

const SRUN: &str = "start it with `srun --mpi=pmi2` or `srun --mpi=pmix`";

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
            "start it with the `mpiexec` of that MPI (mpiexec.hydra) or with `hydrant run`",
        ),
        Library::OpenMpi => ("Open MPI", "start it with the `mpirun` of Open MPI"),
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
    let is_step = lookup(LAUNCHERS[0].0).is_some();
    let mut found = None;
    for (variable, launcher, fix) in LAUNCHERS {
        if is_step && variable == "SLURM_NTASKS" {
            continue;
        }
        match number(lookup, variable, "a number of ranks")? {
            // An allocation of one task may start any launcher.
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
            ("SLURM_NTASKS", "srun --mpi=pmi2"),
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
            (Library::Mpich, &[("SLURM_NTASKS", "3")], "mpiexec.hydra"),
        ] {
            let error = refuse_stranger(library, with(variables)).unwrap_err();
            assert!(error.to_string().contains(launcher), "{error}");
        }
        assert!(refuse_stranger(Library::Mpich, with(&[])).is_ok());
        // A rank that the inner launcher started as a job of one.
        let inner = [("SLURM_NTASKS", "8"), ("OMPI_COMM_WORLD_SIZE", "1")];
        assert!(refuse_stranger(Library::OpenMpi, with(&inner)).is_ok());
        // An allocation of one task, in which another launcher starts several.
        let outer = [("SLURM_NTASKS", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        assert!(refuse_stranger(Library::Mpich, with(&outer)).is_err());
    }

    #[test]
    fn a_step_of_one_in_a_larger_allocation_is_alone() {
        let step = [("SLURM_NTASKS", "8"), ("SLURM_STEP_NUM_TASKS", "1")];
        assert_eq!(auto(&step).unwrap(), FoundService::Alone);
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
            &[("SLURM_NTASKS", "many")],
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
