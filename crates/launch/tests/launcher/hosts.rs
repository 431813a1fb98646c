//! Jobs on several hosts, all of which are this one: the remote shell only pretends.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::harness::{begin, ends_with, err, is_alive, launch, out, send};
use crate::serving;
use crate::support::check_exchange;
use hydrant_testing::{
    roles::role,
    running::{run, until},
};

/// A remote shell that runs the command here. The host `gone` cannot be reached, `bare` has no
/// hydrant, and `chatty` prints a greeting at login. The command in `HYDRANT_TEST_LOGIN` runs
/// before.
pub(crate) struct Shell {
    directory: TempDir,
}

impl Shell {
    pub(crate) fn new() -> Shell {
        Shell::lying("")
    }

    /// Like [`Shell::new`], but the host `liar` runs a program that only pretends to be an agent.
    pub(crate) fn lying(lie: &str) -> Shell {
        let liar = role(&["lying-agent", lie]).join(" ");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let shell = Shell { directory };
        let script = format!(
            "#!/bin/sh\n\
            host=$1; shift\n\
            case $host in\n\
            liar) exec {liar};;\n\
            gone) echo 'no route to host' >&2; exit 255;;\n\
            bare) exec sh -c 'exec /no/such/hydrant agent' 2>/dev/null;;\n\
            chatty) echo 'Welcome!'; echo 'You have mail.';;\n\
            esac\n\
            who=$host; eval \"$HYDRANT_TEST_LOGIN\"\n\
            export HYDRANT_HOST_ID=$host\n\
            exec sh -c \"exec $*\"\n"
        );
        fs::write(shell.path(), script).expect("a file");
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(shell.path(), executable).expect("a file");
        shell
    }

    pub(crate) fn path(&self) -> String {
        let path = self.directory.path().join("rsh");
        path.to_str().expect("UTF-8").to_owned()
    }

    fn launch(&self, hosts: &str, ranks: u32, options: &[&str], program: &[&str]) -> Command {
        let (ranks, path) = (ranks.to_string(), self.path());
        let all = ["--hosts", hosts, "--rsh", &path, "-n", &ranks];
        launch(&[&all, options].concat(), program)
    }

    pub(crate) fn script(
        &self,
        hosts: &str,
        ranks: u32,
        options: &[&str],
        script: &str,
    ) -> Command {
        self.launch(hosts, ranks, options, &["sh", "-c", script])
    }

    fn role(&self, hosts: &str, ranks: u32, options: &[&str], arguments: &[&str]) -> Command {
        let program = role(arguments);
        let program: Vec<&str> = program.iter().map(String::as_str).collect();
        self.launch(hosts, ranks, options, &program)
    }
}

pub(crate) fn exchange() {
    let shell = Shell::new();
    for (hosts, ranks) in [("a", 2), ("a,b", 4), ("a,chatty,c", 7), ("a,b,c", 2)] {
        let output = run(&mut shell.role(hosts, ranks, &[], &["exchange"]));
        check_exchange(&output, "pmi1", ranks);
        assert_eq!(err(&output), "");
    }
}

/// The remote shell is a stand-in for Slurm's `srun`: it gives no line to a shell, and passes on
/// the output of the agent by whole lines.
pub(crate) fn srun() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let srun = directory.path().join("srun");
    let script = "#!/bin/sh\n\
        [ \"$1\" = -w ] && export HYDRANT_HOST_ID=$2; shift 2\n\
        \"$@\" | LC_ALL=C sed -u ''\n";
    fs::write(&srun, script).expect("a file");
    fs::set_permissions(&srun, fs::Permissions::from_mode(0o755)).expect("a file");
    let rsh = format!("{} -w", srun.display());
    let options = ["--hosts", "a,b", "--rsh", &rsh, "-n", "4"];
    let program = role(&["exchange"]);
    let program: Vec<&str> = program.iter().map(String::as_str).collect();
    let output = run(&mut launch(&options, &program));
    check_exchange(&output, "pmi1", 4);
    assert_eq!(err(&output), "");
    let fails = ["sh", "-c", "[ $PMI_RANK = 3 ] && exit 6; exec sleep 600"];
    let grace = ["--grace", "0.1"];
    let mut command = launch(&[&options[..], &grace].concat(), &fails);
    ends_with(&mut command, 6, "rank 3 ended with status 6");
}

