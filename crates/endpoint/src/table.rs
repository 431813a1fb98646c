//! The peers of an endpoint.

use std::{collections::HashMap, sync::Arc, time::Instant};

use parking_lot::{Condvar, Mutex};

use crate::{
    Address,
    identity::PeerIdentity,
    session::{Session, SessionEnding},
};

/// The names of peers that have ended which are remembered at least. More are, as long as peers are held.
const REMEMBERED: usize = 4096;

/// One incarnation of a peer, and the connection to it.
pub(crate) struct PeerEntry {
    pub(crate) identity: Arc<PeerIdentity>,
    stage: Mutex<PeerStage>,
    /// Notified when the stage changes.
    changed: Condvar,
}

/// The stage of the connection to a peer.
#[derive(Clone)]
pub(crate) enum PeerStage {
    /// Nobody has connected yet.
    Idle,
    /// A thread of this process connects.
    Connecting,
    /// The peer connects at the same time, and its connection counts.
    Expecting,
    /// The connection is made.
    Up(Arc<Session>),
    /// The connection has ended.
    Ended(SessionEnding),
}

/// The reaction to a peer that connects.
pub(crate) enum Arriving {
    /// The connection is to be made.
    Welcome,
    /// The own attempt counts.
    Crossing,
    /// There is a connection already. It may have ended by now.
    Up(Arc<Session>),
}

impl PeerEntry {
    fn new(incarnation: u64, name: &str) -> Arc<Self> {
        Arc::new(Self {
            identity: Arc::new(PeerIdentity {
                incarnation,
                name: name.to_owned(),
            }),
            stage: Mutex::new(PeerStage::Idle),
            changed: Condvar::new(),
        })
    }

    /// Returns the name for people.
    pub(crate) fn label(&self) -> String {
        self.identity.label()
    }

    pub(crate) fn stage(&self) -> PeerStage {
        self.stage.lock().clone()
    }

    pub(crate) fn set(&self, stage: PeerStage) {
        *self.stage.lock() = stage;
        self.changed.notify_all();
    }

    /// Begins an attempt to connect. Returns the stage if there is nothing to begin.
    pub(crate) fn begin(&self) -> Option<PeerStage> {
        let mut stage = self.stage.lock();
        match &*stage {
            PeerStage::Idle | PeerStage::Ended(_) => {
                *stage = PeerStage::Connecting;
                None
            }
            other => Some(other.clone()),
        }
    }

    /// Ends an attempt to connect that has failed, unless the peer has connected meanwhile.
    pub(crate) fn fail(&self, next: PeerStage) {
        let mut stage = self.stage.lock();
        if matches!(*stage, PeerStage::Connecting | PeerStage::Expecting) {
            *stage = next;
        }
        drop(stage);
        self.changed.notify_all();
    }

    /// Sets the connection of an own attempt. Returns `false` if there is another one.
    pub(crate) fn set_up(&self, session: &Arc<Session>) -> bool {
        let mut stage = self.stage.lock();
        let is_first = !matches!(*stage, PeerStage::Up(_));
        if is_first {
            *stage = PeerStage::Up(Arc::clone(session));
        }
        drop(stage);
        self.changed.notify_all();
        is_first
    }

    /// Ends the connection, if it is still this one.
    fn end(&self, session: &Session, ending: SessionEnding) {
        let mut stage = self.stage.lock();
        if matches!(&*stage, PeerStage::Up(current) if current.number == session.number) {
            *stage = PeerStage::Ended(ending);
        }
        drop(stage);
        self.changed.notify_all();
    }

    /// Decides about a peer that connects. If both connect, the attempt of the lower incarnation counts.
    pub(crate) fn arriving(&self, own: u64) -> Arriving {
        let stage = self.stage.lock();
        match &*stage {
            PeerStage::Up(session) => Arriving::Up(Arc::clone(session)),
            PeerStage::Connecting if own < self.identity.incarnation => Arriving::Crossing,
            PeerStage::Idle
            | PeerStage::Ended(_)
            | PeerStage::Connecting
            | PeerStage::Expecting => Arriving::Welcome,
        }
    }

    /// Waits until nobody connects any more, at most until `deadline`. Returns the stage then.
    pub(crate) fn wait_settled(&self, deadline: Instant) -> PeerStage {
        let mut stage = self.stage.lock();
        while matches!(*stage, PeerStage::Connecting | PeerStage::Expecting) {
            if self.changed.wait_until(&mut stage, deadline).timed_out() {
                break;
            }
        }
        stage.clone()
    }
}

/// All peers that are connected, or that somebody holds.
#[derive(Default)]
pub(crate) struct PeerTable {
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    by_incarnation: HashMap<u64, Arc<PeerEntry>>,
    /// The last incarnation under each name.
    by_name: HashMap<String, u64>,
    /// Entries after the last removal of unused ones.
    kept: usize,
}

impl PeerTable {
    /// Returns the peer of this incarnation, and makes it if it is new.
    pub(crate) fn entry(&self, incarnation: u64, name: &str) -> Arc<PeerEntry> {
        let mut tables = self.tables.lock();
        if let Some(entry) = tables.by_incarnation.get(&incarnation) {
            return Arc::clone(entry);
        }
        if tables.by_incarnation.len() >= 2 * tables.kept + 64 {
            tables.remove_unused();
        }
        let entry = PeerEntry::new(incarnation, name);
        tables
            .by_incarnation
            .insert(incarnation, Arc::clone(&entry));
        entry
    }

    /// Returns the entry of an address.
    pub(crate) fn of(&self, address: &Address) -> Arc<PeerEntry> {
        self.entry(address.incarnation, &address.name)
    }

    /// Notes that a peer has connected. Returns the incarnation before it under its name, if that is not connected.
    pub(crate) fn note_up(&self, session: &Session) -> Option<u64> {
        let entry = &session.peer;
        if entry.name.is_empty() {
            return None;
        }
        let mut tables = self.tables.lock();
        let before = tables
            .by_name
            .insert(entry.name.clone(), entry.incarnation)?;
        let is_other = before != entry.incarnation;
        let is_up = (tables.by_incarnation.get(&before))
            .is_some_and(|before| matches!(before.stage(), PeerStage::Up(_)));
        (is_other && !is_up).then_some(before)
    }

    /// Notes that a connection has ended.
    pub(crate) fn note_ended(&self, session: &Session, ending: SessionEnding) {
        let entry = (self.tables.lock().by_incarnation)
            .get(&session.peer.incarnation)
            .cloned();
        if let Some(entry) = entry {
            entry.end(session, ending);
        }
    }

    /// Returns the connected peers.
    pub(crate) fn up(&self) -> Vec<(Arc<PeerEntry>, Arc<Session>)> {
        let tables = self.tables.lock();
        let up = |entry: &Arc<PeerEntry>| match entry.stage() {
            PeerStage::Up(session) => Some((Arc::clone(entry), session)),
            _ => None,
        };
        tables.by_incarnation.values().filter_map(up).collect()
    }
}

impl Tables {
    /// Removes the peers that are neither connected nor held, and old names.
    fn remove_unused(&mut self) {
        self.by_incarnation.retain(|_, entry| {
            Arc::strong_count(entry) > 1
                || !matches!(entry.stage(), PeerStage::Idle | PeerStage::Ended(_))
        });
        self.kept = self.by_incarnation.len();
        if self.by_name.len() > REMEMBERED + self.kept {
            let known = &self.by_incarnation;
            self.by_name
                .retain(|_, incarnation| known.contains_key(incarnation));
        }
    }
}
