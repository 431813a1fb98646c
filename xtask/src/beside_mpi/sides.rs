//! The two sides of a comparison: Hydrant, and the implementations of MPI. Each compiles a program,
//! and starts its ranks on this host, or on several.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{at_root, run, target_folder};
use crate::error::Error;
use crate::tool::Tool;

/// A side, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComparedSide {
    Hydrant,
    Mpich,
    OpenMpi,
}

/// The place of the ranks.
#[derive(Clone, Copy, Debug)]
pub(super) enum RanksOn<'a> {
    /// This host.
    Here,
    /// Hosts at the bridge, with a rank each. Only TCP joins them.
    Hosts(&'a [String]),
}

/// The network of the bridge that `hosts/functions.sh` makes, and the bridge.
const NETWORK: &str = "10.9.0.0/24";
const BRIDGE: &str = "br0";

impl ComparedSide {
    pub(super) const ALL: [ComparedSide; 3] = [
        ComparedSide::Hydrant,
        ComparedSide::Mpich,
        ComparedSide::OpenMpi,
    ];

    /// The tools that the machine must have.
    pub(super) fn tools(self) -> &'static [Tool] {
        match self {
            ComparedSide::Hydrant => &[],
            ComparedSide::Mpich => &[Tool::Cc, Tool::Hydra, Tool::MpichCc],
            ComparedSide::OpenMpi => &[Tool::Cc, Tool::OpenMpi, Tool::OpenMpiCc],
        }
    }

    /// The name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            ComparedSide::Hydrant => "Hydrant",
            ComparedSide::Mpich => "MPICH",
            ComparedSide::OpenMpi => "Open MPI",
        }
    }

    /// The name in JSON and in names of files.
    pub(super) fn key(self) -> &'static str {
        match self {
            ComparedSide::Hydrant => "hydrant",
            ComparedSide::Mpich => "mpich",
            ComparedSide::OpenMpi => "open_mpi",
        }
    }

    /// Compiles the program, unless cargo has done so.
    pub(super) fn compile(self, name: &str, folder: &Path) -> Result<(), Error> {
        let compiler = match self {
            ComparedSide::Hydrant => return Ok(()),
            ComparedSide::Mpich => "mpicc.mpich",
            ComparedSide::OpenMpi => "mpicc.openmpi",
        };
        let mut cc = at_root(compiler);
        // Like the compiler of Rust, which contracts no multiplications and additions.
        cc.args(["-O3", "-ffp-contract=off"]);
        cc.args(["-Wall", "-Wextra", "-Werror", "-o"]);
        cc.arg(self.binary(name, folder));
        cc.arg(format!("docs/beside-mpi/{name}.c"));
        run(cc)
    }

    /// The command that starts the program on so many ranks. Its arguments follow.
    pub(super) fn start(
        self,
        name: &str,
        folder: &Path,
        ranks: u32,
        place: RanksOn<'_>,
    ) -> Command {
        let mut command = match (self, place) {
            (ComparedSide::Hydrant, place) => start_hydrant(place),
            (ComparedSide::Mpich, place) => start_mpich(place),
            (ComparedSide::OpenMpi, place) => start_open_mpi(place),
        };
        command.args(["-n", &ranks.to_string()]);
        command.arg(self.binary(name, folder));
        command
    }

    fn binary(self, name: &str, folder: &Path) -> PathBuf {
        match self {
            ComparedSide::Hydrant => target_folder().join("release/examples").join(name),
            ComparedSide::Mpich | ComparedSide::OpenMpi => {
                folder.join(format!("{name}-{}", self.key()))
            }
        }
    }
}

fn start_hydrant(place: RanksOn<'_>) -> Command {
    let hydrant = target_folder().join("release/hydrant");
    let mut command = at_root(&hydrant.to_string_lossy());
    command.args(["run", "--prefix", "none"]);
    if let RanksOn::Hosts(hosts) = place {
        // The script has set HYDRANT_INTER_NODE.
        command.args(["--hosts", &hosts.join(",")]);
    }
    command
}

fn start_mpich(place: RanksOn<'_>) -> Command {
    let mut command = at_root("mpiexec.hydra");
    if let RanksOn::Hosts(hosts) = place {
        command.args(["-iface", BRIDGE, "-launcher", "rsh", "-launcher-exec"]);
        command.args([&remote_shell(), "-hosts", &hosts.join(",")]);
        command.env("UCX_TLS", "tcp,self");
    }
    command
}

fn start_open_mpi(place: RanksOn<'_>) -> Command {
    let mut command = at_root("mpirun.openmpi");
    // It refuses root, and more ranks than cores, if it is not told. With more ranks, a waiting
    // rank then yields its core.
    command.args(["--allow-run-as-root", "--oversubscribe"]);
    let mut set = |name: &str, value: &str| {
        command.args(["--mca", name, value]);
    };
    match place {
        // It looks for a remote shell, though there is one host.
        RanksOn::Here => set("plm_rsh_agent", "sh"),
        RanksOn::Hosts(hosts) => {
            set("plm_rsh_agent", &remote_shell());
            set("oob_tcp_if_include", NETWORK);
            set("btl_tcp_if_include", NETWORK);
            set("pml", "ob1");
            set("btl", "tcp,self");
            // Keeps windows out of shared memory.
            set("osc", "^sm,ucx");
            // Namespaces share the cores of one machine: it would bind every rank to the first.
            command.args(["--bind-to", "none", "--host", &hosts.join(",")]);
        }
    }
    command
}

/// The command that takes a host and a command line, which the script of the hosts has set.
fn remote_shell() -> String {
    env::var("HYDRANT_RSH").unwrap_or_else(|_| "ssh".to_owned())
}
