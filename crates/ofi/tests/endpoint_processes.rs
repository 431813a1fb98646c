//! Endpoints without a job in several processes, which are killed, stopped, restarted and talked nonsense to.

#![allow(unsafe_code)] // sends signals

mod common;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use common::{Happened, MEMORY, Side, finish, join, met, options, poll_for, until};
use hydrant_conduit::{Conduit, Key, Posted, Rank, Remote};
use hydrant_ofi::{ConnectFailure, ListenOptions, PeerEvent, endpoints};
use hydrant_testing::{HANG, left_out, roles, two_hosts};

/// The time after which endpoints of these tests lose silent peers: where they are to be lost, and where not.
const PATIENCE: Duration = Duration::from_secs(2);
const LONG_PATIENCE: Duration = Duration::from_secs(15);
/// Set for processes with the long one.
const IS_PATIENT: &str = "HYDRANT_TEST_PATIENT";

fn patient(port: u16) -> ListenOptions {
    let mut options = ListenOptions { port, ..options() };
    let is_patient = std::env::var_os(IS_PATIENT).is_some();
    options.ofi.peer_timeout = Some(if is_patient { LONG_PATIENCE } else { PATIENCE });
    options
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(digits).collect()
}

/// A process with an endpoint: it does what lines of its input say.
fn endpoint(arguments: &[String]) -> ExitCode {
    let port = arguments[0].parse().expect("a port");
    let side = match Side::new(&patient(port)) {
        Ok(side) => side,
        Err(error) => {
            println!("failed {error}");
            return ExitCode::FAILURE;
        }
    };
    let Remote { key, offset } = side.lent;
    println!("ready {} {} {offset}", hex(&side.control.locator()), key.0);
    let (sender, commands) = mpsc::channel();
    thread::spawn(move || {
        for line in std::io::stdin().lines() {
            if !line.is_ok_and(|line| sender.send(line).is_ok()) {
                break;
            }
        }
    });
    let mut told = 0;
    let mut writing: Option<(Rank, Remote, Option<Posted>)> = None;
    loop {
        if !side.poll() {
            thread::sleep(Duration::from_micros(100));
        }
        let happened = side.happened();
        for it in &happened[told..] {
            println!("{it:?}");
        }
        if writing.is_none() {
            for it in &happened {
                if let Happened::Event(PeerEvent::Left { peer } | PeerEvent::Lost { peer, .. }) = it
                {
                    side.control.release(*peer);
                }
            }
            side.forget();
        }
        told = if writing.is_none() { 0 } else { happened.len() };
        if let Some((peer, there, posted)) = &mut writing {
            let ended = match posted.take() {
                Some(Posted::Pending(ticket)) => match side.outcome(ticket) {
                    Some(outcome) => outcome.is_err().then_some(()),
                    None => {
                        *posted = Some(Posted::Pending(ticket));
                        None
                    }
                },
                _ => match side.write(*peer, *there, 0, MEMORY) {
                    Ok(next) => {
                        *posted = Some(next);
                        None
                    }
                    Err(_) => Some(()),
                },
            };
            if ended.is_some() {
                println!("writing ended");
                writing = None;
            }
        }
        let Ok(line) = commands.try_recv() else {
            continue;
        };
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        match words[0] {
            "connect" => {
                let peer = side.connect(&unhex(words[1]));
                println!("connecting {}", peer.0);
            }
            "send" => {
                let sent = side.send(Rank(number(1) as u32), number(2));
                println!("sent {}", sent.is_ok_and(|sent| sent));
            }
            "write" => {
                let key = Key(number(2));
                let offset = number(3);
                side.memory.fill(0, MEMORY, 77).expect("in bounds");
                writing = Some((Rank(number(1) as u32), Remote { key, offset }, None));
            }
            "sum" => {
                let mut bytes = vec![0; MEMORY];
                side.memory.read(0, &mut bytes).expect("in bounds");
                let changed = bytes.iter().filter(|byte| **byte != 0).count();
                println!("changed {changed}");
            }
            _ => return ExitCode::SUCCESS,
        }
    }
}

/// A child process with an endpoint.
struct Process {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    locator: Vec<u8>,
    lent: Remote,
}

