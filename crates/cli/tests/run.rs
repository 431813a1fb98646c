//! `hydrant run` as a user types it. The launcher itself is tested in `crates/launch/tests`.

use std::process::{Command, Output};

fn hydrant(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hydrant"))
        .arg("run")
        .args(arguments)
        .output()
        .expect("the command runs")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn fails(arguments: &[&str], status: i32, message: &str) {
    let output = hydrant(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(text.contains(message), "no `{message}` in {text}");
}

#[test]
fn every_rank_runs_the_program_with_its_own_arguments() {
    let output = hydrant(&["-n", "2", "echo", "-n", "4", "--grace", "--", "x"]);
    assert!(output.status.success());
    let mut lines: Vec<_> = out(&output).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    // echo's own -n omits the newline, which the prefix adds again.
    assert_eq!(lines, ["[0] 4 --grace -- x", "[1] 4 --grace -- x"]);
    let output = hydrant(&[
        "--prefix", "none", "-n", "1", "--", "printf", "%s", "--help",
    ]);
    assert_eq!(out(&output), "--help");
}

#[test]
fn the_status_is_the_first_failing_ranks() {
    let script = "[ $PMI_RANK != 1 ] || exit 5";
    fails(
        &["-n", "3", "sh", "-c", script],
        5,
        "hydrant run: rank 1 ended with status 5",
    );
    fails(
        &["-n", "1", "sh", "-c", "kill -9 $$"],
        137,
        "rank 0 was killed by signal 9 (SIGKILL)",
    );
    fails(
        &["-n", "1", "--timeout", "0.1", "sleep", "600"],
        124,
        "longer than 0.1 s",
    );
}

#[test]
fn bad_arguments_are_named() {
    fails(&["-n", "0", "true"], 2, "0 is not in 1..=4096");
    fails(&["-n", "4097", "true"], 2, "4097 is not in 1..=4096");
    fails(&["-n", "many", "true"], 2, "many");
    fails(&["true"], 2, "--ranks");
    fails(&["-n", "1"], 2, "PROGRAM");
    fails(
        &["-n", "1", "--bind", "sideways", "true"],
        2,
        "auto, core, share, none",
    );
    fails(&["-n", "1", "--prefix", "all", "true"], 2, "rank, none");
    fails(&["-n", "1", "--grace=-1", "true"], 2, "--grace");
    fails(
        &["-n", "1", "--timeout", "soon", "true"],
        2,
        "a number of seconds",
    );
    fails(&["-n", "1", "--graze", "1", "true"], 2, "--graze");
}

#[test]
fn the_error_for_a_missing_program_names_the_folders() {
    let beside = std::path::Path::new(env!("CARGO_BIN_EXE_hydrant"));
    let beside = beside.with_file_name("no-such-program");
    let beside = beside.to_str().expect("a path that is text");
    fails(&["-n", "2", "no-such-program"], 127, beside);
    fails(&["-n", "2", "/dev/null"], 126, "/dev/null is not a file");
}

#[test]
fn ranks_run_on_the_hosts_named() {
    // A remote shell whose hosts are all this one.
    let rsh = "sh -c 'export HYDRANT_HOST_ID=$1; shift; exec sh -c \"$*\"' rsh";
    let on_hosts = |rsh: &str, options: &[&str]| {
        let command = ["sh", "-c", "echo $HYDRANT_HOST_ID $HYDRANT_CONDUIT"];
        let all = [&["--hosts", "a:1,b", "--rsh", rsh], options, &command].concat();
        hydrant(&all)
    };
    let output = on_hosts(rsh, &["-n", "3", "--conduit", "auto"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let printed = out(&output);
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] a auto", "[1] b auto", "[2] b auto"]);
    let output = on_hosts("sh -c 'exit 255' rsh", &["-n", "2"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("could not be reached"), "{text}");
    fails(
        &["-n", "1", "--hosts", "a:x", "true"],
        2,
        "`x` is no number of slots",
    );
    fails(&["-n", "1", "--hosts=-x", "true"], 2, "no name of a host");
    fails(&["-n", "1", "--rsh", "rsh", "true"], 2, "--hosts");
}

#[test]
fn settings_are_variables_of_the_ranks() {
    let script = "echo $HYDRANT_CONDUIT $HYDRANT_REGISTRATION $HYDRANT_SIM_RANKS $PMI_SIZE";
    let shown = |options: &[&str]| {
        let output = hydrant(&[options, &["-n", "3", "sh", "-c", script]].concat());
        assert!(output.status.success());
        out(&output)
    };
    let three = shown(&["--prefix", "none", "--conduit", "smp"]);
    assert_eq!(three, "smp 3\n".repeat(3));
    let one = shown(&["--conduit", "sim:ideal", "--registration", "bounce"]);
    assert_eq!(one, "sim:ideal bounce 3 1\n");
    let unknown = ["--conduit", "pigeon", "-n", "1", "true"];
    fails(&unknown, 2, "or sim:PROFILE");
}

#[test]
fn bad_settings_are_refused_once_and_before_any_rank_begins() {
    let refused = |name: &str, value: &str, options: &[&str], message: &str| {
        let directory = std::env::temp_dir().join(format!("hydrant-begun-{}", std::process::id()));
        let script = format!("touch {}", directory.display());
        let output = Command::new(env!("CARGO_BIN_EXE_hydrant"))
            .args(["run", "-n", "4"])
            .args(options)
            .args(["sh", "-c", &script])
            .env(name, value)
            .output()
            .expect("the command runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(message), "no `{message}` in {text}");
        assert!(!directory.exists(), "a rank began");
    };
    refused("HYDRANT_HEAP", "lots", &[], "HYDRANT_HEAP=lots");
    refused("HYDRANT_CONDUIT", "tcp", &[], "HYDRANT_CONDUIT=tcp");
    let options = ["--conduit", "smp+pin"];
    refused("HYDRANT_BUCKET", "7", &options, "HYDRANT_BUCKET=7");
    // The command line overrides the environment.
    let output = Command::new(env!("CARGO_BIN_EXE_hydrant"))
        .args(["run", "-n", "1", "--conduit", "smp", "true"])
        .env("HYDRANT_CONDUIT", "tcp")
        .output()
        .expect("the command runs");
    assert!(output.status.success());
    fails(&["-n", "1", "--registration", "hope", "true"], 2, "hope");
}

#[test]
fn help_names_every_conduit() {
    let output = hydrant(&["--help"]);
    let text = out(&output);
    for conduit in ["auto", "smp", "smp+pin", "verbs", "sim:PROFILE"] {
        assert!(text.contains(conduit), "no {conduit} in {text}");
    }
}

#[test]
fn a_failure_without_a_reader_is_still_a_failure() {
    for (arguments, status) in [
        (&["run", "-n", "1", "no-such-program"][..], 127),
        (&["run", "-n", "2", "sh", "-c", "exit 7"], 7),
        (
            &["run", "-n", "2", "--prefix", "none", "sh", "-c", "exit 7"],
            7,
        ),
        (&["completions", "no-such-shell"], 2),
    ] {
        // A pipe that nobody reads, so that a write is an error.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = Command::new(env!("CARGO_BIN_EXE_hydrant"))
            .args(arguments)
            .stderr(writer)
            .status()
            .expect("the command runs");
        assert_eq!(ended.code(), Some(status), "{arguments:?}");
    }
}

#[test]
fn info_shows_a_bad_value_among_the_settings() {
    let ended = Command::new(env!("CARGO_BIN_EXE_hydrant"))
        .arg("info")
        .env("HYDRANT_M", "16Q")
        .env("HYDRANT_HEAP", "3M")
        .output()
        .expect("the command runs");
    assert_eq!(ended.status.code(), Some(1));
    let shown = out(&ended).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "HYDRANT_M 16Q (environment) not valid: expected auto, or bytes from 4 KiB",
        "HYDRANT_HEAP 3 MiB (environment)",
        "HYDRANT_FORESIGHT_SLICE 3000 (default)",
    ] {
        assert!(shown.contains(part), "no `{part}` in {shown}");
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("HYDRANT_M=16Q is not valid"), "{said}");
}

/// As in `hydrant info | head`: a reader that closes the pipe causes no failure and no message.
#[test]
fn a_closed_reader_ends_the_output_without_a_message() {
    for arguments in [
        &["info"][..],
        &["info", "--format", "json"],
        &["completions", "bash"],
        &["--help"],
        &["run", "-n", "2", "echo", "hello"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = Command::new(env!("CARGO_BIN_EXE_hydrant"))
            .args(arguments)
            .stdout(writer)
            .stderr(std::process::Stdio::piped())
            .output()
            .expect("the command runs");
        let said = String::from_utf8_lossy(&ended.stderr);
        // A rank that writes after the launcher got the broken pipe is killed by SIGPIPE.
        let is_killed = arguments[0] == "run" && ended.status.code() == Some(128 + 13);
        assert!(ended.status.success() || is_killed, "{arguments:?}: {said}");
        assert!(!said.contains("pipe"), "{arguments:?}: {said}");
    }
}

/// Runs `hydrant info --hosts` with a remote shell for which this machine is every host but `gone`, which cannot be
/// reached, `bare`, which has no hydrant, and `old`, which has another version.
fn info(hosts: &str, options: &[&str]) -> Output {
    let script = "host=$1; shift
        case $host in
        gone) echo 'no route to host' >&2; exit 255;;
        bare) exec /no/such/hydrant agent;;
        old) printf '\\nhydrant agent 0.0.1\\n'; exec sleep 60;;
        esac
        exec sh -c \"$*\"";
    let rsh = format!("sh -c '{}' rsh", script.replace('\'', "'\\''"));
    Command::new(env!("CARGO_BIN_EXE_hydrant"))
        .args(["info", "--hosts", hosts, "--rsh", &rsh])
        .args(options)
        .env_remove("HYDRANT_RSH")
        .output()
        .expect("the command runs")
}

/// The lines of `hydrant info --hosts --format json`: section, name and the whole object.
fn info_lines(output: &Output) -> Vec<(String, String, serde_json::Value)> {
    let text = out(output);
    let parse = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).expect(line);
        let word = |key: &str| value[key].as_str().expect(line).to_owned();
        (word("section"), word("name"), value)
    };
    text.lines().map(parse).collect()
}

