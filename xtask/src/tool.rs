//! The tools that checks need beyond cargo: how each is found, and its source.

use std::env;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{at_root, by_rustup, cargo, succeeds};
use crate::error::Error;

/// A tool that a check needs on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// The C compiler, which Rust links with and which tests the C ABI.
    Cc,
    /// The C++ compiler, for libFuzzer.
    Cxx,
    /// `cargo fmt`.
    Rustfmt,
    /// `cargo clippy`.
    Clippy,
    /// The test runner.
    Nextest,
    /// The checker of dependencies.
    CargoDeny,
    /// The counter of instructions.
    Valgrind,
    /// The runner of the benchmarks that count instructions, in the library's version.
    GungraunRunner,
    /// The oldest supported compiler.
    OldestRust,
    /// The standard library of 64-bit ARM.
    Aarch64,
    /// A nightly compiler with the source of the standard library.
    NightlySource,
    /// The interpreter that sees undefined behaviour; nightly only.
    Miri,
    /// MPICH's launcher, which speaks PMI-1.
    Hydra,
    /// MPICH's compiler: a program of MPICH must run under our launcher.
    MpichCc,
    /// Open MPI's launcher, which speaks PMIx.
    OpenMpi,
    /// Open MPI's compiler: `hydrant bench --beside mpi` compiles a program with it.
    OpenMpiCc,
    /// The library through which ranks speak PMIx, and its headers, against which our copy of the
    /// layouts is checked.
    LibPmix,
    /// The emulator of the virtual machine.
    Qemu,
    /// The static busybox, the only program that a virtual machine starts with.
    Busybox,
    /// The tools that know the dependencies of kernel modules.
    Kmod,
    /// The unpacker of a kernel. Busybox's `xz` does not know the filter that packs its code.
    Xz,
    /// The tool that makes the network and the RDMA device of a virtual machine.
    Ip,
    /// The programs that try an RDMA device.
    IbverbsUtils,
    /// The header that the bindings of libibverbs are compared with.
    IbverbsHeader,
    /// The part of libibverbs that knows soft-RoCE.
    IbverbsProviders,
    /// The network library whose providers the conduit `ofi` uses.
    Libfabric,
    /// The headers that the bindings of libfabric are compared with.
    LibfabricHeaders,
    /// The programs that measure bare RDMA.
    Perftest,
    /// The client that goes from one host of a cluster to another.
    SshClient,
    /// The server that it reaches there.
    SshServer,
    /// The firewall between hosts that are network namespaces.
    Nft,
}

