//! The connection of a session: to a process of this host, or over the network.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use hydrant_fabric::{FabricPeers, FabricSession, LentName, LentTerms, MOST_RANGES};
use hydrant_local::{
    GRANTS, GrantName, GrantTerms, LinkError, LocalLink, MAX_PAYLOAD, SendState, WirePacket,
    monotonic,
};

/// The time between two looks whether a closed network is closed.
const NAP: Duration = Duration::from_millis(1);

/// The connection of a session.
pub(crate) enum SessionLink {
    /// To a process of this host.
    Local(Arc<LocalLink>),
    /// Over the network.
    Far(FarLink),
}

/// A connection over the network. The network's endpoint is gone once this process closes its own.
pub(crate) struct FarLink {
    peers: Weak<FabricPeers>,
    session: FabricSession,
    /// Set once it is closed, and nothing lands any more.
    is_still: Arc<AtomicBool>,
}

impl FarLink {
    pub(crate) fn new(
        peers: &Arc<FabricPeers>,
        session: FabricSession,
        is_still: &Arc<AtomicBool>,
    ) -> Self {
        Self {
            peers: Arc::downgrade(peers),
            session,
            is_still: Arc::clone(is_still),
        }
    }

    pub(crate) fn session(&self) -> FabricSession {
        self.session
    }

    /// Returns the network's endpoint; `None` once this process closes it. Until it is closed, peers may access memory.
    pub(crate) fn peers(&self) -> Option<Arc<FabricPeers>> {
        self.peers.upgrade()
    }

    fn send(&self, packet: &WirePacket<'_>) -> Result<SendState, LinkError> {
        let peers = self.peers().ok_or(LinkError::Ended)?;
        let mut bytes = Vec::with_capacity(128);
        packet.encode(&mut bytes);
        match peers.send(self.session, &bytes) {
            Ok(true) => Ok(SendState::Sent),
            Ok(false) => Ok(SendState::Full),
            Err(_) => Err(LinkError::Ended),
        }
    }

    #[allow(unsafe_code)] // lends memory
    fn grant(&self, terms: &GrantTerms) -> Option<GrantName> {
        let until = terms.until.map(|until| {
            let left = Duration::from_nanos(until.saturating_sub(monotonic()));
            crate::promise::deadline(left)
        });
        let terms = LentTerms {
            addr: terms.addr,
            len: terms.len,
            read: terms.read,
            write: terms.write,
            until,
        };
        // SAFETY: 1. and 2. The region's memory is lent until it is revoked, which waits for the end of this grant.
        let lent = unsafe { self.peers()?.lend(self.session, terms) };
        Some(GrantName::of_number(lent?.0))
    }

    fn wait_unused(&self, lent: LentName, mut goes_on: impl FnMut() -> bool) -> bool {
        loop {
            // The network's own thread may ask, but not wait: the peer's answer would wait for it.
            let is_last = !goes_on();
            let Some(peers) = self.peers() else {
                if is_last || self.is_still.load(SeqCst) {
                    return self.is_still.load(SeqCst);
                }
                thread::sleep(NAP);
                continue;
            };
            // The network's endpoint cannot be closed while somebody has it.
            let until = Instant::now() + NAP;
            if peers.wait_unused(lent, || !is_last && Instant::now() < until) {
                return true;
            }
            drop(peers);
            if is_last {
                return false;
            }
            thread::yield_now();
        }
    }
}

/// Returns the number by which the network knows a grant.
pub(crate) fn lent_name(grant: GrantName) -> LentName {
    LentName(grant.number())
}

impl SessionLink {
    pub(crate) fn local(&self) -> Option<&Arc<LocalLink>> {
        match self {
            Self::Local(link) => Some(link),
            Self::Far(_) => None,
        }
    }

    pub(crate) fn far(&self) -> Option<&FarLink> {
        match self {
            Self::Local(_) => None,
            Self::Far(link) => Some(link),
        }
    }

    /// Ends the connection. A peer of this host sees the end of the socket. One of the network is left in good order
    /// (`orderly`), or given up.
    pub(crate) fn end(&self, orderly: bool) {
        match self {
            Self::Local(link) => link.end(),
            Self::Far(link) => {
                if let Some(peers) = link.peers() {
                    if orderly {
                        peers.disconnect(link.session);
                    } else {
                        peers.abandon(link.session);
                    }
                }
            }
        }
    }

    /// Returns true if the process at the other end is known to have ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.local().is_some_and(|link| link.is_gone())
    }

    /// Returns the most bytes of a message's part.
    pub(crate) fn most_bytes(&self) -> usize {
        match self {
            Self::Local(_) => MAX_PAYLOAD,
            Self::Far(link) => {
                let most = link.peers().map_or(MAX_PAYLOAD, |peers| peers.most_bytes());
                // A packet begins with a few fields.
                most.saturating_sub(64).clamp(1024, MAX_PAYLOAD)
            }
        }
    }

    /// Sends a packet, or keeps it until there is room. A descriptor goes to processes of this host only.
    ///
    /// # Errors
    /// [`LinkError::Ended`].
    pub(crate) fn send(
        &self,
        packet: &WirePacket<'_>,
        descriptor: Option<&Arc<OwnedFd>>,
    ) -> Result<SendState, LinkError> {
        match self {
            Self::Local(link) => link.send(packet, descriptor),
            Self::Far(link) => link.send(packet),
        }
    }

    /// Returns true if packets wait to be sent, and this process has to see to it.
    pub(crate) fn has_waiting(&self) -> bool {
        self.local().is_some_and(|link| link.has_waiting())
    }

    /// Returns the most grants of one side at a time.
    pub(crate) fn most_grants(&self) -> u64 {
        match self {
            Self::Local(_) => GRANTS.into(),
            Self::Far(_) => MOST_RANGES as u64,
        }
    }

    /// Grants own memory to the peer. Returns `None` if it has too many grants.
    pub(crate) fn grant(&self, terms: &GrantTerms) -> Option<GrantName> {
        match self {
            Self::Local(link) => link.grant(terms),
            Self::Far(link) => link.grant(terms),
        }
    }

    /// Ends a grant. No access begins from now on.
    pub(crate) fn end_grant(&self, grant: GrantName) {
        match self {
            Self::Local(link) => link.end_grant(grant, false),
            Self::Far(link) => {
                if let Some(peers) = link.peers() {
                    peers.end_lend(lent_name(grant));
                }
            }
        }
    }

    /// Waits until no access of the peer uses a grant that has ended. Returns `false` if `goes_on` says no first.
    pub(crate) fn wait_unused(&self, grant: GrantName, goes_on: impl FnMut() -> bool) -> bool {
        match self {
            Self::Local(link) => link.wait_unused(grant, goes_on),
            Self::Far(link) => link.wait_unused(lent_name(grant), goes_on),
        }
    }

    /// Frees the place of a grant that has ended and that nobody uses, once.
    pub(crate) fn free_grant(&self, grant: GrantName) {
        match self {
            Self::Local(link) => link.free_grant(grant),
            Self::Far(link) => {
                if let Some(peers) = link.peers() {
                    peers.free_lent(lent_name(grant));
                }
            }
        }
    }
}
