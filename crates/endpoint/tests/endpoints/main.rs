//! Endpoints of one process: rights, leases, batches, cancels, messages, events, strangers.

#[path = "../network/mod.rs"]
mod network;

use std::{
    future::Future,
    os::{
        fd::AsFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram, UnixStream},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use hydrant_base::block_on;
use hydrant_endpoint::{
    Address, Batch, Descriptor, Endpoint, EndpointEvent, Error, LocalRows, MAX_MESSAGE, PartState,
    Peer, RegionRows, Rights,
};
use hydrant_testing::{HANG, running};
use network::Network;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Defines tests of each function on each network.
macro_rules! on_each_network {
    ($($test:ident,)*) => {
        mod on_one_host {
            use super::Network;

            $(#[test]
            fn $test() {
                super::$test(Network::Host);
            })*
        }

        mod over_tcp {
            use super::Network;

            $(#[test]
            fn $test() {
                if Network::Tcp.is_there() {
                    super::$test(Network::Tcp);
                }
            })*
        }
    };
}

on_each_network! {
    rights_and_bounds_are_kept,
    forged_foreign_and_cut_descriptors_are_refused,
    a_lease_ends,
    a_revoked_region_is_gone_for_all,
    a_region_that_is_dropped_or_borrowed_too_long_is_revoked,
    rows_go_where_they_should,
    a_hundred_thousand_parts_arrive,
    after_a_cancel_or_deadline_nothing_lands,
    each_part_of_a_failed_batch_tells_its_fate,
    a_batch_is_a_future,
    tasks_open_regions_and_may_be_dropped,
    messages_of_all_lengths_arrive_in_order,
    a_peer_that_reads_nothing_is_sent_no_more_than_a_window,
    events_come_by_descriptor_and_by_future,
    a_closed_endpoint_refuses_and_its_peers_hear_of_it,
}

fn endpoint(name: &str) -> Endpoint {
    Network::Host.endpoint(name)
}

/// Makes an owner, a user, and the owner as the user sees it.
fn pair(network: Network) -> (Endpoint, Endpoint, Peer) {
    let (owner, user) = (network.endpoint("owner"), network.endpoint("user"));
    let peer = user
        .connect(&network.address(&owner))
        .expect("a connection");
    (owner, user, peer)
}

fn message(endpoint: &Endpoint) -> Vec<u8> {
    loop {
        match endpoint.next_event_within(HANG).expect("an open endpoint") {
            Some(EndpointEvent::Message { bytes, .. }) => return bytes,
            Some(_) => {}
            None => panic!("no message"),
        }
    }
}

fn rights_and_bounds_are_kept(network: Network) {
    let (owner, _user, peer) = pair(network);
    let region = owner.expose(vec![5; 1000]).unwrap();
    let part = region.lend(100..200, Rights::READ, None).unwrap();
    let remote = peer.open(&part).unwrap();
    let mut seen = [0; 100];
    remote.read(0, &mut seen).unwrap();
    assert_eq!(seen, [5; 100]);
    assert!(matches!(
        remote.read(1, &mut seen),
        Err(Error::OutOfBounds {
            offset: 1,
            len: 100,
            region: 100
        })
    ));
    assert!(matches!(
        remote.read(u64::MAX, &mut seen),
        Err(Error::OutOfBounds { .. })
    ));
    assert!(matches!(
        remote.write(0, &[1]),
        Err(Error::NotPermitted { what: "writes", .. })
    ));
    let one = peer
        .open(&part.narrow(99..100, Rights::READ_WRITE, None).unwrap())
        .unwrap();
    assert_eq!((one.len(), one.rights()), (1, Rights::READ));
    let write_only = peer.open(&region.descriptor(Rights::WRITE)).unwrap();
    write_only.write(0, &[1]).unwrap();
    assert!(matches!(
        write_only.read(0, &mut seen),
        Err(Error::NotPermitted { what: "reads", .. })
    ));
    assert!(matches!(
        region.lend(0..1001, Rights::READ, None),
        Err(Error::OutOfBounds { .. })
    ));
    assert!(matches!(
        region.read(999, &mut seen[..2]),
        Err(Error::OutOfBounds { .. })
    ));
    region.read(0, &mut seen[..1]).unwrap();
    assert_eq!(seen[0], 1);
}

fn forged_foreign_and_cut_descriptors_are_refused(network: Network) {
    let (owner, _user, peer) = pair(network);
    let region = owner.alloc(1000).unwrap();
    let bytes = region.descriptor(Rights::READ).to_bytes();
    let mut forged = bytes.clone();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    let forged = Descriptor::from_bytes(&forged).unwrap();
    assert!(matches!(peer.open(&forged), Err(Error::Forged { .. })));
    let other = network.endpoint("other");
    let foreign = other.alloc(10).unwrap().descriptor(Rights::READ);
    assert!(matches!(peer.open(&foreign), Err(Error::OtherOwner { .. })));
    assert!(Descriptor::from_bytes(&bytes[1..]).is_err());
    // Nothing is broken by that.
    peer.open(&region.descriptor(Rights::READ)).unwrap();
}

fn a_lease_ends(network: Network) {
    let (owner, _user, peer) = pair(network);
    let region = owner.alloc(1000).unwrap();
    let lease = Duration::from_millis(100);
    let short = region.lend(0..10, Rights::READ, Some(lease)).unwrap();
    let narrowed = region
        .descriptor(Rights::READ)
        .narrow(0..10, Rights::READ, Some(lease))
        .unwrap();
    let remotes = [&short, &narrowed].map(|lent| peer.open(lent).unwrap());
    thread::sleep(lease);
    for remote in remotes {
        assert!(matches!(
            remote.read(0, &mut [0]),
            Err(Error::Expired { .. })
        ));
    }
    assert!(matches!(peer.open(&short), Err(Error::Expired { .. })));
    let far = region
        .lend(0..10, Rights::READ, Some(Duration::MAX))
        .unwrap();
    peer.open(&far).unwrap().read(0, &mut [0]).unwrap();
}

fn a_revoked_region_is_gone_for_all(network: Network) {
    let (owner, _user, peer) = pair(network);
    let third = network.endpoint("third");
    let others = third.connect(&network.address(&owner)).unwrap();
    let region = owner.expose(vec![1; 100]).unwrap();
    let lent = region.descriptor(Rights::READ_WRITE);
    let (one, two) = (peer.open(&lent).unwrap(), others.open(&lent).unwrap());
    let kept = region.clone();
    let buffer = region.take_back().unwrap().expect("it owned the buffer");
    assert_eq!(buffer.len(), 100);
    for remote in [one, two] {
        assert!(matches!(remote.write(0, &[1]), Err(Error::Revoked { .. })));
    }
    assert!(matches!(peer.open(&lent), Err(Error::Revoked { .. })));
    assert!(matches!(kept.read(0, &mut [0]), Err(Error::Revoked { .. })));
    assert!(kept.take_back().unwrap().is_none());
}

fn a_region_that_is_dropped_or_borrowed_too_long_is_revoked(network: Network) {
    let (owner, _user, peer) = pair(network);
    let region = owner.alloc(10).unwrap();
    let remote = peer.open(&region.descriptor(Rights::READ)).unwrap();
    drop(region);
    assert!(matches!(
        remote.read(0, &mut [0]),
        Err(Error::Revoked { .. })
    ));
    let mut buffer = [0; 10];
    let kept = owner
        .expose_during(&mut buffer, |region| region.clone())
        .unwrap();
    assert!(matches!(kept.write(0, &[1]), Err(Error::Revoked { .. })));
    assert!(matches!(
        peer.open(&kept.descriptor(Rights::READ)),
        Err(Error::Revoked { .. })
    ));
    assert_eq!(buffer, [0; 10]);
}

fn rows_go_where_they_should(network: Network) {
    let (owner, _user, peer) = pair(network);
    for lent in [
        owner.alloc(10_000).unwrap(),
        owner.expose(vec![0; 10_000]).unwrap(),
    ] {
        let remote = peer.open(&lent.descriptor(Rights::READ_WRITE)).unwrap();
        let bytes: Vec<u8> = (0..50).collect();
        let (there, rows) = (
            RegionRows {
                offset: 7,
                stride: 100,
            },
            LocalRows {
                count: 5,
                bytes: 4,
                stride: 10,
            },
        );
        let mut batch = Batch::new();
        batch.write_rows(&remote, there, &bytes, rows).unwrap();
        assert_eq!(batch.len(), 1);
        batch.run().unwrap();
        let mut seen = [0; 4];
        lent.read(7 + 300, &mut seen).unwrap();
        assert_eq!(seen, [30, 31, 32, 33]);
        let mut back = vec![0xff; 50];
        let mut batch = Batch::new();
        batch.read_rows(&remote, there, &mut back, rows).unwrap();
        batch.run().unwrap();
        assert_eq!(
            back[..12],
            [0, 1, 2, 3, 255, 255, 255, 255, 255, 255, 10, 11]
        );
        let mut batch = Batch::new();
        let wide = LocalRows { count: 6, ..rows };
        assert!(matches!(
            batch.write_rows(&remote, there, &bytes, wide),
            Err(Error::OutOfBounds { .. })
        ));
        let close = RegionRows { stride: 3, ..there };
        assert!(matches!(
            batch.write_rows(&remote, close, &bytes, rows),
            Err(Error::LengthMismatch { .. })
        ));
        let far = RegionRows {
            stride: u64::MAX / 2,
            ..there
        };
        assert!(matches!(
            batch.write_rows(&remote, far, &bytes, rows),
            Err(Error::OutOfBounds { .. })
        ));
        assert!(batch.is_empty());
        batch.run().unwrap();
    }
}

fn a_hundred_thousand_parts_arrive(network: Network) {
    let (owner, user, peer) = pair(network);
    let lent = owner.alloc(8 << 20).unwrap();
    let remote = peer.open(&lent.descriptor(Rights::READ_WRITE)).unwrap();
    let own = user
        .expose((0..1_600_000_u32).map(|at| at as u8).collect())
        .unwrap();
    let mut batch = Batch::new();
    for part in 0..100_000 {
        batch
            .write_region(&remote, part * 64, &own, part * 16..part * 16 + 16)
            .unwrap();
    }
    let handle = batch.start().unwrap();
    // The own region is in use, and cannot be taken back before the end.
    let buffer = own.take_back().unwrap().expect("it owned the buffer");
    assert!(handle.is_over());
    handle.wait().unwrap();
    for part in (0..100_000).step_by(997) {
        let mut seen = [0; 16];
        lent.read(part as u64 * 64, &mut seen).unwrap();
        assert_eq!(seen, buffer[part * 16..part * 16 + 16]);
    }
}

fn after_a_cancel_or_deadline_nothing_lands(network: Network) {
    let (owner, user, peer) = pair(network);
    let len = 256 << 20;
    let lent = owner.alloc(len).unwrap();
    let remote = peer.open(&lent.descriptor(Rights::READ_WRITE)).unwrap();
    let own = user.expose(vec![9; len]).unwrap();
    for round in 0..6 {
        let mut batch = Batch::new();
        let parts = 64;
        let part = (len / parts) as u64;
        for at in 0..parts as u64 {
            batch
                .write_region(&remote, at * part, &own, at * part..(at + 1) * part)
                .unwrap();
        }
        let failure = if round % 2 == 0 {
            let handle = batch.start().unwrap();
            thread::sleep(Duration::from_millis(2));
            handle.cancel()
        } else {
            batch.deadline(Instant::now() + Duration::from_millis(2));
            batch.run()
        };
        // Whatever is not there now will not come.
        lent.write(0, &vec![1; len]).unwrap();
        let Err(failure) = failure else {
            continue;
        };
        match failure.cause() {
            Error::Cancelled { .. } if round % 2 == 0 => {}
            Error::DeadlinePassed { .. } if round % 2 == 1 => {}
            other => panic!("{other}"),
        }
        let states: Vec<_> = (0..parts).map(|at| failure.part(at).unwrap()).collect();
        // On a busy machine the cancel may come when all is done.
        let is_all = states.iter().all(|state| *state == PartState::Done);
        assert!(
            is_all || states.contains(&PartState::Untouched),
            "{states:?}"
        );
        assert_eq!((failure.parts(), failure.part(parts)), (parts, None));
        thread::sleep(Duration::from_millis(20));
        let mut seen = vec![0; len];
        lent.read(0, &mut seen).unwrap();
        assert!(seen.iter().all(|byte| *byte == 1), "round {round}");
    }
}

fn each_part_of_a_failed_batch_tells_its_fate(network: Network) {
    let (owner, _user, peer) = pair(network);
    let [good, bad] = [1, 2].map(|byte| owner.expose(vec![byte; 1000]).unwrap());
    let [good_there, bad_there] =
        [&good, &bad].map(|it| peer.open(&it.descriptor(Rights::WRITE)).unwrap());
    bad.revoke().unwrap();
    let mut batch = Batch::new();
    batch.write(&good_there, 0, &[7; 10]).unwrap();
    batch.write(&bad_there, 0, &[7; 10]).unwrap();
    batch.write(&good_there, 20, &[7; 10]).unwrap();
    let failure = batch.run().unwrap_err();
    assert!(matches!(failure.cause(), Error::Revoked { .. }));
    let states = [0, 1, 2].map(|at| failure.part(at).unwrap());
    assert_eq!(states[1], PartState::Untouched);
    let mut seen = [0; 30];
    good.read(0, &mut seen).unwrap();
    // Several threads transfer the parts.
    for (at, state) in [(0, states[0]), (20, states[2])] {
        let expected = if state == PartState::Done {
            [7; 10]
        } else {
            [1; 10]
        };
        assert_eq!(seen[at..at + 10], expected, "{state:?}");
    }
}

fn a_batch_is_a_future(network: Network) {
    let (owner, user, peer) = pair(network);
    let lent = owner.alloc(4 << 20).unwrap();
    let remote = peer.open(&lent.descriptor(Rights::WRITE)).unwrap();
    for len in [10, 4 << 20] {
        let own = user.expose(vec![len as u8 ^ 3; len as usize]).unwrap();
        let mut batch = Batch::new();
        batch.write_region(&remote, 0, &own, 0..len).unwrap();
        block_on(batch.start().unwrap()).unwrap();
        let mut seen = [0];
        lent.read(len - 1, &mut seen).unwrap();
        assert_eq!(seen[0], len as u8 ^ 3);
    }
    let empty = Batch::new().start().unwrap();
    assert!(empty.is_over());
    block_on(empty).unwrap();
}

fn tasks_open_regions_and_may_be_dropped(network: Network) {
    let (owner, user) = (network.endpoint("owner"), network.endpoint("user"));
    let peer = block_on(user.connect_async(&network.address(&owner))).unwrap();
    let region = owner.expose(vec![3; 100]).unwrap();
    let lent = region.descriptor(Rights::READ);
    // More tasks than there are grants of a peer are dropped before or after their answer.
    for round in 0..6000_u32 {
        let mut task = Box::pin(peer.open_async(&lent));
        let mut context = Context::from_waker(Waker::noop());
        match task.as_mut().poll(&mut context) {
            Poll::Ready(opened) => drop(opened),
            Poll::Pending if round % 3 == 0 => thread::yield_now(),
            Poll::Pending => {}
        }
    }
    // Their grants are given back.
    running::until(|| block_on(peer.open_async(&lent)).is_ok());
    let remote = block_on(peer.open_async(&lent)).unwrap();
    let mut seen = [0; 100];
    remote.read(0, &mut seen).unwrap();
    assert_eq!(seen, [3; 100]);
    region.revoke().unwrap();
    let refused = block_on(peer.open_async(&lent));
    assert!(matches!(refused, Err(Error::Revoked { .. })), "{refused:?}");
}

fn messages_of_all_lengths_arrive_in_order(network: Network) {
    let (owner, user, peer) = pair(network);
    let lengths = [0, 1, 1000, 32 << 10, (32 << 10) + 1, 100_000, MAX_MESSAGE];
    let sender = thread::spawn(move || {
        for round in 0..20_u8 {
            for len in lengths {
                peer.send(&vec![round; len]).unwrap();
            }
        }
        let long = peer.send(&vec![0; MAX_MESSAGE + 1]);
        assert!(matches!(long, Err(Error::MessageTooLong { .. })));
        drop(user);
    });
    for round in 0..20_u8 {
        for len in lengths {
            let bytes = message(&owner);
            assert!(
                bytes.len() == len && bytes.iter().all(|byte| *byte == round),
                "{round}, {len}"
            );
        }
    }
    sender.join().unwrap();
    let last = owner.next_event_within(HANG).unwrap();
    assert!(matches!(last, Some(EndpointEvent::Left(_))), "{last:?}");
}

fn a_peer_that_reads_nothing_is_sent_no_more_than_a_window(network: Network) {
    let (owner, _user, peer) = pair(network);
    let patience = Duration::from_millis(50);
    let mut sent = 0;
    let refused = loop {
        match peer.send_within(&[1; 60_000], patience) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoRoom { .. }), "{refused}");
    assert_eq!(sent, (1 << 20) / 60_064);
    // The message of a batch waits for room, and comes in its turn.
    let mut batch = Batch::new();
    batch.message(&peer, b"last").unwrap();
    batch.run().unwrap();
    for _ in 0..sent {
        assert_eq!(message(&owner).len(), 60_000);
    }
    assert_eq!(message(&owner), b"last");
    peer.send(b"and more").unwrap();
    assert_eq!(message(&owner), b"and more");
}