pub(crate) fn placed() {
    let shell = Shell::new();
    let print = "echo $HYDRANT_HOST_ID $PMI_RANK of $PMI_SIZE, $HYDRANT_TEST_WORD in $(pwd) \"$0\"";
    let program = ["sh", "-c", print, "it's  'quoted' $HOME"];
    let here = tempfile::tempdir().expect("a temporary directory");
    let directory = here.path().join("two words");
    fs::create_dir(&directory).expect("a directory");
    let mut command = shell.launch("a,b:1,c", 5, &[], &program);
    let output = run((command.current_dir(&directory))
        .env("HYDRANT_TEST_WORD", "word")
        .env("HYDRANT_HOST_ID", "the launcher's"));
    assert!(output.status.success(), "{}", err(&output));
    let mut lines: Vec<String> = out(&output).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    let rest = format!("of 5, word in {} it's  'quoted' $HOME", directory.display());
    let expected: Vec<String> = ["a", "a", "b", "c", "c"]
        .iter()
        .enumerate()
        .map(|(rank, host)| format!("[{rank}] {host} {rank} {rest}"))
        .collect();
    assert_eq!(lines, expected);
    // With `--name-hosts` the launcher gives each host its name in the list.
    let mut command = shell.script("a,b", 2, &["--name-hosts"], "echo $HYDRANT_HOST_ID");
    let output = run(command.env("HYDRANT_TEST_LOGIN", "host=other"));
    let mut lines: Vec<String> = out(&output).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] a", "[1] b"]);
    ends_with(
        &mut shell.script("a:2,b:1", 4, &[], "exit 0"),
        125,
        "4 ranks were asked for, and the hosts have slots for 3",
    );
}

pub(crate) fn mpich_program() {
    let shell = Shell::new();
    let path = shell.path();
    serving::mpich_program_with(&["--hosts", "a,b", "--rsh", &path]);
}

pub(crate) fn streams() {
    let shell = Shell::new();
    let mut child = shell
        .script("a,b", 4, &["--none"], "cat; echo complaint >&2")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a launcher");
    // More bytes than pipes hold, and bytes that are no text.
    let mut input: Vec<u8> = (0..1_000_000_u32)
        .map(|n| (n.wrapping_mul(n) >> 3) as u8)
        .collect();
    input.extend(b"no newline");
    let mut to = child.stdin.take().expect("a pipe");
    let writer = thread::spawn({
        let input = input.clone();
        move || to.write_all(&input)
    });
    let output = child.wait_with_output().expect("an end");
    writer.join().expect("a thread").expect("rank 0 reads");
    assert!(output.status.success(), "{}", err(&output));
    assert!(output.stdout == input);
    assert_eq!(err(&output), "complaint\n".repeat(4));
    // A rank that does not read its input delays no job.
    let endless = fs::File::open("/dev/zero").expect("a file");
    let output = run(shell.script("a,b", 2, &[], "echo done").stdin(endless));
    assert!(output.status.success());
}

pub(crate) fn much() {
    let shell = Shell::new();
    let script = "i=0; while [ $i -lt 3000 ]; do printf '%0200d' $i; printf ' words\\n'; \
                  i=$((i+1)); done; printf 'no newline'";
    let mut child = shell
        .script("a,b", 4, &["--silence", "2"], script)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a launcher");
    // Longer than a host may be silent. An agent whose output is not written is not silent.
    thread::sleep(Duration::from_secs(3));
    let mut text = String::new();
    let mut pipe = child.stdout.take().expect("a pipe");
    pipe.read_to_string(&mut text).expect("text");
    assert!(child.wait().expect("an end").success());
    for rank in 0..4 {
        let head = format!("[{rank}] ");
        let lines: Vec<_> = (text.lines())
            .filter_map(|line| line.strip_prefix(&head))
            .collect();
        let mut expected: Vec<_> = (0..3000).map(|i| format!("{i:0200} words")).collect();
        expected.push("no newline".into());
        assert!(lines == expected, "rank {rank}: {} lines", lines.len());
    }
    assert_eq!(text.lines().count(), 4 * 3001);
}

