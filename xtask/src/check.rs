//! The checks: their names, what they need, and how one is run and reported.

use clap::Subcommand;

use crate::dose::Dose;
use crate::error::Error;
use crate::report::{CheckRow, timed};
use crate::tool::{Tool, lacking, missing};
use crate::{
    builds, cargo, deny, fuzz, instructions, models, prose, rooms, runners, slurm, soak, verbs,
};

/// A check that CI runs. `list` and `--help` print the doc comments of the variants.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Check {
    /// The code is formatted (cargo fmt --check)
    Fmt,
    /// No room of a crate imports a higher one, and no crate one that is not below it
    Rooms,
    /// Sentences are short and begin with their subject, and a type name has one meaning
    Prose(prose::Arguments),
    /// No lint warns, in any target of any crate
    Clippy,
    /// The documentation builds without a warning
    Doc,
    /// Licences, sources and duplicates of the dependencies; advisories where reachable
    Deny,
    /// The first command of the README builds and runs; with the long dose, all that users run or link
    Build {
        /// How much is built
        #[arg(long, value_enum, default_value_t)]
        dose: Dose,
    },
    /// `hydrant` compiles with each of its features alone, and works without any
    Features,
    /// The crates that users build compile with the oldest supported Rust
    Msrv,
    /// The types are right on 64-bit ARM
    Aarch64,
    /// Unit, property and multi-process tests of every crate, or of those named
    Unit(runners::Unit),
    /// RDMA on a real kernel: tests and programs in virtual machines
    Verbs {
        /// How many of the tests, and for how long
        #[arg(long, value_enum, default_value_t)]
        dose: Dose,
    },
    /// The examples in the documentation run
    DocTests,
    /// Every interleaving of the lock-free code, by loom
    Loom,
    /// Instructions on the hot paths, against the committed counts
    Instructions,
    /// No data race and no wrong access in lock-free code that sanitizers can see
    Sanitizers,
    /// No undefined behaviour that miri can see, where miri is installed
    Miri,
    /// Nothing that others send makes what parses it panic: a coverage-guided fuzzer
    Fuzz(fuzz::Arguments),
    /// Ranks started by the real mpiexec.hydra and mpirun
    Launchers,
    /// Jobs on a real Slurm, with nodes in network namespaces (docs/clusters.md)
    Slurm,
    /// All that the API can do, at random and checked, on every conduit (docs/faults.md)
    Soak(soak::Arguments),
    /// A rank is killed in mid-flight, again and again, and nothing is left behind
    KillLoop {
        /// How many times
        #[arg(long, default_value_t = Dose::Short.kills(), value_parser = clap::value_parser!(u32).range(1..))]
        times: u32,
    },
}

impl Check {
    /// All checks in this dose: the quickest to fail first, the longest last.
    pub(crate) fn all(dose: Dose) -> Vec<Check> {
        let mut all = vec![
            Check::Fmt,
            Check::Rooms,
            Check::Prose(prose::Arguments::default()),
            Check::Clippy,
            Check::Doc,
            Check::Deny,
            Check::Build { dose },
            Check::Features,
            Check::Msrv,
            Check::Aarch64,
            Check::Unit(runners::Unit::default()),
            Check::Verbs { dose },
            Check::DocTests,
            Check::Loom,
            Check::Instructions,
            Check::Miri,
            Check::Sanitizers,
            Check::Fuzz(fuzz::Arguments::of(dose)),
            Check::Launchers,
            Check::Slurm,
            Check::Soak(soak::Arguments::of(dose)),
            Check::KillLoop {
                times: dose.kills(),
            },
        ];
        if dose == Dose::Short {
            all.retain(|check| !check.is_long());
        }
        all
    }

    /// True if only the long dose has the check: it compiles everything once more, or takes minutes.
    fn is_long(&self) -> bool {
        matches!(
            self,
            Check::Features | Check::Msrv | Check::Aarch64 | Check::Sanitizers | Check::Slurm
        )
    }

