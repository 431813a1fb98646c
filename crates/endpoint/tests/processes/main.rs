//! Endpoints in processes of their own: transfers, revocations, kills, stops, returns, strangers.

#[path = "../network/mod.rs"]
mod network;
mod puppet;

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use hydrant_base::block_on;
use hydrant_endpoint::{
    Address, Batch, Descriptor, Endpoint, EndpointEvent, Error, LossCause, Rights,
};
use hydrant_testing::{
    HANG, forked,
    roles::{self, test},
    running, two_hosts,
};
use network::Network;
use puppet::Puppet;
use rustix::process::Signal;

/// The name of a test that runs on each network, and the test.
type NetworkTest = (&'static str, fn(Network));

fn main() -> ExitCode {
    let mut tests = Vec::new();
    for network in [Network::Host, Network::Tcp] {
        let all: [NetworkTest; 9] = [
            ("data_arrives_in_mapped_and_in_other_memory", data_arrives),
            ("a_message_comes_after_its_data", messages_come_after_data),
            ("revoked_memory_is_touched_by_nobody", revoked_memory),
            ("a_killed_peer_is_told_and_harms_no_other", killed),
            (
                "a_peer_killed_while_it_writes_holds_up_no_revocation",
                killed_while_writing,
            ),
            ("a_peer_that_returns_is_another_incarnation", returned),
            ("both_may_connect_at_once", both_connect),
            (
                "a_forked_child_has_no_endpoint_and_ends_no_connection",
                forked_child,
            ),
            ("joins_and_kills_leave_memory_flat", joins_and_kills),
        ];
        tests.extend(all.map(|(name, body)| {
            test(format!("{}::{name}", network.name()), move || {
                if network == Network::Host || network.is_there() {
                    body(network);
                }
            })
        }));
    }
    tests.extend([
        test(
            "host::a_death_is_told_before_much_memory_is_freed",
            much_memory,
        ),
        test("host::a_stopped_owner_is_read_and_written", stopped_owner),
        test(
            "host::a_stopped_user_holds_up_revocations_only_if_it_copies",
            stopped_user,
        ),
        test("tcp::a_link_goes_down_and_comes_back", || {
            if Network::Tcp.is_there() {
                two_hosts::run("a_link_goes_down", &[]);
            }
        }),
        test("tcp::a_stopped_peer_is_lost_and_nothing_lands", || {
            if Network::Tcp.is_there() {
                stopped_and_lost();
            }
        }),
    ]);
    roles::main(
        |role, arguments| match (role, arguments) {
            ("puppet", [name, network]) => Some(puppet::play(name, network)),
            ("a_link_goes_down", []) => Some(a_link_goes_down()),
            _ => None,
        },
        tests,
    )
}

fn descriptor(text: &str) -> Descriptor {
    text.parse()
        .unwrap_or_else(|_| panic!("no descriptor: {text}"))
}

/// Returns bytes that differ from place to place and from seed to seed.
fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| ((at as u64 * 2_654_435_761) >> 13) as u8 ^ seed)
        .collect()
}

fn data_arrives(network: Network) {
    let mut owner = Puppet::start(network, "owner");
    let user = network.endpoint("user");
    let peer = user.connect(&owner.address).unwrap();
    for kind in ["alloc", "expose"] {
        let lent = descriptor(&owner.ask(&format!("{kind} memory 8000000")));
        let remote = peer.open(&lent).unwrap();
        assert_eq!(
            remote.is_mapped(),
            kind == "alloc" && network == Network::Host
        );
        for (seed, len) in [(1, 0), (2, 1), (3, 4096), (4, 700_001), (5, 8_000_000)] {
            let (sent, mut back) = (pattern(seed, len), vec![0; len]);
            let offset = (8_000_000 - len) as u64 / 3;
            remote.write(offset, &sent).unwrap();
            remote.read(offset, &mut back).unwrap();
            assert!(sent == back, "{kind}, {len} bytes");
        }
        // A batch of scattered parts, in both directions.
        let bytes = pattern(9, 3_000_000);
        let mut batch = Batch::new();
        for (at, part) in bytes.chunks(1009).enumerate() {
            batch.write(&remote, at as u64 * 2000, part).unwrap();
        }
        batch.run().unwrap();
        let mut back = vec![0; bytes.len()];
        let mut batch = Batch::new();
        for (at, part) in back.chunks_mut(1009).enumerate() {
            batch.read(&remote, at as u64 * 2000, part).unwrap();
        }
        batch.run().unwrap();
        assert!(bytes == back, "{kind}");
        assert_eq!(owner.ask("fill memory 77"), "filled");
        let mut back = vec![0; 1000];
        remote.read(123_456, &mut back).unwrap();
        assert!(back.iter().all(|byte| *byte == 77));
    }
}

