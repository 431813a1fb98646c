//! C programs with the library and its header, built and started as users do it.
//!
//! `tests/c/peers.c` has the tests. It is compiled once with the shared library and once with the static one, and each
//! test starts the second process by itself.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::LazyLock,
};

use hydrant_testing::{roles, running};
use rustix::fs::{FlockOperation, flock};

const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c");

/// The tests of the program.
const TESTS: [&str; 14] = [
    "data",
    "unregistered",
    "pieces",
    "death",
    "many",
    "stopped",
    "notified",
    "strangers",
    "functions",
    "bad_input",
    "threads",
    "halted",
    "graceful",
    "forked",
];

/// The libraries of the system that the static library needs.
const SYSTEM: [&str; 7] = [
    "-lgcc_s",
    "-lutil",
    "-lrt",
    "-lpthread",
    "-lm",
    "-ldl",
    "-lc",
];

fn main() -> ExitCode {
    let mut tests = vec![
        roles::test("every_function_is_called", every_function_is_called),
        roles::test("links_statically", || {
            let mut with = vec![libraries().join("libtransfer_engine.a").into()];
            with.extend(SYSTEM.map(OsString::from));
            ends_well(&compiled("peers_static", &with), "data");
        }),
    ];
    tests.extend(TESTS.map(|test| roles::test(test, move || ends_well(&SHARED, test))));
    roles::main(|_, _| None, tests)
}

/// The program with the shared library.
static SHARED: LazyLock<PathBuf> = LazyLock::new(|| {
    // The old kind of path is searched before LD_LIBRARY_PATH. There cargo names a folder whose library may be older
    // than this test.
    let mut rpath = OsString::from("-Wl,--disable-new-dtags,-rpath,");
    rpath.push(libraries());
    let with = [
        "-L".into(),
        libraries().into(),
        rpath,
        "-ltransfer_engine".into(),
        "-lpthread".into(),
    ];
    compiled("peers", &with)
});

#[track_caller]
fn ends_well(program: &Path, test: &str) {
    let output = running::run(Command::new(program).arg(test));
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().next_back().unwrap_or_default();
    assert!(
        output.status.success() && last == "ok",
        "{test}: {}\n{text}{said}",
        output.status
    );
}

/// The folder of the libraries that were built with this test.
fn libraries() -> PathBuf {
    let test = env::current_exe().expect("the test has a path");
    test.parent().expect("in a folder").to_owned()
}

/// Builds the program. Tests in other processes may do the same at once, under a lock.
fn compiled(name: &str, with: &[OsString]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mooncake");
    fs::create_dir_all(&folder).expect("a folder");
    let lock = File::create(folder.join(format!("{name}.lock"))).expect("a file");
    flock(&lock, FlockOperation::LockExclusive).expect("a lock");
    let binary = folder.join(name);
    // A running binary cannot be overwritten.
    let fresh = folder.join(format!("{name}.new"));
    let mut command = Command::new("cc");
    command.args([
        "-std=c11",
        "-D_GNU_SOURCE",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
    ]);
    let source = Path::new(SOURCES).join("peers.c");
    command.args(["-I", HEADERS, "-o"]).arg(&fresh).arg(source);
    let output = running::run(command.args(with));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    fs::rename(&fresh, &binary).expect("a new file");
    binary
}

/// The program calls each function that the header declares.
fn every_function_is_called() {
    let read = |path: PathBuf| fs::read_to_string(path).expect("a text");
    let header = read(Path::new(HEADERS).join("transfer_engine_c.h"));
    let program = read(Path::new(SOURCES).join("peers.c"));
    let functions: Vec<&str> = (header.lines())
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .collect();
    assert_eq!(functions.len(), 29, "{functions:?}");
    for name in functions {
        assert!(
            program.contains(&format!("{name}(")),
            "{name} is not called"
        );
    }
}
