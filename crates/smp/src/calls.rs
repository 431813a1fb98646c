//! Calls: datagrams with descriptors among the processes of a job on one host.
//!
//! Who may be called has a datagram socket of random name (abstract: in no file system, and gone
//! with the process). Every user of the host can read that name in `/proc/net/unix` and send
//! there, so a call shows a secret, which only the job's processes know. The kernel compares it: a
//! filter on the socket runs in the sender's own system call, before the datagram takes one of
//! the few places in the queue. A stranger is told that its datagram was sent, nobody wakes up
//! for it, no descriptor of it is ever opened here, and it keeps no place from a caller who
//! belongs to the job.
//!
//! Where a system has no such filters, the same comparison is made when a datagram is read.

#![allow(unsafe_code)] // a socket option that libc alone knows

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::Shutdown,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use hydrant_conduit::{Error, Rank};
use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, recvmsg, sendmsg,
    },
};

const SECRET: usize = 16;
/// What a caller shows: the secret and its rank.
const HELLO: usize = SECRET + 4;
/// Descriptors that a call may bring.
pub const MOST_DESCRIPTORS: usize = 8;

/// Where to call, and what to show there.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Invitation {
    name: [u8; 16],
    secret: [u8; SECRET],
}

impl Invitation {
    /// One that nobody else has.
    fn draw() -> Result<Self, Error> {
        let mut bytes = [0; size_of::<Self>()];
        let got = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())
            .map_err(|cause| Error::system("drawing the secret of a socket", cause))?;
        if got != bytes.len() {
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(Error::system("drawing the secret of a socket", short));
        }
        Ok(bytemuck::cast(bytes))
    }

    fn name(&self) -> String {
        let name: String = self.name.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("hydrant-{name}")
    }

    /// Calls in the name of a rank, and hands over descriptors. If there is no room for the call
    /// it waits so long, or not at all.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no room; [`io::ErrorKind::ConnectionRefused`] if
    /// nobody is there any more.
    pub fn call(
        &self,
        me: Rank,
        descriptors: &[BorrowedFd<'_>],
        patience: Option<Duration>,
    ) -> io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&SocketAddr::from_abstract_name(self.name())?)?;
        let mut flags = SendFlags::NOSIGNAL;
        match patience {
            Some(_) => socket.set_write_timeout(patience)?,
            None => flags |= SendFlags::DONTWAIT,
        }
        let hello = [&self.secret[..], &me.0.to_le_bytes()].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        let hello = [IoSlice::new(&hello)];
        rustix::io::retry_on_intr(|| sendmsg(&socket, &hello, &mut ancillary, flags))?;
        Ok(())
    }

    /// The rank of who shows the secret.
    fn admit(&self, shown: &[u8]) -> Option<Rank> {
        let (secret, rank) = shown.split_first_chunk::<SECRET>()?;
        // Every byte is looked at, so the time tells nothing of where they differ.
        let differs =
            (secret.iter().zip(&self.secret)).fold(0, |differs, (a, b)| differs | (a ^ b));
        let rank = u32::from_le_bytes(rank.try_into().ok()?);
        (differs == 0).then_some(Rank(rank))
    }
}

/// A call that showed the secret.
pub struct Call {
    /// Who called.
    pub from: Rank,
    /// What it brought; fewer than were sent if this process has no more descriptors.
    pub descriptors: Vec<OwnedFd>,
}

/// A socket that can be called.
pub struct Callee {
    socket: UnixDatagram,
    invitation: Invitation,
    shut: AtomicBool,
}

