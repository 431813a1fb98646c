//! What a user sees who sets what cannot be, starts a job by what cannot start one, asks for
//! more memory than there is, or whose program fails: a sentence and a status, never a crash
//! or a job of one by accident.

use std::{
    env, fs,
    io::Write,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Command, ExitCode, Output},
    thread,
};

use hydrant::{Error, Job, Rank};
use hydrant_testing::{launcher, roles};

fn main() -> ExitCode {
    let tests: Vec<(&str, fn())> = vec![
        ("bad_settings_name_themselves", bad_settings),
        ("unknown_settings_are_warned_of", unknown_settings),
        (
            "peers_are_served_where_it_is_said",
            peers_are_served_where_it_is_said,
        ),
        ("settings_without_effect_are_warned_of", unused_settings),
        ("networks_that_differ_are_named", unlike),
        ("alone_is_a_job_of_one", alone),
        ("unusable_launchers_name_the_fix", unusable_launchers),
        ("too_much_memory_is_refused", too_much_memory),
        ("limits_that_refuse_say_how_to_raise_them", limits),
        ("the_limit_on_files_holds_no_job_up", file_size),
        ("ranks_that_namespaces_keep_apart_are_told_so", namespaces),
        ("memory_limits_of_control_groups_count", control_group),
        (
            "collectives_without_memory_are_refused",
            collectives_without_memory,
        ),
        ("no_abort_is_a_success", abort_alone),
        ("programs_that_fail_decide_the_status", failing_programs),
    ];
    let tests = tests
        .into_iter()
        .map(|(name, body)| roles::test(name, body));
    roles::main(role, tests.collect())
}

fn role(role: &str, arguments: &[String]) -> Option<ExitCode> {
    let end = match role {
        "greet" => hydrant::run(|job| {
            println!("rank {} of {}", job.rank(), job.size());
            job.barrier()
        }),
        "greet_in_threads" => (Job::builder())
            .and_then(|builder| builder.run_local(4, Job::barrier).into_iter().collect()),
        "serve" => hydrant::run(|job| {
            println!("rank {} is served on {}", job.rank(), served_on());
            job.barrier()
        }),
        "take" => hydrant::run(|job| job.alloc::<u8>(256 << 20).map(drop)),
        "abort" => hydrant::run(|job| job.abort(256)),
        "greedy" => hydrant::run(|job| job.alloc::<u8>(1 << 45).map(drop)),
        "fail" => hydrant::run(|job| fail(job, &arguments[0])),
        "apart" => apart(&[&["unshare".to_owned()], arguments].concat()),
        "unlike" => apart(&[&["env".to_owned()], arguments].concat()),
        "poor" => hydrant::run(|job| poor(job, &arguments[0])),
        _ => return None,
    };
    Some(match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // In one piece, for the others say the same at the same time.
            let _ = std::io::stderr().write_all(format!("{error}\n").as_bytes());
            ExitCode::FAILURE
        }
    })
}

/// Greets; rank 1 does so by this command.
fn apart(wrapper: &[String]) -> hydrant::Result<()> {
    let greet = roles::role(&["greet"]);
    let is_wrapped = env::var("PMI_RANK").as_deref() == Ok("1");
    let words = [if is_wrapped { wrapper } else { &[] }, &greet].concat();
    let mut command = Command::new(&words[0]);
    Err(Error::other(command.args(&words[1..]).exec()))
}

/// The processors of the service thread, as the kernel tells them.
fn served_on() -> String {
    loop {
        for task in fs::read_dir("/proc/self/task").expect("/proc is there") {
            let task = task.expect("a thread").path();
            let line = |file: &str, start: &str| {
                let text = fs::read_to_string(task.join(file)).unwrap_or_default();
                let line = text.lines().find_map(|line| line.strip_prefix(start));
                line.map(|rest| rest.trim().to_owned())
            };
            // Once it sleeps, it is where it stays.
            if line("comm", "hydrant-serve").is_some()
                && line("status", "State:").is_some_and(|state| state.starts_with('S'))
                && let Some(cpus) = line("status", "Cpus_allowed_list:")
            {
                return cpus;
            }
        }
        thread::yield_now();
    }
}

/// Rank 1 fails as told; the others wait for it.
fn fail(job: &Job, how: &str) -> hydrant::Result<()> {
    if job.rank() == Rank(1) {
        match how {
            "abort" => job.abort(7),
            "error" => return Err(Error::other("the program's own failure")),
            "panic" => panic!("the program's own panic"),
            "leave" => std::process::exit(0),
            _ => std::process::exit(9),
        }
    }
    job.barrier()
}

