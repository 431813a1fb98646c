//! Endpoints in one process, and one that is killed.

#![allow(unsafe_code)] // lends and accesses memory

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use super::*;
use hydrant_conduit::Window;
use hydrant_testing::{HANG, left_out};

const KEY: [u8; 16] = [3; 16];
/// The role of the process that the test starts, and the address that it connects to.
const CHILD: &str = "HYDRANT_TEST_FABRIC_PEER";

/// Things that the layer above heard.
#[derive(Default)]
struct HeardByTest {
    events: Mutex<Vec<SessionEvent>>,
    messages: Mutex<Vec<(FabricSession, Vec<u8>)>>,
    /// Holds the thread that polls up, while a test has it.
    gate: Mutex<()>,
}

impl SessionSink for HeardByTest {
    fn admit(&self, introduction: &[u8]) -> std::result::Result<Vec<u8>, Vec<u8>> {
        Ok(introduction.to_vec())
    }

    fn event(&self, event: SessionEvent) {
        self.events.lock().push(event);
    }

    fn message(&self, from: FabricSession, bytes: &[u8]) {
        drop(self.gate.lock());
        self.messages.lock().push((from, bytes.to_vec()));
    }
}

struct Side {
    heard: Arc<HeardByTest>,
    peers: FabricPeers,
}

impl Side {
    /// Makes an endpoint on the loopback interface. `None` without libfabric.
    fn new(m: Option<u64>) -> Option<Self> {
        let heard = Arc::new(HeardByTest::default());
        let options = FabricOptions {
            interface: "lo".to_owned(),
            registered: m,
            peer_timeout: Duration::from_secs(2),
            recall_timeout: Duration::from_secs(10),
            ..FabricOptions::default()
        };
        match FabricPeers::listen(&options, KEY, Arc::clone(&heard) as _) {
            Ok(peers) => Some(Self { heard, peers }),
            Err(why) => {
                left_out(why);
                None
            }
        }
    }

    fn met(&self) -> FabricSession {
        wait_for("a session", || {
            self.heard
                .events
                .lock()
                .iter()
                .find_map(|event| match event {
                    SessionEvent::Met(session, ..) => Some(*session),
                    _ => None,
                })
        })
    }

    fn ended(&self, session: FabricSession) -> Option<SessionEvent> {
        let events = self.heard.events.lock();
        let is_end = |event: &&SessionEvent| match event {
            SessionEvent::Left(of) | SessionEvent::Lost(of, _) => *of == session,
            _ => false,
        };
        events.iter().find(is_end).cloned()
    }

    fn message(&self) -> Vec<u8> {
        wait_for("a message", || self.heard.messages.lock().pop()).1
    }

    /// Carries an operation out.
    fn run(
        &self,
        way: OperationWay,
        to: FabricSession,
        lent: LentName,
        at: u64,
        own: &Window,
    ) -> std::result::Result<(), PeerOperationFailure> {
        self.begin(way, to, lent, at, own)
            .recv_timeout(HANG)
            .expect("an end")
    }

    fn begin(
        &self,
        way: OperationWay,
        to: FabricSession,
        lent: LentName,
        at: u64,
        own: &Window,
    ) -> mpsc::Receiver<std::result::Result<(), PeerOperationFailure>> {
        let (sender, end) = mpsc::channel();
        let finish: Finish = Box::new(move |outcome| {
            let _ = sender.send(outcome.map_err(|error| error.why));
        });
        let access = PeerAccess {
            way,
            session: to,
            lent,
            group: at,
        };
        let run = AccessRun {
            local: own.as_ptr().expose_provenance(),
            offset: at,
            len: own.len() as u64,
        };
        // SAFETY: tests keep the window until the end.
        if let Err(finish) = unsafe { self.peers.begin(access, [run].into_iter(), finish) } {
            finish(Err(PeerOperationFailure::Lost.untouched()));
        }
        end
    }

    /// Sends a message of the room, as no honest room would.
    fn lie(&self, to: FabricSession, message: wire::EndpointMessage<'_>) {
        let room = &self.peers.room;
        let mut state = room.state.lock();
        if let Ok(rank) = state.open(to) {
            state.outbox.tell(rank, message);
            room.flush(&mut state);
        }
    }

    fn lend(&self, to: FabricSession, memory: &Window, write: bool) -> LentName {
        self.lend_until(to, memory, write, None)
    }

