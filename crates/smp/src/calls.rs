//! Calls: datagrams with descriptors among the processes of a job on one host.
//!
//! A callee has a datagram socket of random name. The name is abstract: it is in no file system,
//! and is gone with the process. Every user of the host can read the name in `/proc/net/unix` and
//! send to it. A call therefore carries a secret that only the job's processes know. The kernel
//! compares the secret: a filter on the socket runs in the sender's own system call, before the
//! datagram takes one of the few places in the queue. A stranger's send succeeds, but wakes no
//! process. No descriptor of it is opened here, and it takes no place from a caller of the job.
//!
//! On a system without such filters, the comparison is made when the datagram is read.

#![allow(unsafe_code)] // a socket option that only libc has

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

use hydrant_base::words::only;
use hydrant_conduit::{Error, Rank};
use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, recvmsg, sendmsg,
    },
};

const SECRET: usize = 16;
/// The bytes of a caller's hello: the secret and its rank.
const HELLO: usize = SECRET + 4;
/// The most descriptors of a call.
pub const MOST_DESCRIPTORS: usize = 8;

/// The address to call, and the secret to send there.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Invitation {
    name: [u8; 16],
    secret: [u8; SECRET],
}

impl Invitation {
    /// Draws a random name and secret.
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

    /// Calls in the name of a rank, and hands over descriptors. Waits at most `patience` for room
    /// in the queue, or not at all.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no room; [`io::ErrorKind::ConnectionRefused`] if
    /// the callee is gone.
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

    /// Returns the rank of a caller that sent the secret.
    fn admit(&self, shown: &[u8]) -> Option<Rank> {
        let (secret, rank): ([u8; SECRET], _) = only(shown).ok()?;
        // The loop compares every byte, so its time does not tell where the secrets differ.
        let differs =
            (secret.iter().zip(&self.secret)).fold(0, |differs, (a, b)| differs | (a ^ b));
        (differs == 0).then_some(Rank(rank))
    }
}

/// A call with the right secret.
pub struct RankCall {
    /// The caller.
    pub from: Rank,
    /// The caller's descriptors. Some are missing if this process has no descriptors left.
    pub descriptors: Vec<OwnedFd>,
}

/// A socket that takes calls.
pub struct Callee {
    socket: UnixDatagram,
    invitation: Invitation,
    shut: AtomicBool,
}

impl Callee {
    /// Opens a socket, and returns the invitation to call it.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn open() -> Result<(Self, Invitation), Error> {
        let invitation = Invitation::draw()?;
        let socket = UnixDatagram::unbound()
            .map_err(|cause| Error::system("opening a socket for calls", cause))?;
        // The socket gets its filter before its name, so that every datagram in the queue has
        // passed the filter.
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

    /// Waits for a call. Returns `None` once the socket is shut.
    ///
    /// # Errors
    /// The system's error if the socket can take no more calls.
    pub fn next(&self) -> io::Result<Option<RankCall>> {
        loop {
            let datagram = self.take(RecvFlags::empty());
            // A shut socket returns empty datagrams without end. A stranger's empty datagram is
            // only one more without the secret.
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

    /// Returns a call that is in the queue, or `None`. Reads at most `most` datagrams, so that
    /// strangers cannot keep this thread busy.
    pub(crate) fn next_of(&self, most: usize) -> io::Result<Option<RankCall>> {
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

    /// Reads one datagram. Returns `None` if it lacks the secret.
    ///
    /// The secret alone decides, not the sender's user, which the kernel would report. A rank may
    /// have become another user since it joined, and a process that knows the secret has the job's
    /// memory anyway.
    fn take(&self, flags: RecvFlags) -> io::Result<Option<RankCall>> {
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
        Ok(from.map(|from| RankCall { from, descriptors }))
    }

    /// Ends the wait for calls.
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

/// Has the kernel drop every datagram that has another length than a hello, or does not begin with
/// the secret.
fn attach_filter(socket: &UnixDatagram, invitation: &Invitation) -> io::Result<()> {
    const LENGTH: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_LEN) as u16;
    const WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const DIFFERS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let words = invitation.secret.as_chunks::<4>().0;
    let last = 2 * words.len() as u8 + 2;
    let mut program = Vec::new();
    let mut step = |code, k, jf| program.push(libc::sock_filter { code, jt: 0, jf, k });
    // A failed comparison jumps to the end, over the remaining comparisons.
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
    // SAFETY: the kernel copies the program from the vector, which is alive and has that length. It
    // checks the program before it uses it.
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
    fn a_call_hands_over_its_descriptors() {
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
        // Many more than the queue holds: empty, noise, too short, too long, and a secret that
        // differs in each of its bytes.
        for _ in 0..1000 {
            for bytes in [
                &[][..],
                b"knock",
                &good[..SECRET],
                &[&good[..], b"x"].concat(),
            ] {
                stranger.send(bytes).expect("a stranger's send succeeds");
            }
            for at in 0..SECRET {
                let mut wrong = good.clone();
                wrong[at] ^= 1;
                stranger.send(&wrong).expect("a stranger's send succeeds");
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

    /// On a system without filters, the callee reads the datagrams of strangers and drops them.
    #[test]
    fn without_a_filter_datagrams_of_strangers_are_dropped() {
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
    fn a_shut_socket_ends_the_wait_and_an_empty_datagram_does_not() {
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
    fn a_callee_that_is_gone_cannot_be_called() {
        let (callee, invitation) = Callee::open().unwrap();
        drop(callee);
        let refused = invitation.call(Rank(0), &[], None).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    fn detach_filter(socket: &UnixDatagram) {
        let unused = 0_i32;
        // SAFETY: the option has no value. The kernel reads four bytes, which `unused` has.
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