pub(crate) fn nobody_reads() {
    let shell = Shell::new();
    let script = "while echo line; do :; done 2>/dev/null; exit 3";
    let mut child = shell
        .script("a,b", 2, &[], script)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a launcher");
    let mut line = [0; 9];
    let mut pipe = child.stdout.take().expect("a pipe");
    pipe.read_exact(&mut line).expect("a line");
    drop(pipe);
    let output = child.wait_with_output().expect("an end");
    let status = output.status;
    assert!(matches!(status.code(), Some(141 | 3)), "{status:?}");
}

pub(crate) fn failures() {
    let shell = Shell::new();
    let output = ends_with(
        &mut shell.script(
            "a,b",
            4,
            &["--grace", "0.2"],
            "[ $PMI_RANK = 2 ] && exit 5; exec sleep 600",
        ),
        5,
        "rank 2 ended with status 5; it was the first to fail, and the job's status is 5",
    );
    let text = err(&output);
    assert!(
        text.contains("SIGTERM to ranks 0-1, 3, still running"),
        "{text}"
    );
    ends_with(
        &mut shell.script("a,b", 4, &[], "[ $PMI_RANK = 3 ] && kill -9 $$; exit 0"),
        137,
        "rank 3 was killed by signal 9 (SIGKILL); it was the first to fail",
    );
    let stubborn = "[ $PMI_RANK = 1 ] && exit 4; trap '' TERM; while :; do sleep 1; done";
    ends_with(
        &mut shell.script("a,b", 2, &["--grace", "0.1"], stubborn),
        4,
        "SIGKILL to rank 0, still running",
    );
    // A rank that ends fails the fence of ranks on other hosts.
    ends_with(
        &mut shell.role("a,b,c", 3, &["--grace", "600"], &["leave"]),
        1,
        "rank 1 ended before the fence",
    );
}

pub(crate) fn abort() {
    let message = "rank 1 ended the job with status 41: because the test says so";
    let shell = Shell::new();
    let output = ends_with(&mut shell.role("a,b,c", 3, &[], &["abort"]), 41, message);
    assert!(!out(&output).contains("complete"), "{}", out(&output));
    let text = "cmd=barrier_in\\ncmd=barrier_in\\n";
    let mut said = shell.role("a,b", 2, &[], &["say", text]);
    ends_with(&mut said, 1, "from within a barrier");
}

pub(crate) fn unreachable() {
    let shell = Shell::new();
    let begun = shell.directory.path().join("begun");
    let script = format!("touch {}", begun.display());
    let output = ends_with(
        &mut shell.script("a,gone,c", 6, &[], &script),
        125,
        "host gone, of ranks 2-3, could not be reached: its remote shell ended with status 255",
    );
    let text = err(&output);
    assert!(text.contains("no route to host"), "{text}");
    assert!(
        text.contains("status 255; `hydrant info` with the same --hosts"),
        "{text}"
    );
    assert!(!begun.exists(), "a rank began on a host that was there");
    ends_with(
        &mut shell.script("a,bare", 2, &[], "exit 0"),
        125,
        "host bare, of rank 1, could not be reached: its remote shell ended with status 127; is \
         hydrant there under the same path?",
    );
    ends_with(
        &mut launch(
            &["-n", "1", "--hosts", "a,b", "--rsh", "/no/such/shell"],
            &["sh", "-c", "exit 0"],
        ),
        125,
        "the remote shell `/no/such/shell` cannot be used",
    );
    let other = Shell::lying("version");
    ends_with(
        &mut other.script("a,liar", 2, &[], "exit 0"),
        125,
        "host liar, of rank 1, has hydrant 0.0.1, and this is ",
    );
    // A host may lack the working directory.
    let directory = shell.directory.path().join("here alone");
    fs::create_dir(&directory).expect("a directory");
    let mut command = shell.script("a", 1, &[], "exit 0");
    (command.current_dir(&directory)).env("HYDRANT_TEST_LOGIN", "rmdir \"$PWD\"");
    let output = ends_with(
        &mut command,
        125,
        "host a, of rank 0, refused: the working directory ",
    );
    let text = err(&output);
    assert!(
        text.contains("here alone cannot be entered") && !text.contains("interpreter"),
        "{text}"
    );
    // A host may lack a program that the launcher finds.
    let file = shell.directory.path().join("program");
    fs::write(&file, "#!/no/such/interpreter\n").expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a file");
    let file = file.to_str().expect("UTF-8");
    ends_with(
        &mut shell.launch("a,b", 2, &[], &[file]),
        126,
        "could not be started from",
    );
}