/// The source of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolSource {
    /// A Debian package.
    Apt(&'static str),
    /// A crate with a binary, at a version that builds with the oldest supported Rust, and further
    /// arguments of `cargo install`.
    Crate(&'static str, &'static [&'static str]),
    /// A component of the Rust toolchain.
    Component(&'static str),
    /// A tool that this program does not install; the text says what to type instead.
    ByHand(&'static str),
}

impl fmt::Display for ToolSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToolSource::Apt(package) => write!(f, "apt-get install {package}"),
            ToolSource::Crate(name, _) => write!(f, "cargo install --locked {name}"),
            ToolSource::Component(name) => write!(f, "rustup component add {name}"),
            ToolSource::ByHand(command) => f.write_str(command),
        }
    }
}

impl Tool {
    /// All tools, in the order of installation: the crates need the compiler.
    pub(crate) const ALL: [Tool; 31] = [
        Tool::Cc,
        Tool::Cxx,
        Tool::Hydra,
        Tool::MpichCc,
        Tool::OpenMpi,
        Tool::OpenMpiCc,
        Tool::LibPmix,
        Tool::Valgrind,
        Tool::Qemu,
        Tool::Busybox,
        Tool::Kmod,
        Tool::Xz,
        Tool::Ip,
        Tool::IbverbsUtils,
        Tool::IbverbsHeader,
        Tool::IbverbsProviders,
        Tool::Libfabric,
        Tool::LibfabricHeaders,
        Tool::Perftest,
        Tool::SshClient,
        Tool::SshServer,
        Tool::Nft,
        Tool::Rustfmt,
        Tool::Clippy,
        Tool::Nextest,
        Tool::CargoDeny,
        Tool::GungraunRunner,
        Tool::OldestRust,
        Tool::Aarch64,
        Tool::NightlySource,
        Tool::Miri,
    ];

    /// The name of the tool.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tool::Cc => "cc",
            Tool::Cxx => "c++",
            Tool::Rustfmt => "rustfmt",
            Tool::Clippy => "clippy",
            Tool::Nextest => "cargo-nextest",
            Tool::CargoDeny => "cargo-deny",
            Tool::Valgrind => "valgrind",
            Tool::GungraunRunner => "gungraun-runner",
            Tool::OldestRust => "the oldest supported Rust",
            Tool::Aarch64 => "Rust's standard library for aarch64",
            Tool::NightlySource => "nightly Rust with the source of its library",
            Tool::Miri => "miri",
            Tool::Hydra => "mpiexec.hydra of MPICH",
            Tool::MpichCc => "mpicc of MPICH",
            Tool::OpenMpi => "mpirun of Open MPI",
            Tool::OpenMpiCc => "mpicc of Open MPI",
            Tool::LibPmix => "libpmix.so.2 and its headers",
            Tool::Qemu => "qemu-system-x86_64",
            Tool::Busybox => "static busybox",
            Tool::Kmod => "modprobe",
            Tool::Xz => "xz",
            Tool::Ip => "ip and rdma of iproute2",
            Tool::IbverbsUtils => "ibv_devinfo",
            Tool::IbverbsHeader => "infiniband/verbs.h",
            Tool::IbverbsProviders => "libibverbs' driver of soft-RoCE",
            Tool::Libfabric => "libfabric",
            Tool::LibfabricHeaders => "rdma/fabric.h",
            Tool::Perftest => "perftest",
            Tool::SshClient => "ssh and ssh-keygen",
            Tool::SshServer => "sshd",
            Tool::Nft => "nft of nftables",
        }
    }

    /// The source of the tool.
    pub(crate) fn source(self) -> ToolSource {
        match self {
            Tool::Cc | Tool::Cxx => ToolSource::Apt("build-essential"),
            Tool::Hydra => ToolSource::Apt("mpich"),
            Tool::MpichCc => ToolSource::Apt("libmpich-dev"),
            Tool::OpenMpi => ToolSource::Apt("openmpi-bin"),
            Tool::OpenMpiCc => ToolSource::Apt("libopenmpi-dev"),
            Tool::LibPmix => ToolSource::Apt("libpmix-dev"),
            Tool::Qemu => ToolSource::Apt("qemu-system-x86"),
            Tool::Busybox => ToolSource::Apt("busybox-static"),
            Tool::Kmod => ToolSource::Apt("kmod"),
            Tool::Xz => ToolSource::Apt("xz-utils"),
            Tool::Ip => ToolSource::Apt("iproute2"),
            Tool::IbverbsUtils => ToolSource::Apt("ibverbs-utils"),
            Tool::IbverbsHeader => ToolSource::Apt("libibverbs-dev"),
            Tool::IbverbsProviders => ToolSource::Apt("ibverbs-providers"),
            Tool::Libfabric => ToolSource::Apt("libfabric1"),
            Tool::LibfabricHeaders => ToolSource::Apt("libfabric-dev"),
            Tool::Perftest => ToolSource::Apt("perftest"),
            Tool::SshClient => ToolSource::Apt("openssh-client"),
            Tool::SshServer => ToolSource::Apt("openssh-server"),
            Tool::Nft => ToolSource::Apt("nftables"),
            Tool::Rustfmt => ToolSource::Component("rustfmt"),
            Tool::Clippy => ToolSource::Component("clippy"),
            Tool::Nextest => ToolSource::Crate(
                "cargo-nextest@0.9.114",
                // Without the self-updater, which is half of the build.
                &["--no-default-features", "--features=default-no-update"],
            ),
            Tool::CargoDeny => ToolSource::Crate("cargo-deny@0.20.2", &[]),
            Tool::Valgrind => ToolSource::Apt("valgrind"),
            Tool::GungraunRunner => ToolSource::Crate(GUNGRAUN_RUNNER, &[]),
            Tool::OldestRust => {
                ToolSource::ByHand("rustup toolchain install 1.88 --profile minimal")
            }
            Tool::Aarch64 => ToolSource::ByHand("rustup target add aarch64-unknown-linux-gnu"),
            Tool::NightlySource => {
                ToolSource::ByHand("rustup toolchain install nightly -c rust-src")
            }
            Tool::Miri => {
                ToolSource::ByHand("rustup toolchain install nightly -c miri -c rust-src")
            }
        }
    }

    /// True if this machine has the tool.
    pub(crate) fn is_here(self) -> bool {
        match self {
            Tool::Cc => on_path("cc"),
            Tool::Cxx => on_path("c++"),
            // Rustup leaves a `cargo-fmt` on the path that only complains, so the check runs it.
            Tool::Rustfmt => answers(cargo("fmt --version")),
            Tool::Clippy => answers(cargo("clippy --version")),
            // Cargo finds its installed commands even where the path does not.
            Tool::Nextest => answers(cargo("nextest --version")),
            Tool::CargoDeny => answers(cargo("deny --version")),
            Tool::Valgrind => on_path("valgrind"),
            Tool::GungraunRunner => gungraun_runner().is_some(),
            Tool::OldestRust => answers(by_rustup(&[&format!("+{OLDEST}"), "--version"])),
            Tool::Aarch64 => has_aarch64(),
            Tool::NightlySource => has_nightly_source(),
            Tool::Miri => miri_toolchain().is_some(),
            Tool::Hydra => on_path("mpiexec.hydra"),
            Tool::MpichCc => on_path("mpicc.mpich"),
            // `mpirun` alone may be MPICH's.
            Tool::OpenMpi => on_path("mpirun.openmpi") || prints("mpirun", "--version", "Open MPI"),
            Tool::OpenMpiCc => on_path("mpicc.openmpi"),
            Tool::LibPmix => has_libpmix(),
            Tool::Qemu => on_path("qemu-system-x86_64"),
            Tool::Busybox => is_static(&program_path("busybox")),
            Tool::Kmod => [program_path("depmod"), program_path("modprobe")]
                .iter()
                .all(is_executable),
            Tool::Xz => on_path("xz"),
            Tool::Ip => [program_path("ip"), program_path("rdma")]
                .iter()
                .all(is_executable),
            Tool::IbverbsUtils => on_path("ibv_devinfo") && on_path("ibv_rc_pingpong"),
            Tool::IbverbsHeader => Path::new("/usr/include/infiniband/verbs.h").is_file(),
            Tool::IbverbsProviders => Path::new("/etc/libibverbs.d/rxe.driver").is_file(),
            Tool::Libfabric => has_libfabric(),
            Tool::LibfabricHeaders => Path::new("/usr/include/rdma/fabric.h").is_file(),
            Tool::Perftest => on_path("ib_write_lat"),
            Tool::SshClient => on_path("ssh") && on_path("ssh-keygen"),
            Tool::SshServer => is_executable(&program_path("sshd")),
            Tool::Nft => is_executable(&program_path("nft")),
        }
    }
}

