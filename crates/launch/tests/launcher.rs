//! Jobs under Hydrant's own launcher. This binary is the launcher, as
//! `--role launcher OPTIONS`, and its ranks; a shell plays most programs.

mod support;

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use hydrant_launch::launcher::{self, Bind, Prefix, Spec};
use hydrant_launch::{Error, Kind, join};
use support::{HANG, check_exchange, finish, need, role, run, test};

fn main() -> ExitCode {
    let tests = vec![
        test("ranks_exchange", ranks_exchange),
        test("a_program_of_mpich_runs", mpich_program),
        test("the_first_failure_is_the_status", first_failure),
        test("a_killed_rank_is_the_status", killed_rank),
        test("ranks_that_go_on_are_ended_after_the_grace", grace),
        test("ranks_that_ignore_sigterm_are_killed", stubborn),
        test("an_abort_is_the_status", abort),
        test(
            "a_rank_that_ends_fails_the_fence_of_the_others",
            lost_in_fence,
        ),
        test("malformed_commands_end_the_job", malformed),
        test("rank_0_has_the_input", input),
        test("output_has_the_rank_before_whole_lines", prefixed),
        test("output_without_prefix_is_untouched", unprefixed),
        test("the_launcher_ends_when_nobody_reads", nobody_reads),
        test("signals_are_passed_on", signals),
        test("a_second_interrupt_kills", second_interrupt),
        test("a_job_may_take_too_long", timeout),
        test("nothing_is_left_behind", nothing_left),
        test("nothing_outlives_a_killed_launcher", killed_launcher),
        test("ranks_are_bound", bound),
        test("ranks_begin_as_the_launcher_did", inherited),
        test("launchers_nest", nested),
        test("what_cannot_run_is_an_error", cannot_run),
        test("programs_of_the_workspace_are_built", workspace),
        test("idle_takes_no_processor", idle),
        test("sixty_four_ranks_exchange", many),
    ];
    support::main(roles, tests)
}

/// The roles of this binary beside the shared ones.
fn roles(role: &str, arguments: &[String]) -> Option<ExitCode> {
    Some(match role {
        "launcher" => launcher_role(arguments),
        "leave" => finish(leave()),
        "say" => say(arguments),
        _ => return None,
    })
}

/// `[-n N] [--none] [--core] [--grace S] [--timeout S] [--beside D] [--workspace D] PROGRAM ARGUMENTS`
fn launcher_role(arguments: &[String]) -> ExitCode {
    let mut spec = Spec::new(2, "");
    let mut rest = arguments.iter();
    let seconds = |text: &String| Duration::from_secs_f64(text.parse().expect("seconds"));
    while let Some(word) = rest.next() {
        let mut value = || rest.next().expect("a value");
        match word.as_str() {
            "-n" => spec.ranks = value().parse().expect("a number"),
            "--none" => spec.prefix = Prefix::None,
            "--core" => spec.bind = Bind::Core,
            "--grace" => spec.grace = seconds(value()),
            "--beside" => spec.beside = Some(value().into()),
            "--workspace" => spec.workspace = Some(value().into()),
            "--timeout" => spec.timeout = Some(seconds(value())),
            program => {
                spec.program = program.into();
                spec.arguments = rest.by_ref().map(Into::into).collect();
            }
        }
    }
    match launcher::run(&spec, &mut |event| eprintln!("launcher: {event}")) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("launcher: {error}");
            ExitCode::from(error.status())
        }
    }
}

/// Rank 1 ends without a word while the others are in a fence.
fn leave() -> Result<String, Error> {
    let mut me = join(Kind::Auto)?;
    me.fence()?;
    if me.rank() == 1 {
        return Ok("left".into());
    }
    me.fence()?;
    Ok("the fence was complete".into())
}