impl Process {
    fn start(port: u16) -> Self {
        Self::start_by(&[], port)
    }

    /// Starts the process on the other host.
    fn start_there() -> Self {
        Self::start_by(&two_hosts::THERE, 0)
    }

    fn start_by(before: &[&str], port: u16) -> Self {
        let before = before.iter().map(|word| (*word).to_owned());
        let words: Vec<String> = before
            .chain(roles::role(&["endpoint", &port.to_string()]))
            .collect();
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let (sender, lines) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().expect("its output"));
        thread::spawn(move || {
            for line in output.lines() {
                if !line.is_ok_and(|line| sender.send(line).is_ok()) {
                    break;
                }
            }
        });
        let input = child.stdin.take().expect("its input");
        let mut process = Self {
            child,
            input,
            lines,
            locator: Vec::new(),
            lent: Remote {
                key: Key(0),
                offset: 0,
            },
        };
        let ready = process.expect("ready", &[]);
        let words: Vec<&str> = ready.split(' ').collect();
        process.locator = unhex(words[1]);
        process.lent = Remote {
            key: Key(words[2].parse().expect("a key")),
            offset: words[3].parse().expect("an offset"),
        };
        process
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it reads");
    }

    /// Waits for a line with these words, while the sides poll.
    fn expect(&mut self, word: &str, sides: &[&Side]) -> String {
        let since = Instant::now();
        loop {
            for side in sides {
                side.poll();
            }
            match self.lines.recv_timeout(Duration::from_millis(1)) {
                Ok(line) if line.contains(word) => return line,
                Ok(line) => assert!(!line.starts_with("failed"), "{line}"),
                Err(mpsc::RecvTimeoutError::Disconnected) => panic!("the process ended"),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            assert!(since.elapsed() < HANG, "no `{word}` of the process");
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the call sends a signal to a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Stops the process, and waits until each of its threads stands still.
    fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let since = Instant::now();
        let stands_still = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("stat"));
            text.is_ok_and(|text| {
                text.rsplit(") ")
                    .next()
                    .is_some_and(|it| it.starts_with('T'))
            })
        };
        while !std::fs::read_dir(&tasks)
            .expect("threads")
            .flatten()
            .all(stands_still)
        {
            assert!(since.elapsed() < HANG, "the process does not stop");
        }
    }

    fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/statm", self.child.id());
        let text = std::fs::read_to_string(path).expect("it lives");
        let pages: u64 = text
            .split(' ')
            .nth(1)
            .expect("a field")
            .parse()
            .expect("pages");
        pages * 4
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects a side to a process, and returns the number of the process.
fn join_process(side: &Side, process: &Process) -> Rank {
    loop {
        side.forget();
        let there = side.connect(&process.locator);
        until(&[side], "an answer", || !side.events().is_empty());
        match side.events()[0] {
            PeerEvent::Met { peer, .. } => {
                assert_eq!(peer, there);
                return there;
            }
            // TCP is slow after a link was down.
            ref failed => println!("again after {failed:?}"),
        }
        side.control.release(there);
    }
}

fn lost(side: &Side, peer: Rank) -> bool {
    let is_lost =
        |event: &PeerEvent| matches!(event, PeerEvent::Lost { peer: of, .. } if *of == peer);
    side.events().iter().any(is_lost)
}

/// A process that writes all the time is killed. Nothing of it lands afterwards, and another process notices nothing.
fn a_killed_process_is_lost_to_its_peers_alone() {
    let side = Side::new(&patient(0)).expect("a provider");
    let mut other = Process::start(0);
    let survivor = join_process(&side, &other);
    for round in 0..4 {
        let mut process = Process::start(0);
        let there = join_process(&side, &process);
        process.expect("Met", &[&side]);
        let number = 1;
        let Remote { key, offset } = side.lent;
        process.tell(&format!("write {number} {} {offset}", key.0));
        until(&[&side], "the first write", || {
            let mut byte = [0];
            side.memory.read(MEMORY - 1, &mut byte).expect("in bounds");
            byte[0] == 77
        });
        poll_for(&[&side], Duration::from_millis(round * 3));
        let since = Instant::now();
        process.signal(libc::SIGKILL);
        until(&[&side], "the loss", || lost(&side, there));
        println!("told {:?} after SIGKILL", since.elapsed());
        side.memory.fill(0, MEMORY, 5).expect("in bounds");
        poll_for(&[&side], Duration::from_millis(50));
        let mut bytes = vec![0; MEMORY];
        side.memory.read(0, &mut bytes).expect("in bounds");
        assert!(bytes.iter().all(|byte| *byte == 5));
        side.memory.fill(0, MEMORY, 0).expect("in bounds");
        side.control.release(there);
        assert!(!lost(&side, survivor));
        assert!(side.send(survivor, round).expect("a peer"));
        other.expect("Message", &[&side]);
    }
}