    fn lend_until(
        &self,
        to: FabricSession,
        memory: &Window,
        write: bool,
        until: Option<Instant>,
    ) -> LentName {
        let terms = LentTerms {
            addr: memory.as_ptr().expose_provenance(),
            len: memory.len(),
            read: true,
            write,
            until,
        };
        // SAFETY: tests keep the window until it is taken back, or the endpoint dropped.
        unsafe { self.peers.lend(to, terms) }.expect("a session")
    }

    fn unlend(&self, name: LentName) {
        self.peers.end_lend(name);
        assert!(self.peers.wait_unused(name, || true));
        self.peers.free_lent(name);
    }
}

fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(since.elapsed() < HANG, "{what} does not come");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Makes two endpoints with a session.
fn pair(m: Option<u64>) -> Option<(Side, Side, FabricSession, FabricSession)> {
    let (one, two) = (Side::new(m)?, Side::new(m)?);
    let asked = one.peers.connect(&two.peers.locator(), &KEY, b"it is me");
    let there = asked.expect("an address");
    assert_eq!(one.met(), there);
    let back = two.met();
    Some((one, two, there, back))
}

fn filled(len: usize, seed: usize) -> Window {
    let window = Window::private(len);
    let bytes: Vec<u8> = (0..len).map(|at| (at / 7 + seed) as u8).collect();
    window.write(0, &bytes).expect("in bounds");
    window
}

fn bytes_of(window: &Window) -> Vec<u8> {
    let mut bytes = vec![0; window.len()];
    window.read(0, &mut bytes).expect("in bounds");
    bytes
}

#[test]
fn data_and_then_a_message_arrive() {
    let Some((one, two, there, back)) = pair(None) else {
        return;
    };
    let memory = Window::private(3 * wire::CHUNK as usize + 17);
    let lent = two.lend(back, &memory, true);
    for (round, at) in [0, 1, wire::CHUNK - 3, wire::CHUNK + 5]
        .into_iter()
        .enumerate()
    {
        let own = filled(wire::CHUNK as usize + 100, round);
        one.run(OperationWay::Write, there, lent, at, &own)
            .expect("written");
        one.peers.send(there, b"look").expect("a peer");
        assert_eq!(two.message(), b"look");
        let at = at as usize;
        assert!(bytes_of(&memory)[at..at + own.len()] == bytes_of(&own));
        let read = Window::private(own.len());
        one.run(OperationWay::Read, there, lent, at as u64, &read)
            .expect("read");
        assert!(bytes_of(&read) == bytes_of(&own));
    }
    two.peers.send(back, b"thanks").expect("a peer");
    assert_eq!(one.message(), b"thanks");
    one.peers.disconnect(there);
    wait_for("the end", || two.ended(back));
    two.unlend(lent);
}

#[test]
fn accesses_outside_what_is_lent_fail() {
    let Some((one, two, there, back)) = pair(None) else {
        return;
    };
    let memory = filled(10_000, 1);
    let lent = two.lend(back, &memory, false);
    let own = Window::private(100);
    let run = |way, name, at| one.run(way, there, name, at, &own);
    run(OperationWay::Read, lent, 9900).expect("inside");
    for (way, name, at) in [
        (OperationWay::Read, lent, 9901),
        (OperationWay::Read, lent, wire::CHUNK),
        (OperationWay::Read, lent, u64::MAX - 10),
    ] {
        let end = run(way, name, at);
        assert!(
            matches!(end, Err(PeerOperationFailure::OutOfBounds)),
            "{end:?}"
        );
    }
    let end = run(OperationWay::Write, lent, 0);
    assert!(
        matches!(end, Err(PeerOperationFailure::NoRights)),
        "{end:?}"
    );
    let end = run(OperationWay::Read, LentName(99), 0);
    assert!(matches!(end, Err(PeerOperationFailure::Revoked)), "{end:?}");
    assert!(bytes_of(&memory) == bytes_of(&filled(10_000, 1)));
    two.unlend(lent);
    let end = run(OperationWay::Read, lent, 0);
    assert!(matches!(end, Err(PeerOperationFailure::Revoked)), "{end:?}");
}

#[test]
fn nothing_lands_after_memory_was_taken_back() {
    let Some((one, two, there, back)) = pair(None) else {
        return;
    };
    for round in 0..5 {
        let memory = Window::private(2 * wire::CHUNK as usize);
        let lent = two.lend(back, &memory, true);
        let own = filled(memory.len(), round);
        let ends: Vec<_> = (0..8)
            .map(|_| one.begin(OperationWay::Write, there, lent, 0, &own))
            .collect();
        thread::sleep(Duration::from_millis(round as u64 * 2));
        two.unlend(lent);
        memory.fill(0, memory.len(), 9).expect("in bounds");
        for end in ends {
            let end = end.recv_timeout(HANG).expect("an end");
            assert!(
                matches!(end, Ok(()) | Err(PeerOperationFailure::Revoked)),
                "{end:?}"
            );
        }
        thread::sleep(Duration::from_millis(20));
        assert!(bytes_of(&memory).iter().all(|byte| *byte == 9));
    }
}

