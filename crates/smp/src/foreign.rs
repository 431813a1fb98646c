//! Copies to and from memory that is not in the shared file.
//!
//! The kernel does them (`process_vm_readv/writev`): memory that is not mapped, or not with
//! the rights needed, is an error and not a signal.

#![allow(unsafe_code)] // system calls on raw addresses

use std::{io, str::FromStr};

use hydrant_conduit::Error;
use rustix::{
    io::Errno,
    pipe::{PipeFlags, pipe_with},
};

/// How memory outside the segments is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Foreign {
    /// By the kernel where it allows that, else by messages.
    #[default]
    Auto,
    /// By the kernel, or not at all.
    ProcessVm,
    /// By messages to the owner, which copies itself.
    Messages,
}

impl FromStr for Foreign {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "process-vm" => Ok(Self::ProcessVm),
            "messages" => Ok(Self::Messages),
            _ => Err("auto, process-vm or messages"),
        }
    }
}

/// Which way the bytes go, seen from the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From own memory to the other's.
    Out,
    /// From the other's memory to own.
    In,
}

/// Why the kernel did not copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The other's memory, or the own, is not mapped or lacks the rights.
    Address,
    /// This process may not touch the other.
    Forbidden,
    /// There is no such process.
    Gone,
    /// Something else.
    Other(Errno),
}

/// Copies `len` bytes between own memory at `local` and process `pid`'s at `remote`.
///
/// # Errors
/// Why the kernel did not.
///
/// # Safety
/// `local` is readable ([`Way::Out`]) or writable ([`Way::In`]) for `len` bytes.
pub unsafe fn copy(
    pid: u32,
    way: Way,
    local: *mut u8,
    remote: u64,
    len: usize,
) -> Result<(), Refusal> {
    let mut done = 0;
    while done < len {
        let own = libc::iovec {
            iov_base: local.wrapping_add(done).cast(),
            iov_len: len - done,
        };
        let other = libc::iovec {
            iov_base: (remote as usize).wrapping_add(done) as *mut libc::c_void,
            iov_len: len - done,
        };
        // SAFETY: the kernel checks the other's addresses; the own ones are the caller's word.
        let count = unsafe {
            match way {
                Way::Out => libc::process_vm_writev(pid as i32, &own, 1, &other, 1, 0),
                Way::In => libc::process_vm_readv(pid as i32, &own, 1, &other, 1, 0),
            }
        };
        match usize::try_from(count) {
            Ok(0) => return Err(Refusal::Address),
            Ok(count) => done += count,
            Err(_) => {
                return Err(match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EFAULT) => Refusal::Address,
                    Some(libc::EPERM | libc::ENOSYS) => Refusal::Forbidden,
                    Some(libc::ESRCH) => Refusal::Gone,
                    cause => Refusal::Other(Errno::from_raw_os_error(cause.unwrap_or(0))),
                });
            }
        }
    }
    Ok(())
}

/// An address is not of memory that may be read or written, as was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadAddress;

/// Copies between a buffer and any address of this process, without a signal if it is bad:
/// through a pipe, whose reads and writes the kernel checks. Needs no rights.
pub struct SelfCopy {
    read: std::os::fd::OwnedFd,
    write: std::os::fd::OwnedFd,
}

/// A pipe holds at least this much at once (one page on the meanest system).
const PIPE: usize = 4096;

impl SelfCopy {
    /// # Errors
    /// [`Error::System`] if there are no descriptors left for a pipe.
    pub fn new() -> Result<Self, Error> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|cause| Error::system("making a pipe", cause))?;
        Ok(Self { read, write })
    }

    /// Copies `data` to `addr`.
    ///
    /// # Errors
    /// If that is not writable memory.
    ///
    /// # Safety
    /// This program can bear the change of the memory at `addr`.
    pub unsafe fn put(&self, addr: u64, data: &[u8]) -> Result<(), BadAddress> {
        for (number, chunk) in data.chunks(PIPE).enumerate() {
            let at = (addr as usize).wrapping_add(number * PIPE);
            self.fill(chunk.as_ptr(), chunk.len())?;
            // SAFETY: the caller vouches for the change; the kernel checks the address.
            unsafe { self.drain(at as *mut u8, chunk.len())? };
        }
        Ok(())
    }

    /// Copies `data.len()` bytes at `addr`.
    ///
    /// # Errors
    /// If that is not readable memory.
    pub fn get(&self, addr: u64, data: &mut [u8]) -> Result<(), BadAddress> {
        for (number, chunk) in data.chunks_mut(PIPE).enumerate() {
            let at = (addr as usize).wrapping_add(number * PIPE);
            self.fill(at as *const u8, chunk.len())?;
            // SAFETY: `chunk` is borrowed mutably.
            unsafe { self.drain(chunk.as_mut_ptr(), chunk.len())? };
        }
        Ok(())
    }

    fn fill(&self, from: *const u8, len: usize) -> Result<(), BadAddress> {
        use std::os::fd::AsRawFd;
        // SAFETY: the kernel reads at the address, or says EFAULT.
        let count = unsafe { libc::write(self.write.as_raw_fd(), from.cast(), len) };
        if usize::try_from(count) == Ok(len) {
            return Ok(());
        }
        self.clear();
        Err(BadAddress)
    }

    /// # Safety
    /// This program can bear the change of the memory at `to`.
    unsafe fn drain(&self, to: *mut u8, len: usize) -> Result<(), BadAddress> {
        use std::os::fd::AsRawFd;
        // SAFETY: the kernel writes at the address, or says EFAULT.
        let count = unsafe { libc::read(self.read.as_raw_fd(), to.cast(), len) };
        if usize::try_from(count) == Ok(len) {
            return Ok(());
        }
        self.clear();
        Err(BadAddress)
    }

    /// Throws away what a failed copy left in the pipe.
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
        // SAFETY: `there` is ours.
        unsafe { pipe.put(there.as_mut_ptr() as u64, &data).unwrap() };
        assert_eq!(there, data);
        let mut back = vec![0; data.len()];
        pipe.get(there.as_ptr() as u64, &mut back).unwrap();
        assert_eq!(back, data);
        // SAFETY: page zero is never mapped.
        assert!(unsafe { pipe.put(8, &data) }.is_err());
        assert!(pipe.get(8, &mut back).is_err());
        pipe.get(there.as_ptr() as u64, &mut back).unwrap();
        assert_eq!(back, data, "a failed copy left something behind");
    }

    #[test]
    fn the_kernel_copies_and_checks() {
        let pid = std::process::id();
        let source = [7_u8; 64];
        let mut there = [0_u8; 64];
        let remote = there.as_mut_ptr() as u64;
        // SAFETY: both arrays are ours.
        let copied = unsafe { copy(pid, Way::Out, source.as_ptr().cast_mut(), remote, 64) };
        if copied == Err(Refusal::Forbidden) {
            eprintln!("this system forbids process_vm_writev even to oneself");
            return;
        }
        assert_eq!(copied, Ok(()));
        assert_eq!(std::hint::black_box(there), source);
        // SAFETY: `source` is ours, page zero is never mapped.
        let refused = unsafe { copy(pid, Way::Out, source.as_ptr().cast_mut(), 8, 64) };
        assert_eq!(refused, Err(Refusal::Address));
    }
}
