//! C programs with the library and its header, built and started as users do it.
//!
//! Each program is compiled once, and the launcher runs it on each kind of network that one host
//! can play. A program computes the right answers by itself. Its last line is `ok`, or it fails and
//! prints the reason.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    os::unix::{fs::symlink, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Output},
    time::SystemTime,
};

use hydrant_testing::{launcher, roles, running};
use libtest_mimic::Trial;
use rustix::fs::{FlockOperation, flock};

/// The folder of the header.
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
/// The folder of the programs.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c");

/// The networks: their names in the tests, and the environment variables that choose them.
const NETWORKS: [(&str, &[(&str, &str)]); 5] = [
    ("smp", &[("HYDRANT_CONDUIT", "smp")]),
    ("pinned", &[("HYDRANT_CONDUIT", "smp+pin")]),
    (
        "firehose",
        &[
            ("HYDRANT_CONDUIT", "smp+pin"),
            ("HYDRANT_REGISTRATION", "firehose"),
        ],
    ),
    (
        "mixed",
        &[
            ("HYDRANT_CONDUIT", "auto"),
            ("HYDRANT_INTER_NODE", "smp+pin"),
            ("HYDRANT_PRETEND_HOSTS", "2"),
        ],
    ),
    ("ofi", &[("HYDRANT_CONDUIT", "ofi")]),
];

/// The programs that end without an error, and the numbers of ranks.
const PROGRAMS: [(&str, &[u32]); 12] = [
    ("lifecycle", &[1, 3]),
    ("memory", &[1, 3]),
    ("transfers", &[1, 2]),
    ("sections", &[1, 3]),
    ("signals", &[1, 2]),
    ("atomics", &[1, 3]),
    ("collectives", &[1, 4]),
    ("messages", &[1, 3]),
    ("two_sided", &[1, 3]),
    ("locks", &[1, 3]),
    ("bad_input", &[1, 3]),
    ("threads", &[1, 2]),
];

fn main() -> ExitCode {
    let mut tests = vec![
        roles::test("every_function_is_called", every_function_is_called),
        roles::test("links_statically", links_statically),
        roles::test("the_header_is_cpp", the_header_is_cpp),
        roles::test("endpoints", endpoints),
    ];
    for (network, variables) in NETWORKS {
        let with = move |name: String, body: fn(&'static str, Variables)| {
            roles::test(name, move || {
                if network != "ofi" || has_libfabric() {
                    body(network, variables);
                }
            })
        };
        tests
            .extend(PROGRAMS.map(|(program, sizes)| ends_well(program, network, variables, sizes)));
        tests.push(with(format!("anywhere_{network}"), anywhere));
        tests.push(with(format!("killed_{network}"), killed));
        tests.push(with(format!("ends_early_{network}"), ends_early));
        tests.push(with(format!("forked_{network}"), forked));
    }
    tests.push(roles::test("abort", abort));
    tests.push(roles::test("two_jobs", || {
        let output = running::run(&mut Command::new(compiled("two_jobs")));
        assert_ok(&output, "two jobs of one process");
    }));
    roles::main(role, tests)
}

type Variables = &'static [(&'static str, &'static str)];

/// Makes a rank become the program.
fn role(role: &str, arguments: &[String]) -> Option<ExitCode> {
    let (Some(program), true) = (arguments.first(), role == "program") else {
        return None;
    };
    let failed = Command::new(program).args(&arguments[1..]).exec();
    eprintln!("{program}: {failed}");
    Some(ExitCode::FAILURE)
}

/// Returns whether libfabric joins ranks of this host. It must where every test has to run.
fn has_libfabric() -> bool {
    let found = hydrant::settings::fabric_endpoints(&hydrant::Settings::new());
    let is_required = env::var("HYDRANT_TEST_REQUIRE").is_ok_and(|value| value == "1");
    match found {
        Ok(_) => true,
        Err(why) => {
            assert!(!is_required, "{why}");
            eprintln!("left out: {why}");
            false
        }
    }
}