/// A process is stopped for longer than peers wait, with a write to it under way. The write has failed by the time the
/// process continues, so it does not land then.
fn a_stopped_process_is_lost_and_old_writes_do_not_land() {
    let side = Side::new(&patient(0)).expect("a provider");
    let mut process = Process::start(0);
    let there = join_process(&side, &process);
    process.expect("Met", &[&side]);
    process.stop();
    // Sockets hold this much.
    side.memory.fill(0, MEMORY, 9).expect("in bounds");
    let posted: Vec<_> = (0..8)
        .map(|at| {
            side.write(there, process.lent, at * 4096, 4096)
                .expect("posted")
        })
        .collect();
    let since = Instant::now();
    until(&[&side], "the loss", || lost(&side, there));
    println!("told {:?} after SIGSTOP", since.elapsed());
    for posted in posted {
        assert!(finish(&[&side], &side, posted).is_err());
    }
    poll_for(&[&side], Duration::from_millis(300));
    process.signal(libc::SIGCONT);
    process.expect("Lost", &[&side]);
    process.tell("sum");
    assert_eq!(process.expect("changed", &[&side]), "changed 0");
    // Both go on with a new session.
    side.control.release(there);
    let again = join_process(&side, &process);
    assert_ne!(again, there);
    let posted = side.write(again, process.lent, 0, 4096).expect("posted");
    finish(&[&side], &side, posted).expect("written");
    process.tell("sum");
    assert_eq!(process.expect("changed", &[&side]), "changed 4096");
}

/// A process that is stopped for less than that loses nothing.
fn a_process_that_continues_soon_loses_nothing() {
    let mut options = patient(0);
    options.ofi.peer_timeout = Some(LONG_PATIENCE);
    let side = Side::new(&options).expect("a provider");
    let mut process = Process::start_by(&["env", &format!("{IS_PATIENT}=1")], 0);
    let there = join_process(&side, &process);
    process.expect("Met", &[&side]);
    process.stop();
    side.memory.fill(0, MEMORY, 9).expect("in bounds");
    let posted = side.write(there, process.lent, 0, MEMORY).expect("posted");
    assert!(side.send(there, 44).expect("a peer"));
    poll_for(&[&side], PATIENCE / 2);
    process.signal(libc::SIGCONT);
    finish(&[&side], &side, posted).expect("written");
    process.expect("44", &[&side]);
    process.tell("sum");
    assert_eq!(
        process.expect("changed", &[&side]),
        format!("changed {MEMORY}")
    );
    assert_eq!(side.events().len(), 1, "{:?}", side.events());
}

/// A process ends, and another takes its port, and so its locator.
fn a_process_returns_at_the_same_port() {
    let side = Side::new(&patient(0)).expect("a provider");
    let first = Process::start(0);
    let locator = first.locator.clone();
    let port = port_of(&locator);
    let mut there = join_process(&side, &first);
    let mut process = first;
    for round in 0..4 {
        process.signal(libc::SIGKILL);
        drop(process);
        process = Process::start(port);
        assert_eq!(process.locator, locator);
        let before = there;
        if round % 2 == 0 {
            // It comes back by itself, perhaps before its end was noticed.
            side.forget();
            process.tell(&format!("connect {}", hex(&side.control.locator())));
            there = met(&[&side], &side);
            process.expect("Met", &[&side]);
        } else {
            until(&[&side], "the loss", || lost(&side, before));
            there = join_process(&side, &process);
        }
        assert_ne!(there, before);
        until(&[&side], "the loss", || {
            round % 2 == 1 || lost(&side, before)
        });
        side.control.release(before);
        side.memory.fill(0, 100, 3).expect("in bounds");
        let posted = side.write(there, process.lent, 0, 100).expect("posted");
        finish(&[&side], &side, posted).expect("written");
        process.tell("sum");
        assert_eq!(process.expect("changed", &[&side]), "changed 100");
    }
}

