//! The packets of a session that is made: questions about regions, answers, messages.

use std::{
    os::fd::OwnedFd,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use hydrant_local::{GrantName, GrantTerms, SendState, WirePacket, monotonic};

use crate::{
    Descriptor, LossCause, Result, Rights,
    news::PeerNews,
    regions::Release,
    session::{EXPIRED, FORGED, OTHER_OWNER, REVOKED, RegionAnswer, Session},
    state::{EndpointCommand, EndpointState},
};

/// Takes a packet of a session, and the descriptor that came along. Returns true if the peer says that it leaves.
///
/// # Errors
/// The violation of the protocol, if it is one.
pub(crate) fn take(
    endpoint: &EndpointState,
    session: &Arc<Session>,
    packet: WirePacket<'_>,
    descriptor: Option<OwnedFd>,
) -> Result<bool, LossCause> {
    match packet {
        WirePacket::Ask { request, question } => {
            match answer(endpoint, session, request, question) {
                SendState::Full => {
                    return Err(LossCause::Malformed("it does not read its answers"));
                }
                answered => endpoint.after_send(session, answered),
            }
        }
        WirePacket::Granted {
            request,
            grant,
            file_offset,
        } => {
            let answer = RegionAnswer::Granted {
                grant,
                file: descriptor,
                file_offset,
            };
            let (unused, waker) = session.answer(request, answer)?;
            waker.into_iter().for_each(|waker| endpoint.wake(waker));
            if let Some(RegionAnswer::Granted { grant, .. }) = unused {
                let release = WirePacket::Release { grant };
                let sent = session.link.send(&release, None);
                endpoint.after_send(session, sent.unwrap_or(SendState::Sent));
            }
        }
        WirePacket::NotGranted { request, cause, .. } => {
            let (_, waker) = session.answer(request, RegionAnswer::Refused { cause })?;
            waker.into_iter().for_each(|waker| endpoint.wake(waker));
        }
        WirePacket::Release { grant } => match endpoint.regions.release(session, grant) {
            Release::Done => {}
            // Keys on the network come back later.
            Release::InUse(lingering) if session.link.far().is_some() => {
                (endpoint.commands).push(EndpointCommand::Linger(vec![lingering]));
            }
            Release::InUse(_) => {
                return Err(LossCause::Malformed(
                    "it uses memory that it has given back",
                ));
            }
        },
        WirePacket::Message { more, bytes } => {
            if let Some(message) = session.take_part(more, bytes)? {
                endpoint.tell(PeerNews::Message(Arc::clone(session), message));
            }
        }
        WirePacket::Credit { bytes } => {
            let sent = session.take_credit(bytes)?;
            endpoint.after_send(session, sent);
        }
        WirePacket::Leave => return Ok(true),
        _ => return Err(LossCause::Malformed("a packet out of its place")),
    }
    Ok(false)
}

/// Answers the question for a region.
fn answer(
    endpoint: &EndpointState,
    session: &Arc<Session>,
    request: u64,
    question: &[u8],
) -> SendState {
    let outcome = open(endpoint, session, question);
    let sent = match outcome {
        Ok((grant, file, file_offset)) => {
            let packet = WirePacket::Granted {
                request,
                grant,
                file_offset,
            };
            session.link.send(&packet, file.as_ref())
        }
        Err(cause) => {
            let packet = WirePacket::NotGranted {
                request,
                cause,
                text: &[],
            };
            session.link.send(&packet, None)
        }
    };
    // If the connection has ended, the next packet to receive says so.
    sent.unwrap_or(SendState::Sent)
}

/// The grant, and the file to map from an offset on.
type OpenedGrant = (GrantName, Option<Arc<OwnedFd>>, u64);

/// Grants a peer what a descriptor names.
fn open(
    endpoint: &EndpointState,
    session: &Arc<Session>,
    question: &[u8],
) -> Result<OpenedGrant, u8> {
    let descriptor = Descriptor::from_bytes(question).map_err(|_| FORGED)?;
    if descriptor.owner != endpoint.incarnation {
        return Err(OTHER_OWNER);
    }
    if !descriptor.is_of(&endpoint.secret) {
        return Err(FORGED);
    }
    let region = endpoint.regions.get(descriptor.region).ok_or(REVOKED)?;
    let scope = descriptor.scope();
    let until = match scope.until {
        None => None,
        Some(until) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
            let left = until.checked_sub(now).filter(|left| *left > 0);
            Some(monotonic().saturating_add(left.ok_or(EXPIRED)?))
        }
    };
    let terms = GrantTerms {
        addr: region.window.addr() + scope.start as usize,
        len: scope.len as usize,
        read: scope.rights.contains(Rights::READ),
        write: scope.rights.contains(Rights::WRITE),
        until,
    };
    let grant = endpoint.regions.grant(&region, session, &terms)?;
    Ok((grant, region.file.clone(), scope.start))
}
