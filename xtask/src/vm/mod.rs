//! `cargo xtask vm -- COMMAND`: runs a command of this machine in a virtual machine whose kernel
//! has an RDMA device. So real verbs can be tried where there is no NIC. `docs/vm.md` is its
//! manual.
//!
//! QEMU boots Debian's kernel with our own initramfs. The guest's root file system is that of this
//! machine, so programs built here run there unchanged. The guest's changes to it stay in the
//! guest's memory and end with it. One folder is really shared. The command's output and status
//! come back through virtio ports. Two such machines with a wire between them are a cluster.

mod control;
mod error;
mod events;
mod folder;
mod guest;
mod image;
mod kernel;
mod machine;
mod memory_file;
mod package;
mod ssh;
mod words;

use std::convert::Infallible;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::command::at_root;
use crate::tool::{Tool, missing};

pub(crate) use error::Error;

/// The tools that the machine needs here beyond cargo.
pub(crate) const TOOLS: &[Tool] = &[
    Tool::Qemu,
    Tool::Busybox,
    Tool::Kmod,
    Tool::Xz,
    Tool::Ip,
    Tool::IbverbsUtils,
    Tool::IbverbsProviders,
    Tool::SshClient,
];

/// The exit status of a timeout, which scripts know from `timeout` of coreutils.
const TIMED_OUT: u8 = 124;

/// The exit status if the machine failed, rather than the command; `timeout` uses the same.
const MACHINE_FAILED: u8 = 125;

/// The command to run, and the kind of machine.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// The folder that the machine may write to, under its own path; a fresh one if not given
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Hand this environment variable on, beside HYDRANT_*, RUST_* and those of the user
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,

    /// End the machine after so many seconds, with status 124
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,

    /// Boot so many machines as the hosts of one cluster; the command runs on host1
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    hosts: u32,

    /// RDMA devices of a machine that is alone: a second one, at the other end of a wire
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    devices: u32,

    /// Memory of each machine, as QEMU has it; 6G, or 3G for each of two
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,

    /// Processors of each machine; 2, or 1 for each of two
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: Option<u32>,

    /// The kernel: stable, sid (Debian's newest), or a folder with vmlinux and modules
    #[arg(long, value_name = "KERNEL", default_value = "stable", value_parser = clap::builder::ValueParser::new(|name: &str| Ok::<_, Infallible>(kernel::KernelChoice::from(name))))]
    kernel: kernel::KernelChoice,

    /// How processors are made; by default kvm where it works, else tcg
    #[arg(long, value_enum)]
    accel: Option<Accelerator>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How QEMU makes processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Accelerator {
    /// By emulation, on any host.
    Tcg,
    /// By the processor's own virtualization.
    Kvm,
}

/// Runs the command and returns the exit status.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match boot(arguments) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("vm: {error}");
            let timed_out = matches!(error, Error::TimedOut { .. });
            ExitCode::from(if timed_out { TIMED_OUT } else { MACHINE_FAILED })
        }
    }
}

/// A command that boots machines and runs a script in the first.
pub(crate) fn in_machine(
    seconds: &str,
    options: &[&str],
    script: &Path,
) -> Result<process::Command, crate::error::Error> {
    let this = env::current_exe().map_err(|source| crate::error::Error::NotRun {
        command: "xtask vm".into(),
        source,
    })?;
    // The machine dies with us: nobody would wait for it any more.
    let mut command = at_root("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(this);
    command.args(["vm", "--timeout", seconds]).args(options);
    command.args(["--", "sh"]).arg(script);
    Ok(command)
}

fn boot(arguments: &Arguments) -> Result<u8, Error> {
    if arguments.hosts > 1 && arguments.devices > 1 {
        let problem = "two hosts have one device each: give --hosts or --devices";
        return Err(Error::Unusable(problem.into()));
    }
    let missing = missing(TOOLS);
    if !missing.is_empty() {
        return Err(Error::Missing { tools: missing });
    }
    let kernel = kernel::find_or_fetch(&arguments.kernel)?;
    let command = guest::GuestCommand::from_here(&arguments.command, &arguments.env)?;
    let first = folder::Folder::new(arguments.folder.as_deref())?;
    let is_cluster = arguments.hosts > 1;
    let ssh = is_cluster.then(ssh::Ssh::new).transpose()?;
    let folders = if is_cluster {
        vec![first.of_host(2)?]
    } else {
        vec![]
    };
    let folders: Vec<_> = [first].into_iter().chain(folders).collect();
    let seen_as = folders[0].path();

    let mut machines = Vec::new();
    let mut network = is_cluster
        .then(machine::network)
        .transpose()?
        .into_iter()
        .flatten();
    for (index, folder) in folders.iter().enumerate() {
        let guest = guest::Guest {
            number: index + 1,
            devices: arguments.devices,
            folder: seen_as,
            ssh: ssh.as_ref(),
        };
        machines.push(machine::QemuMachine {
            kernel: &kernel.image,
            image: image::Initramfs::new(&kernel, &guest.entries(&command))?,
            number: index + 1,
            folder: folder.path(),
            network: network.next(),
            accelerator: arguments.accelerator(),
            cpus: arguments.cpus(),
            memory: arguments.memory(),
        });
    }
    let status = events::run(machines, Duration::from_secs(arguments.timeout))?;
    folders.into_iter().for_each(folder::Folder::close);
    Ok(status)
}

impl Arguments {
    fn accelerator(&self) -> Accelerator {
        self.accel.unwrap_or_else(machine::best_accelerator)
    }

    /// Two machines share what one alone would have.
    fn cpus(&self) -> u32 {
        self.cpus.unwrap_or(2 / self.hosts)
    }

    fn memory(&self) -> &str {
        let usual = if self.hosts > 1 { "3G" } else { "6G" };
        self.memory.as_deref().unwrap_or(usual)
    }
}