/// Sends the arguments as they are on PMI_FD and prints the answer, or waits for its end.
fn say(arguments: &[String]) -> ExitCode {
    let number = env::var("PMI_FD")
        .ok()
        .and_then(|fd| fd.parse().ok())
        .expect("PMI_FD");
    let mut stream = own(number);
    for text in arguments {
        stream
            .write_all(text.replace("\\n", "\n").as_bytes())
            .expect("the launcher reads");
    }
    let mut answer = [0; 4096];
    if let Ok(n @ 1..) = stream.read(&mut answer) {
        print!("{}", String::from_utf8_lossy(&answer[..n]));
        return ExitCode::SUCCESS;
    }
    thread::sleep(HANG);
    ExitCode::SUCCESS
}

/// The file behind the number of a descriptor.
#[allow(
    unsafe_code,
    reason = "a rank that speaks PMI-1 badly has no library for it"
)]
fn own(number: i32) -> fs::File {
    // SAFETY: the launcher opened it for this process, which uses it nowhere else.
    unsafe { fs::File::from_raw_fd(number) }
}

fn launch(options: &[&str], program: &[&str]) -> Command {
    let command = role(&[&["launcher"], options, program].concat());
    let mut launch = Command::new(&command[0]);
    launch.args(&command[1..]);
    launch
}

/// A job whose ranks are a shell with `script`, which sees its rank as `$PMI_RANK`.
fn shell(options: &[&str], script: &str) -> Command {
    launch(options, &["sh", "-c", script])
}

fn launch_role(options: &[&str], arguments: &[&str]) -> Command {
    let program = role(arguments);
    launch(
        options,
        &program.iter().map(String::as_str).collect::<Vec<_>>(),
    )
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn ends_with(command: &mut Command, status: i32, message: &str) -> Output {
    let output = run(command);
    assert_eq!(
        output.status.code(),
        Some(status),
        "{}{}",
        out(&output),
        err(&output)
    );
    assert!(
        err(&output).contains(message),
        "no `{message}` in {}",
        err(&output)
    );
    output
}

/// Waits, with a guard against hangs, for something to become true.
#[track_caller]
fn until(mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < HANG, "it did not happen");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a process is there and not just a zombie.
fn is_alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .starts_with(" Z")
    })
}

fn ranks_exchange() {
    for size in [1, 2, 7] {
        let output = run(&mut launch_role(&["-n", &size.to_string()], &["exchange"]));
        check_exchange(&output, "pmi1", size);
        assert_eq!(err(&output), "");
    }
}

fn many() {
    let output = run(&mut launch_role(&["-n", "64"], &["join"]));
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(out(&output).lines().count(), 64);
}

fn mpich_program() {
    let Some(cc) = need("mpicc.mpich", "libmpich-dev") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (source, binary) = (directory.path().join("sum.c"), directory.path().join("sum"));
    let program = r#"
        #include <mpi.h>
        #include <stdio.h>
        int main(int argc, char **argv) {
            int rank, size, sum;
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            MPI_Comm_size(MPI_COMM_WORLD, &size);
            MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            printf("%d of %d: %d\n", rank, size, sum);
            fflush(stdout);
            if (argc > 1 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 17);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Finalize();
            return 0;
        }
    "#;
    fs::write(&source, program).expect("a file");
    let compiled = run(Command::new(cc).arg(&source).arg("-o").arg(&binary));
    assert!(compiled.status.success(), "{}", err(&compiled));
    let binary = binary.to_str().expect("UTF-8");
    for size in 1..=4 {
        let output = run(&mut launch(&["-n", &size.to_string()], &[binary]));
        assert!(output.status.success(), "{}", err(&output));
        let sum = size * (size - 1) / 2;
        for rank in 0..size {
            let line = format!("[{rank}] {rank} of {size}: {sum}\n");
            assert!(out(&output).contains(&line), "{}", out(&output));
        }
    }
    ends_with(
        &mut launch(&["-n", "3"], &[binary, "abort"]),
        17,
        "rank 1 ended the job with status 17",
    );
}

