//! A userfaultfd in write-protect mode, with events and without protection: nothing faults.

#![allow(unsafe_code)] // system calls that no library has

use std::{
    fs::File,
    io, mem,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::{MemoryChange, MonitorAbsent, Unwatched, ffi};

/// The events that the monitor asks for.
const EVENTS: u64 = ffi::EVENT_REMAP | ffi::EVENT_REMOVE | ffi::EVENT_UNMAP;

/// The features to ask for, the best set first.
const FEATURES: [u64; 3] = [
    EVENTS | ffi::WP_HUGETLBFS_SHMEM | ffi::WP_UNPOPULATED | ffi::WP_ASYNC,
    EVENTS | ffi::WP_HUGETLBFS_SHMEM,
    EVENTS,
];

/// The means by which the userfaultfd was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MonitorSource {
    /// The system call, which needs no privilege.
    SystemCall,
    /// The device `/dev/userfaultfd`.
    Device,
}

/// An open userfaultfd.
#[derive(Debug)]
pub(crate) struct Userfault {
    fd: OwnedFd,
    source: MonitorSource,
    features: u64,
}

/// The end of events.
pub(crate) enum NoChange {
    /// No change waits.
    Quiet,
    /// The descriptor is no userfaultfd any more.
    Ended,
}

impl Userfault {
    /// Opens a userfaultfd with the most features that the kernel has.
    pub(crate) fn open() -> Result<Self, MonitorAbsent> {
        let mut refused = None;
        for features in FEATURES {
            let (fd, source) = open()?;
            match agree(&fd, features) {
                Ok(()) => {
                    let opened = Self {
                        fd,
                        source,
                        features,
                    };
                    // A thread that cannot ask would stop, and changes of watched memory would wait for it for ever.
                    opened.probe().map_err(|cause| MonitorAbsent::NoProbe {
                        cause: cause.into(),
                    })?;
                    return Ok(opened);
                }
                Err(cause) => refused = Some(cause),
            }
        }
        Err(MonitorAbsent::NoEvents {
            cause: refused.unwrap_or_else(io::Error::last_os_error).into(),
        })
    }

    pub(crate) fn source(&self) -> MonitorSource {
        self.source
    }

    /// Returns true if mappings of files can be watched, initialised statics included.
    pub(crate) fn watches_files(&self) -> bool {
        self.features & ffi::WP_ASYNC != 0
    }

    /// Watches a range of whole pages. Holes in it are not watched.
    pub(crate) fn watch(&self, start: u64, len: u64) -> Result<(), Unwatched> {
        let mut request = ffi::RegisterRequest {
            start,
            len,
            mode: ffi::MODE_WP,
            ioctls: 0,
        };
        self.control(ffi::REGISTER, &mut request)
            .map_err(|cause| Unwatched {
                start,
                len,
                cause: cause.into(),
            })
    }

    /// Returns whether no change has begun whose event was not read yet, or `None` if the descriptor is no userfaultfd
    /// any more.
    pub(crate) fn is_quiet(&self) -> Option<bool> {
        self.probe().ok()
    }

    fn probe(&self) -> io::Result<bool> {
        let mut request = ffi::ProtectRequest {
            start: 0,
            len: 0,
            mode: 0,
        };
        // The kernel refuses the empty range, but looks for changes first.
        match self.control(ffi::PROTECT, &mut request) {
            Ok(()) => Ok(true),
            Err(cause) => match cause.raw_os_error() {
                Some(libc::EINVAL) => Ok(true),
                Some(libc::EAGAIN) => Ok(false),
                _ => Err(cause),
            },
        }
    }

    /// Waits until an event can be read. Returns false if there will be none any more.
    pub(crate) fn wait(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) => fds[0].revents().intersects(PollFlags::IN),
            Err(Errno::INTR | Errno::AGAIN) => true,
            Err(_) => false,
        }
    }

    /// Reads an event. The thread that changed memory goes on then.
    pub(crate) fn read(&self) -> Result<Option<MemoryChange>, NoChange> {
        if self.is_quiet().is_none() {
            // The program has closed the descriptor, and its number may be another file's.
            return Err(NoChange::Ended);
        }
        let mut message = ffi::EventMessage::default();
        let len = size_of::<ffi::EventMessage>();
        // SAFETY: `message` is valid for writes of `len` bytes, and any bytes are a message.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut message).cast(), len) };
        if read < 0 {
            let cause = io::Error::last_os_error().raw_os_error();
            return Err(match cause {
                Some(libc::EAGAIN | libc::EINTR) => NoChange::Quiet,
                _ => NoChange::Ended,
            });
        }
        if read as usize != len {
            return Err(NoChange::Ended);
        }
        let [first, second, third] = message.words;
        let len = second.saturating_sub(first);
        Ok(match message.event {
            ffi::UNMAPPED => Some(MemoryChange::Unmapped { start: first, len }),
            ffi::REMOVED => Some(MemoryChange::Removed { start: first, len }),
            ffi::REMAPPED => Some(MemoryChange::Moved {
                from: first,
                to: second,
                len: third,
            }),
            _ => None,
        })
    }

    fn control<T>(&self, number: u32, request: &mut T) -> io::Result<()> {
        control(&self.fd, number, request)
    }
}

/// Calls an `ioctl` of [`ffi`] that reads and writes a `T`.
pub(crate) fn control<T>(fd: &impl AsFd, number: u32, request: &mut T) -> io::Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: `number` names an `ioctl` that reads and writes a `T`, and `request` is one.
    match unsafe { libc::ioctl(fd, number as _, &raw mut *request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn agree(fd: &OwnedFd, features: u64) -> io::Result<()> {
    let mut request = ffi::ApiRequest {
        api: ffi::API,
        features,
        ioctls: 0,
    };
    control(fd, ffi::AGREE, &mut request)
}

/// Opens a userfaultfd by the system call, or by the device where that is refused. Docker's filter
/// refuses the system call.
fn open() -> Result<(OwnedFd, MonitorSource), MonitorAbsent> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the call takes flags alone.
    let opened = unsafe { libc::syscall(libc::SYS_userfaultfd, flags | ffi::USER_MODE_ONLY) };
    if let Some(fd) = owned(opened) {
        return Ok((fd, MonitorSource::SystemCall));
    }
    let refused = io::Error::last_os_error();
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/userfaultfd");
    let by_device = device.and_then(|device| {
        // SAFETY: the request takes flags alone.
        let opened = unsafe { libc::ioctl(device.as_raw_fd(), ffi::NEW as _, flags) };
        owned(opened.into()).ok_or_else(io::Error::last_os_error)
    });
    match by_device {
        Ok(fd) => Ok((fd, MonitorSource::Device)),
        Err(device) => Err(MonitorAbsent::Refused {
            call: refused.into(),
            device: device.into(),
        }),
    }
}

fn owned(opened: libc::c_long) -> Option<OwnedFd> {
    let fd = i32::try_from(opened).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Blocks all signals of the calling thread, because handlers run any code of the program.
pub(crate) fn block_signals() {
    let mut all = mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` is valid for writes of a set of signals.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was filled above, and no old set is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut()) };
}
