//! Marks of the sockets that the provider opened.

use std::{
    os::fd::{AsFd, RawFd},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use rustix::fs::fstat;

/// Descriptors from this number on are not looked after.
const MOST: usize = 1 << 16;

/// The inode of each descriptor that is a socket of a provider; 0 for none. A number may get another owner, the inode
/// may not. Files on other file systems may have the same inode.
pub(crate) static INODES: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
/// The device of the kernel's file system of sockets.
pub(crate) static DEVICE: AtomicU64 = AtomicU64::new(0);
/// No descriptor from this number on has an inode in the list.
pub(crate) static END: AtomicUsize = AtomicUsize::new(0);

/// The device and the inode of an open file. No two files share both.
#[derive(PartialEq, Eq)]
pub(crate) struct FileIdentity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// Returns the identity of an open file.
pub(crate) fn identity(file: impl AsFd) -> Option<FileIdentity> {
    fstat(file).ok().map(|of| FileIdentity {
        device: of.st_dev,
        inode: of.st_ino,
    })
}

/// Returns true if a file is the socket of the provider that has or had this descriptor.
pub(crate) fn has(descriptor: RawFd, file: impl AsFd) -> bool {
    let place = usize::try_from(descriptor)
        .ok()
        .and_then(|at| INODES.get(at));
    let inode = place.map_or(0, |place| place.load(Relaxed));
    let device = DEVICE.load(Relaxed);
    inode != 0 && identity(file) == Some(FileIdentity { device, inode })
}
