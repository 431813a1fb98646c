//! The peers of other hosts, and attempts to connect to them.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use hydrant_conduit::Error as ConduitError;
use hydrant_fabric::{FabricPeers, FabricSession};
use hydrant_local::proof::Bytes16;
use parking_lot::Mutex;

use crate::{promise::Promise, session::Session};

/// The time between two looks whether nobody uses the network any more.
const NAP: Duration = Duration::from_micros(200);

/// The outcome of an attempt to connect: the session, or the reason why there is none.
pub(crate) type FarOutcome = Result<Arc<Session>, String>;

/// An attempt to connect.
#[derive(Clone)]
pub(crate) struct FarCall {
    /// The incarnation that has to answer.
    pub(crate) incarnation: u64,
    pub(crate) outcome: Arc<Promise<FarOutcome>>,
}

/// The sessions over the network, if the endpoint uses it.
#[derive(Default)]
pub(crate) struct FarSide {
    /// The network's endpoint, until this one is closed.
    peers: Mutex<Option<Arc<FabricPeers>>>,
    /// True if nothing lands by the network any more.
    is_still: Arc<AtomicBool>,
    table: Mutex<FarTable>,
}

#[derive(Default)]
struct FarTable {
    up: HashMap<FabricSession, Arc<Session>>,
    calls: HashMap<FabricSession, FarCall>,
}

/// Returns the reason why a connection to another incarnation does not count.
pub(crate) fn other_answers(incarnation: u64) -> String {
    format!("incarnation {incarnation:016x} answers: it has been started again")
}

impl FarSide {
    pub(crate) fn new(peers: Option<Arc<FabricPeers>>) -> Self {
        Self {
            is_still: Arc::new(AtomicBool::new(peers.is_none())),
            peers: Mutex::new(peers),
            table: Mutex::default(),
        }
    }

    pub(crate) fn peers(&self) -> Option<Arc<FabricPeers>> {
        self.peers.lock().clone()
    }

    /// Returns a flag that is set once nothing lands by the network any more.
    pub(crate) fn is_still(&self) -> &Arc<AtomicBool> {
        &self.is_still
    }

    /// Calls `otherwise` in a thread that polls the network, and while the network is being closed. Then nobody may wait for peers
    /// here. Returns whether it was called.
    pub(crate) fn unless_free(&self, otherwise: impl FnOnce()) -> bool {
        // The closing waits for this lock, and so for a call that it has to do the rest of.
        let peers = self.peers.lock();
        let is_free = match &*peers {
            Some(peers) => !peers.is_polling_here(),
            None => self.is_still.load(SeqCst),
        };
        if !is_free {
            otherwise();
        }
        !is_free
    }

    /// Begins to connect to the endpoint at a locator. Returns the attempt, and its session on the network.
    ///
    /// # Errors
    /// The reason why it cannot begin.
    pub(crate) fn call(
        &self,
        peers: &FabricPeers,
        (locator, key): (&[u8], &Bytes16),
        introduction: &[u8],
        incarnation: u64,
    ) -> Result<(FarCall, FabricSession), ConduitError> {
        // The event of the answer waits for this lock.
        let mut table = self.table.lock();
        let number = peers.connect(locator, key, introduction)?;
        if (table.calls.get(&number)).is_some_and(|other| other.incarnation != incarnation) {
            let why = "an attempt to reach another incarnation at its address is under way";
            return Err(ConduitError::Unreachable(why.to_owned()));
        }
        let call = FarCall {
            incarnation,
            outcome: Promise::new(),
        };
        if let Some(session) = table.up.get(&number) {
            let found = session.peer.incarnation;
            let _ = call.outcome.keep(if found == incarnation {
                Ok(Arc::clone(session))
            } else {
                Err(other_answers(found))
            });
        } else {
            table.calls.insert(number, call.clone());
        }
        Ok((call, number))
    }

    /// Takes the attempt of a session that was answered, or that is given up.
    pub(crate) fn take_call(&self, number: FabricSession) -> Option<FarCall> {
        self.table.lock().calls.remove(&number)
    }

    pub(crate) fn add(&self, number: FabricSession, session: &Arc<Session>) {
        self.table.lock().up.insert(number, Arc::clone(session));
    }

    pub(crate) fn get(&self, number: FabricSession) -> Option<Arc<Session>> {
        self.table.lock().up.get(&number).cloned()
    }

    pub(crate) fn remove(&self, number: FabricSession) -> Option<Arc<Session>> {
        self.table.lock().up.remove(&number)
    }

    /// Closes the network's endpoint. When this returns, nothing of it lands any more.
    pub(crate) fn close(&self) {
        let Some(mut peers) = self.peers.lock().take() else {
            return;
        };
        // Others have it for the time of a call.
        let last = loop {
            match Arc::try_unwrap(peers) {
                Ok(last) => break last,
                Err(shared) => peers = shared,
            }
            thread::sleep(NAP);
        };
        drop(last);
        {
            let _others = self.peers.lock();
            self.is_still.store(true, SeqCst);
        }
        let table = std::mem::take(&mut *self.table.lock());
        for call in table.calls.into_values() {
            let _ = call.outcome.keep(Err("this endpoint is closed".to_owned()));
        }
    }
}
