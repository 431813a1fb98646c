//! Processes that know the address of an endpoint, and do on the network what no endpoint does.

#![allow(unsafe_code)] // accesses lent memory

use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use hydrant_endpoint::{
    Address, Batch, Endpoint, EndpointEvent, Error, HostsOptions, LossCause, PartState, Rights,
};
use hydrant_fabric::{
    AccessRun, FabricOptions, FabricPeers, FabricSession, LentName, OperationWay, PeerAccess,
    SessionEvent, SessionSink,
};
use hydrant_local::{GrantName, WirePacket};
use hydrant_testing::{HANG, running};
use parking_lot::Mutex;

use super::{network::Network, pair};

/// Things that a stranger heard.
#[derive(Default)]
struct HeardThere {
    events: Mutex<Vec<SessionEvent>>,
    messages: Mutex<Vec<Vec<u8>>>,
    /// Holds the stranger's network up, while a test has it.
    gate: Mutex<()>,
}

impl SessionSink for HeardThere {
    fn admit(&self, _: &[u8]) -> Result<Vec<u8>, Vec<u8>> {
        Err(Vec::new())
    }

    fn event(&self, event: SessionEvent) {
        self.events.lock().push(event);
    }

    fn message(&self, _: FabricSession, bytes: &[u8]) {
        self.messages.lock().push(bytes.to_vec());
        drop(self.gate.lock());
    }
}

struct Stranger {
    peers: FabricPeers,
    heard: Arc<HeardThere>,
    session: FabricSession,
}

impl Stranger {
    /// Connects to an endpoint, as this incarnation.
    fn connect(to: &Address, incarnation: u64, name: &str) -> Self {
        let options = FabricOptions {
            interface: "lo".to_owned(),
            ..FabricOptions::default()
        };
        let heard = Arc::new(HeardThere::default());
        let peers = FabricPeers::listen(&options, [1; 16], Arc::clone(&heard) as _).unwrap();
        let (key, locator) = parts(to);
        let introduction = [&incarnation.to_le_bytes()[..], name.as_bytes()].concat();
        let session = peers.connect(&locator, &key, &introduction).unwrap();
        Self {
            peers,
            heard,
            session,
        }
    }