/// Bytes that each rank gives to a collective that finds too little memory.
const GIVEN: usize = 16 << 20;

/// The last rank has little memory left for a collective: it is told so, and the others that it did not take part, or it
/// goes well, and the job goes on.
fn poor(job: &Job, call: &str) -> hydrant::Result<()> {
    let mut given = vec![1_u8; GIVEN];
    // Longer than a slot of a board.
    let mut long = vec![[1_u8; 40_000]; GIVEN / 40_000];
    let is_poor = job.rank().0 + 1 == job.size();
    let left = |bytes| {
        if is_poor {
            limit_memory(Some(bytes));
        }
    };
    let (outcome, fits) = match call {
        "all_to_all" => {
            left(2 << 20);
            (job.all_to_all_in_place(&mut given), false)
        }
        // It takes the parts of all, and nothing beside them.
        "reduce_scatter" => {
            let mut mine = vec![0; GIVEN / job.size() as usize];
            left(GIVEN as u64 + (4 << 20));
            let reduced = job.reduce_scatter_with(&given, &mut mine, |a, b| a ^ b);
            (reduced, true)
        }
        // There is room for what comes, but not for what is scanned.
        "scan" => {
            left(GIVEN as u64 + (4 << 20));
            (job.scan_with(&mut long, |_, b| b), false)
        }
        _ => {
            let before = peak();
            let refused = job.all_to_all_in_place(&mut given[1..]);
            assert!(matches!(refused, Err(Error::LengthMismatch { .. })));
            assert!(peak() - before < 2 * GIVEN as u64, "it took much memory");
            (Ok(()), true)
        }
    };
    if is_poor {
        limit_memory(None);
    }
    match (outcome, fits, is_poor) {
        (Ok(()), true, _)
        | (Err(Error::OutOfMemory { .. }), false, true)
        | (Err(Error::CollectiveMismatch { .. }), false, false) => job.barrier(),
        (outcome, ..) => panic!("{call}: {outcome:?}"),
    }
}

/// Lets this process map so many bytes more, or as many as there are.
fn limit_memory(more: Option<u64>) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let current = more.map(|more| {
        let text = fs::read_to_string("/proc/self/statm").expect("/proc is there");
        let pages = text.split(' ').next().and_then(|pages| pages.parse().ok());
        pages.unwrap_or(0_u64) * rustix::param::page_size() as u64 + more
    });
    let limit = Rlimit {
        current,
        maximum: getrlimit(Resource::As).maximum,
    };
    setrlimit(Resource::As, limit).expect("the limit");
}

/// Most bytes of memory that this process had.
fn peak() -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.expect("VmHWM") << 10
}

fn collectives_without_memory() {
    for call in ["all_to_all", "reduce_scatter", "scan", "uneven"] {
        let output = output(&mut launcher::command(2, &["poor", call]), &[]);
        assert_says(&output, 0, &[]);
    }
}

/// Names and values.
type Variables = &'static [(&'static str, &'static str)];

/// Runs a role with these variables and none of a launcher's.
fn run(role: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut words = roles::role(role).into_iter();
    let mut command = Command::new(words.next().expect("the program"));
    command.args(words);
    output(&mut command, variables)
}

