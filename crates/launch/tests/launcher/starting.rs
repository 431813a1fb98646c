//! The environment in which ranks begin, and programs that cannot begin.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use crate::harness::{begin, ends_with, err, launch, out, send, shell};
use hydrant_testing::{roles::role, running::run};

pub(crate) fn bound() {
    let print = "grep Cpus_allowed_list /proc/self/status | cut -f2";
    let allowed = out(&run(Command::new("sh").args(["-c", print])));
    let output = run(&mut shell(&["-n", "3", "--core"], print));
    for line in out(&output).lines() {
        let cpus = line.split_once("] ").expect("a prefix").1;
        assert!(cpus.split([',', '-']).count() <= 2, "{line} of {allowed}");
    }
    // With more ranks than processors none is bound.
    let output = run(&mut shell(&["-n", "200"], print));
    assert!(output.status.success(), "{}", err(&output));
    assert!(
        out(&output)
            .lines()
            .all(|line| line.ends_with(&format!("] {}", allowed.trim())))
    );
}

pub(crate) fn inherited() {
    let print = "ulimit -n; grep -E 'SigBlk|SigIgn' /proc/self/status; ls /proc/self/fd | wc -l; \
                 env | grep -E '^(PMI_|PMIX_|OMPI_COMM_|HYDRANT_RUN)' | cut -d= -f1 | sort | tr '\\n' ' '";
    let bare = run(Command::new("sh").args(["-c", print]));
    let under = run(launch(&["-n", "1"], &["sh", "-c", print])
        .env("PMI_PORT", "other:1")
        .env("PMI_ID", "3")
        .env("PMIX_NAMESPACE", "other")
        .env("OMPI_COMM_WORLD_SIZE", "9"));
    let strip = |text: String| {
        text.replace("[0] ", "")
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (bare, under) = (strip(out(&bare)), strip(out(&under)));
    assert_eq!(bare[..3], under[..3]);
    let count = |lines: &[String]| lines[3].trim().parse::<u32>().expect("a number");
    assert_eq!(
        count(&under),
        count(&bare) + 1,
        "the PMI socket and nothing more"
    );
    assert_eq!(under[4].trim(), "PMI_FD PMI_JOBID PMI_RANK PMI_SIZE");
}

pub(crate) fn cannot_run() {
    ends_with(
        &mut launch(&[], &["no-such-program"]),
        127,
        "`no-such-program` was not found; looked for /",
    );
    ends_with(
        &mut launch(&[], &["./no/such"]),
        127,
        "`./no/such` was not found",
    );
    ends_with(&mut launch(&[], &["/tmp"]), 126, "/tmp is not a file");
    ends_with(&mut launch(&["-n", "0"], &["true"]), 125, "at least 1 rank");
    ends_with(
        &mut launch(&["-n", "5000"], &["true"]),
        125,
        "5000 ranks were asked for; the limit is 4096",
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str, text: &str, mode: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("a file");
        let status = Command::new("chmod").arg(mode).arg(&path).status();
        assert!(status.expect("chmod").success());
        path.to_str().expect("UTF-8").to_owned()
    };
    let plain = file("plain", "text", "644");
    ends_with(
        &mut launch(&[], &[&plain]),
        126,
        "may not be executed by this user",
    );
    let orphan = file("orphan", "#!/no/such/interpreter\n", "755");
    ends_with(
        &mut launch(&[], &[&orphan]),
        126,
        "its interpreter or loader is not",
    );
    // No shell runs a file that the kernel cannot run.
    let touched = directory.path().join("touched");
    let nameless = file("nameless", &format!("touch {}\n", touched.display()), "755");
    let corrupt = file("corrupt", "\x7fELF and then nothing that is right\n", "755");
    for program in [&nameless, &corrupt] {
        let why = "it is neither a program of this machine nor a script whose first line names its interpreter";
        ends_with(&mut launch(&[], &[program]), 126, why);
    }
    assert!(!touched.exists());
    let limited = "ulimit -n 70; exec \"$@\"";
    let job = role(&["launcher", "-n", "40", "true"]);
    let mut command = Command::new("sh");
    ends_with(
        command.args(["-c", limited, "sh"]).args(&job),
        125,
        "the limit is 70",
    );
    // An error from a limit on processes or address space names the limit to raise.
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root becomes a user that has no processes yet");
        return;
    }
    let copy = directory.path().join("launcher");
    fs::copy(&job[0], &copy).expect("a copy that every user may run");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("a folder");
    let mut words = vec!["--reuid", "54321", "--clear-groups", "prlimit", "--nproc=6"];
    let copy = copy.to_str().expect("UTF-8");
    words.push(copy);
    words.extend(job[1..].iter().map(String::as_str));
    ends_with(
        Command::new("setpriv").args(words).current_dir("/"),
        126,
        "the user's limit on processes and threads is reached",
    );
}

