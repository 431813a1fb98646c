//! Ends in the middle of something: endpoints that are closed, tasks that are dropped, wakers that panic, addresses of
//! endpoints that are gone.

#[path = "../network/mod.rs"]
mod network;
mod strangers;

use std::{
    fs,
    net::TcpListener,
    pin::pin,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use hydrant_endpoint::{
    Batch, BatchHandle, Endpoint, EndpointBuilder, Error, HostsOptions, Peer, RemoteRegion, Rights,
};
use hydrant_testing::{HANG, running};
use network::Network;
use parking_lot::Mutex;

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
    too_many_open_regions_are_refused_with_the_limit,
    many_regions_that_are_closed_at_once_hold_nobody_up,
    memory_is_still_when_it_is_taken_back_while_the_endpoint_closes,
    a_waker_that_panics_ends_no_thread,
    a_task_that_is_dropped_by_its_waker_may_own_everything,
    a_waker_may_wait_for_peers,
    who_connects_while_the_endpoint_closes_is_told_so,
    an_address_with_another_incarnation_connects_nobody,
}

/// Makes an owner, a user, and the owner as the user sees it.
fn pair(network: Network) -> (Endpoint, Endpoint, Peer) {
    let (owner, user) = (network.endpoint("owner"), network.endpoint("user"));
    let address = network.address(&owner);
    let peer = user.connect(&address).expect("a connection");
    (owner, user, peer)
}

fn too_many_open_regions_are_refused_with_the_limit(network: Network) {
    let (owner, _user, peer) = pair(network);
    let lent = owner.expose(vec![0; 100]).unwrap();
    let descriptor = lent.descriptor(Rights::READ_WRITE);
    let mut all = Vec::new();
    let limit = loop {
        match peer.open_all(&vec![descriptor.clone(); 512]) {
            Ok(more) => all.extend(more),
            Err(Error::Exhausted { limit, .. }) => break limit,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(all.len() as u64 / 512, limit / 512);
}

fn many_regions_that_are_closed_at_once_hold_nobody_up(network: Network) {
    let (owner, _user, peer) = pair(network);
    let lent = owner.expose(vec![0; 100]).unwrap();
    let descriptor = lent.descriptor(Rights::READ_WRITE);
    let all = peer.open_all(&vec![descriptor.clone(); 1500]).unwrap();
    for remote in &all {
        remote.write(0, &[1]).unwrap();
    }
    drop(all);
    // The answer comes in time.
    let remote = peer.open(&descriptor).unwrap();
    remote.write(0, &[2]).unwrap();
    lent.revoke().unwrap();
}

fn memory_is_still_when_it_is_taken_back_while_the_endpoint_closes(network: Network) {
    let len = 64 << 20;
    for round in 0..10_u64 {
        let (owner, user, peer) = pair(network);
        let lent = owner.expose(vec![0; len]).unwrap();
        let remote = peer.open(&lent.descriptor(Rights::WRITE)).unwrap();
        let (sender, written) = mpsc::channel();
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let (remote, sender) = (remote.clone(), sender.clone());
                let bytes = vec![1; len];
                thread::spawn(move || {
                    while remote.write(0, &bytes).is_ok() {
                        let _ = sender.send(());
                    }
                })
            })
            .collect();
        written.recv_timeout(HANG).expect("a write");
        // The endpoint is closed in the middle of large writes.
        let closer = thread::spawn(move || owner.close());
        thread::sleep(Duration::from_micros(round * 300));
        let mut buffer = lent.take_back().unwrap().expect("it owned the buffer");
        for _ in 0..3 {
            buffer.fill(9);
            thread::sleep(Duration::from_millis(1));
            assert!(buffer.iter().all(|byte| *byte == 9), "round {round}");
        }
        closer.join().unwrap();
        for writer in writers {
            writer.join().unwrap();
        }
        drop(user);
    }
}