fn messages_come_after_data(network: Network) {
    let mut owner = Puppet::start(network, "owner");
    let mut user = Puppet::start(network, "user");
    let address = owner.address.to_string();
    assert_eq!(user.ask(&format!("connect owner {address}")), "connected");
    assert_eq!(owner.ask("event"), "connected user");
    for kind in ["alloc", "expose"] {
        let lent = owner.ask(&format!("{kind} memory 4000000"));
        assert_eq!(user.ask(&format!("open remote owner {lent}")), "open");
        for byte in 1..20 {
            // The user gives the order and does nothing more: a worker has to send the message.
            assert_eq!(
                user.ask(&format!("write-and-tell remote {byte} owner")),
                "started"
            );
            assert_eq!(owner.ask("event"), format!("message user {byte}"));
            assert_eq!(owner.ask("look memory"), byte.to_string());
        }
    }
}

fn revoked_memory(network: Network) {
    let mut owner = Puppet::start(network, "owner");
    let mut user = Puppet::start(network, "user");
    let address = owner.address.to_string();
    assert_eq!(user.ask(&format!("connect owner {address}")), "connected");
    let rounds = if network == Network::Host { 60 } else { 20 };
    for round in 0..rounds {
        let lent = owner.ask("lend memory 300000");
        assert_eq!(user.ask(&format!("open remote owner {lent}")), "open");
        user.tell("hammer remote 51 3");
        thread::sleep(Duration::from_millis(round % 7));
        assert_eq!(
            owner.ask("revoke-and-watch memory"),
            "still",
            "round {round}"
        );
        assert_eq!(user.hear(), "error the region of endpoint owner is revoked");
        let refused = user.ask(&format!("open remote owner {lent}"));
        assert_eq!(refused, "error the region of endpoint owner is revoked");
    }
}

