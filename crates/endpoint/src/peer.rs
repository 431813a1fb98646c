//! Peers, as users hold them.

use std::{fmt, future::poll_fn, sync::Arc, time::Duration};

use hydrant_local::{ForeignMapping, GrantName, WirePacket};

use crate::{
    Descriptor, Error, RemoteRegion, Result,
    opened::OpenedRegion,
    promise::{Promise, deadline},
    session::{EXPIRED, FORGED, FULL, OTHER_OWNER, RegionAnswer, Session},
    state::EndpointState,
    table::{PeerEntry, PeerStage},
};

/// The most questions for regions that one call has on the way.
const ASKED_TOGETHER: usize = 512;

/// Another endpoint, one incarnation of it. The handle can be cloned and used by any thread.
#[derive(Clone)]
pub struct Peer {
    endpoint: Arc<EndpointState>,
    entry: Arc<PeerEntry>,
}

impl Peer {
    pub(crate) fn new(endpoint: Arc<EndpointState>, entry: Arc<PeerEntry>) -> Self {
        Self { endpoint, entry }
    }

    pub(crate) fn endpoint(&self) -> &Arc<EndpointState> {
        &self.endpoint
    }

    /// Returns the name that the peer has given itself. It may be empty, and several peers may have the same.
    pub fn name(&self) -> &str {
        &self.entry.identity.name
    }

    /// Returns the number of the incarnation, which is drawn at random when an endpoint starts.
    pub fn incarnation(&self) -> u64 {
        self.entry.identity.incarnation
    }

    /// Returns whether the peer is connected.
    pub fn is_connected(&self) -> bool {
        matches!(self.entry.stage(), PeerStage::Up(_))
    }

    /// Returns the connection.
    pub(crate) fn session(&self) -> Result<Arc<Session>> {
        self.endpoint.check_open()?;
        match self.entry.stage() {
            PeerStage::Up(session) => Ok(session),
            PeerStage::Ended(ending) => Err(ending.error(self.entry.label())),
            _ => Err(Error::NotConnected {
                peer: self.entry.label(),
            }),
        }
    }

    /// Opens a region of the peer, or the part that a descriptor names. The peer's endpoint answers, even if its program
    /// computes. Waits for the answer as long as [`EndpointBuilder::peer_timeout`](crate::EndpointBuilder::peer_timeout)
    /// says.
    ///
    /// # Errors
    /// [`Error::OtherOwner`], [`Error::Forged`], [`Error::Revoked`], [`Error::Expired`], [`Error::Exhausted`] if the peer
    /// has granted this process too many regions at a time, [`Error::TimedOut`], [`Error::Lost`], [`Error::Left`],
    /// [`Error::NotConnected`], [`Error::Closed`], [`Error::Forked`], [`Error::System`].
    pub fn open(&self, descriptor: &Descriptor) -> Result<RemoteRegion> {
        let mut opened = self.open_all(std::slice::from_ref(descriptor))?;
        Ok(opened.pop().expect("one region was asked for"))
    }

    /// As [`open`](Self::open), for many descriptors. The questions are on the way together, so that this takes a fraction
    /// of the time. Either all are opened or none.
    ///
    /// # Errors
    /// As [`open`](Self::open), the first one.
    pub fn open_all(&self, descriptors: &[Descriptor]) -> Result<Vec<RemoteRegion>> {
        let session = self.session()?;
        let mut foreign = descriptors.iter();
        let own = self.entry.identity.incarnation;
        if let Some(descriptor) = foreign.find(|descriptor| descriptor.owner != own) {
            return Err(self.other_owner(descriptor));
        }
        let mut opened = Vec::with_capacity(descriptors.len());
        for together in descriptors.chunks(ASKED_TOGETHER) {
            let questions: Result<Vec<_>> = (together.iter())
                .map(|descriptor| {
                    let (promise, sent) = session.ask(&descriptor.to_bytes())?;
                    self.endpoint.after_send(&session, sent);
                    Ok(promise)
                })
                .collect();
            let deadline = deadline(self.endpoint.patience);
            // Each answer is taken, so that what was granted beside a refusal is released.
            let answers: Vec<_> = (together.iter().zip(questions?))
                .map(|(descriptor, question)| {
                    self.finish_open(&session, descriptor, question.wait_or_abandon(deadline))
                })
                .collect();
            for answer in answers {
                opened.push(answer?);
            }
        }
        Ok(opened)
    }

