//! The manual's first program (`docs/c.md`) is compiled by the manual's commands against what `cargo xtask install`
//! installs, and runs on four ranks.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use rustix::fs::{FlockOperation, flock};

const MANUAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/c.md");

#[test]
fn the_first_program_runs_against_what_is_installed() {
    let Some(place) = Place::prepare() else {
        return;
    };
    let prefix = place.prefix.display();
    let rpath = format!("-Wl,-rpath,{prefix}/lib");
    place.compile("shared", &["--cflags", "--libs"], &[&rpath]);
    place.check("shared");
}

#[test]
fn the_first_program_is_linked_statically() {
    let Some(place) = Place::prepare() else {
        return;
    };
    let libraries = place.package(&["--variable=static_libs"]);
    let libraries: Vec<&str> = libraries.split_whitespace().collect();
    place.compile("static", &["--cflags"], &libraries);
    let needs = Command::new("ldd")
        .arg(place.folder.join("static"))
        .output();
    let needs = String::from_utf8(needs.expect("ldd runs").stdout).expect("UTF-8");
    assert!(!needs.contains("libhydrant"), "{needs}");
    place.check("static");
}

/// A folder with the program, and the prefix of the installation.
struct Place {
    folder: PathBuf,
    prefix: PathBuf,
}

impl Place {
    /// Installs, unless pkg-config is missing where tests may be left out.
    fn prepare() -> Option<Self> {
        let found = Command::new("pkg-config").arg("--version").output();
        if !found.is_ok_and(|output| output.status.success()) {
            let is_required = env::var("HYDRANT_TEST_REQUIRE").is_ok_and(|value| value == "1");
            assert!(!is_required, "pkg-config is missing");
            eprintln!("skipped: pkg-config is missing (Debian: pkg-config)");
            return None;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        let prefix = folder.join("prefix");
        fs::create_dir_all(&folder).expect("a folder");
        // Tests in other processes install there, too.
        let lock = File::create(folder.join("lock")).expect("a file");
        flock(&lock, FlockOperation::LockExclusive).expect("a lock");
        let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut install = Command::new(cargo);
        install.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        install.args([
            "run", "--quiet", "-p", "xtask", "--", "install", "--dev", "--prefix",
        ]);
        succeed(install.arg(&prefix));
        Some(Self { folder, prefix })
    }

    /// Asks pkg-config about the library.
    fn package(&self, questions: &[&str]) -> String {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig"));
        let output = succeed(command.args(questions).arg("hydrant"));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Compiles the program, with what pkg-config answers and further arguments.
    fn compile(&self, name: &str, questions: &[&str], arguments: &[&str]) {
        let source = self.folder.join(format!("{name}.c"));
        fs::write(&source, block_after("## A first program", "```c\n")).expect("a file");
        let answer = self.package(questions);
        let mut command = Command::new("cc");
        command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-std=c11"]);
        command
            .arg(&source)
            .args(answer.split_whitespace())
            .args(arguments);
        succeed(command.arg("-o").arg(self.folder.join(name)));
    }

    /// Runs the program on four ranks, and compares what it prints with the manual.
    fn check(&self, name: &str) {
        let mut command = Command::new(self.prefix.join("bin/hydrant"));
        command.args(["run", "-n", "4"]).arg(self.folder.join(name));
        let output = succeed(command.env("HYDRANT_HEAP", "64M"));
        let printed = String::from_utf8(output.stdout).expect("UTF-8");
        // The launcher puts the rank before each line.
        let wanted = block_after("With four ranks it prints", "```text\n");
        for line in wanted.lines() {
            assert!(printed.contains(line), "`{line}` is not in\n{printed}");
        }
        assert_eq!(printed.lines().count(), wanted.lines().count(), "{printed}");
    }
}

/// The text of the first block of the manual that begins with `fence` behind `heading`.
fn block_after(heading: &str, fence: &str) -> String {
    let manual = fs::read_to_string(MANUAL).expect("the manual");
    let (_, behind) = manual.split_once(heading).expect("the heading");
    let (_, block) = behind.split_once(fence).expect("a block");
    let (block, _) = block.split_once("```").expect("the end of the block");
    block.to_owned()
}

/// Runs a command, which must succeed.
#[track_caller]
fn succeed(command: &mut Command) -> Output {
    let output = command.output().expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}