/// Ranks that print their agent, their process and their host.
const WHERE: &str = "echo $PPID $$ $HYDRANT_HOST_ID; exec sleep 600";

/// Parses the output of [`WHERE`]: agent, rank and host of each.
fn places(lines: &[String]) -> Vec<[String; 3]> {
    let words = |line: &String| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
    (lines.iter())
        .map(|line| words(line).try_into().expect("three words"))
        .collect()
}

pub(crate) fn killed_agent() {
    let shell = Shell::new();
    for (signal, why) in [
        ("KILL", "its remote shell was killed by signal 9"),
        ("TERM", "a signal ended it (SIGTERM); it kills the ranks"),
    ] {
        let mut command = shell.script("a,b", 4, &["--grace", "0.3"], WHERE);
        let (child, lines) = begin(&mut command, 4);
        let places = places(&lines);
        let victim = places.iter().find(|place| place[2] == "b").expect("a host");
        send(signal, &victim[0]);
        let output = child.wait_with_output().expect("an end");
        let text = err(&output);
        assert!(text.contains(why), "{text}");
        assert_eq!(output.status.code(), Some(137), "{text}");
        assert!(text.contains("host b, of ranks 2-3, was lost"), "{text}");
        let rest = "SIGTERM to ranks 0-1, still running";
        assert!(text.contains(rest), "{text}");
        until(|| places.iter().all(|place| !is_alive(&place[1])));
    }
}

pub(crate) fn silent() {
    let shell = Shell::new();
    let options = ["--silence", "1", "--grace", "0.3"];
    let (child, lines) = begin(&mut shell.script("a,b", 4, &options, WHERE), 4);
    let places = places(&lines);
    let victim = places.iter().find(|place| place[2] == "b").expect("a host");
    send("STOP", &victim[0]);
    let output = child.wait_with_output().expect("an end");
    let text = err(&output);
    assert_eq!(output.status.code(), Some(137), "{text}");
    let lost = "host b, of ranks 2-3, was lost: nothing was heard of it for 1 s";
    assert!(text.contains(lost), "{text}");
    until(|| places.iter().all(|place| !is_alive(&place[1])));
    silent_launcher();
}

/// A launcher that is stopped without a chance to tell its agents.
fn silent_launcher() {
    let shell = Shell::new();
    let (child, lines) = begin(&mut shell.script("a,b", 2, &["--silence", "1"], WHERE), 2);
    let places = places(&lines);
    let launcher = child.id().to_string();
    send("STOP", &launcher);
    until(|| places.iter().all(|place| !is_alive(&place[1])));
    send("CONT", &launcher);
    let output = child.wait_with_output().expect("an end");
    let text = err(&output);
    assert_eq!(output.status.code(), Some(137), "{text}");
    let why = "hydrant agent: it has heard nothing from the launcher for 1 s; it kills the ranks of this host";
    assert_eq!(text.matches(why).count(), 2, "{text}");
}

pub(crate) fn signals() {
    let shell = Shell::new();
    let script = "trap 'echo got it; exit 0' USR1; echo ready; while :; do sleep 0.01; done";
    let (child, _) = begin(&mut shell.script("a,b", 4, &[], script), 4);
    send("USR1", &child.id().to_string());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(out(&output).matches("got it").count(), 4);

    let (child, _) = begin(&mut shell.script("a,b", 4, &[], WHERE), 4);
    send("INT", &child.id().to_string());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(
        err(&output).matches("SIGINT").count(),
        1,
        "{}",
        err(&output)
    );

    // The launcher is stopped for longer than a host may be silent, and continued.
    let mut command = shell.script("a,b", 2, &["--silence", "1"], WHERE);
    let (child, lines) = begin(&mut command, 2);
    let places = places(&lines);
    let launcher = child.id().to_string();
    let state = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next())
    };
    let all = |wanted| places.iter().all(|place| state(&place[1]) == Some(wanted));
    send("TSTP", &launcher);
    until(|| state(&launcher) == Some('T') && all('T'));
    thread::sleep(Duration::from_millis(1500));
    send("CONT", &launcher);
    until(|| state(&launcher) != Some('T') && all('S'));
    thread::sleep(Duration::from_millis(1500));
    assert!(all('S'));
    send("TERM", &launcher);
    let status = child.wait_with_output().expect("an end").status;
    assert_eq!(status.code(), Some(143));
}

