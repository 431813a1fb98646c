//! C programs with the library and its headers, built and started as users do it.
//!
//! Each program is compiled once, and the launcher runs it on each kind of network that one host
//! can play. A program computes the right answers by itself. Its last line is `ok`, or it fails and
//! prints the reason.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Output},
    time::SystemTime,
};

use hydrant_testing::{launcher, roles, running};
use libtest_mimic::Trial;
use rustix::fs::{FlockOperation, flock};

/// The folder of the headers.
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
/// The folder of the programs.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c");

/// The networks: their names in the tests, and the environment variables that choose them.
const NETWORKS: [(&str, &[(&str, &str)]); 4] = [
    ("smp", &[("HYDRANT_CONDUIT", "smp")]),
    ("pinned", &[("HYDRANT_CONDUIT", "smp+pin")]),
    // By copies in messages, as in the protocols of the paper.
    (
        "copied",
        &[
            ("HYDRANT_CONDUIT", "smp+pin"),
            ("HYDRANT_REGISTRATION", "bounce"),
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
];

/// The programs that end without an error, and the numbers of processes.
const PROGRAMS: [(&str, &[u32]); 27] = [
    ("contiguous", &[1, 2, 3]),
    ("values", &[1, 3]),
    ("nonblocking", &[1, 2, 3]),
    ("strided", &[1, 3]),
    ("vectors", &[1, 2, 4]),
    ("accumulate", &[1, 4]),
    ("rmw", &[1, 4]),
    ("mutexes", &[1, 2, 4]),
    ("fences", &[1, 2, 3]),
    ("memory", &[1, 2, 4]),
    ("borders", &[1, 2, 3]),
    ("shortage", &[1, 3]),
    ("notify", &[1, 2, 4]),
    ("groups", &[1, 2, 3, 4]),
    ("messages", &[1, 2, 3, 4]),
    ("domains", &[1, 2, 4]),
    ("gpc", &[1, 2, 3]),
    ("parmci", &[1, 2, 3]),
    ("lifecycle", &[1, 2]),
    ("messages_first", &[1, 3]),
    ("threads", &[1, 2, 3]),
    ("gatherers", &[2, 3]),
    ("bad_input", &[1, 2, 3]),
    ("odd_collectives", &[2, 3]),
    ("signals", &[1, 3]),
    ("forks", &[2]),
    ("applications", &[1, 2, 3]),
];

/// The way in which a process is killed, and the words that the others print.
const KILLED: [(&str, &[&str]); 3] = [
    ("a_lock", &["0: ARMCI_Lock", "2: ARMCI_Lock"]),
    ("procedures", &["0: ARMCI_Gpc_lock", "2: ARMCI_Gpc_lock"]),
    ("gets", &["0: ARMCI_Wait"]),
];

/// Programs that end their job: the way, the number of processes, the status and the printed words.
const ENDINGS: [(&str, u32, i32, &[&str]); 26] = [
    ("error", 3, 42, &["1: the answer is wrong 42"]),
    ("error_of_none", 2, 1, &["1: nothing 0"]),
    ("assertion_of", 2, 1, &["1: error ival=1", "one == 2"]),
    ("by_hand", 2, 6, &["here:5: now: this does not hold"]),
    ("abort", 3, 17, &[]),
    ("assertion", 2, 1, &["2 + 2 == 5", "does not hold"]),
    ("die", 2, 9, &["1:a reason: 9"]),
    ("die_of_two", 2, 8, &["two reasons: (8,9)"]),
    (
        "unlock",
        2,
        249,
        &["ARMCI_Unlock: mutex 0 of rank 0 is not held by this rank"],
    ),
    ("no_mutexes", 2, 249, &["ARMCI_Lock: there are no mutexes"]),
    (
        "no_such_mutex",
        2,
        249,
        &["ARMCI_Lock: mutex 1 of process 0 is out of range: it made 1"],
    ),
    (
        "no_mutex_set",
        2,
        254,
        &["ARMCIX_Lock_hdl: the handle names no mutexes"],
    ),
    ("fence_of_nobody", 2, 251, &["ARMCI_Fence", "process 7"]),
    (
        "reduction",
        2,
        254,
        &["armci_msg_igop: \"average\" is no reduction of ints, of which there are: +,"],
    ),
    (
        "float_reduction",
        2,
        254,
        &["armci_msg_fgop: \"land\" is no reduction of floats"],
    ),
    (
        "unreadable",
        2,
        128 + 11,
        &[
            "1: ARMCI: the memory at 0x",
            "cannot be read, and an operation was given it",
        ],
    ),
    (
        "unwritable",
        2,
        128 + 11,
        &["cannot be written, and an operation was given it"],
    ),
    (
        "unreadable_sent",
        2,
        41,
        &[
            "cannot be read, and an operation was given it",
            "its own handler",
        ],
    ),
    (
        "root_outside",
        2,
        251,
        &["armci_msg_group_bcast_scope: process 0 is none of the 1 processes that take part"],
    ),
    (
        "value_of_nobody",
        2,
        251,
        &["ARMCI_GetValueInt", "process 7"],
    ),
    (
        "early_receive",
        2,
        249,
        &["armci_msg_rcv: rank 1 came to the end"],
    ),
    (
        "early_receive_any",
        2,
        249,
        &["armci_msg_rcvany: all other ranks came to the end"],
    ),
    (
        "early_lock",
        2,
        249,
        &["ARMCI_Lock: rank 1 came to the end"],
    ),
    (
        "early_notify",
        2,
        3,
        &["armci_notify_wait: rank 1 came to the end"],
    ),
    (
        "early_exit",
        3,
        249,
        &[
            "ARMCI_Finalize: rank 1 is lost",
            "rank 1 ended with status 0 before it had left the job",
        ],
    ),
    (
        "early_exit_of_messages",
        3,
        249,
        &[
            "armci_msg_finalize: rank 1 is lost",
            "rank 1 ended with status 0 before it had left the job",
        ],
    ),
];

fn main() -> ExitCode {
    let mut tests = vec![roles::test(
        "every_function_is_called",
        every_function_is_called,
    )];
    for (network, variables) in NETWORKS {
        tests
            .extend(PROGRAMS.map(|(program, sizes)| ends_well(program, network, variables, sizes)));
        for (what, told) in KILLED {
            let killed = move || killed(variables, what, told);
            tests.push(roles::test(format!("killed_with_{what}_{network}"), killed));
        }
    }
    tests.extend(ENDINGS.map(|(how, ranks, status, says)| {
        roles::test(format!("ends_the_job_by_{how}"), move || {
            ends_by(how, ranks, status, says);
        })
    }));
    tests.push(roles::test("links_statically", links_statically));
    tests.push(roles::test("beside_mpi_of_mpich", beside_mpi));
    tests.push(roles::test("with_mpi_of_mpich", with_mpi));
    tests.push(roles::test("under_mpiexec_of_mpich", under_mpiexec));
    roles::main(role, tests)
}

/// Makes a rank become the program.
fn role(role: &str, arguments: &[String]) -> Option<ExitCode> {
    let (Some(program), true) = (arguments.first(), role == "program") else {
        return None;
    };
    let failed = Command::new(program).args(&arguments[1..]).exec();
    eprintln!("{program}: {failed}");
    Some(ExitCode::FAILURE)
}

fn ends_well(
    program: &'static str,
    network: &'static str,
    variables: &'static [(&str, &str)],
    sizes: &'static [u32],
) -> Trial {
    roles::test(format!("{program}_{network}"), move || {
        let binary = compiled(program);
        for ranks in sizes {
            // A single process has only one host.
            if network == "mixed" && *ranks == 1 {
                continue;
            }
            let output = run(&binary, &[], *ranks, variables);
            assert_ok(&output, &format!("{program} with {ranks} processes"));
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

fn ends_by(how: &str, ranks: u32, status: i32, says: &[&str]) {
    let output = run(&compiled("endings"), &[how], ranks, NETWORKS[0].1);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    for words in says {
        assert!(said.contains(words), "`{words}` is not printed: {said}");
    }
}

/// Kills a process while it holds what the others wait for.
fn killed(variables: &[(&str, &str)], what: &str, says: &[&str]) {
    let output = run(&compiled("killed"), &[what], 3, variables);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(128 + 9), "{said}");
    for told in says {
        assert!(said.contains(told), "`{told}` is not printed: {said}");
    }
    assert!(!said.contains("killed.c"), "{said}");
}

/// Runs a program of MPI and ARMCI, with MPI's launcher and with Hydrant's.
fn beside_mpi() {
    if !has("mpicc.mpich", "libmpich-dev") || !has("mpiexec.hydra", "mpich") {
        return;
    }
    let binary = compiled("beside_mpi");
    for ranks in [1, 2, 3] {
        let output = mpiexec(&binary, &[], ranks);
        assert_ok(&output, &format!("{ranks} processes under mpiexec"));
        let output = run(&binary, &[], ranks, NETWORKS[0].1);
        assert_ok(&output, &format!("{ranks} processes under the launcher"));
    }
}

/// ARMCI begins and ends MPI, and takes and returns its communicators.
fn with_mpi() {
    if !has("mpicc.mpich", "libmpich-dev") || !has("mpiexec.hydra", "mpich") {
        return;
    }
    let binary = compiled("with_mpi");
    // With threads there are two jobs of one rank each, and each prints its end.
    for (how, ranks, jobs) in [("messages", 3, 1), ("arguments", 2, 1), ("threads", 2, 2)] {
        let output = mpiexec(&binary, &[how], ranks);
        let said = String::from_utf8_lossy(&output.stderr);
        let ok = String::from_utf8_lossy(&output.stdout)
            .matches("ok")
            .count();
        assert!(
            output.status.success() && ok == jobs,
            "{how} under mpiexec: {ok} of {jobs} went well: {said}"
        );
    }
    for how in ["messages", "arguments"] {
        let output = run(&binary, &[how], 2, NETWORKS[0].1);
        assert_ok(&output, &format!("{how} under the launcher"));
    }
    // Two jobs of two ranks, or of one and two ranks. Each job prints its end.
    for (variables, ranks) in [(NETWORKS[0].1, 4), (NETWORKS[1].1, 3)] {
        let output = run(&binary, &["half"], ranks, variables);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "two jobs: {said}");
        let ended = String::from_utf8_lossy(&output.stdout);
        assert_eq!(ended.matches("ok").count(), 2, "{ended}{said}");
    }
}

/// Runs programs of ARMCI alone with MPI's launcher.
fn under_mpiexec() {
    if !has("mpiexec.hydra", "mpich") {
        return;
    }
    for program in ["contiguous", "messages", "mutexes"] {
        assert_ok(&mpiexec(&compiled(program), &[], 3), program);
    }
}

fn mpiexec(binary: &Path, arguments: &[&str], ranks: u32) -> Output {
    let mut command = Command::new("mpiexec.hydra");
    command.env("HYDRANT_HEAP", "64M");
    command.args(["-n", &ranks.to_string()]).arg(binary);
    running::run(command.args(arguments))
}

/// Returns true if a command of a Debian package is installed. Panics if it is missing where every
/// test must run.
fn has(program: &str, package: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_here = env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let is_required = env::var("HYDRANT_TEST_REQUIRE").is_ok_and(|value| value == "1");
    assert!(is_here || !is_required, "{program} is missing: {package}");
    if !is_here {
        eprintln!("skipped: {program} is missing (Debian: {package})");
    }
    is_here
}

/// The folder of the libraries that were built with this test.
fn libraries() -> PathBuf {
    let test = env::current_exe().expect("the test has a path");
    test.parent().expect("in a folder").to_owned()
}

/// Builds a program with the shared library, unless the binary is newer than its sources.
fn compiled(program: &str) -> PathBuf {
    let folder = libraries();
    // The old kind of path is searched before LD_LIBRARY_PATH. There cargo names a folder whose
    // library may be older than this test.
    let mut library = OsString::from("-Wl,--disable-new-dtags,-rpath,");
    library.push(&folder);
    let arguments = [
        "-L".into(),
        folder.clone().into(),
        library,
        "-larmci".into(),
        "-lpthread".into(),
    ];
    let cc = match program {
        "beside_mpi" | "with_mpi" => "mpicc.mpich",
        _ => "cc",
    };
    compile(
        cc,
        program,
        program,
        &folder.join("libarmci.so"),
        &arguments,
    )
}

/// Builds a program under a lock, because tests in other processes may need the same program.
fn compile(cc: &str, program: &str, name: &str, library: &Path, arguments: &[OsString]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("armci");
    fs::create_dir_all(&folder).expect("a folder");
    let binary = folder.join(name);
    let lock = File::create(folder.join(format!("{name}.lock"))).expect("a file");
    flock(&lock, FlockOperation::LockExclusive).expect("a lock");
    let source = Path::new(SOURCES).join(format!("{program}.c"));
    let changed = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let made = changed(&binary);
    let own = env::current_exe().expect("the test has a path");
    let mut parts = vec![
        own,
        library.to_owned(),
        source.clone(),
        Path::new(SOURCES).join("check.h"),
    ];
    parts.extend(files(HEADERS));
    if made.is_some() && parts.iter().all(|part| changed(part) < made) {
        return binary;
    }
    // A running binary cannot be overwritten.
    let fresh = folder.join(format!("{name}.new"));
    let output = running::run(
        Command::new(cc)
            .args([
                "-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I", HEADERS,
            ])
            .arg("-o")
            .arg(&fresh)
            .arg(&source)
            .args(arguments),
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {said}");
    fs::rename(&fresh, &binary).expect("a new file");
    binary
}

/// The static library has everything that a program needs.
fn links_statically() {
    let library = libraries().join("libarmci.a");
    let also = ["-lpthread", "-ldl", "-lm", "-lgcc_s"].map(OsString::from);
    let arguments = [&[library.clone().into()], &also[..]].concat();
    let binary = compile(
        "cc",
        "contiguous",
        "contiguous_static",
        &library,
        &arguments,
    );
    assert_ok(&run(&binary, &[], 2, NETWORKS[0].1), "a static program");
}

fn files(folder: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).expect("a folder");
    all.map(|file| file.expect("a file").path()).collect()
}

/// Some program calls each function that the headers declare.
fn every_function_is_called() {
    let read = |path: PathBuf| fs::read_to_string(path).expect("a text");
    let headers: Vec<String> = files(HEADERS).into_iter().map(read).collect();
    let programs: String = files(SOURCES).into_iter().map(read).collect();
    let mut functions = Vec::new();
    for text in &headers {
        let (_, declarations) = text.split_once("extern \"C\" {").expect("functions of C");
        for line in declarations.lines() {
            let is_one = line.starts_with(|first: char| first.is_ascii_lowercase());
            let Some((before, _)) = line.split_once('(').filter(|_| is_one) else {
                continue;
            };
            let name = before.rsplit([' ', '*']).next().unwrap_or_default();
            functions.push(name.to_owned());
        }
    }
    assert!(functions.len() > 120, "{functions:?}");
    functions.retain(|name| !is_called(&programs, name));
    assert!(functions.is_empty(), "no program calls {functions:?}");
}

fn is_called(programs: &str, name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    programs.match_indices(name).any(|(at, _)| {
        !programs[..at].ends_with(is_letter) && programs[at + name.len()..].starts_with('(')
    })
}