fn killed(network: Network) {
    let mut owner = Puppet::start(network, "owner");
    let mut other = Puppet::start(network, "other");
    let user = network.endpoint("user");
    let peer = user.connect(&owner.address).unwrap();
    let survivor = user.connect(&other.address).unwrap();
    let [remote, kept] = [(&mut owner, &peer), (&mut other, &survivor)].map(|(puppet, peer)| {
        let lent = descriptor(&puppet.ask("expose memory 4096"));
        peer.open(&lent).unwrap()
    });
    for _ in 0..2 {
        user.next_event().unwrap();
    }
    owner.kill();
    match user.next_event_within(HANG).unwrap() {
        Some(EndpointEvent::Lost { peer, cause }) => {
            assert_eq!(peer.name(), "owner");
            assert_eq!(
                cause == LossCause::Died,
                network == Network::Host,
                "{cause}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(remote.write(0, &[1]), Err(Error::Lost { .. })));
    assert!(matches!(peer.send(b"?"), Err(Error::Lost { .. })));
    let gone = user.connect(&owner.address);
    assert!(matches!(gone, Err(Error::Unreachable { .. })), "{gone:?}");
    kept.write(0, &[1]).unwrap();
    survivor.send(b"still here").unwrap();
    assert_eq!(other.ask("event"), "connected user");
    assert_eq!(other.ask("event"), "message user still here");
}

/// The kernel frees the memory of a killed process before it closes its sockets.
fn much_memory() {
    let user = Network::Host.endpoint("user");
    // On a busy machine the news may wait for a processor. By the socket alone no death is told so early.
    let is_told_early = (0..60).any(|_| {
        let mut owner = Puppet::start(Network::Host, "owner");
        owner.ask("expose memory 268435456");
        owner.ask("fill memory 1");
        user.connect(&owner.address).unwrap();
        while user.try_event().unwrap().is_some() {}
        let since = Instant::now();
        owner.signal(Signal::KILL);
        let event = user.next_event_within(HANG).unwrap();
        assert!(
            matches!(event, Some(EndpointEvent::Lost { .. })),
            "{event:?}"
        );
        let told = since.elapsed();
        owner.kill();
        2 * told < since.elapsed()
    });
    assert!(
        is_told_early,
        "no death was told in the first half of its time"
    );
}

fn killed_while_writing(network: Network) {
    let mut owner = Puppet::start(network, "owner");
    let rounds = if network == Network::Host { 10 } else { 4 };
    for _ in 0..rounds {
        let mut user = Puppet::start(network, "user");
        let address = owner.address.to_string();
        user.ask(&format!("connect owner {address}"));
        let lent = owner.ask("lend memory 30000000");
        assert_eq!(user.ask(&format!("open remote owner {lent}")), "open");
        user.tell("hammer remote 51 2");
        thread::sleep(Duration::from_millis(15));
        user.signal(Signal::KILL);
        assert_eq!(owner.ask("revoke-and-watch memory"), "still");
    }
}

fn returned(network: Network) {
    let user = network.endpoint("user");
    let mut last: Option<(Address, Descriptor)> = None;
    for round in 0..5 {
        let mut owner = Puppet::start(network, "cache");
        let peer = user.connect(&owner.address).unwrap();
        let event = user.next_event_within(HANG).unwrap();
        match (&last, event) {
            (None, Some(EndpointEvent::Connected(it))) => assert_eq!(it, peer),
            (Some((address, _)), Some(EndpointEvent::Returned { peer: it, previous })) => {
                assert_eq!((it, previous), (peer.clone(), address.incarnation()));
            }
            (_, other) => panic!("round {round}: {other:?}"),
        }
        if let Some((_, old)) = &last {
            assert!(matches!(peer.open(old), Err(Error::OtherOwner { .. })));
        }
        let lent = descriptor(&owner.ask("alloc memory 4096"));
        peer.open(&lent)
            .unwrap()
            .write(0, &pattern(round, 4096))
            .unwrap();
        last = Some((owner.address.clone(), lent));
        owner.kill();
        let event = user.next_event_within(HANG).unwrap();
        assert!(
            matches!(event, Some(EndpointEvent::Lost { .. })),
            "{event:?}"
        );
    }
}

fn stopped_owner() {
    let mut second = Puppet::start(Network::Host, "second");
    let mut owner = Puppet::start(Network::Host, "owner");
    let user = Network::Host.endpoint("user");
    let peer = user.connect(&owner.address).unwrap();
    let lent =
        ["alloc", "expose"].map(|kind| descriptor(&owner.ask(&format!("{kind} {kind} 100000"))));
    let remotes = lent.clone().map(|lent| peer.open(&lent).unwrap());
    owner.stop();
    for (remote, seed) in remotes.iter().zip(1..) {
        let (sent, mut back) = (pattern(seed, 100_000), vec![0; 100_000]);
        remote.write(0, &sent).unwrap();
        remote.read(0, &mut back).unwrap();
        assert!(sent == back);
    }
    peer.send(b"for later").unwrap();
    let another = user.connect(&second.address).unwrap();
    let question = descriptor(&second.ask("alloc memory 100"));
    second.stop();
    let waiter = thread::spawn(move || block_on(another.open_async(&question)));
    thread::sleep(Duration::from_millis(50));
    second.kill();
    // The death of a peer ends the tasks that wait for its answer.
    let ended = waiter.join().unwrap();
    assert!(matches!(ended, Err(Error::Lost { .. })), "{ended:?}");
    // A question needs the owner's endpoint.
    let patient = Endpoint::builder()
        .peer_timeout(Duration::from_millis(200))
        .listen()
        .unwrap();
    let since = Instant::now();
    assert!(matches!(
        patient.connect(&owner.address),
        Err(Error::Unreachable { .. })
    ));
    assert!(since.elapsed() < HANG / 4);
    owner.signal(Signal::CONT);
    assert_eq!(owner.ask("event"), "connected user");
    assert_eq!(owner.ask("event"), "message user for later");
    patient.connect(&owner.address).unwrap();
}

fn stopped_user() {
    let owner = Network::Host.endpoint("owner");
    let mut user = Puppet::start(Network::Host, "user");
    let address = owner.address().to_string();
    user.ask(&format!("connect owner {address}"));
    let idle = owner.expose(vec![0; 100]).unwrap();
    let busy = owner.expose(vec![0; 20_000_000]).unwrap();
    for (name, region) in [("idle", &idle), ("busy", &busy)] {
        let lent = region.descriptor(Rights::READ_WRITE);
        assert_eq!(user.ask(&format!("open {name} owner {lent}")), "open");
    }
    user.tell("hammer busy 9 2");
    thread::sleep(Duration::from_millis(20));
    user.stop();
    idle.revoke_within(HANG).unwrap();
    // It may have stopped between two copies.
    let first = busy.revoke_within(Duration::from_millis(100));
    assert!(
        matches!(first, Ok(()) | Err(Error::StillInUse { .. })),
        "{first:?}"
    );
    user.signal(Signal::CONT);
    busy.revoke_within(HANG).unwrap();
    assert_eq!(user.hear(), "error the region of endpoint owner is revoked");
}

fn both_connect(network: Network) {
    let rounds = if network == Network::Host { 40 } else { 5 };
    for round in 0..rounds {
        let mut pair = [Puppet::start(network, "one"), Puppet::start(network, "two")];
        let addresses = [pair[0].address.to_string(), pair[1].address.to_string()];
        pair[0].tell(&format!("connect other {}", addresses[1]));
        pair[1].tell(&format!("connect other {}", addresses[0]));
        for puppet in &mut pair {
            assert_eq!(puppet.hear(), "connected", "round {round}");
        }
        for puppet in &mut pair {
            assert_eq!(puppet.ask("peers"), "1");
            assert_eq!(puppet.ask("send other hello"), "sent");
        }
        let [one, two] = &mut pair;
        assert_eq!(
            (one.ask("event"), two.ask("event")),
            ("connected two".into(), "connected one".into())
        );
        assert_eq!(
            (one.ask("event"), two.ask("event")),
            ("message two hello".into(), "message one hello".into())
        );
    }
}

fn forked_child(network: Network) {
    let mut owner = Puppet::start(network, "owner");
    let user = network.endpoint("user");
    let peer = user.connect(&owner.address).unwrap();
    let lent = descriptor(&owner.ask("alloc memory 4096"));
    let remote = peer.open(&lent).unwrap();
    let region = user.expose(vec![0; 10]).unwrap();
    let pid = {
        let (user, peer, remote, region, lent) = (
            user.clone(),
            peer.clone(),
            remote.clone(),
            region.clone(),
            lent.clone(),
        );
        forked::child(move || {
            let refusals = [
                user.try_event().is_err(),
                matches!(remote.write(0, &[9]), Err(Error::Forked)),
                matches!(peer.send(b"child"), Err(Error::Forked)),
                matches!(peer.open(&lent), Err(Error::Forked)),
                matches!(region.revoke(), Err(Error::Forked)),
                matches!(user.alloc(1), Err(Error::Forked)),
            ];
            drop((user, peer, remote, region));
            i32::from(refusals.contains(&false))
        })
    };
    assert_eq!(forked::ended(pid), Some(0));
    remote.write(0, &[5]).unwrap();
    peer.send(b"parent").unwrap();
    assert_eq!(owner.ask("event"), "connected user");
    assert_eq!(owner.ask("event"), "message user parent");
    // A child that lives on hides the death of no one.
    let child = forked::child(|| {
        thread::sleep(HANG);
        0
    });
    while user.try_event().unwrap().is_some() {}
    owner.kill();
    let event = user.next_event_within(HANG).unwrap();
    assert!(
        matches!(event, Some(EndpointEvent::Lost { .. })),
        "{event:?}"
    );
    let child = rustix::process::Pid::from_raw(child).expect("a child");
    rustix::process::kill_process(child, Signal::KILL).unwrap();
}

fn joins_and_kills(network: Network) {
    let mut owner = Puppet::start(network, "owner");
    let lent = owner.ask("alloc memory 65536");
    let kill = |owner: &mut Puppet, lent: &str| {
        let mut user = Puppet::start(network, "user");
        let address = owner.address.to_string();
        user.ask(&format!("connect owner {address}"));
        user.ask(&format!("open remote owner {lent}"));
        user.tell("hammer remote 3 1");
        assert!(owner.ask("event").ends_with("ed user"));
        user.kill();
        assert!(owner.ask("event").starts_with("lost user"));
    };
    let join = |owner: &mut Puppet, lent: &str| {
        let user = network.endpoint("guest");
        let peer = user.connect(&owner.address).unwrap();
        let remote = peer.open(&descriptor(lent)).unwrap();
        remote.write(0, &[4; 100]).unwrap();
        assert!(owner.ask("event").ends_with("ed guest"));
        drop(user);
        assert_eq!(owner.ask("event"), "left guest");
    };
    let open = |pid: &str| {
        std::fs::read_dir(format!("/proc/{pid}/fd"))
            .expect("descriptors")
            .count()
    };
    let pid = owner.pid().as_raw_nonzero().to_string();
    // To open libfabric takes a while.
    let [joins, kills] = if network == Network::Host {
        [1000, 50]
    } else {
        [10, 3]
    };
    (0..joins / 3).for_each(|_| join(&mut owner, &lent));
    (0..kills / 2).for_each(|_| kill(&mut owner, &lent));
    let resident = owner.status("VmRSS");
    let before = [open("self"), open(&pid)];
    (0..joins).for_each(|_| join(&mut owner, &lent));
    (0..kills).for_each(|_| kill(&mut owner, &lent));
    let after = owner.status("VmRSS");
    assert!(after < resident + 1024, "from {resident} to {after} KiB");
    // Descriptors of the last one are closed soon.
    running::until(|| open("self") <= before[0] && open(&pid) <= before[1]);
}

/// A peer that is stopped for longer than the patience is lost, in both directions. Its memory comes back, and what it
/// had in flight never lands.
fn stopped_and_lost() {
    let network = Network::Tcp;
    let patience = Duration::from_secs(1);
    let owner = network
        .builder("owner")
        .peer_timeout(patience)
        .listen()
        .unwrap();
    let mut user = Puppet::start(network, "user");
    let address = network.address(&owner).to_string();
    assert_eq!(user.ask(&format!("connect owner {address}")), "connected");
    let region = owner.expose(vec![0; 20_000_000]).unwrap();
    let lent = region.descriptor(Rights::READ_WRITE);
    assert_eq!(user.ask(&format!("open busy owner {lent}")), "open");
    user.tell("hammer busy 9 2");
    thread::sleep(Duration::from_millis(50));
    user.stop();
    let since = Instant::now();
    let mut buffer = region.take_back().unwrap().expect("it owned the buffer");
    let back = since.elapsed();
    assert!(back < HANG / 4, "{back:?}");
    buffer.fill(7);
    user.signal(Signal::CONT);
    assert!(user.hear().starts_with("error endpoint owner is lost"));
    thread::sleep(Duration::from_millis(100));
    assert!(buffer.iter().all(|byte| *byte == 7));
    // A new connection works.
    while owner.try_event().unwrap().is_some() {}
    assert_eq!(user.ask(&format!("connect owner {address}")), "connected");
    let region = owner.expose(vec![0; 100]).unwrap();
    let lent = region.descriptor(Rights::READ_WRITE);
    assert_eq!(user.ask(&format!("open again owner {lent}")), "open");
    assert_eq!(user.ask("write again 3 5 10"), "written");
    let mut seen = [0; 5];
    region.read(0, &mut seen).unwrap();
    assert_eq!(seen, [0, 0, 0, 5, 5]);
}

/// Two hosts, and a peer on each that the other process of this host also uses. While the link is down for less than the
/// patience, nothing is lost. After that both lose the connection, and no other; then a new one works.
fn a_link_goes_down() -> ExitCode {
    let network = Network::TcpThere;
    let mut far = Puppet::start_by(&two_hosts::THERE, network, "far");
    let mut near = Puppet::start(network, "near");
    let user = network.endpoint("user");
    let open = |puppet: &mut Puppet| {
        let peer = user.connect(&puppet.address).unwrap();
        let lent = descriptor(&puppet.ask("expose memory 1000000"));
        let remote = peer.open(&lent).unwrap();
        remote.write(0, &[1; 1000]).unwrap();
        (peer, remote)
    };
    let (peer, remote) = open(&mut far);
    let (_, beside) = open(&mut near);
    while user.try_event().unwrap().is_some() {}

    two_hosts::switch_link("down");
    let (back, seen) = thread::scope(|scope| {
        let write = scope.spawn(|| {
            let since = Instant::now();
            remote.write(0, &[2; 1_000_000]).unwrap();
            peer.send(b"there").unwrap();
            since.elapsed()
        });
        thread::sleep(Duration::from_secs(1));
        beside.write(0, &[3; 1000]).unwrap();
        two_hosts::switch_link("up");
        (write.join().unwrap(), far.ask("event"))
    });
    assert_eq!(seen, "connected user");
    assert!(back >= Duration::from_millis(900), "{back:?}");
    assert_eq!(far.ask("event"), "message user there");
    assert_eq!(far.ask("look memory"), "2");

    two_hosts::switch_link("down");
    let since = Instant::now();
    assert!(matches!(remote.write(0, &[4]), Err(Error::Lost { .. })));
    let told = since.elapsed();
    assert!(told < Duration::from_millis(3500), "{told:?}");
    let event = user.next_event_within(HANG).unwrap();
    assert!(
        matches!(&event, Some(EndpointEvent::Lost { peer: it, .. }) if *it == peer),
        "{event:?}"
    );
    assert!(far.ask("event").starts_with("lost user"));
    beside.write(0, &[5]).unwrap();
    two_hosts::switch_link("up");
    running::until(|| user.connect(&far.address).is_ok());
    assert!(peer.is_connected());
    assert_eq!(far.ask("look memory"), "2");
    println!("a peer behind a link that went down was lost after {told:?}");
    ExitCode::SUCCESS
}