    /// The name of the check on the command line.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Check::Fmt => "fmt",
            Check::Rooms => "rooms",
            Check::Prose(_) => "prose",
            Check::Clippy => "clippy",
            Check::Doc => "doc",
            Check::Deny => "deny",
            Check::Build { .. } => "build",
            Check::Features => "features",
            Check::Msrv => "msrv",
            Check::Aarch64 => "aarch64",
            Check::Unit(_) => "unit",
            Check::Verbs { .. } => "verbs",
            Check::DocTests => "doc-tests",
            Check::Loom => "loom",
            Check::Instructions => "instructions",
            Check::Miri => "miri",
            Check::Sanitizers => "sanitizers",
            Check::Fuzz(_) => "fuzz",
            Check::Launchers => "launchers",
            Check::Slurm => "slurm",
            Check::Soak(_) => "soak",
            Check::KillLoop { .. } => "kill-loop",
        }
    }

    /// The tools that the machine must have, beyond cargo itself.
    pub(crate) fn needs(&self) -> &'static [Tool] {
        match self {
            Check::Fmt => &[Tool::Rustfmt],
            Check::Rooms | Check::Prose(_) => &[],
            Check::Clippy | Check::Features => &[Tool::Cc, Tool::Clippy],
            Check::Msrv => &[Tool::Cc, Tool::OldestRust],
            Check::Aarch64 => &[Tool::Cc, Tool::Aarch64],
            Check::Sanitizers => &[Tool::Cc, Tool::NightlySource],
            Check::Doc | Check::Build { .. } | Check::DocTests | Check::Loom | Check::Soak(_) => {
                &[Tool::Cc]
            }
            Check::Fuzz(_) => &[Tool::Cc, Tool::Cxx],
            Check::Deny => &[Tool::CargoDeny],
            Check::Unit(_) => &[
                Tool::Cc,
                Tool::Nextest,
                Tool::IbverbsHeader,
                Tool::Libfabric,
                Tool::LibfabricHeaders,
            ],
            Check::KillLoop { .. } => &[Tool::Cc, Tool::Nextest],
            Check::Slurm => &[Tool::Cc, Tool::Ip, Tool::Libfabric, Tool::OpenMpi],
            Check::Verbs { .. } => verbs::TOOLS,
            Check::Instructions => &[Tool::Cc, Tool::Valgrind, Tool::GungraunRunner],
            Check::Miri => &[Tool::Miri],
            Check::Launchers => &[
                Tool::Cc,
                Tool::Nextest,
                Tool::Hydra,
                Tool::MpichCc,
                Tool::OpenMpiCc,
                Tool::OpenMpi,
                Tool::LibPmix,
            ],
        }
    }

    /// True if `test` leaves the check out, with a notice, on a machine that lacks its tools. Only
    /// for tools that no package manager can install.
    pub(crate) fn is_optional(&self) -> bool {
        matches!(
            self,
            Check::Miri | Check::Msrv | Check::Aarch64 | Check::Sanitizers
        )
    }

    /// Runs the check under a heading, and reports the verdict.
    pub(crate) fn report(&self) -> CheckRow {
        let missing = missing(self.needs());
        if missing.is_empty() {
            return timed(self.name(), || self.run());
        }
        timed(self.name(), || Err(lacking(&missing)))
    }

    fn run(&self) -> Result<Vec<String>, Error> {
        match self {
            Check::Fmt => cargo::fmt(),
            Check::Rooms => rooms::rooms(),
            Check::Prose(_) => prose::check(),
            Check::Clippy => cargo::clippy(),
            Check::Doc => cargo::doc(),
            Check::Deny => deny::dependencies(),
            Check::Build { dose } => cargo::build(*dose),
            Check::Features => builds::features(),
            Check::Msrv => builds::msrv(),
            Check::Aarch64 => builds::aarch64(),
            Check::Unit(unit) => runners::unit(unit),
            Check::Verbs { dose } => verbs::verbs(*dose),
            Check::DocTests => runners::doc_tests(),
            Check::Loom => models::loom(),
            Check::Instructions => instructions::compare(),
            Check::Miri => models::miri(),
            Check::Sanitizers => builds::sanitizers(),
            Check::Fuzz(arguments) => fuzz::fuzz(arguments),
            Check::Launchers => runners::launchers(),
            Check::Slurm => slurm::slurm(),
            // The virtual machine is the business of `verbs`.
            Check::Soak(arguments) => soak::check(arguments),
            Check::KillLoop { times } => runners::kill_loop(*times),
        }
    }
}