fn output(command: &mut Command, variables: &[(&str, &str)]) -> Output {
    for (name, _) in env::vars().filter(|(name, _)| {
        ["PMI", "SLURM", "OMPI", "HYDRANT"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    }) {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    command.output().expect("the test binary starts")
}

#[track_caller]
fn assert_says(output: &Output, status: i32, pieces: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{text}");
    for piece in pieces {
        assert!(text.contains(piece), "`{text}` does not say `{piece}`");
    }
}

fn bad_settings() {
    for (name, value) in [
        ("HYDRANT_HEAP", "lots"),
        ("HYDRANT_HEAP", "1"),
        ("HYDRANT_SERVICE", "maybe"),
        ("HYDRANT_SPIN", "-1"),
        ("HYDRANT_SERVICE_CPUS", "3-1"),
        ("HYDRANT_SERVICE_CPUS", "0,,2"),
        ("HYDRANT_SERVICE_CPUS", "auto:1"),
        ("HYDRANT_JOIN_TIMEOUT", "0"),
        ("HYDRANT_RING_SLOTS", "7"),
        ("HYDRANT_RING_PAYLOAD", "1"),
        ("HYDRANT_EXTENTS", "none"),
        ("HYDRANT_SMP_FOREIGN", "telepathy"),
        ("HYDRANT_COUNTERS", "2"),
        ("HYDRANT_LOG", "=["),
        ("HYDRANT_BOOTSTRAP", "smoke-signals"),
    ] {
        let output = run(&["greet"], &[(name, value)]);
        assert_says(&output, 1, &[&format!("{name}={value}"), "expected"]);
        assert!(output.stdout.is_empty(), "the job ran with {name}={value}");
    }
}

fn peers_are_served_where_it_is_said() {
    let served = |variables: &[_]| {
        let output = output(&mut launcher::command(2, &["serve"]), variables);
        assert_says(&output, 0, &[]);
        let mut lines: Vec<String> = (String::from_utf8_lossy(&output.stdout).lines())
            .map(|line| line.rsplit_once("rank ").expect("a rank").1.to_owned())
            .collect();
        lines.sort_unstable();
        lines
    };
    let told = served(&[("HYDRANT_SERVICE_CPUS", "0")]);
    assert_eq!(told, ["0 is served on 0", "1 is served on 0"]);
    // What an outer job was told of its processors says nothing of this one's.
    let auto = served(&[("HYDRANT_CONDUIT", "smp"), ("HYDRANT_HOST_CPUS", "1023")]);
    // The launcher binds two ranks of two processors to one each.
    if thread::available_parallelism().is_ok_and(|cores| cores.get() == 2) {
        let cpus: Vec<&str> = auto
            .iter()
            .filter_map(|line| line.split(' ').next_back())
            .collect();
        assert_eq!(cpus.len(), 2, "{auto:?}");
        assert_ne!(cpus[0], cpus[1], "{auto:?}");
    }
}

fn unknown_settings() {
    let output = run(&["greet"], &[("HYDRANT_HAEP", "64M")]);
    assert_says(&output, 0, &["warning", "HYDRANT_HAEP", "HYDRANT_HEAP"]);
    // Once a job, and not once a rank.
    let mut job = launcher::command(3, &["greet"]);
    let output = self::output(&mut job, &[("HYDRANT_HAEP", "64M")]);
    assert_says(&output, 0, &[]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.matches("HYDRANT_HAEP").count(), 1, "{text}");
}

fn unused_settings() {
    let pretended = [
        ("HYDRANT_PRETEND_HOSTS", "2"),
        ("HYDRANT_INTER_NODE", "smp+pin"),
    ];
    let timeout = [("HYDRANT_PEER_TIMEOUT", "1")];
    let start = |variables: &[_]| output(&mut launcher::command(2, &["greet"]), variables);
    let warned = start(&[&pretended[..], &timeout].concat());
    assert_says(&warned, 0, &["HYDRANT_PEER_TIMEOUT has no effect here"]);
    for variables in [&pretended[..], &timeout] {
        let output = start(variables);
        assert_says(&output, 0, &[]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!text.contains("no effect"), "{text}");
    }
}

fn unlike() {
    for (variable, other) in [
        ("HYDRANT_CONDUIT=smp", "HYDRANT_CONDUIT=auto"),
        ("HYDRANT_CONDUIT=ofi", "HYDRANT_CONDUIT=auto"),
        ("HYDRANT_INTER_NODE=ofi", "HYDRANT_INTER_NODE=auto"),
    ] {
        let ended = output(&mut launcher::command(3, &["unlike", variable]), &[]);
        assert_says(&ended, 1, &[variable, other, "rank 1", "the same at all"]);
    }
}

fn alone() {
    let output = run(&["greet"], &[]);
    assert_says(&output, 0, &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "rank 0 of 1\n");
}

fn unusable_launchers() {
    let unusable: [(Variables, &[&str]); 7] = [
        (
            &[("SLURM_STEP_NUM_TASKS", "2")],
            &["SLURM_STEP_NUM_TASKS=2", "srun --mpi=pmi2"],
        ),
        (
            &[("OMPI_COMM_WORLD_SIZE", "2")],
            &["OMPI_COMM_WORLD_SIZE=2", "mpirun"],
        ),
        (&[("PMI_SIZE", "2")], &["PMI_SIZE=2", "mpiexec.hydra"]),
        (&[("PMI_FD", "five")], &["PMI_FD", "five"]),
        (
            &[("PMI_FD", "99"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")],
            &["PMI_FD"],
        ),
        (
            &[("PMI_PORT", "nowhere.invalid:1"), ("PMI_ID", "0")],
            &["nowhere.invalid"],
        ),
        (
            &[("HYDRANT_BOOTSTRAP", "pmix")],
            &["PMIX_NAMESPACE", "mpirun"],
        ),
    ];
    for (variables, pieces) in unusable {
        let output = run(&["greet"], variables);
        assert_says(&output, 1, &[&["cannot join the job"], pieces].concat());
        assert!(output.stdout.is_empty(), "{variables:?} made a job of one");
    }
}

fn too_much_memory() {
    // Address space for more than any machine has; asked for 32 TiB of it.
    let output = run(&["greedy"], &[("HYDRANT_HEAP", "40 TiB")]);
    assert_says(&output, 1, &["no memory for 32 TiB", "rank 0", "available"]);
    // More than the heap.
    let output = run(&["greedy"], &[("HYDRANT_HEAP", "64 MiB")]);
    assert_says(&output, 1, &["64 MiB are available", "raise HYDRANT_HEAP"]);
}

fn failing_programs() {
    for (how, status, says) in [
        ("abort", 7, "status 7"),
        ("error", 1, "the program's own failure"),
        ("panic", 101, "the program's own panic"),
        ("exit", 9, "rank 1 is lost"),
        (
            "exit",
            9,
            "rank 1 ended with status 9; it was the first to fail",
        ),
        ("leave", 1, "rank 1 is lost"),
        (
            "leave",
            1,
            "rank 1 ended with status 0 before it had left the job",
        ),
    ] {
        let ended = output(&mut launcher::command(3, &["fail", how]), &[]);
        assert_says(&ended, status, &[says]);
        if ["exit", "leave"].contains(&how) {
            let text = String::from_utf8_lossy(&ended.stderr);
            let blamed = |rank: u32| {
                let lost = format!("rank {rank} is lost");
                let first = format!("rank {rank} ended with status 1; it was the first");
                text.contains(&lost) || text.contains(&first)
            };
            assert!(!blamed(0) && !blamed(2), "{text}");
        }
    }
}

/// Runs a role of `binary` as the last words of a command.
fn run_under(words: &[&str], binary: &str, role: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args([binary, "--role", role]);
    output(command.current_dir("/"), variables)
}

fn limits() {
    let binary = roles::role(&[])[0].clone();
    let output = run_under(&["prlimit", "--as=300000000"], &binary, "greet", &[]);
    let limit = "the address space of this process is limited to 286 MiB (300000000 bytes)";
    assert_says(&output, 1, &["mapping", limit, "ulimit -v"]);
    let pinned = [("HYDRANT_CONDUIT", "smp+pin")];
    let output = run_under(&["prlimit", "--data=30000000"], &binary, "greet", &pinned);
    let limit = "the private memory of this process is limited to 28.6 MiB (30000000 bytes)";
    assert_says(&output, 1, &["mapping", limit, "ulimit -d"]);
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root becomes a user that has no processes yet");
        return;
    }
    // The folder of the binary is not every user's.
    let copy = env::temp_dir().join(format!("hydrant-rank-{}", std::process::id()));
    fs::copy(&binary, &copy).expect("a copy");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("the copy");
    let user = ["setpriv", "--reuid", "54322", "--clear-groups"];
    let start = |limit: &str, role, variables: &[_]| {
        let words = [&user[..], &["prlimit", limit]].concat();
        run_under(&words, copy.to_str().expect("UTF-8"), role, variables)
    };
    let output = start("--nproc=1", "greet", &[]);
    let limit = "the 1 processes and threads of the user (ulimit -u)";
    assert_says(&output, 1, &["thread", limit]);
    if hydrant_pin::probe().is_ok() {
        // The defaults fit the memory that may be locked. If none fits, the error names that limit.
        let pinned = [("HYDRANT_CONDUIT", "smp+pin")];
        assert_says(&start("--memlock=65536", "greet", &pinned), 0, &[]);
        let output = start("--memlock=65536", "greet_in_threads", &pinned);
        assert_says(&output, 1, &["4 ranks need", "ulimit -l"]);
    }
    // Two of the four would wait for the others.
    let output = start("--nproc=3", "greet_in_threads", &[]);
    fs::remove_file(&copy).expect("the copy");
    let limit = "the 3 processes and threads of the user (ulimit -u)";
    assert_says(&output, 1, &["threads of the ranks", limit]);
}

/// The limit on file sizes bounds no memory. A process that may not raise it gets an error.
fn file_size() {
    let limited = |words: &[&str], role: &str| {
        let binary = roles::role(&[])[0].clone();
        let words = [words, &["sh", "-c", "ulimit -f 1000; exec \"$@\"", "sh"]].concat();
        run_under(&words, &binary, role, &[("HYDRANT_CONDUIT", "smp")])
    };
    let soft = ["prlimit", "--fsize=1000000:unlimited"];
    let binary = roles::role(&[])[0].clone();
    let output = run_under(&soft, &binary, "greet_in_threads", &[]);
    assert_says(&output, 0, &[]);
    let limit = "more than a file may have here: ";
    let raises = Command::new("sh")
        .args(["-c", "ulimit -f 1000; ulimit -f 2000"])
        .output();
    if raises.is_ok_and(|output| output.status.success()) {
        assert_says(&limited(&["env"], "greet"), 0, &[]);
        let words = [
            "setpriv",
            "--bounding-set=-sys_resource",
            "--inh-caps=-sys_resource",
        ];
        assert_says(&limited(&words, "greet"), 1, &[limit, "ulimit -f"]);
    } else {
        assert_says(&limited(&["env"], "greet"), 1, &[limit, "ulimit -f"]);
    }
}

/// The error tells ranks of one kernel why no shared memory joins them, and not that one ended.
fn namespaces() {
    let has_rdma = hydrant::settings::rdma_ports(&hydrant::Settings::new()).is_ok();
    let network = "ranks 0 and 1 are in different network namespaces of one kernel";
    let processes = "ranks 0 and 1 are in different PID namespaces of one kernel";
    let pretended = [("HYDRANT_INTER_NODE", "smp+pin")];
    let one = [("HYDRANT_HOST_ID", "one")];
    // The options of `unshare`, the settings, and the parts of the error.
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a [&'a str]);
    let rdma = [("HYDRANT_INTER_NODE", "verbs")];
    let cases: [Case<'_>; 7] = [
        (&["--net"], &[("HYDRANT_CONDUIT", "smp")], &[network]),
        (
            &["--pid", "--fork"],
            &[("HYDRANT_CONDUIT", "smp+pin")],
            &[processes],
        ),
        (&["--net"], &one, &[network]),
        (
            &["--net"],
            &pretended,
            &["only pretended", "rank 0 on", "rank 1 on"],
        ),
        (
            &["--net"],
            &rdma,
            &["RDMA", "rank 0 on", "rank 1 on", "network namespace"],
        ),
        (
            &["--pid", "--fork"],
            &rdma,
            &["RDMA", "rank 0 on", "rank 1 on"],
        ),
        // Nothing leads from one network namespace to the other.
        (
            &["--net"],
            &[],
            &["RDMA", "libfabric", "rank 0 on", "rank 1 on"],
        ),
    ];
    for (options, variables, pieces) in cases {
        let may = Command::new("unshare").args(options).arg("true").output();
        if !may.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: this user may not make namespaces with {options:?}");
            continue;
        }
        if has_rdma && pieces.contains(&"RDMA") {
            eprintln!("skipped: there is RDMA between the ranks");
            continue;
        }
        let role = [&["apart"], options].concat();
        let ended = output(&mut launcher::command(2, &role), variables);
        assert_says(&ended, 1, pieces);
        let text = String::from_utf8_lossy(&ended.stderr);
        assert!(
            !text.contains("is lost"),
            "{options:?} {variables:?}: {text}"
        );
    }
    // The network of one host joins ranks of two PID namespaces, if libfabric is there.
    let has_libfabric = hydrant::settings::fabric_endpoints(&hydrant::Settings::new()).is_ok();
    let pids = ["--pid", "--fork"];
    let may = Command::new("unshare").args(pids).arg("true").output();
    if has_libfabric && !has_rdma && may.is_ok_and(|output| output.status.success()) {
        let role = [&["apart"], &pids[..]].concat();
        let ended = output(&mut launcher::command(2, &role), &[]);
        assert_says(&ended, 0, &[]);
    } else {
        eprintln!("skipped: libfabric between PID namespaces");
    }
}

fn control_group() {
    let group = format!("/sys/fs/cgroup/memory/hydrant-test-{}", std::process::id());
    let limit = format!("{group}/memory.limit_in_bytes");
    if fs::create_dir(&group).is_err() || fs::write(limit, "100M").is_err() {
        let _ = fs::remove_dir(&group);
        eprintln!("skipped: this user may not make a control group (version 1) for memory");
        return;
    }
    let enter = format!("echo $$ >{group}/cgroup.procs; exec \"$@\"");
    let binary = roles::role(&[])[0].clone();
    let variables = [("HYDRANT_HEAP", "1G"), ("HYDRANT_CONDUIT", "smp")];
    let words = ["sh", "-c", &enter, "sh"];
    let output = run_under(&words, &binary, "take", &variables);
    let removed = fs::remove_dir(&group);
    // Refused before the kernel kills for it.
    assert_says(&output, 1, &["256 MiB"]);
    removed.expect("nobody is in it");
}

fn abort_alone() {
    assert_says(&run(&["abort"], &[]), 1, &[]);
}
