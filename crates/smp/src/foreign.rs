//! Copies to and from memory outside the shared file.
//!
//! The kernel makes the copies (`process_vm_readv/writev`). An address that is not mapped, or lacks
//! the permission, is an error and not a signal.

#![allow(unsafe_code)] // system calls on raw addresses

use std::{fmt, io};

use hydrant_conduit::Error;
use rustix::{
    io::Errno,
    pipe::{PipeFlags, pipe_with},
};
use smallvec::SmallVec;

/// The route to memory outside the segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Foreign {
    /// The kernel copies if the system allows it. Otherwise messages carry the data.
    #[default]
    Auto,
    /// The kernel copies, or the access fails.
    ProcessVm,
    /// Messages to the owner, which copies itself.
    Messages,
}

impl Foreign {
    /// Every route.
    pub const ALL: [Self; 3] = [Self::Auto, Self::ProcessVm, Self::Messages];
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::ProcessVm => "process-vm",
            Self::Messages => "messages",
        })
    }
}

/// The direction of a copy, as the caller sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyDirection {
    /// From the caller's memory to the peer's.
    Out,
    /// From the peer's memory to the caller's.
    In,
}

/// The reason why the kernel did not copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyRefusal {
    /// The peer's memory, or the caller's, is not mapped or lacks the permission.
    Address,
    /// This process may not access the other.
    Forbidden,
    /// No such process exists.
    Gone,
    /// Another error.
    Other(Errno),
}

/// The most pieces of one system call (`IOV_MAX`).
const MOST_PIECES: usize = 1024;

/// One run of a copy: bytes of the caller, and as many bytes of the other process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyPiece {
    /// The address in the caller's memory.
    pub local: usize,
    /// The address in the other process's memory.
    pub remote: usize,
    /// The number of bytes.
    pub len: usize,
}

impl CopyPiece {
    fn local(&self) -> libc::iovec {
        libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(self.local),
            iov_len: self.len,
        }
    }

    fn remote(&self) -> libc::iovec {
        libc::iovec {
            iov_base: std::ptr::without_provenance_mut(self.remote),
            iov_len: self.len,
        }
    }

    /// Returns the piece without its first bytes.
    fn after(&self, bytes: usize) -> Self {
        Self {
            local: self.local.wrapping_add(bytes),
            remote: self.remote.wrapping_add(bytes),
            len: self.len - bytes,
        }
    }
}

/// Copies `len` bytes between the caller's memory at `local` and process `pid`'s at `remote`.
///
/// # Errors
/// The reason why the kernel did not copy.
///
/// # Safety
/// 1. `local` is readable ([`CopyDirection::Out`]) or writable ([`CopyDirection::In`]) for `len`
///    bytes.
pub unsafe fn copy(
    pid: u32,
    way: CopyDirection,
    local: *mut u8,
    remote: u64,
    len: usize,
) -> Result<(), CopyRefusal> {
    let piece = CopyPiece {
        local: local.expose_provenance(),
        remote: remote as usize,
        len,
    };
    // SAFETY: 1. the caller's condition 1.
    unsafe { copy_pieces(pid, way, &[piece]) }.map_err(|(_, refusal)| refusal)
}

/// Copies pieces in order, as few system calls as possible. The pieces may be of any number.
///
/// # Errors
/// The number of bytes that were copied, from the first piece on, and the reason why the kernel did not copy more. The
/// piece after them may have been copied in part.
///
/// # Safety
/// 1. Each piece's local memory, whose provenance is exposed, is readable ([`CopyDirection::Out`]) or writable
///    ([`CopyDirection::In`]).
pub unsafe fn copy_pieces(
    pid: u32,
    way: CopyDirection,
    pieces: &[CopyPiece],
) -> Result<(), (usize, CopyRefusal)> {
    let mut done = 0;
    for pieces in pieces.chunks(MOST_PIECES) {
        // SAFETY: 1. the caller's condition 1.
        unsafe { copy_few(pid, way, pieces) }.map_err(|(more, refusal)| (done + more, refusal))?;
        done += pieces.iter().map(|piece| piece.len).sum::<usize>();
    }
    Ok(())
}