impl Callee {
    /// Opens a socket, and says how it is called.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn open() -> Result<(Self, Invitation), Error> {
        let invitation = Invitation::draw()?;
        let socket = UnixDatagram::unbound()
            .map_err(|cause| Error::system("opening a socket for calls", cause))?;
        // Before it has its name, so that nothing is in the queue that the filter did not see.
        if let Err(cause) = attach_filter(&socket, &invitation) {
            tracing::debug!(%cause, "the system does not keep strangers' datagrams away");
        }
        let bound = SocketAddrUnix::new_abstract_name(invitation.name().as_bytes())
            .and_then(|address| rustix::net::bind(&socket, &address));
        bound.map_err(|cause| Error::system("naming a socket for calls", cause))?;
        let callee = Self {
            socket,
            invitation,
            shut: AtomicBool::new(false),
        };
        Ok((callee, invitation))
    }

    /// Waits for a call; `None` once the socket is shut.
    ///
    /// # Errors
    /// What the system says if nobody can call any more.
    pub fn next(&self) -> io::Result<Option<Call>> {
        loop {
            let datagram = self.take(RecvFlags::empty());
            // A socket that is shut reads as an empty datagram, again and again; a stranger's empty
            // datagram is only one more that shows no secret.
            if self.shut.load(SeqCst) {
                return Ok(None);
            }
            match datagram {
                Ok(Some(call)) => return Ok(Some(call)),
                Ok(None) => {}
                Err(cause) => return Err(cause),
            }
        }
    }

    /// A call that is there; `None` if there is none that shows the secret. Looks at so many
    /// datagrams at most, so that what strangers send keeps nobody from anything else.
    pub(crate) fn next_of(&self, most: usize) -> io::Result<Option<Call>> {
        for _ in 0..most {
            match self.take(RecvFlags::DONTWAIT) {
                Ok(Some(call)) => return Ok(Some(call)),
                Ok(None) => {}
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(cause) => return Err(cause),
            }
        }
        Ok(None)
    }

    /// One datagram; `None` if it does not show the secret.
    ///
    /// The secret alone decides, and not the sender's user, which the kernel would tell: a rank may
    /// have become another user since it joined, and who knows the secret has the job's memory.
    fn take(&self, flags: RecvFlags) -> io::Result<Option<Call>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut hello = [0; HELLO + 1];
        let received = recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut hello)],
            &mut ancillary,
            flags | RecvFlags::CMSG_CLOEXEC,
        );
        let bytes = match received {
            Ok(message) => message.bytes,
            Err(Errno::INTR) => return Ok(None),
            Err(cause) => return Err(cause.into()),
        };
        let descriptors = (ancillary.drain())
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten()
            .collect();
        let from = hello
            .get(..bytes)
            .and_then(|hello| self.invitation.admit(hello));
        Ok(from.map(|from| Call { from, descriptors }))
    }

    /// Ends the waiting.
    pub fn shut(&self) {
        self.shut.store(true, SeqCst);
        if let Err(cause) = self.socket.shutdown(Shutdown::Both) {
            tracing::error!(%cause, "a socket for calls does not shut");
        }
    }
}