/// Returns the port in a locator on loopback.
fn port_of(locator: &[u8]) -> u16 {
    // The name is the end: a `sockaddr_in`.
    let name = &locator[locator.len() - 16..];
    u16::from_be_bytes([name[2], name[3]])
}

/// Strangers talk nonsense to an endpoint, or nothing at all.
fn nonsense_hinders_nobody() {
    let mut process = Process::start(0);
    let side = Side::new(&patient(0)).expect("a provider");
    let there = join_process(&side, &process);
    process.expect("Met", &[&side]);
    let at = SocketAddr::from(([127, 0, 0, 1], port_of(&process.locator)));
    let mut strangers = Vec::new();
    for round in 0..60_u64 {
        let mut stranger = TcpStream::connect(at).expect("a port");
        let nonsense: Vec<u8> = (0..round * 7)
            .map(|at| (at * (round + 3)).wrapping_mul(0x9e37) as u8)
            .collect();
        let _ = stranger.write_all(&nonsense);
        strangers.push(stranger);
        assert!(side.send(there, round).expect("a peer"));
        process.expect("Message", &[&side]);
    }
    // Those with the wrong key and many attempts.
    let short = ListenOptions {
        connect_timeout: Duration::from_millis(300),
        ..patient(0)
    };
    let wrong = Side::new(&short).expect("a provider");
    for _ in 0..3 {
        wrong.forget();
        let number = (wrong.control)
            .connect(&process.locator, &[0; 16], b"hello")
            .expect("an address");
        until(&[&wrong, &side], "the failure", || {
            !wrong.events().is_empty()
        });
        assert!(matches!(
            wrong.events()[..],
            [PeerEvent::Failed {
                why: ConnectFailure::Unreachable(_),
                ..
            }]
        ));
        wrong.control.release(number);
    }
    assert!(side.send(there, 1000).expect("a peer"));
    process.expect("1000", &[&side]);
    assert_eq!(side.events().len(), 1);
    // Silent connections end.
    for stranger in &mut strangers[..1] {
        stranger.set_read_timeout(Some(HANG)).expect("a time");
        let _end_or_reset = stranger.read(&mut [0]);
    }
}

/// A process has hundreds of sessions, one after the other, and its memory stays.
fn many_sessions_leave_memory_flat() {
    let process = Process::start(0);
    let side = Side::new(&patient(0)).expect("a provider");
    let mut before = 0;
    for round in 0..400 {
        let there = join_process(&side, &process);
        side.control.disconnect(there);
        until(&[&side], "the end", || side.events().len() == 2);
        side.control.release(there);
        if round == 100 {
            before = process.resident_kib();
        }
    }
    let after = process.resident_kib();
    println!("{before} KiB after 100 sessions, {after} KiB after 400");
    assert!(after < before + 3072, "{before} KiB, then {after} KiB");
}

/// Losses leave memory flat, too, and the other endpoint is fine.
fn losses_leave_numbers_for_others() {
    let (one, two) = (
        Side::new(&patient(0)).expect("a provider"),
        Side::new(&patient(0)).expect("a provider"),
    );
    let both = [&one, &two];
    for _ in 0..80 {
        let [there, back] = join(&one, &two);
        one.control.abandon(there);
        until(&both, "the losses", || {
            lost(&one, there) && lost(&two, back)
        });
        one.control.release(there);
        two.control.release(back);
    }
    let [there, _] = join(&one, &two);
    assert!(there.0 < 75, "numbers are used again");
    assert!(one.conduit.size() > 1000);
}

