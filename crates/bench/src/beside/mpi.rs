//! Debian's MPICH and Open MPI: finds them, runs the C program with them, and reads its output.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use super::rows::Sample;
use crate::measure::MeasurementPlan;
use crate::row::Other;

/// The C program.
const SOURCE: &str = include_str!("bench.c");

/// An MPI, by its commands.
#[derive(Debug)]
struct MpiInstallation {
    other: Other,
    compiler: &'static str,
    launcher: &'static str,
    options: &'static [&'static str],
    /// Variables that let the launcher run as root or in containers.
    environment: &'static [(&'static str, &'static str)],
    /// Variables that make ranks of one host use TCP.
    over_tcp: &'static [(&'static str, &'static str)],
}

const MPIS: [MpiInstallation; 2] = [
    MpiInstallation {
        other: Other::Mpich,
        compiler: "mpicc.mpich",
        launcher: "mpiexec.mpich",
        // The other two launchers bind to cores as well. MPICH's ranks spin without yielding: two
        // ranks on one core wait a time slice for each message.
        options: &["-bind-to", "core"],
        environment: &[],
        // The first keeps MPICH's own shared memory away, the second that of UCX, over which Debian builds it.
        over_tcp: &[("MPIR_CVAR_NOLOCAL", "1"), ("UCX_TLS", "tcp,self")],
    },
    MpiInstallation {
        other: Other::OpenMpi,
        compiler: "mpicc.openmpi",
        launcher: "mpiexec.openmpi",
        // Without this option it refuses more ranks than cores. With more ranks, a waiting rank
        // then yields its core.
        options: &["--oversubscribe"],
        environment: &[
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            // Open MPI looks for a remote shell, though there is one host.
            ("OMPI_MCA_plm_rsh_agent", "sh"),
        ],
        // The last keeps windows out of shared memory.
        over_tcp: &[
            ("OMPI_MCA_pml", "ob1"),
            ("OMPI_MCA_btl", "tcp,self"),
            ("OMPI_MCA_osc", "^sm,ucx"),
        ],
    },
];

/// The reason why no MPI can be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MpiError {
    /// None of them is installed.
    #[error(
        "there is no MPI to set beside: neither mpicc.mpich and mpiexec.mpich nor mpicc.openmpi and \
         mpiexec.openmpi are here (Debian: apt-get install mpich libmpich-dev openmpi-bin libopenmpi-dev)"
    )]
    None,
    /// The program in C could not be written.
    #[error("cannot write the program for MPI into {}: {why}", folder.display())]
    Write {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        #[source]
        why: io::Error,
    },
    /// A compiler or a launcher could not be started.
    #[error("cannot start {command}: {why}")]
    Start {
        /// The name of the command.
        command: &'static str,
        /// The system's error.
        #[source]
        why: io::Error,
    },
    /// A compiler or a launcher failed.
    #[error("{command} failed ({status}):\n{says}")]
    Failed {
        /// The name of the command.
        command: &'static str,
        /// The status of the command.
        status: std::process::ExitStatus,
        /// The standard error of the command.
        says: String,
    },
    /// The program printed a line that is no figure.
    #[error("the program under {command} printed {line:?} instead of a figure")]
    Unexpected {
        /// The launcher.
        command: &'static str,
        /// The line.
        line: String,
    },
}

/// A measurement for the C program.
pub(crate) struct MpiRequest {
    /// The program's name for the bench.
    pub(crate) bench: &'static str,
    pub(crate) ranks: u32,
    pub(crate) sizes: Vec<u64>,
    pub(crate) plan: MeasurementPlan,
    /// True if the ranks use TCP, as Hydrant's do.
    pub(crate) over_tcp: bool,
}

/// The programs, compiled for each installed MPI.
#[derive(Debug)]
pub(crate) struct Programs {
    /// The drop removes the folder.
    folder: TempDir,
    here: Vec<&'static MpiInstallation>,
}

impl Programs {
    /// Compiles the program for each MPI on the path. Names the missing ones on standard error.
    ///
    /// # Errors
    /// If no MPI is installed, or the program cannot be compiled.
    pub(crate) fn build() -> Result<Self, MpiError> {
        let (here, missing) = find_installations(&env::var_os("PATH").unwrap_or_default());
        if here.is_empty() {
            return Err(MpiError::None);
        }
        for mpi in missing {
            // A failed notice is no reason to stop.
            let _ = writeln!(
                io::stderr(),
                "{} is not installed ({} and {}): it is not set beside",
                mpi.other.name(),
                mpi.compiler,
                mpi.launcher
            );
        }
        // Files left by a killed bench have another name.
        let folder = tempfile::Builder::new().prefix("hydrant-bench-").tempdir();
        let written = |folder: &Path, why| MpiError::Write {
            folder: folder.to_owned(),
            why,
        };
        let folder = folder.map_err(|why| written(&env::temp_dir(), why))?;
        let source = folder.path().join("bench.c");
        fs::write(&source, SOURCE).map_err(|why| written(folder.path(), why))?;
        let built = Self { folder, here };
        for mpi in &built.here {
            let mut compile = Command::new(mpi.compiler);
            compile
                .args(["-O3", "-o"])
                .arg(built.program(mpi))
                .arg(&source);
            output(mpi.compiler, compile)?;
        }
        Ok(built)
    }

