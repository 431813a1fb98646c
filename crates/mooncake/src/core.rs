//! The parts of an engine that its threads share: the endpoint, the registered memory, and the answers to peers.

use std::{sync::Arc, time::Duration};

use hydrant_endpoint::{Address, Endpoint, EndpointEvent, HostsOptions, MAX_NAME, Peer};
use parking_lot::Mutex;

use crate::{
    failure::Result,
    memory::RegisteredMemory,
    notifications::Notifications,
    questions::{PeerAnswer, Questions},
    wire::{MessageBody, MooncakeMessage},
};

/// How long calls wait for a peer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// The state that the threads of an engine share.
pub(crate) struct EngineCore {
    /// The name under which peers find the engine: `host:port`.
    pub(crate) name: String,
    pub(crate) endpoint: Endpoint,
    /// Connected to the endpoint, for transfers to the engine's own segment.
    mirror: Mutex<Option<Endpoint>>,
    pub(crate) memory: RegisteredMemory,
    pub(crate) notifications: Notifications,
    pub(crate) questions: Questions,
}

impl EngineCore {
    /// # Errors
    /// The sentence.
    pub(crate) fn new(name: String) -> Result<Arc<Self>> {
        let builder = Endpoint::builder()
            .peer_timeout(PATIENCE)
            .hosts(HostsOptions {
                optional: true,
                ..HostsOptions::from_env()
            });
        let endpoint = match name.len() <= MAX_NAME {
            true => builder.name(&name).listen()?,
            false => builder.listen()?,
        };
        Ok(Arc::new(Self {
            name,
            endpoint,
            mirror: Mutex::default(),
            memory: RegisteredMemory::default(),
            notifications: Notifications::default(),
            questions: Questions::default(),
        }))
    }

    pub(crate) fn address(&self) -> &Address {
        self.endpoint.address()
    }

    /// Returns the engine's own endpoint, as a peer of the mirror.
    ///
    /// # Errors
    /// The sentence.
    pub(crate) fn own_peer(&self) -> Result<Peer> {
        let mut mirror = self.mirror.lock();
        let endpoint = match &*mirror {
            Some(endpoint) => endpoint.clone(),
            None => {
                let endpoint = Endpoint::builder().peer_timeout(PATIENCE).listen()?;
                mirror.insert(endpoint).clone()
            }
        };
        drop(mirror);
        Ok(endpoint.connect(self.address())?)
    }

    /// Answers peers until the endpoint is closed.
    pub(crate) fn serve(&self) {
        while let Ok(event) = self.endpoint.next_event() {
            match event {
                EndpointEvent::Message { peer, bytes } => {
                    // Strangers' messages are nothing.
                    if let Some(message) = MooncakeMessage::parse(&bytes) {
                        self.take(&peer, message);
                    }
                }
                EndpointEvent::Left(peer) | EndpointEvent::Lost { peer, .. } => {
                    self.questions.end(peer.incarnation());
                }
                _ => {}
            }
        }
        self.questions.end_all();
    }

    fn take(&self, peer: &Peer, message: MooncakeMessage<'_>) {
        let MooncakeMessage { request, body } = message;
        match body {
            MessageBody::Ask { addr, len } => match self.memory.find(addr, len) {
                Ok(found) => {
                    let body = MessageBody::Region {
                        start: found.start,
                        len: found.len,
                        descriptor: &found.descriptor.to_bytes(),
                    };
                    reply(peer, MooncakeMessage { request, body });
                }
                Err(refusal) => {
                    let body = MessageBody::Refused(refusal);
                    reply(peer, MooncakeMessage { request, body });
                }
            },
            MessageBody::Notify { name, text } => {
                let taken = self.notifications.push(name, text);
                if request != 0 {
                    let body = MessageBody::Noted { taken };
                    reply(peer, MooncakeMessage { request, body });
                }
            }
            other => {
                if let Some(answer) = PeerAnswer::of(other) {
                    self.questions.answer(peer.incarnation(), request, answer);
                }
            }
        }
    }

    /// Ends the endpoint: nothing is transferred any more.
    pub(crate) fn close(&self) {
        if let Some(mirror) = self.mirror.lock().take() {
            mirror.close();
        }
        self.endpoint.close();
        self.questions.end_all();
    }
}

/// Sends an answer. A peer that does not read its messages gets none, because nobody waits for it.
fn reply(peer: &Peer, message: MooncakeMessage<'_>) {
    let _ = peer.send_within(&message.to_bytes(), Duration::ZERO);
}