fn first_failure() {
    // Rank 2 fails at once; rank 0 fails later, within the grace, and is told of.
    let script = "case $PMI_RANK in 2) exit 5;; 0) sleep 0.3; exit 6;; esac";
    let output = ends_with(
        &mut shell(&["-n", "3", "--grace", "60"], script),
        5,
        "rank 2 ended with status 5; it was the first to fail, and the job's status is 5",
    );
    assert!(
        err(&output).contains("rank 0 ended with status 6\n"),
        "{}",
        err(&output)
    );
    ends_with(&mut shell(&["-n", "3"], "exit 0"), 0, "");
}

fn killed_rank() {
    let script = "[ $PMI_RANK = 1 ] && kill -9 $$; exit 0";
    ends_with(
        &mut shell(&["-n", "3"], script),
        137,
        "rank 1 was killed by signal 9 (SIGKILL)",
    );
    // That others fail because of it must not hide it, though all is seen at once.
    for _ in 0..20 {
        let script = "read line || exit 9; kill -9 $$";
        let command = &mut shell(&["-n", "2"], script);
        let mut child = command
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a launcher");
        child
            .stdin
            .take()
            .expect("a pipe")
            .write_all(b"go\n")
            .expect("rank 0 reads");
        let output = child.wait_with_output().expect("an end");
        assert!(
            matches!(output.status.code(), Some(9 | 137)),
            "{}",
            err(&output)
        );
    }
}

fn grace() {
    let script = "[ $PMI_RANK = 1 ] && exit 4; sleep 600";
    let output = ends_with(
        &mut shell(&["-n", "4", "--grace", "0.2"], script),
        4,
        "the job's status is 4",
    );
    assert!(
        err(&output).contains("ranks 0, 2-3 did not end by themselves"),
        "{}",
        err(&output)
    );
    // The ends that the launcher caused are no failures of their own.
    assert!(!err(&output).contains("SIGTERM)"), "{}", err(&output));
}

fn stubborn() {
    let script = "[ $PMI_RANK = 1 ] && exit 4; trap '' TERM; while :; do sleep 1; done";
    ends_with(
        &mut shell(&["-n", "2", "--grace", "0.1"], script),
        4,
        "rank 0 did not end: SIGKILL",
    );
}

fn abort() {
    let message = "rank 1 ended the job with status 41: because the test says so";
    let output = ends_with(&mut launch_role(&["-n", "3"], &["abort"]), 41, message);
    assert!(!out(&output).contains("complete"), "{}", out(&output));
}

fn lost_in_fence() {
    let output = ends_with(
        &mut launch_role(&["-n", "3", "--grace", "600"], &["leave"]),
        1,
        "rank 1 ended before the fence",
    );
    assert!(out(&output).contains("[1] left"));
}

fn malformed() {
    for (text, why) in [
        ("hello\\n", "`hello` is not name=value"),
        ("\\n", "does not begin with cmd="),
        ("key=value\\n", "does not begin with cmd="),
        (
            "cmd=barrier_in\\ncmd=barrier_in\\n",
            "from within a barrier",
        ),
        (&"x".repeat(100_000), "without a newline"),
    ] {
        let output = ends_with(&mut launch_role(&["-n", "2"], &["say", text]), 1, why);
        assert!(
            err(&output).contains("sent what is not PMI-1"),
            "{}",
            err(&output)
        );
    }
    let output = ends_with(
        &mut launch_role(&["-n", "1"], &["say", "cmd=dance\\n"]),
        0,
        "",
    );
    assert!(
        out(&output).contains("cmd=dance_result rc=-1 msg=unknown_command"),
        "{}",
        out(&output)
    );
}

fn input() {
    let mut child = shell(&["-n", "3", "--none"], "cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a launcher");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(b"one\ntwo\0\xff")
        .expect("rank 0 reads");
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success());
    assert_eq!(output.stdout, b"one\ntwo\0\xff");
}

fn prefixed() {
    let script = "i=0; while [ $i -lt 200 ]; do printf 'some'; printf ' words %s\\n' $i; i=$((i+1)); done; \
                  printf 'no newline'; echo complaint >&2";
    let output = run(&mut shell(&["-n", "5"], script));
    assert!(output.status.success());
    let text = out(&output);
    for rank in 0..5 {
        let head = format!("[{rank}] ");
        let lines: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix(&head))
            .collect();
        let mut expected: Vec<_> = (0..200).map(|i| format!("some words {i}")).collect();
        expected.push("no newline".into());
        assert_eq!(lines, expected);
    }
    assert_eq!(text.lines().count(), 5 * 201);
    assert_eq!(
        err(&output)
            .lines()
            .filter(|l| l.ends_with("] complaint"))
            .count(),
        5
    );
}