fn ends_well(
    program: &'static str,
    network: &'static str,
    variables: Variables,
    sizes: &'static [u32],
) -> Trial {
    roles::test(format!("{program}_{network}"), move || {
        if network == "ofi" && !has_libfabric() {
            return;
        }
        let binary = compiled(program);
        for ranks in sizes {
            // A single rank has only one host.
            if network == "mixed" && *ranks == 1 {
                continue;
            }
            let output = run(&binary, &[], *ranks, variables);
            assert_ok(&output, &format!("{program} with {ranks} ranks"));
        }
    })
}

#[track_caller]
fn assert_ok(output: &Output, what: &str) {
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().next_back().unwrap_or_default();
    assert!(
        output.status.success() && last == "ok",
        "{what}: {}\n{text}{said}",
        output.status
    );
}

/// Runs a program with the launcher.
fn run(binary: &Path, arguments: &[&str], ranks: u32, variables: &[(&str, &str)]) -> Output {
    let binary = binary.to_str().expect("the path is UTF-8");
    let role = [&["program", binary], arguments].concat();
    let mut command = launcher::command(ranks, &role);
    command.env("HYDRANT_HEAP", "64M");
    running::run(command.envs(variables.iter().copied()))
}

fn anywhere(_: &str, variables: Variables) {
    let binary = compiled("anywhere");
    let output = run(&binary, &["off"], 2, variables);
    assert_ok(&output, "memory by address that is off");
    let with = [variables, &[("HYDRANT_ANYWHERE", "on")]].concat();
    let output = run(&binary, &["on"], 2, &with);
    assert_ok(&output, "memory by address");
}

/// The survivors of a killed rank are told.
fn killed(_: &str, variables: Variables) {
    let output = run(&compiled("endings"), &["killed"], 3, variables);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(128 + 9), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{said}");
    assert!(!said.contains("endings.c"), "{said}");
}

fn ends_early(_: &str, variables: Variables) {
    let output = run(&compiled("endings"), &["early"], 2, variables);
    assert_ok(&output, "a rank that ends early");
}

fn forked(_: &str, variables: Variables) {
    let output = run(&compiled("endings"), &["forked"], 2, variables);
    assert_ok(&output, "forked children");
}

fn abort() {
    let output = run(&compiled("endings"), &["abort"], 3, NETWORKS[0].1);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(17), "{said}");
    let output = running::run(Command::new(compiled("endings")).arg("abort_alone"));
    assert_eq!(output.status.code(), Some(9));
}

/// The folder of the libraries that were built with this test.
fn libraries() -> PathBuf {
    let test = env::current_exe().expect("the test has a path");
    test.parent().expect("in a folder").to_owned()
}

/// A folder for what the tests build.
fn made() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi");
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Builds a program with the shared library, which has its installed name in a folder of its own.
fn compiled(program: &str) -> PathBuf {
    let (folder, built) = (made(), libraries().join("libhydrant_capi.so"));
    let name = folder.join("libhydrant.so");
    if fs::read_link(&name).ok().as_deref() != Some(&built) {
        // Tests in other processes may do the same at once.
        let fresh = folder.join(format!("libhydrant.so.{}", std::process::id()));
        let _ = fs::remove_file(&fresh);
        symlink(&built, &fresh).expect("a link");
        fs::rename(&fresh, &name).expect("a new link");
    }
    // The old kind of path is searched before LD_LIBRARY_PATH. There cargo names a folder whose
    // library may be older than this test.
    let mut rpath = OsString::from("-Wl,--disable-new-dtags,-rpath,");
    rpath.push(&folder);
    let arguments = [
        "-L".into(),
        folder.into(),
        rpath,
        "-lhydrant".into(),
        "-lpthread".into(),
    ];
    compile(&format!("{program}.c"), program, &built, &arguments)
}

