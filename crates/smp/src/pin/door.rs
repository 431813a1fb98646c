//! How the pipes of a pair come to the peer's NIC.
//!
//! Each NIC can be [called](crate::calls). Where, and with what secret, is in its card, which only
//! the job's processes can read. Who wants to reach memory for the first time makes the pipes,
//! sends them there in one call, and goes on: it never waits for the peer.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use hydrant_conduit::{Error, Rank, Window};

use crate::{
    calls::{self, Callee, MOST_DESCRIPTORS},
    layout::nic,
};

/// Descriptors that a caller brings.
pub(super) const WIRES: usize = 2;
const _: () = assert!(WIRES <= MOST_DESCRIPTORS);

/// Where to call, and what to show there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Invitation(calls::Invitation);

impl Invitation {
    /// What is in a NIC's card.
    pub(super) fn read(card: &Window) -> Self {
        Self(
            card.load(nic::INVITATION)
                .unwrap_or_else(|_| bytemuck::Zeroable::zeroed()),
        )
    }

    /// Calls: hands over the rank's end of the wires.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] and others, when the peer has not taken earlier calls yet;
    /// or is gone, of which its standing will tell.
    pub(super) fn call(&self, me: Rank, wires: [BorrowedFd<'_>; WIRES]) -> io::Result<()> {
        self.0.call(me, &wires, None)
    }
}

/// The socket of a NIC.
pub(super) struct Door(Callee);

/// Somebody who wants to reach memory here.
pub(super) struct Caller {
    pub(super) from: Rank,
    /// What it writes comes out of the first pipe; what it reads goes into the second. `None` if
    /// they did not both arrive: the kernel leaves out those for which this process has no
    /// descriptors left.
    pub(super) wires: Option<[OwnedFd; WIRES]>,
}

impl Door {
    /// Opens the door and says so in the card.
    pub(super) fn open(card: &Window) -> Result<Self, Error> {
        let (callee, invitation) = Callee::open()?;
        card.store(nic::INVITATION, invitation)
            .map_err(|_| Error::Unreachable("a card out of bounds".to_owned()))?;
        Ok(Self(callee))
    }

    /// Waits for a caller; `None` once the door is shut.
    pub(super) fn next(&self) -> Option<Caller> {
        match self.0.next() {
            Ok(call) => call.map(|call| Caller {
                from: call.from,
                wires: call.descriptors.try_into().ok(),
            }),
            Err(cause) => {
                tracing::error!(%cause, "nobody else can reach the memory of this rank");
                None
            }
        }
    }

    /// Ends the waiting.
    pub(super) fn shut(&self) {
        self.0.shut();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_a_caller_brings_comes_out_as_it_went_in() {
        let card = Window::private(nic::BYTES);
        let door = Door::open(&card).unwrap();
        let pipe = rustix::pipe::pipe().unwrap();
        let wires = [pipe.0.as_fd(), pipe.1.as_fd()];
        Invitation::read(&card).call(Rank(3), wires).unwrap();
        let caller = door.next().unwrap();
        assert_eq!(caller.from, Rank(3));
        rustix::io::write(&pipe.1, b"x").unwrap();
        let mut byte = [0];
        rustix::io::read(&caller.wires.unwrap()[0], &mut byte).unwrap();
        assert_eq!(&byte, b"x", "another descriptor came out than went in");
    }

    #[test]
    fn a_full_door_lets_nobody_wait() {
        let card = Window::private(nic::BYTES);
        let _door = Door::open(&card).unwrap();
        let pipe = rustix::pipe::pipe().unwrap();
        let invitation = Invitation::read(&card);
        let call = || invitation.call(Rank(1), [pipe.0.as_fd(), pipe.1.as_fd()]);
        let refused = (0..100_000).find_map(|_| call().err()).expect("no end");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock, "{refused}");
    }
}