#[test]
fn registered_memory_stays_within_its_limit() {
    let most = 2 * wire::CHUNK;
    let Some((one, two, there, back)) = pair(Some(most)) else {
        return;
    };
    let memory = Window::private(9 * wire::CHUNK as usize);
    let lent = two.lend(back, &memory, true);
    let own = filled(memory.len(), 5);
    let end = one.begin(OperationWay::Write, there, lent, 0, &own);
    let outcome = wait_for("the end", || {
        assert!(two.peers.room.state.lock().lender.registered() <= most);
        end.try_recv().ok()
    });
    outcome.expect("written");
    assert!(bytes_of(&memory) == bytes_of(&own));
    two.unlend(lent);
    assert_eq!(two.peers.room.state.lock().lender.registered(), 0);
}

#[test]
fn a_given_up_session_ends_its_operations() {
    let Some((one, two, there, back)) = pair(None) else {
        return;
    };
    let memory = Window::private(2 * wire::CHUNK as usize);
    let lent = two.lend(back, &memory, true);
    let own = filled(memory.len(), 5);
    let ends: Vec<_> = (0..20)
        .map(|_| one.begin(OperationWay::Write, there, lent, 0, &own))
        .collect();
    one.peers.abandon(there);
    wait_for("the loss", || one.ended(there));
    for end in ends {
        let _either = end.recv_timeout(HANG).expect("an end");
    }
    assert!(one.peers.send(there, b"more").is_err());
    wait_for("the loss there", || two.ended(back));
    two.unlend(lent);
    // Another session begins, with another number.
    one.heard.events.lock().clear();
    let asked = one.peers.connect(&two.peers.locator(), &KEY, b"again");
    let again = asked.expect("an address");
    assert_eq!(one.met(), again);
    assert_ne!(again, there);
}

/// The process that the next test starts: it connects, writes all the time, and is killed.
#[test]
fn another_process() {
    let Ok(text) = std::env::var(CHILD) else {
        return;
    };
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    let locator: Vec<u8> = (0..text.len()).step_by(2).map(digits).collect();
    let side = Side::new(None).expect("libfabric");
    let there = side
        .peers
        .connect(&locator, &KEY, b"a child")
        .expect("an address");
    side.met();
    let name = side.message();
    let lent = LentName(u64::from_le_bytes(name[..].try_into().expect("a number")));
    let own = filled(2 * wire::CHUNK as usize, 7);
    loop {
        if side.run(OperationWay::Write, there, lent, 0, &own).is_err() {
            return;
        }
        println!("\nwritten");
    }
}

#[test]
fn memory_comes_back_from_a_killed_process() {
    let Some(side) = Side::new(None) else {
        return;
    };
    let memory = Window::private(2 * wire::CHUNK as usize);
    for round in 0..2 {
        let locator: String = (side.peers.locator().iter())
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "peers::tests::another_process", "--nocapture"])
            .env(CHILD, locator)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let session = side.met();
        let lent = side.lend(session, &memory, true);
        let told = side.peers.send(session, &lent.0.to_le_bytes());
        told.expect("a session");
        // The child may write until it is killed.
        let mut output = BufReader::new(child.stdout.take().expect("its output")).lines();
        let lines = output.by_ref().map_while(std::result::Result::ok);
        let written = lines.filter(|line| line.contains("written")).take(2);
        assert_eq!(written.count(), 2);
        let signal = if round == 0 { "-KILL" } else { "-STOP" };
        let id = child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("it runs").success());
        let since = Instant::now();
        side.unlend(lent);
        println!("back {:?} after {signal}", since.elapsed());
        memory.fill(0, memory.len(), 9).expect("in bounds");
        thread::sleep(Duration::from_millis(50));
        assert!(bytes_of(&memory).iter().all(|byte| *byte == 9));
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        side.heard.events.lock().clear();
    }
}