/// Builds a program under a lock, because tests in other processes may need the same program.
fn compile(source: &str, name: &str, library: &Path, arguments: &[OsString]) -> PathBuf {
    let folder = made();
    let binary = folder.join(name);
    let lock = File::create(folder.join(format!("{name}.lock"))).expect("a file");
    flock(&lock, FlockOperation::LockExclusive).expect("a lock");
    let changed = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let built = changed(&binary);
    let own = env::current_exe().expect("the test has a path");
    let path = Path::new(SOURCES).join(source);
    let parts = [
        own,
        library.to_owned(),
        path.clone(),
        Path::new(SOURCES).join("check.h"),
        Path::new(HEADERS).join("hydrant.h"),
    ];
    if built.is_some() && parts.iter().all(|part| changed(part) < built) {
        return binary;
    }
    let (compiler, standard) = match source.ends_with(".cpp") {
        true => ("c++", "-std=c++11"),
        false => ("cc", "-std=c11"),
    };
    // A running binary cannot be overwritten.
    let fresh = folder.join(format!("{name}.new"));
    let mut command = Command::new(compiler);
    command.args([
        standard,
        "-D_GNU_SOURCE",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
    ]);
    command.args(["-I", HEADERS, "-o"]).arg(&fresh).arg(&path);
    let output = running::run(command.args(arguments));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{source}: {said}");
    fs::rename(&fresh, &binary).expect("a new file");
    binary
}

/// The static library has everything that a program needs, with the libraries of `hydrant.pc`.
fn links_statically() {
    let library = libraries().join("libhydrant_capi.a");
    let also = [
        "-lgcc_s",
        "-lutil",
        "-lrt",
        "-lpthread",
        "-lm",
        "-ldl",
        "-lc",
    ]
    .map(OsString::from);
    let arguments = [&[library.clone().into()], &also[..]].concat();
    let binary = compile("transfers.c", "transfers_static", &library, &arguments);
    assert_ok(&run(&binary, &[], 2, NETWORKS[0].1), "a static program");
}

/// A program without a job, which starts the second process by itself.
fn endpoints() {
    let output = running::run(&mut Command::new(compiled("endpoints")));
    assert_ok(&output, "two endpoints");
}

fn the_header_is_cpp() {
    compiled("lifecycle");
    let folder = made();
    let mut rpath = OsString::from("-Wl,--disable-new-dtags,-rpath,");
    rpath.push(&folder);
    let arguments = ["-L".into(), folder.into(), rpath, "-lhydrant".into()];
    let library = libraries().join("libhydrant_capi.so");
    let binary = compile("header.cpp", "header_cpp", &library, &arguments);
    assert_ok(&run(&binary, &[], 1, NETWORKS[0].1), "a program in C++");
}

/// Some program calls each function that the header declares.
fn every_function_is_called() {
    let read = |path: PathBuf| fs::read_to_string(path).expect("a text");
    let header = read(Path::new(HEADERS).join("hydrant.h"));
    let sources = fs::read_dir(SOURCES).expect("a folder");
    let programs: String = sources
        .map(|file| read(file.expect("a file").path()))
        .collect();
    let (_, declarations) = header.split_once("extern \"C\" {").expect("functions of C");
    let mut functions = Vec::new();
    for line in declarations.lines() {
        let is_one = line.starts_with(|first: char| first.is_ascii_lowercase() || first == 'H');
        let Some((before, _)) = line.split_once('(').filter(|_| is_one) else {
            continue;
        };
        let name = before.rsplit([' ', '*']).next().unwrap_or_default();
        if name.starts_with("hydrant_") {
            functions.push(name.to_owned());
        }
    }
    assert!(functions.len() > 110, "{functions:?}");
    functions.retain(|name| !is_called(&programs, name));
    assert!(functions.is_empty(), "no program calls {functions:?}");
}

fn is_called(programs: &str, name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    programs.match_indices(name).any(|(at, _)| {
        !programs[..at].ends_with(is_letter) && programs[at + name.len()..].starts_with('(')
    })
}
