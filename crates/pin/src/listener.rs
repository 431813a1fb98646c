//! The way by which the pipes of a pair reach the peer's NIC.
//!
//! Each NIC listens on a [socket](Callee). The socket's address and secret are in the NIC's area,
//! which only the job's processes can read. For its first operation on a peer, a rank makes the
//! pipes and sends them to this socket. The rank never waits for the peer.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use hydrant_conduit::{Error, Rank, Window};
use hydrant_smp::upon::{self, Callee, MOST_DESCRIPTORS};

use crate::area::INVITATION;

/// The number of descriptors that a caller sends.
pub(crate) const PIPES: usize = 2;
const _: () = assert!(PIPES <= MOST_DESCRIPTORS);

/// The address and the secret of a NIC's socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NicInvitation(upon::Invitation);

impl NicInvitation {
    /// Reads the invitation in a NIC's area.
    pub(crate) fn read(area: &Window) -> Self {
        Self(
            area.load(INVITATION)
                .unwrap_or_else(|_| bytemuck::Zeroable::zeroed()),
        )
    }

    /// Sends the local NIC's pipes to the peer's NIC.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the peer has not taken earlier calls yet. Other errors if
    /// the peer is gone, which its standing shows.
    pub(crate) fn call(&self, me: Rank, pipes: [BorrowedFd<'_>; PIPES]) -> io::Result<()> {
        self.0.call(me, &pipes, None)
    }
}

/// The socket of a NIC.
pub(crate) struct NicListener(Callee);

/// A peer that wants to access memory of this rank.
pub(crate) struct NicCaller {
    pub(crate) from: Rank,
    /// The pipe of its writes, and the pipe of its reads. `None` if not both arrived: the kernel
    /// drops descriptors that exceed the limit of this process.
    pub(crate) pipes: Option<[OwnedFd; PIPES]>,
}

impl NicListener {
    /// Opens the socket and publishes its address in the area.
    pub(crate) fn open(area: &Window) -> Result<Self, Error> {
        let (callee, invitation) = Callee::open()?;
        area.store(INVITATION, invitation)
            .map_err(|_| Error::Unreachable("an area out of bounds".to_owned()))?;
        Ok(Self(callee))
    }

    /// Waits for a caller. Returns `None` once the listener is shut.
    pub(crate) fn next(&self) -> Option<NicCaller> {
        match self.0.next() {
            Ok(call) => call.map(|call| NicCaller {
                from: call.from,
                pipes: call.descriptors.try_into().ok(),
            }),
            Err(cause) => {
                tracing::error!(%cause, "no further peer can access the memory of this rank");
                None
            }
        }
    }

    /// Shuts the socket, which ends [`next`](Self::next).
    pub(crate) fn shut(&self) {
        self.0.shut();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_listener_receives_the_descriptors_that_a_caller_sent() {
        let area = Window::private(crate::area::BYTES);
        let listener = NicListener::open(&area).unwrap();
        let pipe = rustix::pipe::pipe().unwrap();
        let pipes = [pipe.0.as_fd(), pipe.1.as_fd()];
        NicInvitation::read(&area).call(Rank(3), pipes).unwrap();
        let caller = listener.next().unwrap();
        assert_eq!(caller.from, Rank(3));
        rustix::io::write(&pipe.1, b"x").unwrap();
        let mut byte = [0];
        rustix::io::read(&caller.pipes.unwrap()[0], &mut byte).unwrap();
        assert_eq!(&byte, b"x", "the listener received another descriptor");
    }

    #[test]
    fn a_full_listener_refuses_calls_at_once() {
        let area = Window::private(crate::area::BYTES);
        let _listener = NicListener::open(&area).unwrap();
        let pipe = rustix::pipe::pipe().unwrap();
        let invitation = NicInvitation::read(&area);
        let call = || invitation.call(Rank(1), [pipe.0.as_fd(), pipe.1.as_fd()]);
        let refused = (0..100_000)
            .find_map(|_| call().err())
            .expect("a full listener");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock, "{refused}");
    }
}