    /// Measures with each MPI.
    ///
    /// # Errors
    /// If a launcher fails, or prints a line that is no figure.
    pub(crate) fn measure(&self, request: &MpiRequest) -> Result<Vec<Sample>, MpiError> {
        let mut samples = Vec::new();
        for mpi in &self.here {
            let sizes: Vec<String> = request.sizes.iter().map(u64::to_string).collect();
            let mut run = Command::new(mpi.launcher);
            run.args(mpi.options).envs(mpi.environment.iter().copied());
            if request.over_tcp {
                run.envs(mpi.over_tcp.iter().copied());
            }
            run.args(["-n", &request.ranks.to_string()]);
            run.arg(self.program(mpi)).arg(request.bench).args([
                request.plan.repetitions.to_string(),
                request.plan.warm_up.to_string(),
                request.plan.batch.as_nanos().to_string(),
                sizes.join(","),
            ]);
            let said = output(mpi.launcher, run)?;
            for line in String::from_utf8_lossy(&said.stdout).lines() {
                let sample = Sample::parse(mpi.other, request.bench, request.ranks, line);
                samples.push(sample.ok_or_else(|| MpiError::Unexpected {
                    command: mpi.launcher,
                    line: line.to_owned(),
                })?);
            }
        }
        Ok(samples)
    }

    fn program(&self, mpi: &MpiInstallation) -> PathBuf {
        self.folder.path().join(mpi.other.name().replace(' ', "-"))
    }
}

fn output(command: &'static str, mut run: Command) -> Result<Output, MpiError> {
    let output =
        (run.stdin(Stdio::null()).output()).map_err(|why| MpiError::Start { command, why })?;
    if output.status.success() {
        Ok(output)
    } else {
        Err(MpiError::Failed {
            command,
            status: output.status,
            says: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }
}

/// The complete installations on the path, and the others.
fn find_installations(
    path: &OsString,
) -> (Vec<&'static MpiInstallation>, Vec<&'static MpiInstallation>) {
    MPIS.iter()
        .partition(|mpi| is_on(path, mpi.compiler) && is_on(path, mpi.launcher))
}

fn is_on(path: &OsString, program: &str) -> bool {
    env::split_paths(path).any(|folder| is_program(&folder.join(program)))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(file).is_ok_and(|of| of.is_file() && of.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_the_path_and_nowhere_else() {
        let path = OsString::from("/no/such/folder:/bin:/usr/bin");
        assert!(is_on(&path, "sh"));
        assert!(!is_on(&path, "no-such-program"));
        assert!(!is_on(&OsString::from("/no/such/folder"), "sh"));
        // The file is not executable.
        assert!(!is_on(&OsString::from("/etc"), "passwd"));
    }

    #[test]
    fn an_mpi_is_installed_if_both_its_commands_are() {
        use std::os::unix::fs::symlink;
        let folder = env::temp_dir().join(format!("hydrant-mpis-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = OsString::from(&folder);
        let here = || {
            let (here, missing) = find_installations(&path);
            assert_eq!(here.len() + missing.len(), MPIS.len());
            here.iter().map(|mpi| mpi.other).collect::<Vec<_>>()
        };
        let mut found = vec![here()];
        for command in [
            "mpicc.openmpi",
            "mpiexec.openmpi",
            "mpiexec.mpich",
            "mpicc.mpich",
        ] {
            symlink("/bin/sh", folder.join(command)).unwrap();
            found.push(here());
        }
        fs::remove_dir_all(&folder).unwrap();
        let (one, both) = (vec![Other::OpenMpi], vec![Other::Mpich, Other::OpenMpi]);
        assert_eq!(found, [vec![], vec![], one.clone(), one, both]);
    }

    #[test]
    fn a_failure_is_reported_with_its_output() {
        let mut fail = Command::new("sh");
        fail.args(["-c", "echo no room >&2; exit 3"]);
        let told = output("sh", fail).unwrap_err().to_string();
        assert!(
            told.contains("sh failed") && told.ends_with("no room"),
            "{told}"
        );
        let missing = output("nowhere", Command::new("/no/such/program")).unwrap_err();
        assert!(
            missing.to_string().starts_with("cannot start nowhere"),
            "{missing}"
        );
    }
}