/// True if the dynamic linker would find libfabric.
fn has_libfabric() -> bool {
    let folders = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
    ];
    let file = |folder: &&str| Path::new(folder).join("libfabric.so.1").exists();
    folders.iter().any(file)
}

/// The oldest Rust that the crates promise to compile with.
pub(crate) const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

/// The other processor.
pub(crate) const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// The runner must be of the library's version, which `Cargo.lock` pins.
const GUNGRAUN_RUNNER: &str = "gungraun-runner@0.20.0";

/// The runner of the instruction counts, on the path or where cargo installs.
pub(crate) fn gungraun_runner() -> Option<PathBuf> {
    let (name, version) = GUNGRAUN_RUNNER.split_once('@')?;
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    let installed = cargo_home.or_else(home).map(|it| it.join("bin").join(name));
    let candidates = [Some(PathBuf::from(name)), installed];
    let mut candidates = candidates.into_iter().flatten();
    candidates.find(|it| prints(&it.to_string_lossy(), "--version", version))
}

/// `cargo miri` of the toolchain in use or of the nightly one, if either has it.
pub(crate) fn miri_toolchain() -> Option<Command> {
    let candidates = [&["miri"][..], &["+nightly", "miri"]];
    let here = candidates.into_iter().find(|words| {
        let mut question = by_rustup(words);
        question.arg("--version");
        answers(question)
    });
    here.map(by_rustup)
}

/// True if the toolchain has the standard library of `target`.
fn has_aarch64() -> bool {
    let libraries = rustc_prints(&["--print", "target-libdir", "--target", AARCH64]);
    libraries.is_some_and(|folder| Path::new(&folder).is_dir())
}

