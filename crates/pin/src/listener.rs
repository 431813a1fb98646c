//! How the pipes of a pair come to the peer's NIC.
//!
//! Each NIC can be [called](Callee). Where, and with what secret, is in its area, which only
//! the job's processes can read. Who wants to reach memory for the first time makes the pipes,
//! sends them there in one call, and goes on: it never waits for the peer.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use hydrant_conduit::{Error, Rank, Window};
use hydrant_smp::upon::{self, Callee, MOST_DESCRIPTORS};

use crate::area::INVITATION;

/// Descriptors that a caller brings.
pub(crate) const PIPES: usize = 2;
const _: () = assert!(PIPES <= MOST_DESCRIPTORS);

/// Where to call, and what to show there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NicInvitation(upon::Invitation);

impl NicInvitation {
    /// What is in a NIC's area.
    pub(crate) fn read(area: &Window) -> Self {
        Self(
            area.load(INVITATION)
                .unwrap_or_else(|_| bytemuck::Zeroable::zeroed()),
        )
    }

    /// Calls: hands over the rank's end of the pipes.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] and others, when the peer has not taken earlier calls yet;
    /// or is gone, of which its standing will tell.
    pub(crate) fn call(&self, me: Rank, pipes: [BorrowedFd<'_>; PIPES]) -> io::Result<()> {
        self.0.call(me, &pipes, None)
    }
}

/// The socket of a NIC.
pub(crate) struct NicListener(Callee);

/// Somebody who wants to reach memory here.
pub(crate) struct NicCaller {
    pub(crate) from: Rank,
    /// What it writes comes out of the first pipe; what it reads goes into the second. `None` if
    /// they did not both arrive: the kernel leaves out those for which this process has no
    /// descriptors left.
    pub(crate) pipes: Option<[OwnedFd; PIPES]>,
}

impl NicListener {
    /// Opens the socket and says so in the area.
    pub(crate) fn open(area: &Window) -> Result<Self, Error> {
        let (callee, invitation) = Callee::open()?;
        area.store(INVITATION, invitation)
            .map_err(|_| Error::Unreachable("an area out of bounds".to_owned()))?;
        Ok(Self(callee))
    }

    /// Waits for a caller; `None` once it is shut.
    pub(crate) fn next(&self) -> Option<NicCaller> {
        match self.0.next() {
            Ok(call) => call.map(|call| NicCaller {
                from: call.from,
                pipes: call.descriptors.try_into().ok(),
            }),
            Err(cause) => {
                tracing::error!(%cause, "nobody else can reach the memory of this rank");
                None
            }
        }
    }

    /// Ends the waiting.
    pub(crate) fn shut(&self) {
        self.0.shut();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_a_caller_brings_comes_out_as_it_went_in() {
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
        assert_eq!(&byte, b"x", "another descriptor came out than went in");
    }

    #[test]
    fn a_full_listener_lets_nobody_wait() {
        let area = Window::private(crate::area::BYTES);
        let _listener = NicListener::open(&area).unwrap();
        let pipe = rustix::pipe::pipe().unwrap();
        let invitation = NicInvitation::read(&area);
        let call = || invitation.call(Rank(1), [pipe.0.as_fd(), pipe.1.as_fd()]);
        let refused = (0..100_000).find_map(|_| call().err()).expect("no end");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock, "{refused}");
    }
}
