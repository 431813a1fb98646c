//! An endpoint without a job, as tests use it.

#![allow(dead_code)] // each test uses a part
#![allow(unsafe_code)] // registers and accesses memory

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Access, Conduit, Delivery, Error, Key, Local, Message, Permission, Posted, Rank, Remote,
    ReplyPort, Sink, Ticket, Window,
};
use hydrant_ofi::{ListenOptions, Ofi, OfiOptions, PeerControl, PeerEvent, PeerHandler, listen};
use hydrant_testing::HANG;

pub(crate) const KEY: [u8; 16] = [7; 16];
pub(crate) const MEMORY: usize = 1 << 20;

/// The options of endpoints on the loopback interface.
pub(crate) fn options() -> ListenOptions {
    ListenOptions {
        ofi: OfiOptions {
            extents: 1024,
            interface: std::env::var("HYDRANT_OFI_INTERFACE").unwrap_or("lo".to_owned()),
            ..ListenOptions::default().ofi
        },
        ..ListenOptions::default()
    }
}

/// A thing that happened, in the order of deliveries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Happened {
    Event(PeerEvent),
    Message(Rank, Vec<u64>, Vec<u8>),
}

/// The layer above: keeps what happened, and declines whoever says "no".
#[derive(Default)]
pub(crate) struct Above(Mutex<Vec<Happened>>);

impl PeerHandler for Above {
    fn admit(&self, introduction: &[u8]) -> Result<Vec<u8>, Vec<u8>> {
        if introduction == b"no" {
            return Err(b"not you".to_vec());
        }
        Ok([b"to ", introduction].concat())
    }

    fn event(&self, event: PeerEvent) {
        self.0
            .lock()
            .expect("no panic")
            .push(Happened::Event(event));
    }
}

/// The sink of messages and completions.
struct Keep<'a>(&'a Above, &'a mut Vec<(Ticket, Result<(), Error>)>);

impl Sink for Keep<'_> {
    fn request(&mut self, delivery: Delivery<'_>, _: &mut dyn ReplyPort) {
        let message = Happened::Message(
            delivery.from,
            delivery.args.to_vec(),
            delivery.payload.to_vec(),
        );
        self.0.0.lock().expect("no panic").push(message);
    }

    fn reply(&mut self, _: Delivery<'_>) {}

    fn complete(&mut self, ticket: Ticket, outcome: Result<(), Error>) {
        self.1.push((ticket, outcome));
    }

    fn local(&mut self, _: Ticket) {}

    fn malformed(&mut self, error: Error) {
        panic!("{error}");
    }
}

/// An endpoint with memory that it lends to everybody.
pub(crate) struct Side {
    pub(crate) above: Arc<Above>,
    pub(crate) control: PeerControl,
    ended: Mutex<Vec<(Ticket, Result<(), Error>)>>,
    pub(crate) lent: Remote,
    pub(crate) key: Key,
    /// It is dropped before the memory.
    pub(crate) conduit: Ofi,
    pub(crate) memory: Window,
}

impl Side {
    pub(crate) fn new(options: &ListenOptions) -> Result<Self, Error> {
        let above = Arc::new(Above::default());
        let (conduit, control) = listen(options, KEY, Arc::clone(&above) as _)?;
        let memory = Window::private(MEMORY);
        let addr = memory.as_ptr();
        // SAFETY: 1. The window outlives the conduit. 2. Peers write where the test expects it.
        let key = unsafe { conduit.register(addr, MEMORY, Permission::ReadWrite) }?;
        let offset = addr.expose_provenance() as u64;
        Ok(Self {
            above,
            control,
            ended: Mutex::default(),
            lent: Remote { key, offset },
            key,
            conduit,
            memory,
        })
    }

    pub(crate) fn on_loopback() -> Self {
        Self::new(&options()).expect("a provider of libfabric")
    }

    pub(crate) fn connect(&self, locator: &[u8]) -> Rank {
        let connected = self.control.connect(locator, &KEY, b"hello");
        connected.expect("a peer in reach")
    }

    /// Polls, and returns true if there was something.
    pub(crate) fn poll(&self) -> bool {
        let mut ended = Vec::new();
        let count = self.conduit.poll(&mut Keep(&self.above, &mut ended));
        self.ended.lock().expect("no panic").append(&mut ended);
        count > 0
    }

