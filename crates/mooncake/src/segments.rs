//! The segments that an engine has opened: peers by name and number, and the memory of theirs that was used.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use hydrant_endpoint::{Error, Peer, RemoteRegion};
use parking_lot::Mutex;

use crate::{
    core::{EngineCore, PATIENCE},
    door,
    failure::{EngineFailure, HANDSHAKE, METADATA, NOT_REGISTERED, Result, TOO_MANY},
    memory::LentRange,
    questions::PeerAnswer,
    wire::{MessageBody, RangeRefusal},
};

/// The number of the engine's own segment.
pub(crate) const OWN: i32 = 0;

/// All segments of an engine.
pub(crate) struct PeerSegments {
    tables: Mutex<SegmentTables>,
    own: Arc<PeerSegment>,
}

#[derive(Default)]
struct SegmentTables {
    by_name: HashMap<String, i32>,
    by_number: BTreeMap<i32, Arc<PeerSegment>>,
    last: i32,
}

/// The memory of a peer.
pub(crate) struct PeerSegment {
    pub(crate) number: i32,
    pub(crate) name: String,
    /// The connection to the peer's present incarnation. The lock is held while it is made, so that it is made once.
    link: Mutex<Option<Arc<SegmentLink>>>,
}

/// A connection to one incarnation of a peer.
pub(crate) struct SegmentLink {
    pub(crate) peer: Peer,
    name: String,
    is_own: bool,
    /// Registered memory of the peer that was used, by its first byte.
    regions: Mutex<BTreeMap<u64, RemoteRegion>>,
}

/// The use of a connection that was made before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Freshness {
    /// It is used if there is one.
    Cached,
    /// The peer is asked again.
    Asked,
}

impl PeerSegments {
    pub(crate) fn new(own_name: &str) -> Self {
        Self {
            tables: Mutex::default(),
            own: Arc::new(PeerSegment {
                number: OWN,
                name: own_name.to_owned(),
                link: Mutex::default(),
            }),
        }
    }

    /// Opens a segment, and returns its number.
    ///
    /// # Errors
    /// The sentence.
    pub(crate) fn open(&self, core: &EngineCore, name: &str, freshness: Freshness) -> Result<i32> {
        let name = name.strip_prefix('/').unwrap_or(name);
        if name.is_empty() {
            return Err(EngineFailure::argument("the name of the segment is empty"));
        }
        if name == core.name {
            return Ok(OWN);
        }
        if let Some(segment) = self.find(name) {
            if freshness == Freshness::Asked {
                segment.link(core, freshness)?;
            }
            return Ok(segment.number);
        }
        let Some(link) = SegmentLink::to(core, name)? else {
            return Ok(OWN);
        };
        let mut tables = self.tables.lock();
        // Another thread may have opened it meanwhile.
        if let Some(number) = tables.by_name.get(name) {
            return Ok(*number);
        }
        let number = (tables.last.checked_add(1))
            .ok_or_else(|| EngineFailure::new(TOO_MANY, "there are no more segment numbers"))?;
        tables.last = number;
        tables.by_name.insert(name.to_owned(), number);
        let segment = PeerSegment {
            number,
            name: name.to_owned(),
            link: Mutex::new(Some(Arc::new(link))),
        };
        tables.by_number.insert(number, Arc::new(segment));
        Ok(number)
    }

    fn find(&self, name: &str) -> Option<Arc<PeerSegment>> {
        let tables = self.tables.lock();
        let number = tables.by_name.get(name)?;
        tables.by_number.get(number).cloned()
    }

    /// Returns the segment with a number.
    pub(crate) fn get(&self, number: i64) -> Option<Arc<PeerSegment>> {
        if number == i64::from(OWN) {
            return Some(Arc::clone(&self.own));
        }
        let number = i32::try_from(number).ok()?;
        self.tables.lock().by_number.get(&number).cloned()
    }

    /// Returns all segments of peers.
    pub(crate) fn all(&self) -> Vec<Arc<PeerSegment>> {
        self.tables.lock().by_number.values().cloned().collect()
    }

    /// Forgets a segment.
    pub(crate) fn remove(&self, name: &str) {
        let mut tables = self.tables.lock();
        if let Some(number) = tables.by_name.remove(name) {
            tables.by_number.remove(&number);
        }
    }

    /// Forgets all segments.
    pub(crate) fn clear(&self) {
        let mut tables = self.tables.lock();
        let all = std::mem::take(&mut tables.by_number);
        tables.by_name.clear();
        drop(tables);
        drop(all);
        self.own.link.lock().take();
    }
}

impl PeerSegment {
    /// Returns the connection to the peer, and makes it if there is none. A peer that has returned under its name is
    /// found again.
    ///
    /// # Errors
    /// The sentence.
    pub(crate) fn link(&self, core: &EngineCore, freshness: Freshness) -> Result<Arc<SegmentLink>> {
        let mut link = self.link.lock();
        let old = link.as_ref().filter(|link| link.peer.is_connected());
        if let Some(old) = old
            && freshness == Freshness::Cached
        {
            return Ok(Arc::clone(old));
        }
        let new = match self.number {
            OWN => Some(SegmentLink::new(core.own_peer()?, &self.name, true)),
            _ => SegmentLink::to(core, &self.name)?,
        };
        let new = new.ok_or_else(|| {
            let text = format!("the name {} is this engine's own now", self.name);
            EngineFailure::new(METADATA, text)
        })?;
        if let Some(old) = old
            && old.peer == new.peer
        {
            return Ok(Arc::clone(old));
        }
        Ok(Arc::clone(link.insert(Arc::new(new))))
    }

