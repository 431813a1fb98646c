//! Sockets of packets, with descriptors.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use hydrant_conduit::Error;
use rustix::{
    io::{Errno, retry_on_intr},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
        socket_with,
    },
};

use crate::{packet::MAX_PACKET, proof::Bytes16};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 256;

/// The fate of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendOutcome {
    Sent,
    /// The other side's queue is full.
    Full,
    /// The other side has ended.
    Ended,
}

/// A packet that arrived.
#[derive(Debug)]
pub(crate) struct RawPacket {
    pub(crate) len: usize,
    pub(crate) descriptor: Option<OwnedFd>,
}

/// Why no packet arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoPacket {
    /// None is there yet.
    NotYet,
    /// The other side has ended, or closed its end.
    Ended,
    /// A packet is longer than any of this version.
    TooLong,
}

fn name(name: &Bytes16) -> Result<SocketAddrUnix, Error> {
    let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddrUnix::new_abstract_name(format!("hydrant-{hex}").as_bytes())
        .map_err(|cause| Error::system("naming a socket", cause))
}

fn open() -> Result<OwnedFd, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|cause| Error::system("opening a socket", cause))
}

/// Opens a socket that takes connections under a name.
pub(crate) fn listen(at: &Bytes16) -> Result<OwnedFd, Error> {
    let socket = open()?;
    rustix::net::bind(&socket, &name(at)?)
        .map_err(|cause| Error::system("naming a socket", cause))?;
    rustix::net::listen(&socket, BACKLOG)
        .map_err(|cause| Error::system("listening at a socket", cause))?;
    Ok(socket)
}

/// Takes a connection, if one waits.
pub(crate) fn accept(socket: impl AsFd) -> Result<Option<OwnedFd>, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match retry_on_intr(|| rustix::net::accept_with(&socket, flags)) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AGAIN | Errno::CONNABORTED) => Ok(None),
        Err(cause) => Err(Error::system("accepting a connection", cause)),
    }
}

/// The result of an attempt to connect.
pub(crate) enum ConnectAttempt {
    Connected(OwnedFd),
    Nobody,
    /// Too many connections wait there.
    Busy,
}

/// Connects to a name.
pub(crate) fn connect(to: &Bytes16) -> Result<ConnectAttempt, Error> {
    let (socket, name) = (open()?, name(to)?);
    match retry_on_intr(|| rustix::net::connect(&socket, &name)) {
        Ok(()) => Ok(ConnectAttempt::Connected(socket)),
        Err(Errno::CONNREFUSED) => Ok(ConnectAttempt::Nobody),
        Err(Errno::AGAIN) => Ok(ConnectAttempt::Busy),
        Err(cause) => Err(Error::system("connecting to an endpoint", cause)),
    }
}

/// Sends a packet, and a descriptor with it.
pub(crate) fn send(
    socket: impl AsFd,
    packet: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> SendOutcome {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor]);
    if let Some(descriptors) = &descriptors {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let packet = [IoSlice::new(packet)];
    match retry_on_intr(|| sendmsg(&socket, &packet, &mut ancillary, flags)) {
        Ok(_) => SendOutcome::Sent,
        Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::TOOMANYREFS) => SendOutcome::Full,
        Err(_) => SendOutcome::Ended,
    }
}

/// Takes a packet that has arrived.
pub(crate) fn receive(socket: impl AsFd, into: &mut [u8]) -> Result<RawPacket, NoPacket> {
    debug_assert!(
        into.len() > MAX_PACKET,
        "room for a byte more than any packet"
    );
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received =
        retry_on_intr(|| recvmsg(&socket, &mut [IoSliceMut::new(into)], &mut ancillary, flags));
    let len = match received {
        Ok(message) if message.bytes == 0 => return Err(NoPacket::Ended),
        Ok(message) => message.bytes,
        Err(Errno::AGAIN) => return Err(NoPacket::NotYet),
        Err(_) => return Err(NoPacket::Ended),
    };
    let mut descriptor = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            // Those that are not kept are closed.
            descriptor = descriptors.into_iter().next();
        }
    }
    if len > MAX_PACKET {
        return Err(NoPacket::TooLong);
    }
    Ok(RawPacket { len, descriptor })
}