    pub(crate) fn happened(&self) -> Vec<Happened> {
        self.above.0.lock().expect("no panic").clone()
    }

    pub(crate) fn events(&self) -> Vec<PeerEvent> {
        let happened = self.happened().into_iter();
        happened
            .filter_map(|it| match it {
                Happened::Event(event) => Some(event),
                Happened::Message(..) => None,
            })
            .collect()
    }

    pub(crate) fn forget(&self) {
        self.above.0.lock().expect("no panic").clear();
    }

    pub(crate) fn messages(&self) -> usize {
        self.happened().len() - self.events().len()
    }

    /// Sends a message with one argument.
    pub(crate) fn send(&self, peer: Rank, number: u64) -> Result<bool, Error> {
        let message = Message {
            kind: 1,
            tag: 0,
            args: &[number],
            payload: b"payload",
        };
        Ok(self.conduit.send(peer, &message)? == hydrant_conduit::Sent::Yes)
    }

    /// Posts a write of own memory at the same place there.
    pub(crate) fn write(
        &self,
        peer: Rank,
        there: Remote,
        at: usize,
        len: usize,
    ) -> Result<Posted, Error> {
        self.access(Access::put, peer, there, at, len)
    }

    pub(crate) fn read(
        &self,
        peer: Rank,
        there: Remote,
        at: usize,
        len: usize,
    ) -> Result<Posted, Error> {
        self.access(Access::get, peer, there, at, len)
    }

    fn access(
        &self,
        make: fn(Rank, Remote, Local, usize) -> Access,
        peer: Rank,
        there: Remote,
        at: usize,
        len: usize,
    ) -> Result<Posted, Error> {
        let local = Local {
            addr: self.memory.as_ptr().wrapping_add(at),
            key: self.key,
        };
        let there = Remote {
            offset: there.offset + at as u64,
            ..there
        };
        // SAFETY: 1. The window outlives the conduit, and tests wait for the end. 2. The peer lent its memory.
        unsafe { self.conduit.post(&make(peer, there, local, len)) }
    }

    pub(crate) fn outcome(&self, ticket: Ticket) -> Option<Result<(), Error>> {
        let mut ended = self.ended.lock().expect("no panic");
        let place = ended.iter().position(|(ended, _)| *ended == ticket)?;
        Some(ended.swap_remove(place).1)
    }
}

/// Polls all sides until the condition holds.
pub(crate) fn until(sides: &[&Side], what: &str, mut ready: impl FnMut() -> bool) {
    let since = Instant::now();
    while !ready() {
        let is_idle = sides.iter().filter(|side| side.poll()).count() == 0;
        if is_idle {
            std::thread::sleep(Duration::from_micros(50));
        }
        assert!(
            since.elapsed() < HANG,
            "{what} does not come: {:?}",
            sides.iter().map(|side| side.events()).collect::<Vec<_>>()
        );
    }
}

/// Polls all sides for a time.
pub(crate) fn poll_for(sides: &[&Side], time: Duration) {
    let since = Instant::now();
    while since.elapsed() < time {
        for side in sides {
            side.poll();
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Waits for the end of an operation.
pub(crate) fn finish(sides: &[&Side], side: &Side, posted: Posted) -> Result<(), Error> {
    let Posted::Pending(ticket) = posted else {
        return Ok(());
    };
    let mut outcome = None;
    until(sides, "the end of an operation", || {
        outcome = side.outcome(ticket);
        outcome.is_some()
    });
    outcome.expect("it ended")
}

/// Waits until a side met its next peer, and returns the number.
pub(crate) fn met(sides: &[&Side], side: &Side) -> Rank {
    let mut peer = Rank(0);
    until(sides, "a session", || {
        let found = side
            .events()
            .into_iter()
            .rev()
            .find_map(|event| match event {
                PeerEvent::Met { peer, .. } => Some(peer),
                _ => None,
            });
        peer = found.unwrap_or(peer);
        found.is_some()
    });
    peer
}

/// Connects the first side to the second, and returns the numbers: of the second at the first, and the other way.
pub(crate) fn join(one: &Side, two: &Side) -> [Rank; 2] {
    one.forget();
    two.forget();
    let there = one.connect(&two.control.locator());
    let numbers = [met(&[one, two], one), met(&[one, two], two)];
    assert_eq!(numbers[0], there);
    numbers
}
