//! The recorder of `tools/record`, under a real MPI. The strict reader must accept its trace of a
//! program of ours, and the trace is replayed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A folder of this test; the drop removes it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a command. The error is its output.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|cause| cause.to_string())?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(told)
    }
}

/// True if this compiler wrapper can build a program.
fn is_there(compiler: &str) -> bool {
    let there = run(Command::new(compiler).arg("-show")).is_ok();
    let required = env::var("HYDRANT_TEST_REQUIRE").is_ok_and(|value| value == "1");
    assert!(there || !required, "{compiler} is missing");
    if !there {
        eprintln!("skipped: {compiler} is missing");
    }
    there
}

#[test]
fn mpich_programs_are_recorded_and_replayed() {
    if !is_there("mpicc.mpich") {
        return;
    }
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/record");
    let folder = Folder(env::temp_dir().join(format!("hydrant-record-{}", std::process::id())));
    fs::create_dir_all(&folder.0).expect("a folder can be made");
    let (library, program) = (folder.0.join("librecord.so"), folder.0.join("program"));
    let compile = |arguments: &[&str], to: &Path, from: &str| {
        let mut command = Command::new("mpicc.mpich");
        command.args(["-O1", "-fno-omit-frame-pointer", "-Wall", "-Wextra"]);
        command
            .args(arguments)
            .arg("-o")
            .arg(to)
            .arg(tools.join(from));
        run(&mut command).expect("it compiles");
    };
    compile(&["-shared", "-fPIC"], &library, "record.c");
    compile(&[], &program, "program.c");
    let mut job = Command::new("mpirun.mpich");
    job.args(["-n", "4", "env"]);
    job.arg(format!("LD_PRELOAD={}", library.display()))
        .arg(&program);
    job.env("HYDRANT_RECORD", &folder.0);
    run(&mut job).expect("the program runs");

    let mut replay = Command::new(env!("CARGO_BIN_EXE_hydrant-repro"));
    replay
        .arg("replay")
        .arg(&folder.0)
        .args(["--check", "--format", "json"]);
    let rows = run(&mut replay).expect("it is a trace, and is replayed");
    let all: serde_json::Value =
        serde_json::from_str(rows.lines().next().expect("there is a row")).expect("it is JSON");
    // 20 rounds of 4 shifts, 4 exchanges of pairs, parts of exchanges and tokens each.
    assert!(
        all["checked"].as_u64().is_some_and(|it| it > 20 * 16),
        "{all}"
    );
}