/// Processes that ranks fork, in sessions of their own.
const FORKING: &str = "sleep 611 & (setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' & \
                       echo $!) ; echo $!";

pub(crate) fn nothing_left() {
    let shell = Shell::new();
    for (rest, status) in [("sleep 0.2; exit 0", 0), ("exit 3", 3)] {
        let script = format!("{FORKING}; {rest}");
        let output = run(&mut shell.script("a,b", 2, &["--grace", "0.1"], &script));
        let text = err(&output);
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert!(text.contains("left behind were ended"), "{text}");
        let printed = out(&output);
        assert_eq!(printed.lines().count(), 4, "{printed}");
        for line in printed.lines() {
            let pid = line.split_once("] ").expect("a prefix").1;
            assert!(!is_alive(pid), "{pid} is alive");
        }
    }
}

pub(crate) fn killed_launcher() {
    let shell = Shell::new();
    let script = format!("{FORKING}; {WHERE}");
    let (mut child, lines) = begin(&mut shell.script("a,b", 2, &[], &script), 6);
    let words = lines.iter().flat_map(|line| line.split(' '));
    let pids: Vec<&str> = words.filter(|word| word.parse::<u32>().is_ok()).collect();
    assert_eq!(pids.len(), 8, "{lines:?}");
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    child.kill().expect("it is ours");
    assert_eq!(child.wait().expect("an end").signal(), Some(9));
    until(|| pids.iter().all(|pid| !is_alive(pid)));
}

pub(crate) fn timeout() {
    let shell = Shell::new();
    ends_with(
        &mut shell.script("a,b", 2, &["--timeout", "0.3"], "exec sleep 600"),
        124,
        "longer than 0.3 s",
    );
    // The time limit also holds while the launcher waits for a host.
    let slow = "sh -c 'sleep 600; shift; exec sh -c \"$*\"' sh";
    let rsh = ["--hosts", "a", "--rsh", slow, "--timeout", "0.3"];
    let output = run(&mut launch(&rsh, &["sh", "-c", "exit 0"]));
    assert_eq!(output.status.code(), Some(124), "{}", err(&output));
}

pub(crate) fn idle() {
    let shell = Shell::new();
    let (child, lines) = begin(&mut shell.script("a,b", 4, &[], WHERE), 4);
    let mut processes: Vec<String> = places(&lines)
        .into_iter()
        .map(|[agent, ..]| agent)
        .collect();
    processes.push(child.id().to_string());
    let ticks = || -> u64 {
        let of = |pid: &String| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
            let words: Vec<_> = stat
                .rsplit(") ")
                .next()
                .expect("a stat")
                .split(' ')
                .collect();
            words[11].parse::<u64>().expect("utime") + words[12].parse::<u64>().expect("stime")
        };
        processes.iter().map(of).sum()
    };
    thread::sleep(Duration::from_millis(300));
    let before = ticks();
    thread::sleep(Duration::from_secs(1));
    assert_eq!(ticks(), before);
    send("TERM", &child.id().to_string());
    assert_eq!(
        child.wait_with_output().expect("an end").status.code(),
        Some(143)
    );
}

/// An agent wakes for the end of a rank, even if it ends while the agent passes on its output. Its launcher would wake it
/// after a quarter of an hour, and the test fails before.
pub(crate) fn ends_wake() {
    let shell = Shell::new();
    for turn in 0..40 {
        // A child keeps the rank's streams open, so that only its end tells of it.
        let bytes = 1500 * (turn + 1);
        let script = format!("sleep 600 & exec head -c {bytes} /dev/zero");
        let output = run(&mut shell.script("a,b", 2, &["--silence", "4000"], &script));
        assert!(output.status.success(), "turn {turn}: {}", err(&output));
    }
}