#[test]
fn hosts_that_can_run_a_job_are_checked_by_running_one() {
    let output = info("a,b,c", &["--format", "json"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{errors}", out(&output));
    let lines = info_lines(&output);
    let of = |section: &str| -> Vec<_> {
        let of_section = lines.iter().filter(|line| line.0 == section);
        of_section
            .map(|(_, name, value)| (name.as_str(), value))
            .collect()
    };
    let names = |section: &str| -> Vec<&str> { of(section).iter().map(|line| line.0).collect() };
    for section in ["hosts", "libfabric", "RDMA", "limits"] {
        assert_eq!(names(section), ["a", "b", "c"], "{section}");
    }
    assert_eq!(names("pairs"), ["a, b", "a, c", "b, c"]);
    for (name, pair) in of("pairs") {
        assert_eq!(pair["connected"], true, "{name}");
        assert!(pair["get_nanoseconds"].as_u64() > Some(0), "{pair}");
        // All three are one host here.
        assert_eq!(pair["meaning"], "shared memory: both names are of one host");
    }
    assert!(
        of("limits")
            .iter()
            .all(|(_, limits)| limits["memory_bytes"].is_u64())
    );
    assert_eq!(names("job"), ["ran"]);
    let stops = of("to mend")
        .iter()
        .any(|(_, defect)| defect["stops_jobs"] == true);
    assert!(!stops, "{lines:?}");
}

#[test]
fn hosts_that_cannot_be_used_are_named_with_the_remedy() {
    let output = info("a,gone,bare,old", &["--format", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    let lines = info_lines(&output);
    let defect = |name: &str| {
        let line = lines
            .iter()
            .find(|line| line.0 == "to mend" && line.1 == name);
        let value = &line
            .unwrap_or_else(|| panic!("{name} is missing: {lines:?}"))
            .2;
        assert_eq!(value["stops_jobs"], true);
        [&value["value"], &value["meaning"]].map(|text| text.as_str().expect("text").to_owned())
    };
    let [what, remedy] = defect("gone");
    assert!(
        what.contains("could not be reached") && what.contains("no route to host"),
        "{what}"
    );
    assert!(
        remedy.contains("gone 'exit 0'` must succeed without a question"),
        "{remedy}"
    );
    let [what, remedy] = defect("bare");
    assert!(
        what.contains("is hydrant there under the same path?"),
        "{what}"
    );
    assert!(
        remedy.starts_with("scp ") && remedy.contains("--remote-hydrant"),
        "{remedy}"
    );
    let [what, _] = defect("old");
    assert!(what.contains("has hydrant 0.0.1, and this is"), "{what}");
    let job = lines
        .iter()
        .find(|line| line.0 == "job")
        .expect("a job of the rest");
    let value = job.2["value"].as_str().expect("text");
    assert!(
        job.1 == "ran"
            && value.contains("without 3 that did not answer, so nothing between hosts was tried"),
        "{value}"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_hydrant"));
    let refused = (command
        .args(["info", "--hosts", "a"])
        .env("HYDRANT_OFI_WINDOW", "many"))
    .output()
    .expect("the command runs");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && refused.stdout.is_empty(),
        "{text}"
    );
    assert!(text.contains("HYDRANT_OFI_WINDOW"), "{text}");
    let table = info("gone", &[]);
    assert_eq!(table.status.code(), Some(1));
    assert!(
        out(&table).lines().all(|line| line.chars().count() <= 80),
        "{}",
        out(&table)
    );
}

#[test]
fn hosts_without_a_network_between_them_are_named() {
    // Named hosts share no memory, and libfabric is hidden.
    let options = ["--name-hosts", "--format", "json"];
    let hide = |command: &mut Command| -> Output {
        (command.env("HYDRANT_OFI_LIBRARY", "/no/such/libfabric"))
            .env("HYDRANT_VERBS_LIBRARY", "/no/such/libibverbs")
            .env("HYDRANT_RSH", "sh -c 'shift; exec sh -c \"$*\"' rsh")
            .output()
            .expect("the command runs")
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_hydrant"));
    let output = hide(command.args(["info", "--hosts", "a,b"]).args(options));
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    let lines = info_lines(&output);
    let pair = &lines
        .iter()
        .find(|line| line.0 == "pairs")
        .expect("a pair")
        .2;
    assert_eq!(pair["connected"], false);
    let why = "no network: a has neither an RDMA port nor an endpoint of libfabric";
    assert_eq!(pair["meaning"], why);
    let defects: Vec<_> = lines.iter().filter(|line| line.0 == "to mend").collect();
    let names: Vec<&str> = defects.iter().map(|line| line.1.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    for (_, name, defect) in defects {
        let remedy = defect["meaning"].as_str().expect("text");
        assert!(
            remedy.starts_with(&format!("on {name}: apt install libfabric1")),
            "{remedy}"
        );
    }
}