#[test]
fn memory_is_lent_to_one_session_and_for_a_time() {
    let Some((one, two, there, back)) = pair(None) else {
        return;
    };
    let Some(third) = Side::new(None) else {
        return;
    };
    let memory = Window::private(100);
    let lent = two.lend(back, &memory, true);
    // A peer that guesses the name of what another was lent.
    two.heard.events.lock().clear();
    let asked = (third.peers).connect(&two.peers.locator(), &KEY, b"a third");
    let other = asked.expect("an address");
    assert_eq!(third.met(), other);
    let own = filled(100, 3);
    let end = third.run(OperationWay::Write, other, lent, 0, &own);
    assert!(matches!(end, Err(PeerOperationFailure::Revoked)), "{end:?}");
    assert!(bytes_of(&memory).iter().all(|byte| *byte == 0));
    // The time passes while the peer holds a grant.
    let until = Instant::now() + Duration::from_millis(300);
    let short = two.lend_until(back, &memory, true, Some(until));
    one.run(OperationWay::Write, there, short, 0, &own)
        .expect("in time");
    while Instant::now() < until {
        thread::sleep(Duration::from_millis(10));
    }
    wait_for("the end of the time", || {
        let end = one.run(OperationWay::Write, there, short, 0, &own);
        assert!(
            matches!(end, Ok(()) | Err(PeerOperationFailure::Expired)),
            "{end:?}"
        );
        end.is_err().then_some(())
    });
    two.unlend(short);
    two.unlend(lent);
}

#[test]
fn tables_are_empty_once_memory_was_taken_back() {
    let Some((one, two, there, back)) = pair(Some(wire::CHUNK)) else {
        return;
    };
    let memory = Window::private(2 * wire::CHUNK as usize);
    let own = filled(memory.len(), 5);
    for round in 0..20 {
        let until = (round % 2 == 0).then(|| Instant::now() + HANG);
        let lent = two.lend_until(back, &memory, true, until);
        one.run(OperationWay::Write, there, lent, 0, &own)
            .expect("written");
        two.unlend(lent);
    }
    assert_eq!(two.peers.room.state.lock().lender.entries(), [0; 7]);
    assert_eq!(one.peers.room.state.lock().grants.len(), 0);
}

#[test]
fn memory_that_is_only_written_is_not_read() {
    let Some((one, two, there, back)) = pair(None) else {
        return;
    };
    let memory = Window::private(100);
    let terms = LentTerms {
        addr: memory.as_ptr().expose_provenance(),
        len: memory.len(),
        read: false,
        write: true,
        until: None,
    };
    // SAFETY: the window is kept until the memory is taken back.
    let lent = unsafe { two.peers.lend(back, terms) }.expect("a session");
    let (own, into) = (filled(100, 1), Window::private(100));
    // The write waits for the grant that the read asked for.
    let gate = one.heard.gate.lock();
    two.peers.send(back, b"stay").expect("a session");
    let read = one.begin(OperationWay::Read, there, lent, 0, &into);
    let write = one.begin(OperationWay::Write, there, lent, 0, &own);
    drop(gate);
    let end = read.recv_timeout(HANG).expect("an end");
    assert!(
        matches!(end, Err(PeerOperationFailure::NoRights)),
        "{end:?}"
    );
    write.recv_timeout(HANG).expect("an end").expect("written");
    assert!(bytes_of(&memory) == bytes_of(&own) && bytes_of(&into) == [0; 100]);
    two.unlend(lent);
}

#[test]
fn memory_that_waits_for_room_is_taken_back_at_once() {
    let Some((one, two, there, back)) = pair(Some(wire::CHUNK)) else {
        return;
    };
    let Some(third) = Side::new(None) else {
        return;
    };
    two.heard.events.lock().clear();
    let asked = (third.peers).connect(&two.peers.locator(), &KEY, b"a third");
    let other = asked.expect("an address");
    let its = two.met();
    let (memory, wanted) = (Window::private(100), Window::private(100));
    let own = filled(100, 3);
    let (held, lent) = (two.lend(back, &memory, true), two.lend(its, &wanted, true));
    one.run(OperationWay::Write, there, held, 0, &own)
        .expect("written");
    // The holder does not return its grant for a while. All room is for a chunk of it.
    let gate = one.heard.gate.lock();
    two.peers.send(back, b"stay").expect("a session");
    let full = two.lend(its, &Window::private(wire::CHUNK as usize), true);
    let first = third.begin(OperationWay::Write, other, full, 0, &own);
    let second = third.begin(OperationWay::Write, other, lent, 0, &own);
    wait_for("the question", || {
        (two.peers.room.state.lock().lender.entries()[3] == 2).then_some(())
    });
    for name in [lent, full] {
        two.peers.end_lend(name);
        assert!(two.peers.wait_unused(name, || false), "it waits for room");
        two.peers.free_lent(name);
    }
    for end in [first, second] {
        let end = end.recv_timeout(HANG).expect("an end");
        assert!(matches!(end, Err(PeerOperationFailure::Revoked)), "{end:?}");
    }
    drop(gate);
    two.unlend(held);
}

