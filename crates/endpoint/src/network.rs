//! The endpoint's side of the network: decides about peers of other hosts, and hears of them.

use std::sync::{Arc, OnceLock, Weak};

use hydrant_fabric::{ConnectFailure, FabricSession, SessionEvent, SessionSink};
use hydrant_local::WirePacket;

use crate::{
    LossCause,
    far::other_answers,
    link::{FarLink, SessionLink},
    packets,
    session::{Session, SessionEnding},
    state::{EndpointCommand, EndpointState, parse_introduction},
    table::PeerStage,
};

/// The receiver of news of the network, which is there before the endpoint is.
#[derive(Default)]
pub(crate) struct FarSink {
    endpoint: OnceLock<Weak<EndpointState>>,
}

impl FarSink {
    /// Sets the endpoint, once.
    pub(crate) fn set(&self, endpoint: &Arc<EndpointState>) {
        let _ = self.endpoint.set(Arc::downgrade(endpoint));
    }

    fn endpoint(&self) -> Option<Arc<EndpointState>> {
        self.endpoint.get().and_then(Weak::upgrade)
    }
}

impl SessionSink for FarSink {
    fn admit(&self, introduction: &[u8]) -> Result<Vec<u8>, Vec<u8>> {
        let Some(endpoint) = self.endpoint().filter(|endpoint| !endpoint.is_closed()) else {
            return Err(b"it is closed".to_vec());
        };
        let Some((incarnation, name)) = parse_introduction(introduction) else {
            return Err(b"the introduction is malformed".to_vec());
        };
        if incarnation == endpoint.incarnation {
            return Err(b"it is the same endpoint".to_vec());
        }
        if endpoint.events.is_full() {
            return Err(b"its program does not read its events".to_vec());
        }
        if let PeerStage::Up(session) = endpoint.peers.entry(incarnation, name).stage()
            && session.link.local().is_some()
        {
            return Err(b"it is connected on this host".to_vec());
        }
        Ok(endpoint.introduction())
    }

    fn event(&self, event: SessionEvent) {
        let Some(endpoint) = self.endpoint() else {
            return;
        };
        match event {
            SessionEvent::Met(number, introduction, _) => met(&endpoint, number, &introduction),
            SessionEvent::Failed(number, why) => {
                if let Some(call) = endpoint.far.take_call(number) {
                    let why = match why {
                        ConnectFailure::Declined(bytes) => {
                            format!("it refuses: {}", String::from_utf8_lossy(&bytes))
                        }
                        ConnectFailure::Unreachable(why) => why.to_owned(),
                        _ => "it does not want to be reached".to_owned(),
                    };
                    let _ = call.outcome.keep(Err(why));
                }
            }
            SessionEvent::Left(number) => ended(&endpoint, number, SessionEnding::Left),
            SessionEvent::Lost(number, why) => {
                let cause = LossCause::Network(why);
                ended(&endpoint, number, SessionEnding::Lost(cause));
            }
        }
    }

    fn message(&self, from: FabricSession, bytes: &[u8]) {
        let Some(endpoint) = self.endpoint() else {
            return;
        };
        let Some(session) = endpoint.far.get(from) else {
            return;
        };
        let taken = match WirePacket::parse(bytes) {
            Ok(packet) => packets::take(&endpoint, &session, packet, None),
            Err(malformed) => Err(LossCause::Malformed(malformed.0)),
        };
        if let Err(cause) = taken {
            ended(&endpoint, from, SessionEnding::Lost(cause));
        }
    }
}

/// Makes the connection of a session that has begun.
fn met(endpoint: &Arc<EndpointState>, number: FabricSession, introduction: &[u8]) {
    let Some(peers) = endpoint.far.peers() else {
        return;
    };
    let call = endpoint.far.take_call(number);
    let refuse = |why: String| {
        peers.disconnect(number);
        if let Some(call) = &call {
            let _ = call.outcome.keep(Err(why));
        }
    };
    let Some((incarnation, name)) = parse_introduction(introduction) else {
        return refuse("its introduction is malformed".to_owned());
    };
    if call
        .as_ref()
        .is_some_and(|call| call.incarnation != incarnation)
    {
        return refuse(other_answers(incarnation));
    }
    let entry = endpoint.peers.entry(incarnation, name);
    if let PeerStage::Up(old) = entry.stage() {
        // The end of a session is told before the begin of another one with the same process. So this may be a process
        // that pretends to be the peer.
        return refuse(match old.link.far() {
            Some(_) => "it is connected already".to_owned(),
            None => "it is connected on this host".to_owned(),
        });
    }
    let link = SessionLink::Far(FarLink::new(&peers, number, endpoint.far.is_still()));
    let session = Session::new(Arc::clone(&entry.identity), link, endpoint.fresh_number());
    endpoint.far.add(number, &session);
    entry.set(PeerStage::Up(Arc::clone(&session)));
    endpoint.note_up(&session);
    if let Some(call) = call {
        let _ = call.outcome.keep(Ok(session));
    }
}

/// Ends the connection of a session.
fn ended(endpoint: &Arc<EndpointState>, number: FabricSession, ending: SessionEnding) {
    if let Some(call) = endpoint.far.take_call(number) {
        let _ = call
            .outcome
            .keep(Err("the connection has ended".to_owned()));
    }
    if let Some(session) = endpoint.far.remove(number) {
        let lingering = endpoint.end_session(&session, ending);
        if !lingering.is_empty() {
            (endpoint.commands).push(EndpointCommand::Linger(lingering));
        }
    }
}