/// The workspace and cargo are scripts, which show the commands that run.
pub(crate) fn workspace() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |rest: &str| {
        directory
            .path()
            .join(rest)
            .to_str()
            .expect("UTF-8")
            .to_owned()
    };
    let (sources, beside) = (path("apps/src/bin"), path("target/release"));
    fs::create_dir_all(&sources).expect("a folder");
    fs::create_dir_all(&beside).expect("a folder");
    fs::write(path("target/CACHEDIR.TAG"), "").expect("a file");
    fs::write(path("apps/src/bin/app.rs"), "").expect("a file");
    let script = format!(
        "#!/bin/sh\necho ran $@ >&2\n[ -z \"$FAIL\" ] || exit 101\n\
         printf '#!/bin/sh\\necho app\\n' >{beside}/app; chmod +x {beside}/app; \
         echo {beside}/app: {sources}/app.rs >{beside}/app.d\n"
    );
    fs::write(path("cargo"), script).expect("a file");
    let status = Command::new("chmod").args(["+x", &path("cargo")]).status();
    assert!(status.expect("chmod").success());
    let job = || {
        let mut job = launch(
            &["--beside", &beside, "--workspace", &path(""), "-n", "1"],
            &["app"],
        );
        job.env("CARGO", path("cargo"));
        job
    };
    let build = "build --release -p hydrant-apps --bin app";
    ends_with(
        job().env("FAIL", "1"),
        125,
        &format!("`cargo {build}` failed, so that app could not be built"),
    );
    let output = ends_with(
        &mut job(),
        0,
        &format!("ran {build} --target-dir {}", path("target")),
    );
    assert_eq!(out(&output), "[0] app\n");
    assert_eq!(
        err(&ends_with(&mut job(), 0, "")),
        "",
        "it is there and is not built again"
    );
    let source = fs::File::options()
        .write(true)
        .open(path("apps/src/bin/app.rs"))
        .expect("a file");
    source
        .set_modified(SystemTime::now() + Duration::from_secs(60))
        .expect("a time");
    ends_with(
        &mut job(),
        0,
        &format!("building {beside}/app (cargo {build})"),
    );
}

pub(crate) fn idle() {
    let (child, _) = begin(&mut shell(&["-n", "4"], "echo ready; exec sleep 600"), 4);
    let pid = child.id().to_string();
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let words: Vec<_> = stat
            .rsplit(") ")
            .next()
            .expect("a stat")
            .split(' ')
            .collect();
        words[11].parse::<u64>().expect("utime") + words[12].parse::<u64>().expect("stime")
    };
    // The ranks may still be starting their last command. After that, two checks a second apart
    // find no processor time.
    thread::sleep(Duration::from_millis(300));
    let before = ticks();
    thread::sleep(Duration::from_secs(1));
    assert_eq!(ticks(), before);
    send("TERM", &pid);
    assert_eq!(
        child.wait_with_output().expect("an end").status.code(),
        Some(143)
    );
}