fn unprefixed() {
    let output = run(&mut shell(
        &["-n", "1", "--none"],
        "printf 'a\\0b\\377'; printf 'c' >&2",
    ));
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (&b"a\0b\xff"[..], &b"c"[..])
    );
}

fn nobody_reads() {
    let mut child = shell(
        &["-n", "2"],
        "while echo line; do :; done 2>/dev/null; exit 3",
    )
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .expect("a launcher");
    let mut line = [0; 9];
    child
        .stdout
        .take()
        .expect("a pipe")
        .read_exact(&mut line)
        .expect("a line");
    let output = child.wait_with_output().expect("an end");
    assert!(
        matches!(output.status.code(), Some(141 | 3)),
        "{:?} {}",
        output.status,
        err(&output)
    );
    assert!(
        line.ends_with(b"] line\n") || line.starts_with(b"["),
        "{line:?}"
    );
}

/// Starts a job and waits until all its `ranks` have printed a line.
fn begin(command: &mut Command, ranks: usize) -> (Child, Vec<String>) {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a launcher");
    let mut text = Vec::new();
    let pipe = child.stdout.as_mut().expect("a pipe");
    let mut byte = [0];
    while text.iter().filter(|&&b| b == b'\n').count() < ranks {
        pipe.read_exact(&mut byte).expect("ranks print");
        text.push(byte[0]);
    }
    let lines = String::from_utf8(text).expect("UTF-8");
    (
        child,
        lines
            .lines()
            .map(|l| l.split_once("] ").map_or(l, |(_, rest)| rest).to_owned())
            .collect(),
    )
}

fn send(signal: &str, pid: &str) {
    let status = Command::new("sh")
        .args(["-c", &format!("kill -{signal} {pid}")])
        .status();
    assert!(status.expect("a shell").success());
}

fn signals() {
    for signal in ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"] {
        let script = format!(
            "trap 'echo got {signal}; exit 0' {signal}; echo ready; while :; do sleep 0.01; done"
        );
        let (child, _) = begin(&mut shell(&["-n", "2"], &script), 2);
        send(signal, &child.id().to_string());
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(0), "{signal}: {}", err(&output));
        let text = out(&output);
        assert_eq!(
            text.matches(&format!("got {signal}")).count(),
            2,
            "{signal}: {text}"
        );
    }
    // Untrapped, it is the status, told once.
    let (child, _) = begin(&mut shell(&["-n", "3"], "echo ready; exec sleep 600"), 3);
    send("INT", &child.id().to_string());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(
        err(&output).matches("SIGINT").count(),
        1,
        "{}",
        err(&output)
    );
    // Stopped and continued, with its ranks.
    let (child, pids) = begin(&mut shell(&["-n", "2"], "echo $$; exec sleep 600"), 2);
    let launcher = child.id().to_string();
    let state = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next())
    };
    send("TSTP", &launcher);
    until(|| state(&launcher) == Some('T') && pids.iter().all(|pid| state(pid) == Some('T')));
    send("CONT", &launcher);
    until(|| state(&launcher) != Some('T') && pids.iter().all(|pid| state(pid) == Some('S')));
    send("TERM", &launcher);
    assert_eq!(
        child.wait_with_output().expect("an end").status.code(),
        Some(143)
    );
}

fn second_interrupt() {
    let script = "trap 'echo again' INT; echo ready; while :; do sleep 0.01; done";
    let (mut child, _) = begin(&mut shell(&["-n", "1"], script), 1);
    let launcher = child.id().to_string();
    send("INT", &launcher);
    let mut answer = [0; 10];
    child
        .stdout
        .as_mut()
        .expect("a pipe")
        .read_exact(&mut answer)
        .expect("the trap prints");
    assert_eq!(&answer, b"[0] again\n");
    send("INT", &launcher);
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(137), "{}", err(&output));
}