impl AsFd for Callee {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Has the kernel throw away every datagram that is not as long as a caller's hello, or does not
/// begin with the secret.
fn attach_filter(socket: &UnixDatagram, invitation: &Invitation) -> io::Result<()> {
    const LENGTH: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_LEN) as u16;
    const WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const DIFFERS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let words = invitation.secret.as_chunks::<4>().0;
    let last = 2 * words.len() as u8 + 2;
    let mut program = Vec::new();
    let mut step = |code, k, jf| program.push(libc::sock_filter { code, jt: 0, jf, k });
    // Each comparison that fails goes to the end, over what is left of the others.
    step(LENGTH, 0, 0);
    step(DIFFERS, HELLO as u32, last - 1);
    for (number, word) in words.iter().enumerate() {
        step(WORD, 4 * number as u32, 0);
        step(
            DIFFERS,
            u32::from_be_bytes(*word),
            last - 3 - 2 * number as u8,
        );
    }
    step(RETURN, u32::MAX, 0);
    step(RETURN, 0, 0);
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program out of the vector, which lives and has that length,
    // and checks it before it uses it.
    let refused = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    } != 0;
    if refused {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{io::Read, thread};

    use super::*;

    fn stranger(at: &Invitation) -> UnixDatagram {
        let socket = UnixDatagram::unbound().unwrap();
        let address = SocketAddr::from_abstract_name(at.name()).unwrap();
        socket.connect_addr(&address).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    fn hello(at: &Invitation, rank: u32) -> Vec<u8> {
        [&at.secret[..], &rank.to_le_bytes()].concat()
    }

    #[test]
    fn a_call_brings_its_descriptors() {
        let (callee, invitation) = Callee::open().unwrap();
        let (mut ours, theirs) = std::io::pipe().unwrap();
        invitation.call(Rank(3), &[theirs.as_fd()], None).unwrap();
        drop(theirs);
        let mut call = callee.next().unwrap().unwrap();
        assert_eq!((call.from, call.descriptors.len()), (Rank(3), 1));
        let theirs = call.descriptors.pop().unwrap();
        rustix::io::write(&theirs, b"here").unwrap();
        drop(theirs);
        let mut got = String::new();
        ours.read_to_string(&mut got).unwrap();
        assert_eq!(got, "here");
    }

    #[test]
    fn strangers_take_no_place_of_callers() {
        let (callee, invitation) = Callee::open().unwrap();
        let stranger = stranger(&invitation);
        let good = hello(&invitation, 1);
        // Many more than the queue holds: nothing, noise, too little, too much, and a wrong
        // secret that differs in one byte, whichever.
        for _ in 0..1000 {
            for bytes in [
                &[][..],
                b"knock",
                &good[..SECRET],
                &[&good[..], b"x"].concat(),
            ] {
                stranger
                    .send(bytes)
                    .expect("a stranger is told that it was sent");
            }
            for at in 0..SECRET {
                let mut wrong = good.clone();
                wrong[at] ^= 1;
                stranger
                    .send(&wrong)
                    .expect("a stranger is told that it was sent");
            }
        }
        assert!(callee.next_of(1).unwrap().is_none());
        invitation.call(Rank(7), &[], None).unwrap();
        let call = callee
            .next_of(1)
            .unwrap()
            .expect("the first that is in the queue");
        assert_eq!(call.from, Rank(7));
    }

    /// As where the system knows no filters: what strangers sent is read and dropped.
    #[test]
    fn without_a_filter_strangers_are_not_heard_either() {
        let (callee, invitation) = Callee::open().unwrap();
        detach_filter(&callee.socket);
        let stranger = stranger(&invitation);
        stranger.send(b"").unwrap();
        stranger.send(&[1; HELLO]).unwrap();
        stranger
            .send(&[&hello(&invitation, 5)[..], b"x"].concat())
            .unwrap();
        assert!(
            callee.next_of(2).unwrap().is_none(),
            "two of three were looked at"
        );
        invitation.call(Rank(2), &[], None).unwrap();
        assert_eq!(callee.next().unwrap().unwrap().from, Rank(2));
    }

    #[test]
    fn a_shut_socket_ends_the_waiting_and_an_empty_datagram_does_not() {
        let (callee, invitation) = Callee::open().unwrap();
        detach_filter(&callee.socket);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| callee.next());
            let stranger = stranger(&invitation);
            for _ in 0..10_000 {
                let _ = stranger.send(b"");
            }
            invitation
                .call(Rank(4), &[], Some(Duration::from_secs(60)))
                .unwrap();
            assert_eq!(waiting.join().unwrap().unwrap().unwrap().from, Rank(4));
            let waiting = scope.spawn(|| callee.next());
            callee.shut();
            assert!(waiting.join().unwrap().unwrap().is_none());
        });
    }

    #[test]
    fn who_is_gone_cannot_be_called() {
        let (callee, invitation) = Callee::open().unwrap();
        drop(callee);
        let refused = invitation.call(Rank(0), &[], None).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    fn detach_filter(socket: &UnixDatagram) {
        let unused = 0_i32;
        // SAFETY: the option has no value; four bytes are read, and are there.
        let refused = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_DETACH_FILTER,
                (&raw const unused).cast(),
                size_of::<i32>() as libc::socklen_t,
            )
        };
        assert_eq!(refused, 0);
    }
}