    /// Returns whether the peer is connected.
    pub(crate) fn is_connected(&self) -> bool {
        (self.link.lock().as_ref()).is_some_and(|link| link.peer.is_connected())
    }
}

impl SegmentLink {
    fn new(peer: Peer, name: &str, is_own: bool) -> Self {
        Self {
            peer,
            name: name.to_owned(),
            is_own,
            regions: Mutex::default(),
        }
    }

    /// Connects to the engine at a port. Returns `None` if it is this engine.
    ///
    /// # Errors
    /// The sentence.
    fn to(core: &EngineCore, name: &str) -> Result<Option<Self>> {
        let address = door::ask(name, PATIENCE)?;
        if address.incarnation() == core.address().incarnation() {
            return Ok(None);
        }
        let peer = core.endpoint.connect(&address)?;
        Ok(Some(Self::new(peer, name, false)))
    }

    /// Returns the registered memory of the peer that has a range, and its first byte.
    ///
    /// # Errors
    /// The sentence.
    pub(crate) fn region(
        &self,
        core: &EngineCore,
        addr: u64,
        len: u64,
    ) -> Result<(u64, RemoteRegion)> {
        if let Some(found) = self.cached(addr, len) {
            return Ok(found);
        }
        let found = self.ask(core, addr, len)?;
        let remote = match self.peer.open(&found.descriptor) {
            Err(Error::Exhausted { .. }) => {
                // The peer hears that these are not needed any more before it is asked again.
                self.regions.lock().clear();
                self.peer.open(&found.descriptor)?
            }
            other => other?,
        };
        let mut regions = self.regions.lock();
        regions.insert(found.start, remote.clone());
        Ok((found.start, remote))
    }

    /// Returns memory that was used before, if the peer still lends it.
    fn cached(&self, addr: u64, len: u64) -> Option<(u64, RemoteRegion)> {
        let mut regions = self.regions.lock();
        let (start, remote) = regions.range(..=addr).next_back()?;
        let end = start.checked_add(remote.len())?;
        if addr.checked_add(len)? > end {
            return None;
        }
        let (start, remote) = (*start, remote.clone());
        // A use of no bytes tells whether the memory is still lent.
        if remote.read(0, &mut []).is_ok() {
            return Some((start, remote));
        }
        regions.remove(&start);
        None
    }

    fn ask(&self, core: &EngineCore, addr: u64, len: u64) -> Result<LentRange> {
        let answer = match self.is_own {
            true => match core.memory.find(addr, len) {
                Ok(found) => PeerAnswer::Region(found),
                Err(refusal) => PeerAnswer::Refused(refusal),
            },
            false => {
                let body = MessageBody::Ask { addr, len };
                core.questions.ask(&self.peer, body, PATIENCE)?
            }
        };
        let name = &self.name;
        match answer {
            PeerAnswer::Region(found) => {
                let is_within = addr.checked_sub(found.start).is_some_and(|offset| {
                    (offset.checked_add(len)).is_some_and(|end| end <= found.len)
                });
                if is_within && found.descriptor.len() == found.len {
                    return Ok(found);
                }
                let text = format!("the engine {name} answers with other memory");
                Err(EngineFailure::new(HANDSHAKE, text))
            }
            PeerAnswer::Refused(refusal) => Err(EngineFailure::new(
                NOT_REGISTERED,
                match refusal {
                    RangeRefusal::NotRegistered => {
                        format!("address {addr:#x} of the engine {name} is not registered there")
                    }
                    RangeRefusal::PastTheEnd { end } => format!(
                        "{len} bytes at {addr:#x} of the engine {name} end past the registered memory, which ends at \
                         {end:#x}"
                    ),
                    RangeRefusal::NotAccessible => format!(
                        "address {addr:#x} of the engine {name} is registered without access for peers"
                    ),
                },
            )),
            PeerAnswer::Noted(_) => {
                let text = format!("the engine {name} answers another question");
                Err(EngineFailure::new(HANDSHAKE, text))
            }
        }
    }

    /// Sends a notification, and waits until the peer has it.
    ///
    /// # Errors
    /// The sentence.
    pub(crate) fn notify(&self, core: &EngineCore, name: &[u8], text: &[u8]) -> Result<()> {
        let taken = match self.is_own {
            true => core.notifications.push(name, text),
            false => {
                let body = MessageBody::Notify { name, text };
                let answer = core.questions.ask(&self.peer, body, PATIENCE)?;
                matches!(answer, PeerAnswer::Noted(true))
            }
        };
        if taken {
            return Ok(());
        }
        let text = format!(
            "the engine {} has too many notifications that its program has not taken",
            self.name
        );
        Err(EngineFailure::new(METADATA, text))
    }
}