fn timeout() {
    ends_with(
        &mut shell(&["-n", "2", "--timeout", "0.2"], "exec sleep 600"),
        124,
        "longer than 0.2 s",
    );
    ends_with(
        &mut shell(&["-n", "2", "--timeout", "600"], "exit 0"),
        0,
        "",
    );
}

/// What ranks fork, in sessions and process groups of its own, with and without an end to wait for.
const FORKING: &str = "sleep 601 & setsid sleep 602 & (setsid sh -c 'trap \"\" TERM HUP; echo $$; \
                       while :; do sleep 1; done' &) ; echo $!";

fn nothing_left() {
    for (rest, status) in [
        ("wait_for_the_pids; exit 0", 0),
        ("exit 3", 3),
        ("kill -9 $$", 137),
    ] {
        let script = format!(
            "{FORKING}; {}",
            rest.replace("wait_for_the_pids", "sleep 0.2")
        );
        let output = run(&mut shell(&["-n", "2", "--grace", "0.1"], &script));
        assert_eq!(output.status.code(), Some(status), "{}", err(&output));
        assert!(
            err(&output).contains("left behind were ended"),
            "{}",
            err(&output)
        );
        for line in out(&output).lines() {
            let pid = line.split_once("] ").expect("a prefix").1;
            assert!(!is_alive(pid), "{pid} is alive");
        }
    }
}

fn killed_launcher() {
    let script = format!("{FORKING}; echo $$; exec sleep 603");
    let (mut child, pids) = begin(&mut shell(&["-n", "2"], &script), 6);
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    let guard = child_named("hydrant-guard", child.id());
    child.kill().expect("it is ours");
    assert_eq!(child.wait().expect("an end").signal(), Some(9));
    until(|| pids.iter().all(|pid| !is_alive(pid)) && !is_alive(&guard));
}

fn child_named(name: &str, parent: u32) -> String {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let head = format!("({name}) ");
    entries
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .find(|stat| stat.contains(&head) && stat.split(' ').nth(3) == Some(&parent.to_string()))
        .and_then(|stat| stat.split(' ').next().map(str::to_owned))
        .expect("the guard runs")
}

fn bound() {
    let print = "grep Cpus_allowed_list /proc/self/status | cut -f2";
    let allowed = out(&run(Command::new("sh").args(["-c", print])));
    let output = run(&mut shell(&["-n", "3", "--core"], print));
    for line in out(&output).lines() {
        let cpus = line.split_once("] ").expect("a prefix").1;
        assert!(cpus.split([',', '-']).count() <= 2, "{line} of {allowed}");
    }
    // With more ranks than processors nothing is bound.
    let output = run(&mut shell(&["-n", "200"], print));
    assert!(output.status.success(), "{}", err(&output));
    assert!(
        out(&output)
            .lines()
            .all(|line| line.ends_with(&format!("] {}", allowed.trim())))
    );
}

fn inherited() {
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

/// A job within a job: the inner launcher's ranks join the inner job.
fn nested() {
    let inner = role(&["launcher", "-n", "3"]);
    let exchange = role(&["exchange"]);
    let words: Vec<&str> = inner.iter().chain(&exchange).map(String::as_str).collect();
    let output = run(&mut launch(&["-n", "2"], &words));
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(
        out(&output).matches("] [2] pmi1 2 of 3").count(),
        2,
        "{}",
        out(&output)
    );
}

fn cannot_run() {
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
    let limited = "ulimit -n 70; exec \"$@\"";
    let job = role(&["launcher", "-n", "40", "true"]);
    let mut command = Command::new("sh");
    ends_with(
        command.args(["-c", limited, "sh"]).args(job),
        125,
        "the limit is 70",
    );
}

/// A workspace and a cargo that are scripts: what is run, and when.
fn workspace() {
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

fn idle() {
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
    // Ready ranks may still be leaving the shell; then two looks apart find no tick at all.
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