/// True if there is a nightly toolchain with the source of the standard library.
fn has_nightly_source() -> bool {
    let root = rustc_prints(&["+nightly", "--print", "sysroot"]);
    root.is_some_and(|root| {
        Path::new(&root)
            .join("lib/rustlib/src/rust/library")
            .is_dir()
    })
}

/// The first line that `rustc` prints with these arguments.
fn rustc_prints(arguments: &[&str]) -> Option<String> {
    let mut command = at_root("rustc");
    // A question must not install a toolchain.
    command.args(arguments).env("RUSTUP_AUTO_INSTALL", "0");
    let output = command.output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| line.trim().to_owned())
}

/// True if an executable of this name is on the path.
pub(crate) fn on_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| is_executable(&folder.join(name)))
}

/// The path of the program of this name, also in the folders of root's path. Returns the name if
/// the program is nowhere.
pub(crate) fn program_path(name: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut places = folders.map(|folder| folder.join(name));
    places.find(is_executable).unwrap_or_else(|| name.into())
}

fn is_executable(file: &PathBuf) -> bool {
    fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

fn has_libpmix() -> bool {
    let arch = env::consts::ARCH;
    let header = format!("/usr/lib/{arch}-linux-gnu/pmix2/include/pmix.h");
    let known = |ldconfig| prints(ldconfig, "-p", "libpmix.so.2");
    (known("ldconfig") || known("/sbin/ldconfig")) && Path::new(&header).is_file()
}

/// True if the program at `path` needs no library at run time: no program header names an
/// interpreter (elf(5), 64 bit, in this machine's byte order).
fn is_static(path: &Path) -> bool {
    const INTERPRETER: u32 = 3;
    let bytes = fs::read(path).unwrap_or_default();
    let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let headers = word(32).unwrap_or_default() as usize;
    let (size, count) = (half(54).unwrap_or_default(), half(56).unwrap_or_default());
    let mut kinds = (0..count).map(|it| word(headers + usize::from(it) * usize::from(size)));
    count > 0 && kinds.all(|it| it.is_some_and(|kind| kind != INTERPRETER))
}

fn answers(mut command: Command) -> bool {
    // A question must not install a toolchain.
    command.env("RUSTUP_AUTO_INSTALL", "0");
    succeeds(command)
}

fn prints(program: &str, argument: &str, wanted: &str) -> bool {
    let output = at_root(program).arg(argument).output();
    output.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains(wanted))
}

/// The tools among `tools` that this machine lacks.
pub(crate) fn missing(tools: &[Tool]) -> Vec<Tool> {
    let absent = tools.iter().filter(|tool| !tool.is_here());
    absent.copied().collect()
}

/// The tools, each with its source.
pub(crate) fn with_sources(tools: &[Tool]) -> String {
    let named = tools
        .iter()
        .map(|tool| format!("{} ({})", tool.name(), tool.source()));
    named.collect::<Vec<_>>().join(", ")
}

/// The error of a check that lacks these tools.
pub(crate) fn lacking(tools: &[Tool]) -> Error {
    Error::Missing {
        tools: with_sources(tools),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_on_the_path() {
        assert!(on_path("sh"));
        assert!(!on_path("hydrant-has-no-such-program"));
    }

    #[test]
    fn a_program_is_identified_by_its_output() {
        assert!(prints("echo", "Open MPI 4", "Open MPI"));
        assert!(!prints("echo", "HYDRA", "Open MPI"));
        assert!(!prints("hydrant-has-no-such-program", "", ""));
    }

    #[test]
    fn programs_of_root_are_found_too() {
        assert!(is_executable(&program_path("sh")));
        assert_eq!(
            program_path("hydrant-has-no-such-program"),
            Path::new("hydrant-has-no-such-program")
        );
    }

    #[test]
    fn a_program_that_is_linked_at_run_time_is_not_static() {
        assert!(!is_static(&env::current_exe().unwrap()));
        assert!(!is_static(Path::new("/etc/passwd")));
    }

    #[test]
    fn every_tool_of_every_check_can_be_set_up() {
        for check in crate::check::Check::all(crate::dose::Dose::Short) {
            for tool in check.needs() {
                assert!(Tool::ALL.contains(tool), "{} is not in ALL", tool.name());
                let by_hand = matches!(tool.source(), ToolSource::ByHand(_));
                assert!(!by_hand || check.is_optional(), "{}", tool.name());
            }
        }
    }
}