/// A waker that calls a function, once.
struct CallOnWake(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl CallOnWake {
    fn waker(call: impl FnOnce() + Send + 'static) -> Waker {
        Arc::new(Self(Mutex::new(Some(Box::new(call))))).into()
    }
}

impl Wake for CallOnWake {
    fn wake(self: Arc<Self>) {
        if let Some(call) = self.0.lock().take() {
            call();
        }
    }
}

/// Starts to write a region of 16 MiB, and polls the batch once. Returns `None` if it was over by then.
fn started(user: &Endpoint, remote: &RemoteRegion, waker: &Waker) -> Option<BatchHandle> {
    let own = user.expose(vec![5; 16 << 20]).unwrap();
    let mut batch = Batch::new();
    batch.write_region(remote, 0, &own, 0..16 << 20).unwrap();
    let mut handle = batch.start().unwrap();
    let polled = pin!(&mut handle)
        .as_mut()
        .poll(&mut Context::from_waker(waker));
    match polled {
        Poll::Pending => Some(handle),
        Poll::Ready(outcome) => {
            outcome.unwrap();
            None
        }
    }
}

fn a_waker_that_panics_ends_no_thread(network: Network) {
    let (owner, user, peer) = pair(network);
    let lent = owner.alloc(16 << 20).unwrap();
    let remote = peer.open(&lent.descriptor(Rights::READ_WRITE)).unwrap();
    let panics = Arc::new(AtomicUsize::new(0));
    let waker = || {
        let panics = Arc::clone(&panics);
        CallOnWake::waker(move || {
            panics.fetch_add(1, SeqCst);
            panic!("of a waker, as the test wants it");
        })
    };
    let mut wanted = 0;
    for _ in 0..4 {
        if let Some(handle) = started(&user, &remote, &waker()) {
            wanted += 1;
            handle.wait().unwrap();
        }
    }
    let mut event = pin!(owner.event_async());
    // The connection is an event that is there.
    let none = Waker::noop();
    assert!(
        event
            .as_mut()
            .poll(&mut Context::from_waker(none))
            .is_ready()
    );
    let mut event = pin!(owner.event_async());
    let waker = waker();
    let polled = event.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    peer.send(b"wake up").unwrap();
    running::until(|| panics.load(SeqCst) == wanted + 1);
    // Everything goes on.
    peer.send(b"and again").unwrap();
    assert!(owner.next_event_within(HANG).unwrap().is_some());
    assert!(owner.next_event_within(HANG).unwrap().is_some());
    assert!(started(&user, &remote, none).is_none_or(|handle| handle.wait().is_ok()));
}

fn a_task_that_is_dropped_by_its_waker_may_own_everything(network: Network) {
    for _ in 0..4 {
        let (owner, user, peer) = pair(network);
        let lent = owner.alloc(16 << 20).unwrap();
        let remote = peer.open(&lent.descriptor(Rights::READ_WRITE)).unwrap();
        // The owner uses the user's memory, so that its end waits for the owner.
        let back = network.address(&user);
        let other = owner.connect(&back).unwrap();
        let shared = user.expose(vec![0; 100]).unwrap();
        let used = other.open(&shared.descriptor(Rights::WRITE)).unwrap();
        used.write(0, &[1]).unwrap();
        let (sender, dropped) = mpsc::channel();
        let waker = {
            let all = (user.clone(), peer.clone(), remote.clone(), shared);
            CallOnWake::waker(move || {
                drop(all);
                let _ = sender.send(());
            })
        };
        let handle = started(&user, &remote, &waker);
        drop((user, peer, remote));
        match &handle {
            Some(_) => dropped.recv_timeout(HANG).expect("the end of the drop"),
            None => drop(waker),
        }
        drop(handle);
        running::until(|| owner.peers().is_empty());
    }
}

fn a_waker_may_wait_for_peers(network: Network) {
    let (owner, user, peer) = pair(network);
    let lent = owner.alloc(16 << 20).unwrap();
    let remote = peer.open(&lent.descriptor(Rights::READ_WRITE)).unwrap();
    for _ in 0..4 {
        let (sender, written) = mpsc::channel();
        let again = remote.clone();
        let waker = CallOnWake::waker(move || {
            let _ = sender.send(again.write(0, &vec![6; 16 << 20]));
        });
        if let Some(handle) = started(&user, &remote, &waker) {
            written.recv_timeout(HANG).expect("an end").unwrap();
            handle.wait().unwrap();
        }
    }
}

fn who_connects_while_the_endpoint_closes_is_told_so(network: Network) {
    let owner = network.endpoint("owner");
    let address = network.address(&owner);
    for round in 0..40_u64 {
        let user = network.endpoint("user");
        let begin = Arc::new(Barrier::new(2));
        let connects = {
            let (user, address, begin) = (user.clone(), address.clone(), Arc::clone(&begin));
            thread::spawn(move || {
                begin.wait();
                user.connect(&address)
            })
        };
        begin.wait();
        thread::sleep(Duration::from_micros(round % 8 * 50));
        user.close();
        match connects.join().unwrap() {
            Ok(_) | Err(Error::Closed) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

fn an_address_with_another_incarnation_connects_nobody(network: Network) {
    let (owner, user, peer) = pair(network);
    let address = network.address(&owner);
    let forged = address.clone().with_incarnation(address.incarnation() ^ 2);
    for _ in 0..2 {
        let refused = user.connect(&forged);
        assert!(
            matches!(refused, Err(Error::Unreachable { .. })),
            "{refused:?}"
        );
    }
    peer.send(b"still there").unwrap();
    assert!(user.connect(&address).unwrap().is_connected());
}

/// Returns the options of an endpoint at a port of the loopback interface.
fn at_port(port: u16, name: &str) -> EndpointBuilder {
    Endpoint::builder().name(name).hosts(HostsOptions {
        interface: "lo".to_owned(),
        port,
        ..HostsOptions::default()
    })
}

#[test]
fn an_attempt_to_reach_who_was_there_before_holds_up_no_other() {
    if !Network::Tcp.is_there() {
        return;
    }
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let old = at_port(port, "server").listen().unwrap();
    let address = old.address().only_far();
    drop(old);
    let server = at_port(port, "server").listen().unwrap();
    let user = Network::Tcp.endpoint("user");
    let begins = Arc::new(AtomicBool::new(false));
    let late = {
        let (user, begins) = (user.clone(), Arc::clone(&begins));
        thread::spawn(move || {
            begins.store(true, SeqCst);
            user.connect(&address).map(|_| ())
        })
    };
    running::until(|| begins.load(SeqCst));
    thread::sleep(Duration::from_millis(100));
    let peer = user.connect(&server.address().only_far()).unwrap();
    peer.send(b"hello").unwrap();
    let refused = late.join().unwrap();
    assert!(
        matches!(refused, Err(Error::Unreachable { .. })),
        "{refused:?}"
    );
    assert!(peer.is_connected());
}

#[test]
fn closing_while_others_connect_leaks_no_descriptor() {
    if !Network::Tcp.is_there() {
        return;
    }
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let mut before = 0;
    for round in 0..61 {
        if round == 1 {
            before = open();
        }
        let ends = ["one", "two"].map(|name| Network::Tcp.endpoint(name));
        let addresses = [1, 0].map(|other: usize| ends[other].address().only_far());
        let begin = Arc::new(Barrier::new(4));
        let threads: Vec<_> = (0..4)
            .map(|at| {
                let (end, address) = (ends[at % 2].clone(), addresses[at % 2].clone());
                let begin = Arc::clone(&begin);
                thread::spawn(move || {
                    begin.wait();
                    if at < 2 {
                        let _either = end.connect(&address);
                    } else {
                        end.close();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
    // Other tests of this process may open some.
    running::until(|| open() <= before + 2);
}
