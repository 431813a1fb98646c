//! `hydrant top` beside jobs whose registrations are known to the byte.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt,
        unix::{
            net::{SocketAddr, UnixStream},
            process::{CommandExt, ExitStatusExt},
        },
    },
    process::{Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

use hydrant::{Job, Rank, Result, top};
use hydrant_testing::{
    HANG, roles,
    running::{self, Running, say, until},
};
use rustix::{
    fs::{Mode, OFlags, fcntl_setfl, open},
    process::{Pid, Signal, geteuid, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, tcgetattr},
};
use serde_json::Value;

const PAGE: u64 = 4096;
/// The words of a page.
const WORDS: usize = 512;
/// The pages of rank 0 that rank 1 holds firehoses on.
const HELD: usize = 64;
/// The own pages of rank 1 that it puts from, so that they are victims afterwards.
const VICTIMS: usize = 8;
const M: u64 = 4 << 20;
const MAXVICTIM: u64 = 1 << 20;
/// The most memory that each rank registers for good, to copy through: a quarter of MAXVICTIM. The
/// measured costs decide how many of its pages are of use.
const PERMANENT: u64 = MAXVICTIM / 4;

fn main() -> ExitCode {
    let tests = vec![
        roles::test("the_counts_are_those_of_the_job_and_of_the_kernel", counts),
        roles::test("ranks_that_stop_or_are_killed_are_shown_so", ends),
        roles::test("openmetrics_text_is_well_formed_and_served", metrics),
        roles::test("other_users_get_nothing", other_users),
        roles::test("a_job_that_does_not_allow_it_has_no_socket", off),
        roles::test("tables_have_the_counts_and_fit", tables),
        roles::test("a_signal_gives_the_terminal_back", signals),
    ];
    let play = |role: &str, arguments: &[String]| match role {
        "rank" => Some(rank()),
        "stranger" => Some(stranger(&arguments[0])),
        _ => None,
    };
    roles::main(play, tests)
}

/// A rank whose memory is registered as the tests expect, until its process is ended.
fn rank() -> ExitCode {
    match hydrant::run(register_and_wait) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn register_and_wait(job: &Job) -> Result<()> {
    let target = job.alloc::<u64>(HELD * WORDS)?;
    let source = job.alloc::<u64>(VICTIMS * WORDS)?;
    let source = job.exclusive(source).map_err(|refused| refused.cause)?;
    let put = |page: usize| {
        let from = (page % VICTIMS) * WORDS;
        target.put(Rank(0), page * WORDS, &source[from..from + WORDS])
    };
    if job.rank().0 == 1 {
        (0..HELD).try_for_each(put)?;
    }
    job.barrier()?;
    say(&format!("ready {} {}", job.rank(), std::process::id()));
    loop {
        thread::sleep(Duration::from_millis(10));
        if job.rank().0 == 1 {
            put(0)?;
        }
    }
}

/// A process of another user, which connects to a rank and reads.
fn stranger(name: &str) -> ExitCode {
    let name = SocketAddr::from_abstract_name(name).expect("a name");
    let mut got = Vec::new();
    let read = UnixStream::connect_addr(&name).map(|mut rank| rank.read_to_end(&mut got));
    say(&format!("got {} {}", got.len(), read.is_ok()));
    ExitCode::SUCCESS
}

/// A running job.
struct WatchedJob {
    launcher: Running,
    /// The processes of the ranks.
    pids: Vec<u32>,
}

impl WatchedJob {
    fn start(ranks: u32, is_on: bool) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hydrant"));
        command
            .args(["run", "-n", &ranks.to_string(), "--prefix", "none"])
            .args(["--grace", "60", "--conduit", "smp+pin"])
            .args(["--registration", "firehose"])
            .envs([("HYDRANT_M", M), ("HYDRANT_MAXVICTIM", MAXVICTIM)].map(text))
            .envs([("HYDRANT_WIDEN", "off"), ("HYDRANT_MONITOR", "off")])
            .env("HYDRANT_BUCKET", "4K")
            .env_remove("HYDRANT_TOP")
            .args(roles::role(&["rank"]));
        if is_on {
            command.env("HYDRANT_TOP", "on");
        }
        let mut launcher = Running::start(command);
        let ready = launcher.expect("ready", ranks as usize);
        let number = |word: &String| word.parse::<u32>().expect("a number");
        let by_rank: BTreeMap<u32, u32> = (ready.iter())
            .map(|words| (number(&words[0]), number(&words[1])))
            .collect();
        Self {
            launcher,
            pids: by_rank.into_values().collect(),
        }
    }

    fn signal(&self, rank: usize, signal: Signal) {
        let pid = Pid::from_raw(self.pids[rank] as i32).expect("a process");
        kill_process(pid, signal).expect("it is there");
    }

    /// A command that looks at this job.
    fn top(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hydrant"));
        let pid = self.pids[0].to_string();
        command.args(["top", "--pid", &pid]).args(arguments);
        command
    }

    /// The output of a command that looks once. On a busy machine a rank may not answer in time, so it looks again.
    fn look(&self, arguments: &[&str]) -> String {
        let since = Instant::now();
        loop {
            let output = running::run(&mut self.top(&[&["--once"], arguments].concat()));
            if output.status.success() {
                return String::from_utf8(output.stdout).expect("text");
            }
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(since.elapsed() < HANG, "{error}");
        }
    }

    fn json(&self) -> Value {
        let text = self.look(&["--format", "json"]);
        assert_eq!(text.lines().count(), 1, "one object a line");
        serde_json::from_str(&text).expect("valid JSON")
    }
}

impl Drop for WatchedJob {
    fn drop(&mut self) {
        // The ranks end with their launcher.
        self.launcher.kill();
    }
}

/// A command that looks again and again, until this is dropped.
struct RunningTop(Running);

impl RunningTop {
    fn start(command: Command) -> Self {
        Self(Running::start(command))
    }

    /// The next look that satisfies a condition.
    fn look(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let since = Instant::now();
        loop {
            let line = self.0.expect_line();
            let look: Value = serde_json::from_str(&line).expect("valid JSON");
            if wanted(&look) {
                return look;
            }
            assert!(since.elapsed() < HANG, "it never comes; the last: {look}");
        }
    }
}

impl Drop for RunningTop {
    fn drop(&mut self) {
        self.0.kill();
    }
}

fn text((name, bytes): (&str, u64)) -> (String, String) {
    (name.to_owned(), bytes.to_string())
}

/// The use of a rank's memory, by name.
fn uses(rank: &Value) -> BTreeMap<&str, u64> {
    let names = [
        "dead_bytes",
        "permanent_bytes",
        "peers_bytes",
        "in_use_bytes",
        "victim_bytes",
        "changing_bytes",
    ];
    let of = |name: &'static str| rank["memory"][name].as_u64().expect("bytes");
    names.map(|name| (name, of(name))).into_iter().collect()
}

fn counts() {
    let job = WatchedJob::start(3, true);
    let look = job.json();
    let ranks = look["ranks"].as_array().expect("ranks");
    assert_eq!(ranks.len(), 3);
    for (number, rank) in ranks.iter().enumerate() {
        assert_eq!(rank["rank"], number, "{rank}");
        assert_eq!(rank["ranks"], 3);
        assert_eq!(rank["state"], "running");
        assert_eq!(rank["pid"], job.pids[number]);
        assert_eq!(rank["conduit"], "smp+pin");
        assert_eq!(rank["job"], ranks[0]["job"]);
        let memory = &rank["memory"];
        assert_eq!(memory["m_bytes"], M);
        assert_eq!(memory["maxvictim_bytes"], MAXVICTIM);
        assert_eq!(memory["limit_bytes"], M + MAXVICTIM);
        assert_eq!(memory["bucket_bytes"], PAGE);
        let registered = memory["registered_bytes"].as_u64().expect("bytes");
        assert_eq!(uses(rank).values().sum::<u64>(), registered);
        assert_eq!(
            rank["process"]["pinned_bytes"], registered,
            "what the kernel has pinned, of rank {number}: {rank}"
        );
    }
    let of = |rank: usize| {
        let mut uses = uses(&ranks[rank]);
        let permanent = uses.remove("permanent_bytes").expect("it is listed");
        assert!((PAGE..=PERMANENT).contains(&permanent), "{permanent}");
        // Rank 1 uses a page now and then.
        let in_use = uses.remove("in_use_bytes").expect("it is listed");
        *uses.entry("victim_bytes").or_default() += in_use;
        uses
    };
    let (held, victims) = (HELD as u64 * PAGE, VICTIMS as u64 * PAGE);
    let expected = |peers, victims| {
        BTreeMap::from([
            ("dead_bytes", 0),
            ("peers_bytes", peers),
            ("victim_bytes", victims),
            ("changing_bytes", 0),
        ])
    };
    assert_eq!(of(0), expected(held, 0));
    assert_eq!(of(1), expected(0, victims));
    assert_eq!(of(2), expected(0, 0));
    let firehoses = |rank: usize| ranks[rank]["memory"]["firehoses"].clone();
    let of_peer = |peer: u32, here: u64, there: u64| serde_json::json!([{ "peer": peer, "held_here_bytes": here, "held_there_bytes": there }]);
    assert_eq!(firehoses(0), of_peer(1, held, 0));
    assert_eq!(firehoses(1), of_peer(0, 0, held));
    assert_eq!(firehoses(2), serde_json::json!([]));
    let count = |name: &str| ranks[1]["counters"][name].as_u64().expect("a count");
    assert_eq!(count("misses"), HELD as u64);
    assert!(count("moves") > 0);
    // Rates need two looks.
    assert!(ranks[1]["rates"].is_null() && look["seconds"].is_null());
    let mut top = RunningTop::start(job.top(&["--format", "json", "--interval", "0.3"]));
    let second = top.look(|look| !look["seconds"].is_null());
    let rate = |name: &str| second["ranks"][1]["rates"][name].as_f64().expect("a rate");
    assert!(rate("hits") > 0.0, "{second}");
    assert_eq!(rate("misses"), 0.0);
    assert!(rate("puts") > 0.0, "{second}");
    assert!(second["ranks"][1]["rates"]["heap_bytes"].is_null());
}

fn ends() {
    let job = WatchedJob::start(3, true);
    let mut top = RunningTop::start(job.top(&["--format", "json", "--interval", "0.1"]));
    let is = |rank: usize, state: &'static str| {
        move |look: &Value| look["ranks"][rank]["state"] == state
    };
    let look = top.look(is(2, "running"));
    let registered = look["ranks"][2]["memory"]["registered_bytes"].clone();
    job.signal(2, Signal::STOP);
    let look = top.look(is(2, "stopped"));
    // The kernel's figures stay; the rank's own would be old.
    let stopped = &look["ranks"][2];
    let pinned = &stopped["process"]["pinned_bytes"];
    assert_eq!(*pinned, registered, "{stopped}");
    assert!(stopped["memory"].is_null() && stopped["rates"].is_null());
    assert_eq!(look["ranks"][1]["state"], "running", "others answer");
    job.signal(2, Signal::CONT);
    top.look(is(2, "running"));
    job.signal(2, Signal::KILL);
    let look = top.look(is(2, "ended"));
    assert!(look["ranks"][2]["process"].is_null());
    assert_eq!(look["ranks"][0]["state"], "running");
    // A look that never saw it shows the others.
    assert_eq!(job.json()["ranks"].as_array().map(Vec::len), Some(2));
    job.signal(0, Signal::KILL);
    job.signal(1, Signal::KILL);
    top.look(|look| look["ranks"].as_array().is_some_and(Vec::is_empty));
    let output = running::run(&mut job.top(&["--once"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("HYDRANT_TOP=on"), "{said}");
}

/// A sample of a family: its name without the suffix, its labels and its value.
type MetricSample = (String, BTreeMap<String, String>, f64);

/// Reads OpenMetrics text, and checks its form: the order of lines, names, units, suffixes and
/// labels.
fn samples(text: &str) -> Vec<MetricSample> {
    let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF");
    let mut seen = BTreeSet::new();
    let (mut family, mut kind) = (String::new(), String::new());
    let mut found = Vec::new();
    let is_name = |name: &str| {
        name.bytes()
            .all(|it| it.is_ascii_alphanumeric() || it == b'_')
            && name.starts_with(|it: char| it.is_ascii_alphabetic())
    };
    let mut unit_or_help = Vec::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let words: Vec<&str> = rest.splitn(3, ' ').collect();
            let [what, name, value] = words[..] else {
                panic!("{line}");
            };
            assert!(is_name(name), "{line}");
            if what == "TYPE" {
                assert!(seen.insert(name.to_owned()), "{name} comes twice");
                (family, kind) = (name.to_owned(), value.to_owned());
                unit_or_help.clear();
                assert!(["gauge", "counter", "info"].contains(&value), "{line}");
                continue;
            }
            assert_eq!(name, family, "{line}: lines of a family are together");
            assert!(!unit_or_help.contains(&what.to_owned()), "{line}: twice");
            unit_or_help.push(what.to_owned());
            match what {
                "UNIT" => assert!(name.ends_with(&format!("_{value}")), "{line}"),
                "HELP" => assert!(!value.is_empty(), "{line}"),
                _ => panic!("{line}"),
            }
            continue;
        }
        assert!(unit_or_help.contains(&"HELP".to_owned()), "{line}: no HELP");
        let (name, rest) = line.split_once('{').expect(line);
        let (labels, value) = rest.rsplit_once("} ").expect(line);
        let suffix = match kind.as_str() {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        assert_eq!(name, format!("{family}{suffix}"), "{line}");
        let labels: BTreeMap<String, String> = (labels.split("\","))
            .map(|label| {
                let (name, value) = label.split_once("=\"").expect(line);
                assert!(is_name(name), "{line}");
                (name.to_owned(), value.trim_end_matches('"').to_owned())
            })
            .collect();
        let key = format!("{name} {labels:?}");
        assert!(seen.insert(key), "{line}: a sample comes twice");
        let value: f64 = value.parse().expect(line);
        assert!(kind != "info" || value == 1.0, "{line}");
        found.push((family.clone(), labels, value));
    }
    assert!(!found.is_empty(), "{text}");
    found
}

fn metrics() {
    let job = WatchedJob::start(2, true);
    let value = |text: &str, name: &str, labels: &[(&str, &str)]| {
        let fits = |sample: &&MetricSample| {
            let of = |name: &str| sample.1.get(name).map(String::as_str);
            sample.0 == name && labels.iter().all(|(name, value)| of(name) == Some(*value))
        };
        let samples = samples(text);
        let found: Vec<f64> = samples.iter().filter(fits).map(|it| it.2).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?} in {text}");
        found[0]
    };
    let check = |text: &str| {
        let bytes = |name: &str, labels: &[(&str, &str)]| value(text, name, labels) as u64;
        let registered = "hydrant_registered_bytes";
        let held = HELD as u64 * PAGE;
        assert_eq!(bytes(registered, &[("rank", "0"), ("use", "peers")]), held);
        // Rank 1 uses a page now and then.
        let own = ["victim", "in_use"];
        let own = own.map(|it| bytes(registered, &[("rank", "1"), ("use", it)]));
        assert_eq!(own.iter().sum::<u64>(), VICTIMS as u64 * PAGE);
        let of = [("rank", "0"), ("peer", "1"), ("held", "here")];
        assert_eq!(bytes("hydrant_firehose_bytes", &of), held);
        let of = [("rank", "0"), ("limit", "m")];
        assert_eq!(bytes("hydrant_registered_limit_bytes", &of), M);
        let pinned = bytes("hydrant_process_pinned_bytes", &[("rank", "0")]);
        let permanent = bytes(registered, &[("rank", "0"), ("use", "permanent")]);
        assert_eq!(pinned, held + permanent);
        assert_eq!(bytes("hydrant_misses", &[("rank", "1")]), HELD as u64);
        assert_eq!(bytes("hydrant_up", &[("rank", "0")]), 1);
        let pid = job.pids[1].to_string();
        bytes(
            "hydrant_rank",
            &[("rank", "1"), ("pid", &pid), ("ranks", "2")],
        );
    };
    check(&job.look(&["--format", "openmetrics"]));
    let mut top = RunningTop::start(job.top(&["--listen", "127.0.0.1:0"]));
    let line = top.0.expect_line();
    let (_, address) = line.split_once("http://").expect("the address");
    let address = address.strip_suffix("/metrics").expect("the path");
    let request = |text: &[u8]| {
        let mut client = TcpStream::connect(address).expect("it listens");
        client.write_all(text).expect("it reads");
        let mut answer = String::new();
        let _ = client.read_to_string(&mut answer);
        answer
    };
    // Clients that say nothing, or nonsense, hinder nobody.
    let _silent: Vec<TcpStream> = (0..4)
        .map(|_| TcpStream::connect(address).expect("it listens"))
        .collect();
    assert!(request(b"\xff\xfe nonsense\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(request(b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    let answer = request(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let kind = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(head.contains(kind), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())));
    check(body);
    job.signal(1, Signal::STOP);
    let is_up = |rank: &str| {
        let answer = request(b"GET /metrics HTTP/1.1\r\n\r\n");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
        value(body, "hydrant_up", &[("rank", rank)]) == 1.0
    };
    // The process stops a moment after the signal.
    until(|| !is_up("1"));
    assert!(is_up("0"));
}

fn other_users() {
    if !geteuid().is_root() {
        eprintln!("left out: only root can be another user");
        return;
    }
    const NOBODY: u32 = 65534;
    let job = WatchedJob::start(1, true);
    let number = job.json()["ranks"][0]["job"].as_str().map(str::to_owned);
    let number = u64::from_str_radix(&number.expect("a job"), 16).expect("a number");
    let addresses = top::addresses().expect("a list");
    let address = addresses.iter().find(|it| it.job == number).expect("its");
    let role = roles::role(&["stranger", &address.to_string()]);
    let mut stranger = Command::new(&role[0]);
    stranger.args(&role[1..]);
    let read_by = |command: &mut Command| {
        let output = running::run(command);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        assert_eq!((&*words[0], &*words[2]), ("got", "true"), "{text}");
        words[1].parse::<usize>().expect("bytes")
    };
    assert!(read_by(&mut stranger) > 0, "the same user reads it");
    assert_eq!(read_by(stranger.uid(NOBODY).gid(NOBODY)), 0);
    // Nor does another user's command show the rank.
    let mut top = job.top(&["--once", "--format", "json"]);
    let output = running::run(top.uid(NOBODY).gid(NOBODY));
    assert_eq!(output.status.code(), Some(1));
    let look: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    assert_eq!(look["ranks"], serde_json::json!([]));
    assert_eq!(job.json()["ranks"].as_array().map(Vec::len), Some(1));
}

fn off() {
    let names = |job: &WatchedJob| -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", job.pids[0])).expect("tasks");
        let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm"));
        tasks.flatten().filter_map(|task| name(task).ok()).collect()
    };
    let is_there = |name: &String| name.starts_with("hydrant-top");
    let off = WatchedJob::start(1, false);
    assert!(!names(&off).iter().any(is_there), "{:?}", names(&off));
    let output = running::run(&mut off.top(&["--once"]));
    assert_eq!(output.status.code(), Some(1));
    let on = WatchedJob::start(1, true);
    until(|| names(&on).iter().any(is_there));
}

fn tables() {
    let job = WatchedJob::start(2, true);
    let text = job.look(&["--peers"]);
    let longest = text.lines().map(|line| line.chars().count()).max();
    assert!(longest.is_some_and(|it| it <= 120), "{text}");
    let pid = job.pids[0].to_string();
    let row = text
        .lines()
        .find(|line| line.contains(&pid))
        .expect("rank 0");
    let cells: Vec<&str> = row
        .split("  ")
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .collect();
    let memory = &job.json()["ranks"][0]["memory"];
    let kibibytes = |name: &str| {
        let bytes = memory[name].as_u64().expect("bytes");
        format!("{} KiB", bytes / 1024)
    };
    let all = memory["registered_bytes"].as_f64().expect("bytes");
    let share = format!("{:.1} %", 100.0 * all / (M + MAXVICTIM) as f64);
    let registered = kibibytes("registered_bytes");
    let permanent = kibibytes("permanent_bytes");
    let mut expected = vec!["0", &pid, &registered, &share, &registered, &permanent];
    expected.extend(["256 KiB", "0", "0", "0", "0"]);
    assert_eq!(cells, expected, "{text}");
    assert!(text.contains("firehoses"), "{text}");
    assert!(text.contains("5 MiB (M 4 MiB + MAXVICTIM 1 MiB)"), "{text}");
    // Another choice is answered with the jobs that there are.
    let number = job.json()["ranks"][0]["job"]
        .as_str()
        .expect("a number")
        .to_owned();
    for chosen in [&["--pid", "1"] as &[_], &["0000000000000000"]] {
        let mut other = Command::new(env!("CARGO_BIN_EXE_hydrant"));
        let output = running::run(other.args(["top", "--once"]).args(chosen));
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(&number), "{error}");
    }
}