fn events_come_by_descriptor_and_by_future(network: Network) {
    let owner = network.endpoint("owner");
    let is_readable = || {
        let descriptor = owner.event_descriptor().unwrap();
        let mut fds = [PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    };
    assert!(!is_readable());
    let user = network.endpoint("user");
    let peer = user.connect(&network.address(&owner)).unwrap();
    running::until(is_readable);
    assert!(matches!(
        owner.try_event().unwrap(),
        Some(EndpointEvent::Connected(_))
    ));
    assert!(!is_readable());
    assert!(owner.try_event().unwrap().is_none());
    let waiting = owner.clone();
    let waiter = thread::spawn(move || block_on(waiting.event_async()).unwrap());
    thread::sleep(Duration::from_millis(20));
    peer.send(b"wake up").unwrap();
    assert!(matches!(
        waiter.join().unwrap(),
        EndpointEvent::Message { .. }
    ));
    let waiting = owner.clone();
    let waiter = thread::spawn(move || waiting.next_event());
    thread::sleep(Duration::from_millis(20));
    drop(peer);
    owner.close();
    assert!(matches!(waiter.join().unwrap(), Err(Error::Closed)));
    assert!(is_readable());
}

fn a_closed_endpoint_refuses_and_its_peers_hear_of_it(network: Network) {
    let (owner, user, peer) = pair(network);
    let lent = owner.alloc(100).unwrap();
    let remote = peer.open(&lent.descriptor(Rights::READ_WRITE)).unwrap();
    assert_eq!(user.peers(), std::slice::from_ref(&peer));
    owner.close();
    owner.close();
    loop {
        match user.next_event_within(HANG).unwrap() {
            Some(EndpointEvent::Left(it)) => break assert_eq!(it, peer),
            Some(EndpointEvent::Connected(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(!peer.is_connected());
    assert!(matches!(remote.write(0, &[1]), Err(Error::Left { .. })));
    assert!(matches!(peer.send(b"?"), Err(Error::Left { .. })));
    assert!(matches!(owner.alloc(1), Err(Error::Closed)));
    assert!(matches!(
        owner.connect(&network.address(&user)),
        Err(Error::Closed)
    ));
    assert!(matches!(
        user.connect(&network.address(&owner)),
        Err(Error::Unreachable { .. })
    ));
    lent.write(0, &[1]).unwrap();
}

#[test]
fn many_peers_need_no_connection() {
    let user = endpoint("user");
    let owner = endpoint("owner");
    let peers: Vec<Peer> = (0..10_000_u64)
        .map(|number| {
            let bytes = owner.address().to_bytes();
            let mut other = Address::from_bytes(&bytes).unwrap();
            other = other.with_incarnation(number + 2);
            user.peer(&other).unwrap()
        })
        .collect();
    assert!(user.peers().is_empty());
    assert!(matches!(
        peers[5].send(b"?"),
        Err(Error::NotConnected { .. })
    ));
    assert!(matches!(
        user.connect(user.address()),
        Err(Error::OwnAddress)
    ));
    let peer = user.peer(owner.address()).unwrap();
    assert!(matches!(peer.send(b"?"), Err(Error::NotConnected { .. })));
    user.connect(owner.address()).unwrap();
    peer.send(b"!").unwrap();
}

#[test]
fn events_that_nobody_reads_take_little_memory() {
    let owner = endpoint("owner");
    for _ in 0..2000 {
        endpoint("guest").connect(owner.address()).unwrap();
    }
    running::until(|| owner.peers().is_empty());
    let mut events = 0;
    while owner.try_event().unwrap().is_some() {
        events += 1;
    }
    assert!((1024..1200).contains(&events), "{events} events");
}

/// Strangers of this host find the socket in `/proc/net/unix`, and do not know the key.
#[test]
fn strangers_get_nothing_and_hinder_nobody() {
    let (owner, _user, peer) = pair(Network::Host);
    let listed = std::fs::read_to_string("/proc/net/unix").unwrap();
    // Jobs of other tests have sockets of other types.
    let is_ours = |line: &&str| line.split_whitespace().nth(4) == Some("0005");
    let sockets = (listed.lines().filter(is_ours)).filter_map(|line| line.split_once("@hydrant-"));
    let names: Vec<String> = sockets.map(|(_, name)| format!("hydrant-{name}")).collect();
    assert!(!names.is_empty());
    // Sockets of other kinds do not connect at all.
    for name in &names {
        let address = SocketAddr::from_abstract_name(name).unwrap();
        assert!(UnixStream::connect_addr(&address).is_err());
        assert!(
            UnixDatagram::unbound()
                .unwrap()
                .connect_addr(&address)
                .is_err()
        );
    }
    let wrong = owner.address().with_key([9; 16]);
    let refused = endpoint("stranger").connect(&wrong).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "endpoint owner is not reached: the key does not fit"
    );
    let region = owner.alloc(10).unwrap();
    peer.open(&region.descriptor(Rights::READ)).unwrap();
    assert_eq!(owner.peers().len(), 1);
}

/// An answer that comes after its question was given up is given back, and the connection goes on.
#[test]
fn a_late_answer_is_given_back() {
    let owner = endpoint("owner");
    let region = owner.alloc(10).unwrap();
    let lent = region.descriptor(Rights::READ);
    let hasty = Endpoint::builder()
        .peer_timeout(Duration::from_nanos(1))
        .listen()
        .unwrap();
    // The owner connects, because the other has no time to.
    let address = hasty.address().clone();
    owner.connect(&address).unwrap();
    running::until(|| hasty.peers().len() == 1);
    let peer = hasty.peers().remove(0);
    let late = (0..6000)
        .filter(|_| matches!(peer.open(&lent), Err(Error::TimedOut { .. })))
        .count();
    assert!(late > 5000, "{late} of 6000 answers came late");
    // There are fewer places for grants than questions were asked.
    running::until(|| peer.open(&lent).is_ok() || peer.is_connected());
    assert!(peer.is_connected());
    let patient = endpoint("patient");
    patient
        .connect(owner.address())
        .unwrap()
        .open(&lent)
        .unwrap();
    region.revoke().unwrap();
}
