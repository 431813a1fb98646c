//! Shared code of the tests of the programs: starts them as jobs of every kind.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Longer than anything here takes on a busy machine: only a hang reaches it.
const HANG: Duration = Duration::from_secs(150);

/// The launcher of the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Launcher {
    Alone,
    HydrantRun,
    /// `hydrant run` on the simulated network of this profile.
    Simulated(&'static str),
    /// The same, with a registration strategy, and a limit so low that moves and evictions happen
    /// all the time.
    Squeezed(&'static str, &'static str),
    /// `hydrant run` on RDMA NICs, with the same low limit.
    Verbs(&'static str),
    /// `hydrant run` on these hosts, with the same low limit.
    Hosts(&'static str, &'static str),
    /// `hydrant run` where only pinned memory is reached, with the same low limit.
    Pinned(&'static str),
    Hydra,
    OpenMpi,
}

/// Runs a program to its end. Returns `None` if the launcher is missing and may be.
#[track_caller]
pub(crate) fn job(
    launcher: Launcher,
    ranks: u32,
    program: &str,
    arguments: &[&str],
) -> Option<Output> {
    let mut command = match launcher {
        Launcher::Alone => Command::new(program),
        Launcher::HydrantRun => {
            let mut command = Command::new(hydrant());
            command.args(["run", "--prefix", "none", "-n", &ranks.to_string(), program]);
            command
        }
        Launcher::Simulated(profile) => {
            let mut command = Command::new(hydrant());
            let (conduit, ranks) = (format!("sim:{profile}"), ranks.to_string());
            command.args(["run", "--conduit", &conduit, "-n", &ranks, program]);
            command
        }
        Launcher::Squeezed(profile, strategy) => {
            let mut command = Command::new(hydrant());
            let (conduit, ranks) = (format!("sim:{profile}"), ranks.to_string());
            command.args(["run", "--conduit", &conduit, "--registration", strategy]);
            command.args(["-n", &ranks, program]);
            squeeze(&mut command, strategy);
            command
        }
        Launcher::Pinned(strategy) | Launcher::Verbs(strategy) => {
            let mut command = Command::new(hydrant());
            let conduit = match launcher {
                Launcher::Pinned(_) => "smp+pin",
                _ => "verbs",
            };
            let ranks = ranks.to_string();
            command.args(["run", "--prefix", "none", "--conduit", conduit]);
            command.args(["--registration", strategy, "-n", &ranks, program]);
            squeeze(&mut command, strategy);
            command
        }
        Launcher::Hosts(hosts, strategy) => {
            let mut command = Command::new(hydrant());
            let ranks = ranks.to_string();
            command.args(["run", "--prefix", "none", "--hosts", hosts]);
            command.args(["--registration", strategy, "-n", &ranks, program]);
            squeeze(&mut command, strategy);
            command
        }
        Launcher::Hydra => {
            let mut command = Command::new(need("mpiexec.hydra", "mpich")?);
            command.args(["-n", &ranks.to_string(), program]);
            command
        }
        Launcher::OpenMpi => {
            let mut command = Command::new(need("mpirun.openmpi", "openmpi-bin")?);
            command
                .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
                .args(["--oversubscribe", "-n", &ranks.to_string(), program]);
            command
        }
    };
    Some(run(command.args(arguments)))
}

/// Sets a low limit on registered memory.
fn squeeze(command: &mut Command, strategy: &str) {
    // Memory registered up front needs room for all of it.
    if strategy != "pin-everything" {
        command.envs([("HYDRANT_M", "128K"), ("HYDRANT_MAXVICTIM", "16K")]);
    }
}

/// The JSON object that a successful job prints.
#[track_caller]
pub(crate) fn report(
    launcher: Launcher,
    ranks: u32,
    program: &str,
    arguments: &[&str],
) -> Option<Value> {
    let arguments = [arguments, &["--format", "json"]].concat();
    let output = job(launcher, ranks, program, &arguments)?;
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    let objects: Vec<&str> = out.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(objects.len(), 1, "one rank prints one object: {out}{err}");
    let report: Value = serde_json::from_str(objects[0]).expect("and it is JSON");
    assert_eq!(report["ranks"], ranks);
    assert!(
        report["seconds"]
            .as_f64()
            .is_some_and(|seconds| seconds > 0.0)
    );
    Some(report)
}

/// Checks that a job fails with the given status and prints the reason once.
#[track_caller]
pub(crate) fn fails(
    launcher: Launcher,
    ranks: u32,
    program: &str,
    arguments: &[&str],
    status: i32,
    message: &str,
) {
    let Some(output) = job(launcher, ranks, program, arguments) else {
        return;
    };
    let (out, err) = texts(&output);
    assert_eq!(output.status.code(), Some(status), "{out}{err}");
    assert_eq!(
        err.matches(message).count(),
        1,
        "`{message}` once in {out}{err}"
    );
}

pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Runs a command to its end, with a guard against hangs.
#[track_caller]
fn run(command: &mut Command) -> Output {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|cause| panic!("{command:?}: {cause}"));
    let pid = child.id();
    let waiter = thread::spawn(move || child.wait_with_output());
    let begun = Instant::now();
    while !waiter.is_finished() {
        if begun.elapsed() > HANG {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
            panic!("{command:?} hung");
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = waiter.join().expect("the waiter does not panic");
    output.expect("a child can be waited for")
}

/// The `hydrant` command of the same build, built if it is missing: it belongs to another package
/// than the test, so cargo does not build it.
fn hydrant() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_cannon")).parent();
    let folder = folder.expect("a program lies in a folder");
    let command = folder.join("hydrant");
    if !command.is_file() {
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(profile) => profile,
        };
        let target = folder
            .parent()
            .expect("a profile's folder lies in the target's");
        let built = Command::new(env!("CARGO"))
            .args(["build", "-p", "hydrant-cli", "--profile", profile])
            .arg("--target-dir")
            .arg(target)
            .status();
        assert!(
            built.is_ok_and(|status| status.success()),
            "hydrant-cli does not build"
        );
    }
    command
}

/// A command that a Debian package brings, or the reason to skip.
fn need(program: &str, package: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file());
    if found.is_none() {
        let required = env::var("HYDRANT_TEST_REQUIRE").is_ok_and(|value| value == "1");
        assert!(!required, "{program} is missing: apt-get install {package}");
        eprintln!("skipped: {program} is missing (Debian: {package})");
    }
    found
}