    fn hear(&self, is_it: impl Fn(&SessionEvent) -> bool) {
        let since = Instant::now();
        while !self.heard.events.lock().iter().any(&is_it) {
            assert!(since.elapsed() < HANG, "{:?}", self.heard.events.lock());
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn say(&self, bytes: &[u8]) -> bool {
        loop {
            match self.peers.send(self.session, bytes) {
                Ok(true) => return true,
                Ok(false) => thread::sleep(Duration::from_millis(1)),
                Err(_) => return false,
            }
        }
    }

    fn tell(&self, packet: &WirePacket<'_>) -> bool {
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        self.say(&bytes)
    }
}

/// Returns the key and the locator of an address that has no other way.
fn parts(address: &Address) -> ([u8; 16], Vec<u8>) {
    let bytes = address.to_bytes();
    let key = *bytes[12..].first_chunk().unwrap();
    let way = &bytes[29 + usize::from(bytes[28]) + 1..];
    let len = usize::from(u16::from_le_bytes([way[1], way[2]]));
    (key, way[3..3 + len].to_vec())
}

/// Waits until the endpoint has told why a peer with this name is lost.
fn loss(endpoint: &Endpoint, name: &str) -> LossCause {
    loop {
        match endpoint.next_event_within(HANG).unwrap() {
            Some(EndpointEvent::Lost { peer, cause }) if peer.name() == name => return cause,
            Some(_) => {}
            None => panic!("{name} is not lost"),
        }
    }
}

#[test]
fn strangers_on_the_network_harm_only_themselves() {
    if !Network::Tcp.is_there() {
        return;
    }
    let (owner, _user, peer) = pair(Network::Tcp);
    let lent = owner.expose(vec![0; 5 << 20]).unwrap();
    let descriptor = lent.descriptor(Rights::READ_WRITE);
    let remote = peer.open(&descriptor).unwrap();
    let address = Network::Tcp.address(&owner);
    let grant = |number| GrantName::of_number(number);
    let all: [&dyn Fn(&Stranger) -> bool; 9] = [
        &|it| it.say(&[]),
        &|it| it.say(&[0xff; 100]),
        &|it| it.tell(&WirePacket::Credit { bytes: u64::MAX }),
        &|it| {
            it.tell(&WirePacket::Granted {
                request: 0,
                grant: grant(1),
                file_offset: 0,
            })
        },
        &|it| {
            it.tell(&WirePacket::NotGranted {
                request: u64::MAX,
                cause: 9,
                text: b"no",
            })
        },
        &|it| {
            it.tell(&WirePacket::Challenge {
                version: 1,
                nonce: [0; 16],
            })
        },
        // More messages than it may.
        &|it| {
            let bytes = &[7; 1000];
            (0..2000).all(|_| it.tell(&WirePacket::Message { more: false, bytes }))
        },
        // A message that is too long.
        &|it| {
            let bytes = &[7; 1000];
            (0..300).all(|_| it.tell(&WirePacket::Message { more: true, bytes }))
        },
        // Grants of others; forged questions; more regions than there may be, and none of the answers is read.
        &|it| {
            for number in 0..100 {
                it.tell(&WirePacket::Release {
                    grant: grant(number),
                });
            }
            it.tell(&WirePacket::Ask {
                request: 0,
                question: b"what",
            });
            let mut is_told = true;
            for request in 0..70_000 {
                is_told &= it.tell(&WirePacket::Ask {
                    request,
                    question: &descriptor.to_bytes(),
                });
            }
            it.say(&[0xff]) && is_told
        },
    ];
    for (at, act) in all.into_iter().enumerate() {
        let name = format!("stranger {at}");
        let it = Stranger::connect(&address, 77 + at as u64, &name);
        it.hear(|event| matches!(event, SessionEvent::Met(..)));
        // It may be lost before it has said all.
        let _ = act(&it);
        it.hear(|event| matches!(event, SessionEvent::Lost(..) | SessionEvent::Left(_)));
        let cause = loss(&owner, &name);
        assert!(matches!(cause, LossCause::Malformed(_)), "{at}: {cause}");
        remote.write(at as u64, &[1; 4 << 20]).unwrap();
    }
    lent.revoke().unwrap();
}

#[test]
fn a_stranger_that_pretends_to_be_a_peer_ends_no_connection() {
    if !Network::Tcp.is_there() {
        return;
    }
    let (owner, user, peer) = pair(Network::Tcp);
    let address = Network::Tcp.address(&owner);
    let it = Stranger::connect(&address, user.address().incarnation(), "user");
    it.hear(|event| matches!(event, SessionEvent::Left(_) | SessionEvent::Lost(..)));
    peer.send(b"still there").unwrap();
    let events: Vec<_> = (0..2)
        .map(|_| owner.next_event_within(HANG).unwrap().expect("an event"))
        .collect();
    assert!(
        matches!(
            events[..],
            [EndpointEvent::Connected(_), EndpointEvent::Message { .. }]
        ),
        "{events:?}"
    );
}

#[test]
fn a_deadline_or_a_cancel_waits_for_no_grant() {
    if !Network::Tcp.is_there() {
        return;
    }
    let hosts = HostsOptions {
        interface: "lo".to_owned(),
        registered: Some(1),
        ..HostsOptions::default()
    };
    let owner = Endpoint::builder().hosts(hosts).listen().unwrap();
    let address = Network::Tcp.address(&owner);
    let lent = owner.expose(vec![0; 4 << 20]).unwrap();
    let descriptor = lent.descriptor(Rights::READ_WRITE);
    // A stranger has all of the memory that may be registered, and does not return it.
    let it = Stranger::connect(&address, 77, "stranger");
    it.hear(|event| matches!(event, SessionEvent::Met(..)));
    it.tell(&WirePacket::Ask {
        request: 0,
        question: &descriptor.to_bytes(),
    });
    running::until(|| !it.heard.messages.lock().is_empty());
    let answer = it.heard.messages.lock().pop().unwrap();
    let Ok(WirePacket::Granted { grant, .. }) = WirePacket::parse(&answer) else {
        panic!("{answer:?}");
    };
    let access = PeerAccess {
        way: OperationWay::Write,
        session: it.session,
        lent: LentName(grant.number()),
        group: 0,
    };
    let bytes = Box::leak(Box::new([7_u8; 10]));
    let run = AccessRun {
        local: bytes.as_ptr().expose_provenance(),
        offset: 0,
        len: 10,
    };
    let (sender, end) = mpsc::channel();
    let finish = Box::new(move |outcome| drop(sender.send(outcome)));
    // SAFETY: the bytes stay.
    let begun = unsafe { it.peers.begin(access, [run].into_iter(), finish) };
    assert!(begun.is_ok());
    end.recv_timeout(HANG).expect("an end").expect("written");
    let gate = it.heard.gate.lock();
    it.tell(&WirePacket::Ask {
        request: 1,
        question: &descriptor.to_bytes(),
    });
    running::until(|| !it.heard.messages.lock().is_empty());

    let user = Network::Tcp.endpoint("user");
    let peer = user.connect(&address).unwrap();
    let remote = peer.open(&descriptor).unwrap();
    let own = user.expose(vec![5; 100]).unwrap();
    for round in 0..4 {
        let mut batch = Batch::new();
        batch.write_region(&remote, 0, &own, 0..100).unwrap();
        if round > 0 {
            batch.deadline(Instant::now() + Duration::from_millis(20));
        }
        let ended = match round {
            0 => batch.start().unwrap().cancel(),
            1 => batch.run(),
            2 => batch.start().unwrap().wait(),
            _ => {
                let handle = batch.start().unwrap();
                // Nobody waits for it.
                running::until(|| handle.is_over());
                handle.wait()
            }
        };
        let failure = ended.expect_err("nothing was granted");
        let is_it = match failure.cause() {
            Error::Cancelled { .. } => round == 0,
            Error::DeadlinePassed { .. } => round > 0,
            _ => false,
        };
        assert!(is_it, "{round}: {failure}");
        assert_eq!(failure.part(0), Some(PartState::Untouched));
    }
    let is_stranger = owner.peers().iter().any(|peer| peer.name() == "stranger");
    assert!(is_stranger, "the batches waited until it was given up");
    // The grant that was asked for comes once there is room.
    drop(gate);
    remote.write(0, &[5; 100]).unwrap();
    lent.revoke().unwrap();
}