    /// As [`open`](Self::open), as a task. It waits for the answer without a limit, and ends if the peer is lost.
    ///
    /// # Errors
    /// As [`open`](Self::open), without [`Error::TimedOut`].
    ///
    /// ```
    /// use hydrant_endpoint::{Endpoint, Rights};
    ///
    /// # hydrant_base::block_on(async {
    /// let owner = Endpoint::builder().listen()?;
    /// let region = owner.alloc(100)?;
    /// let user = Endpoint::builder().listen()?;
    /// let peer = user.connect_async(owner.address()).await?;
    /// let remote = peer.open_async(&region.descriptor(Rights::READ)).await?;
    /// assert_eq!(remote.len(), 100);
    /// # Ok::<(), hydrant_endpoint::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn open_async(&self, descriptor: &Descriptor) -> Result<RemoteRegion> {
        let session = self.session()?;
        if descriptor.owner != self.entry.identity.incarnation {
            return Err(self.other_owner(descriptor));
        }
        let (promise, sent) = session.ask(&descriptor.to_bytes())?;
        self.endpoint.after_send(&session, sent);
        let question = OpenQuestion {
            peer: self,
            session: &session,
            promise,
        };
        let answer = poll_fn(|context| question.promise.poll(context)).await;
        self.finish_open(&session, descriptor, Some(answer))
    }

    /// Gives back what was granted and is not used.
    fn release(&self, session: &Session, grant: GrantName) {
        if let Ok(sent) = session.link.send(&WirePacket::Release { grant }, None) {
            self.endpoint.after_send(session, sent);
        }
    }

    fn other_owner(&self, descriptor: &Descriptor) -> Error {
        Error::OtherOwner {
            peer: self.entry.label(),
            owner: descriptor.owner,
            found: self.entry.identity.incarnation,
        }
    }

    /// Makes the region of an answer, or of none in time.
    fn finish_open(
        &self,
        session: &Arc<Session>,
        descriptor: &Descriptor,
        answer: Option<RegionAnswer>,
    ) -> Result<RemoteRegion> {
        let peer = || self.entry.label();
        let within = self.endpoint.patience;
        let (grant, file, file_offset) = match answer {
            Some(RegionAnswer::Granted {
                grant,
                file,
                file_offset,
            }) => (grant, file, file_offset),
            Some(RegionAnswer::Refused { cause }) => {
                return Err(match cause {
                    EXPIRED => Error::Expired { peer: peer() },
                    FORGED => Error::Forged { peer: peer() },
                    OTHER_OWNER => self.other_owner(descriptor),
                    FULL => Error::Exhausted {
                        what: "open regions of one peer",
                        limit: session.link.most_grants(),
                    },
                    _ => Error::Revoked { peer: peer() },
                });
            }
            Some(RegionAnswer::Ended) => return Err(session.end_error()),
            None => {
                let what = "the answer about a region";
                return Err(Error::TimedOut { what, within });
            }
        };
        let scope = descriptor.scope();
        let mapping = match file {
            Some(file) => {
                let len = usize::try_from(scope.len).unwrap_or(usize::MAX);
                match ForeignMapping::new(&file, file_offset, len) {
                    Ok(mapping) => Some(mapping),
                    Err(cause) => {
                        self.release(session, grant);
                        return Err(cause.into());
                    }
                }
            }
            None => None,
        };
        Ok(RemoteRegion::new(OpenedRegion {
            endpoint: Arc::clone(&self.endpoint),
            session: Arc::clone(session),
            grant,
            mapping,
            len: scope.len,
            rights: scope.rights,
        }))
    }

    /// Sends a message of at most [`MAX_MESSAGE`](crate::MAX_MESSAGE) bytes. Messages of a peer arrive once, in order,
    /// as [events](crate::EndpointEvent::Message). Waits while the peer has 1 MiB of them that its program has not read,
    /// as long as [`EndpointBuilder::peer_timeout`](crate::EndpointBuilder::peer_timeout) says.
    ///
    /// # Errors
    /// [`Error::MessageTooLong`], [`Error::NoRoom`], [`Error::Lost`], [`Error::Left`], [`Error::NotConnected`],
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn send(&self, message: &[u8]) -> Result<()> {
        self.send_within(message, self.endpoint.patience)
    }

    /// As [`send`](Self::send), but waits for room only so long.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_within(&self, message: &[u8], patience: Duration) -> Result<()> {
        let session = self.session()?;
        let sent = session.send(message, Some(deadline(patience)))?;
        self.endpoint.after_send(&session, sent);
        Ok(())
    }
}

/// A question for a region, which nobody waits for once this is dropped.
struct OpenQuestion<'a> {
    peer: &'a Peer,
    session: &'a Session,
    promise: Arc<Promise<RegionAnswer>>,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        if let Some(RegionAnswer::Granted { grant, .. }) = self.promise.abandon() {
            self.peer.release(self.session, grant);
        }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({:?}, {:016x})", self.name(), self.incarnation())
    }
}

/// Handles of the same incarnation are equal.
impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        self.entry.identity.incarnation == other.entry.identity.incarnation
    }
}

impl Eq for Peer {}