#[test]
fn operations_that_wait_for_a_grant_can_be_stopped() {
    let Some((one, two, there, back)) = pair(None) else {
        return;
    };
    let memory = Window::private(100);
    let lent = two.lend(back, &memory, true);
    let own = filled(10, 3);
    // The question is not answered for a while.
    let gate = two.heard.gate.lock();
    one.peers.send(there, b"stay").expect("a session");
    let begin = |at| one.begin(OperationWay::Write, there, lent, at, &own);
    let (stopped, other) = (begin(7), begin(50));
    one.peers.stop_waiting(7);
    let end = stopped.try_recv().expect("an end");
    assert!(matches!(end, Err(PeerOperationFailure::Stopped)), "{end:?}");
    let again = begin(20);
    drop(gate);
    for end in [other, again] {
        end.recv_timeout(HANG).expect("an end").expect("written");
    }
    assert!(bytes_of(&memory)[..20] == [0; 20]);
    assert!(bytes_of(&memory)[20..30] == bytes_of(&own)[..]);
    two.unlend(lent);
    assert_eq!(one.peers.room.state.lock().grants.len(), 0);
}

#[test]
fn lies_harm_only_the_liar() {
    let Some((one, two, there, back)) = pair(Some(wire::CHUNK)) else {
        return;
    };
    let Some(liar) = Side::new(None) else {
        return;
    };
    two.heard.events.lock().clear();
    let asked = (liar.peers).connect(&two.peers.locator(), &KEY, b"a liar");
    let other = asked.expect("an address");
    liar.met();
    let its = two.met();
    let memory = Window::private(2 * wire::CHUNK as usize);
    let lent = two.lend(back, &memory, true);
    let trap = two.lend(its, &Window::private(10), false);
    let own = filled(memory.len(), 5);
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for _ in 0..300 {
        for _ in 0..20 {
            let lent = [lent, trap, LentName(0), LentName(u64::MAX)][random(4) as usize];
            let index = [0, 1, 2, u64::MAX / wire::CHUNK, u64::MAX][random(5) as usize];
            let name = wire::ChunkName { lent, index };
            let memory = wire::ChunkMemory {
                key: random(1 << 40),
                addr: random(1 << 48),
                len: 1 + random(wire::CHUNK),
                writable: random(2) == 0,
            };
            liar.lie(
                other,
                match random(6) {
                    0 => wire::EndpointMessage::Ask(name, random(2) == 0),
                    1 => wire::EndpointMessage::Grant(name, memory),
                    2 => wire::EndpointMessage::Refuse(name, wire::ChunkRefusal::NoRights),
                    3 => wire::EndpointMessage::Recall(name),
                    4 => wire::EndpointMessage::Return(name),
                    _ => wire::EndpointMessage::Text(b"text"),
                },
            );
        }
        one.run(OperationWay::Write, there, lent, 0, &own)
            .expect("written");
        assert!(bytes_of(&memory) == bytes_of(&own));
        memory.fill(0, memory.len(), 0).expect("in bounds");
    }
    for name in [lent, trap] {
        two.unlend(name);
    }
    assert_eq!(two.peers.room.state.lock().lender.entries(), [0; 7]);
    assert!(two.ended(back).is_none());
}

#[test]
fn a_peer_that_asks_and_does_not_read_is_given_up() {
    let Some((one, two, there, back)) = pair(None) else {
        return;
    };
    // Nothing that is sent is read there.
    let gate = one.heard.gate.lock();
    let message = vec![7; 1000];
    while two.peers.send(back, &message).expect("a session") {}
    let name = wire::ChunkName {
        lent: LentName(99),
        index: 0,
    };
    // A message may leave between the flood and the question.
    wait_for("the loss", || {
        let mut state = two.peers.room.state.lock();
        if let Ok(rank) = state.open(back) {
            while !state.outbox.is_flooded(rank) {
                state.outbox.push(rank, wire::text(&message));
            }
        }
        drop(state);
        one.lie(there, wire::EndpointMessage::Ask(name, true));
        two.ended(back)
    });
    assert!(two.peers.room.state.lock().outbox.is_empty());
    drop(gate);
}
