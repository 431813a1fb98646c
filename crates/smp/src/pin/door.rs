//! How the pipes of a pair come to the peer's NIC.
//!
//! Each NIC has a datagram socket of random name (abstract: in no file system, and gone with
//! the process). Name and secret are in its card, which only the job's processes can read. Who
//! wants to reach memory for the first time makes the pipes and sends them there in one
//! datagram, and goes on: it never waits for the peer. A datagram without the secret is dropped.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
};

use hydrant_conduit::{Error, Rank, Window};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::layout::nic;

const SECRET: usize = 16;
/// What a caller shows: the secret and its rank.
const HELLO: usize = SECRET + 4;
/// Descriptors that a caller brings.
pub(super) const WIRES: usize = 3;

/// Where to call, and what to show there.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Invitation {
    name: [u8; 16],
    secret: [u8; SECRET],
}

impl Invitation {
    /// What is in a NIC's card.
    pub(super) fn read(card: &Window) -> Self {
        card.load(nic::INVITATION)
            .unwrap_or_else(|_| bytemuck::Zeroable::zeroed())
    }

    fn address(&self) -> io::Result<SocketAddr> {
        let name: String = self.name.iter().map(|byte| format!("{byte:02x}")).collect();
        SocketAddr::from_abstract_name(format!("hydrant-nic-{name}"))
    }

    /// Calls: hands over the rank's end of the wires.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] and others, when the peer has not taken earlier calls yet;
    /// or is gone, of which its standing will tell.
    pub(super) fn call(&self, me: Rank, wires: [BorrowedFd<'_>; WIRES]) -> io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&self.address()?)?;
        let hello = [&self.secret[..], &me.0.to_le_bytes()].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(WIRES))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&wires));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&socket, &[IoSlice::new(&hello)], &mut ancillary, flags)?;
        Ok(())
    }
}

/// The socket of a NIC.
pub(super) struct Door {
    socket: UnixDatagram,
    invitation: Invitation,
}

/// Somebody who wants to reach memory here.
pub(super) struct Caller {
    pub(super) from: Rank,
    /// What it writes comes out of the first; what it reads goes into the second. The third
    /// keeps that one open.
    pub(super) wires: [OwnedFd; WIRES],
}

impl Door {
    /// Opens the door and says so in the card.
    pub(super) fn open(card: &Window) -> Result<Self, Error> {
        let mut bytes = [0; size_of::<Invitation>()];
        let got = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())
            .map_err(|cause| Error::system("drawing the NIC's secret", cause))?;
        if got != bytes.len() {
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(Error::system("drawing the NIC's secret", short));
        }
        let invitation: Invitation = bytemuck::cast(bytes);
        let socket = (invitation.address())
            .and_then(|address| UnixDatagram::bind_addr(&address))
            .map_err(|cause| Error::system("opening the NIC's socket", cause))?;
        card.store(nic::INVITATION, invitation)
            .map_err(|_| Error::Unreachable("a card out of bounds".to_owned()))?;
        Ok(Self { socket, invitation })
    }

    /// Waits for a caller; `None` once the door is shut.
    pub(super) fn next(&self) -> Option<Caller> {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(WIRES))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut hello = [0; HELLO + 1];
            let heard = recvmsg(
                self.socket.as_fd(),
                &mut [IoSliceMut::new(&mut hello)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            );
            let bytes = match heard {
                // A stranger's empty datagram reads so, too, and shuts out who comes later: to
                // send it, one must guess the name.
                Ok(message) if message.bytes == 0 => return None,
                Ok(message) => message.bytes,
                Err(rustix::io::Errno::INTR) => continue,
                Err(cause) => {
                    tracing::error!(%cause, "nobody else can reach the memory of this rank");
                    return None;
                }
            };
            let wires: Vec<OwnedFd> = (ancillary.drain())
                .filter_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                    _ => None,
                })
                .flatten()
                .collect();
            if let Some(from) = self.admit(&hello[..bytes])
                && let Ok(wires) = wires.try_into()
            {
                return Some(Caller { from, wires });
            }
        }
    }

    /// The rank of who shows the secret.
    fn admit(&self, shown: &[u8]) -> Option<Rank> {
        let (secret, rank) = shown.split_first_chunk::<SECRET>()?;
        // Every byte is looked at, so the time tells nothing of where they differ.
        let differs = (secret.iter().zip(&self.invitation.secret))
            .fold(0, |differs, (a, b)| differs | (a ^ b));
        let rank = u32::from_le_bytes(rank.try_into().ok()?);
        (differs == 0).then_some(Rank(rank))
    }

    /// Ends the waiting.
    pub(super) fn shut(&self) {
        if let Err(cause) = self.socket.shutdown(Shutdown::Both) {
            tracing::error!(%cause, "a NIC's door does not shut");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn callers_are_let_in_and_strangers_are_not() {
        let card = Window::private(nic::BYTES);
        let door = Door::open(&card).unwrap();
        let pipe = rustix::pipe::pipe().unwrap();
        let wires = || [pipe.0.as_fd(), pipe.1.as_fd(), pipe.0.as_fd()];
        let invitation = Invitation::read(&card);
        let liar = Invitation {
            secret: [1; SECRET],
            ..invitation
        };
        liar.call(Rank(9), wires()).unwrap();
        let stranger = UnixDatagram::unbound().unwrap();
        stranger
            .send_to_addr(b"knock", &invitation.address().unwrap())
            .unwrap();
        invitation.call(Rank(3), wires()).unwrap();
        let caller = door.next().unwrap();
        assert_eq!(caller.from, Rank(3));
        rustix::io::write(&pipe.1, b"x").unwrap();
        let mut byte = [0];
        rustix::io::read(&caller.wires[0], &mut byte).unwrap();
        assert_eq!(&byte, b"x", "another descriptor came out than went in");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| door.next().is_none());
            door.shut();
            assert!(waiting.join().unwrap(), "a shut door lets somebody in");
        });
    }

    #[test]
    fn a_full_door_lets_nobody_wait() {
        let card = Window::private(nic::BYTES);
        let _door = Door::open(&card).unwrap();
        let pipe = rustix::pipe::pipe().unwrap();
        let invitation = Invitation::read(&card);
        let call = || invitation.call(Rank(1), [pipe.0.as_fd(), pipe.1.as_fd(), pipe.0.as_fd()]);
        let refused = (0..100_000).find_map(|_| call().err()).expect("no end");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock, "{refused}");
    }
}