/// The link between two hosts is down for less than peers wait, and nothing is lost.
fn a_link_returns() -> ExitCode {
    let side = Side::new(&patient(0)).expect("a provider");
    let mut process = Process::start_there();
    let there = join_process(&side, &process);
    process.expect("Met", &[&side]);
    for round in 0..3_u8 {
        side.memory.fill(0, MEMORY, round + 1).expect("in bounds");
        let mut posted = vec![side.write(there, process.lent, 0, MEMORY).expect("posted")];
        if round > 0 {
            two_hosts::switch_link("down");
            posted.push(side.read(there, process.lent, 0, MEMORY).expect("posted"));
            assert!(side.send(there, round.into()).expect("a peer"));
            poll_for(&[&side], PATIENCE / 2);
            two_hosts::switch_link("up");
        }
        for posted in posted {
            finish(&[&side], &side, posted).expect("done");
        }
        let mut bytes = vec![0; MEMORY];
        side.memory.read(0, &mut bytes).expect("in bounds");
        assert!(bytes.iter().all(|byte| *byte == round + 1));
        if round > 0 {
            process.expect("Message", &[&side]);
        }
    }
    process.tell("sum");
    assert_eq!(
        process.expect("changed", &[&side]),
        format!("changed {MEMORY}")
    );
    assert_eq!(side.events().len(), 1, "{:?}", side.events());
    ExitCode::SUCCESS
}

/// The link between two hosts stays down for longer. Both lose the session, a third process on this host loses nothing,
/// nothing lands when the link is back, and a new session begins then.
fn a_link_stays_down() -> ExitCode {
    let side = Side::new(&patient(0)).expect("a provider");
    let mut near = Process::start(0);
    let mut process = Process::start_there();
    let beside = join_process(&side, &near);
    let mut there = join_process(&side, &process);
    for round in 0..3 {
        process.expect("Met", &[&side]);
        two_hosts::switch_link("down");
        let posted: Vec<_> = (0..4)
            .map(|_| side.write(there, process.lent, 0, MEMORY).expect("posted"))
            .collect();
        let since = Instant::now();
        until(&[&side], "the loss", || lost(&side, there));
        println!("told {:?} after the link went down", since.elapsed());
        for posted in posted {
            assert!(finish(&[&side], &side, posted).is_err());
        }
        side.control.release(there);
        process.expect("Lost", &[&side]);
        two_hosts::switch_link("up");
        assert!(side.send(beside, round).expect("a peer"));
        near.expect("Message", &[&side]);
        poll_for(&[&side], Duration::from_millis(300));
        process.tell("sum");
        assert_eq!(process.expect("changed", &[&side]), "changed 0");
        let again = join_process(&side, &process);
        assert_ne!(again, there);
        there = again;
    }
    assert!(!lost(&side, beside));
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let plays = |role: &str, arguments: &[String]| match role {
        "endpoint" => Some(endpoint(arguments)),
        "a_link_returns" => Some(a_link_returns()),
        "a_link_stays_down" => Some(a_link_stays_down()),
        _ => None,
    };
    if std::env::args().nth(1).as_deref() != Some("--role")
        && let Err(why) = endpoints(&options().ofi)
    {
        left_out(why);
        return ExitCode::SUCCESS;
    }
    roles::main(
        plays,
        vec![
            roles::test(
                "a_killed_process_is_lost_to_its_peers_alone",
                a_killed_process_is_lost_to_its_peers_alone,
            ),
            roles::test(
                "a_stopped_process_is_lost_and_old_writes_do_not_land",
                a_stopped_process_is_lost_and_old_writes_do_not_land,
            ),
            roles::test(
                "a_process_that_continues_soon_loses_nothing",
                a_process_that_continues_soon_loses_nothing,
            ),
            roles::test(
                "a_process_returns_at_the_same_port",
                a_process_returns_at_the_same_port,
            ),
            roles::test("nonsense_hinders_nobody", nonsense_hinders_nobody),
            roles::test(
                "many_sessions_leave_memory_flat",
                many_sessions_leave_memory_flat,
            ),
            roles::test(
                "losses_leave_numbers_for_others",
                losses_leave_numbers_for_others,
            ),
            roles::test("a_link_returns", || {
                two_hosts::run("a_link_returns", &[(IS_PATIENT, "1")]);
            }),
            roles::test("a_link_stays_down", || {
                two_hosts::run("a_link_stays_down", &[]);
            }),
        ],
    )
}