/// Copies at most [`MOST_PIECES`] pieces.
///
/// # Safety
/// 1. as [`copy_pieces`].
unsafe fn copy_few(
    pid: u32,
    way: CopyDirection,
    pieces: &[CopyPiece],
) -> Result<(), (usize, CopyRefusal)> {
    let (mut done, mut first, mut skipped) = (0, 0, 0);
    let mut lists = [SmallVec::<[libc::iovec; 4]>::new(), SmallVec::new()];
    loop {
        while (pieces.get(first)).is_some_and(|piece| piece.len == skipped) {
            (first, skipped) = (first + 1, 0);
        }
        let Some((head, tail)) = pieces[first..].split_first() else {
            return Ok(());
        };
        let [own, other] = &mut lists;
        own.clear();
        other.clear();
        let head = head.after(skipped);
        own.push(head.local());
        other.push(head.remote());
        own.extend(tail.iter().map(CopyPiece::local));
        other.extend(tail.iter().map(CopyPiece::remote));
        let (own, other, count) = (own.as_ptr(), other.as_ptr(), own.len() as libc::c_ulong);
        let copied = match way {
            // SAFETY: 1. the local memory is readable. The kernel checks the other process's addresses. Both lists have
            // `count` entries, which is at most `IOV_MAX`.
            CopyDirection::Out => unsafe {
                libc::process_vm_writev(pid as i32, own, count, other, count, 0)
            },
            // SAFETY: 1. the local memory is writable. The rest as above.
            CopyDirection::In => unsafe {
                libc::process_vm_readv(pid as i32, own, count, other, count, 0)
            },
        };
        match usize::try_from(copied) {
            Ok(0) => return Err((done, CopyRefusal::Address)),
            Ok(mut copied) => {
                done += copied;
                while copied > 0 {
                    let left = pieces[first].len - skipped;
                    let step = copied.min(left);
                    copied -= step;
                    skipped += step;
                    if step == left {
                        (first, skipped) = (first + 1, 0);
                    }
                }
            }
            Err(_) => {
                let refusal = match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EFAULT) => CopyRefusal::Address,
                    Some(libc::EPERM | libc::ENOSYS) => CopyRefusal::Forbidden,
                    Some(libc::ESRCH) => CopyRefusal::Gone,
                    cause => CopyRefusal::Other(Errno::from_raw_os_error(cause.unwrap_or(0))),
                };
                return Err((done, refusal));
            }
        }
    }
}

/// The address is not of readable or writable memory, as the copy needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadAddress;

/// Copies between a buffer and any address of this process, without a signal if the address is bad.
/// The copies go through a pipe, whose reads and writes the kernel checks. They need no
/// permissions.
pub struct SelfCopy {
    read: std::os::fd::OwnedFd,
    write: std::os::fd::OwnedFd,
}

/// The least bytes that any pipe holds (one page on the smallest system).
const PIPE: usize = 4096;