/// Returns what a terminal shows, after its program has ended. Each read has a part.
fn all_shown(keyboard: &OwnedFd) -> Vec<u8> {
    fcntl_setfl(keyboard, OFlags::NONBLOCK).expect("a terminal");
    let (mut shown, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(len) = rustix::io::read(keyboard, &mut part[..]) {
        shown.extend_from_slice(&part[..len]);
    }
    shown
}

/// A terminal, whose shell goes on after the command has ended by a signal.
fn signals() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&keyboard)
            .and_then(|()| unlockpt(&keyboard))
            .expect("its other end");
        let name = ptsname(&keyboard, Vec::new()).expect("a name");
        let other_end = || {
            let name = name.to_str().expect("text");
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            open(name, flags, Mode::empty()).expect("the other end")
        };
        let terminal = other_end();
        let reads_lines = || {
            let modes = tcgetattr(&terminal).expect("a terminal").local_modes;
            modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
        };
        assert!(reads_lines());
        let mut top = Command::new(env!("CARGO_BIN_EXE_hydrant"));
        top.args(["top", "--interval", "0.1"]);
        let mut top = (top.stdin(other_end()).stdout(other_end()).spawn()).expect("it starts");
        until(|| !reads_lines());
        kill_process(Pid::from_child(&top), signal).expect("it is there");
        let ended = top.wait().expect("it ends");
        assert_eq!(ended.signal(), Some(signal.as_raw()), "{ended}");
        assert!(reads_lines(), "{signal:?}");
        let shown = all_shown(&keyboard);
        assert!(
            shown.ends_with(b"\x1b[?25h\x1b[?1049l"),
            "the other screen is left"
        );
    }
}