impl SelfCopy {
    /// # Errors
    /// [`Error::System`] if no descriptors are left for a pipe.
    pub fn new() -> Result<Self, Error> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|cause| Error::system("making a pipe", cause))?;
        Ok(Self { read, write })
    }

    /// Copies `data` to `addr`.
    ///
    /// # Errors
    /// If the address is not of writable memory.
    ///
    /// # Safety
    /// 1. The program tolerates the change of the memory at `addr`.
    pub unsafe fn put(&self, addr: u64, data: &[u8]) -> Result<(), BadAddress> {
        for (number, chunk) in data.chunks(PIPE).enumerate() {
            let at = (addr as usize).wrapping_add(number * PIPE);
            self.fill(chunk.as_ptr(), chunk.len())?;
            // SAFETY: condition 1 of this function. The kernel checks the address.
            unsafe { self.drain(at as *mut u8, chunk.len())? };
        }
        Ok(())
    }

    /// Copies `data.len()` bytes at `addr`.
    ///
    /// # Errors
    /// If the address is not of readable memory.
    pub fn get(&self, addr: u64, data: &mut [u8]) -> Result<(), BadAddress> {
        for (number, chunk) in data.chunks_mut(PIPE).enumerate() {
            let at = (addr as usize).wrapping_add(number * PIPE);
            self.fill(at as *const u8, chunk.len())?;
            // SAFETY: 1. `chunk` is borrowed mutably.
            unsafe { self.drain(chunk.as_mut_ptr(), chunk.len())? };
        }
        Ok(())
    }

    fn fill(&self, from: *const u8, len: usize) -> Result<(), BadAddress> {
        use std::os::fd::AsRawFd;
        // SAFETY: the kernel checks the address, and returns EFAULT for a bad one.
        let count = unsafe { libc::write(self.write.as_raw_fd(), from.cast(), len) };
        if usize::try_from(count) == Ok(len) {
            return Ok(());
        }
        self.clear();
        Err(BadAddress)
    }

    /// # Safety
    /// 1. The program tolerates the change of the memory at `to`.
    unsafe fn drain(&self, to: *mut u8, len: usize) -> Result<(), BadAddress> {
        use std::os::fd::AsRawFd;
        // SAFETY: condition 1 of this function. The kernel checks the address, and returns EFAULT
        // for a bad one.
        let count = unsafe { libc::read(self.read.as_raw_fd(), to.cast(), len) };
        if usize::try_from(count) == Ok(len) {
            return Ok(());
        }
        self.clear();
        Err(BadAddress)
    }

    /// Drops the bytes that a failed copy left in the pipe.
    fn clear(&self) {
        let mut sink = [0_u8; PIPE];
        while rustix::io::read(&self.read, &mut sink).is_ok_and(|count| count > 0) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn self_copies_arrive_and_bad_addresses_are_refused() {
        let pipe = SelfCopy::new().unwrap();
        let data: Vec<u8> = (0..10_000).map(|i| i as u8).collect();
        let mut there = vec![0_u8; data.len()];
        // SAFETY: 1. `there` is a local buffer.
        unsafe { pipe.put(there.as_mut_ptr() as u64, &data).unwrap() };
        assert_eq!(there, data);
        let mut back = vec![0; data.len()];
        pipe.get(there.as_ptr() as u64, &mut back).unwrap();
        assert_eq!(back, data);
        // SAFETY: 1. page zero is never mapped, so nothing changes.
        assert!(unsafe { pipe.put(8, &data) }.is_err());
        assert!(pipe.get(8, &mut back).is_err());
        pipe.get(there.as_ptr() as u64, &mut back).unwrap();
        assert_eq!(back, data, "a failed copy left bytes in the pipe");
    }

    #[test]
    fn the_kernel_copies_and_checks() {
        let pid = std::process::id();
        let source = [7_u8; 64];
        let mut there = [0_u8; 64];
        let remote = there.as_mut_ptr() as u64;
        // SAFETY: 1. `source` is a local buffer, which is only read. `there` is a local buffer,
        // too.
        let copied = unsafe {
            copy(
                pid,
                CopyDirection::Out,
                source.as_ptr().cast_mut(),
                remote,
                64,
            )
        };
        if copied == Err(CopyRefusal::Forbidden) {
            eprintln!("this system forbids process_vm_writev even to oneself");
            return;
        }
        assert_eq!(copied, Ok(()));
        assert_eq!(std::hint::black_box(there), source);
        // SAFETY: 1. `source` is a local buffer, which is only read. Page zero is never mapped.
        let refused = unsafe { copy(pid, CopyDirection::Out, source.as_ptr().cast_mut(), 8, 64) };
        assert_eq!(refused, Err(CopyRefusal::Address));
    }

    #[test]
    fn pieces_are_copied_up_to_the_first_bad_one() {
        let pid = std::process::id();
        let source: Vec<u8> = (0..3000_u32).map(|i| i as u8).collect();
        let mut there = vec![0_u8; 6000];
        let base = there.as_mut_ptr().expose_provenance();
        let from = source.as_ptr().expose_provenance();
        // Single bytes, two apart there. More pieces than one system call takes, and empty ones.
        let mut pieces: Vec<CopyPiece> = (0..3000)
            .map(|i| CopyPiece {
                local: from + i,
                remote: base + 2 * i,
                len: 1,
            })
            .collect();
        for at in [0, 7, 1024] {
            pieces.insert(
                at,
                CopyPiece {
                    len: 0,
                    ..pieces[at]
                },
            );
        }
        // SAFETY: 1. `source` is a local buffer, which is only read.
        match unsafe { copy_pieces(pid, CopyDirection::Out, &pieces) } {
            Err((0, CopyRefusal::Forbidden)) => return,
            other => assert_eq!(other, Ok(())),
        }
        let there = std::hint::black_box(there);
        assert!((0..3000).all(|i| there[2 * i] == source[i] && there[2 * i + 1] == 0));
        pieces[2500].remote = 8;
        // SAFETY: as above. Page zero is never mapped.
        let refused = unsafe { copy_pieces(pid, CopyDirection::Out, &pieces) };
        assert_eq!(refused, Err((2497, CopyRefusal::Address)));
    }
}
