//! Joins the ranks of a host.

use std::{
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use hydrant_conduit::{Error, Rank, descriptors};
use hydrant_launch::{Bootstrap, Site};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::{
    Smp,
    areas::Areas,
    calls::Invitation,
    foreign::Foreign,
    layout::{Extra, FileShape, MAGIC, header},
    mapping::{self, SharedMapping},
    rendezvous,
    ring::MAX_PAYLOAD,
    shared::SharedState,
};

/// Descriptors for each peer: one to watch its process.
const WATCHED: u64 = 1;

/// The settings of the conduit.
#[derive(Debug, Clone)]
pub struct SmpOptions {
    /// Bytes of each rank's segment. They are address space; memory follows use.
    pub segment: usize,
    /// The number of messages that a ring holds, rounded up to a power of two.
    pub slots: usize,
    /// Bytes of payload that a ring holds. A message carries a quarter at most. By default messages
    /// carry 16 KiB, and a ring holds 1 MiB, down to 64 KiB with many ranks. That is the room for
    /// long messages that are sent in parts.
    pub payload: Option<usize>,
    /// The number of extents that a rank may have registered at once.
    pub extents: usize,
    /// The route to memory outside the segments.
    pub foreign: Foreign,
    /// The time limit for the other ranks to join.
    pub timeout: Duration,
}

impl Default for SmpOptions {
    fn default() -> Self {
        Self {
            segment: 1 << 30,
            slots: 256,
            payload: None,
            extents: DEFAULT_EXTENTS,
            foreign: Foreign::Auto,
            timeout: Duration::from_secs(60),
        }
    }
}

/// The default number of extents that a rank may have registered at once.
pub const DEFAULT_EXTENTS: usize = 4096;
/// The default limit on the bytes of a message.
const MESSAGE: usize = 16 << 10;
/// The default bytes of payload of all request rings to one rank together. Long messages from all
/// peers may touch that much memory. The reply rings have as many.
const RINGS: usize = 8 << 20;
/// The default limit on the bytes of payload of a ring. The two rings of a pair are then larger
/// than a core's own cache. A line has left the reader's cache by the time the writer reuses it.
/// The writer would get it more slowly from there than from the shared cache.
const MOST_OF_A_RING: usize = 1 << 20;

/// Returns the bytes of payload that a ring holds with so many ranks, and the most bytes of a
/// message.
///
/// Both ends copy a long message at the same time. Several of its parts need room for that, or the
/// ends wait for each other after each part.
fn payload_of_ring(asked: Option<usize>, ranks: u32) -> (usize, usize) {
    match asked {
        Some(bytes) => {
            let bytes = bytes.clamp(1 << 10, 64 << 20).next_multiple_of(64);
            (bytes, (bytes / 4).min(MAX_PAYLOAD))
        }
        None => {
            let each = RINGS / (ranks as usize).next_power_of_two();
            (each.clamp(4 * MESSAGE, MOST_OF_A_RING), MESSAGE)
        }
    }
}

/// The longest time that a process takes to end after it has given up.
const AT_ITS_END: Duration = Duration::from_secs(2);

/// The most ranks of one job that the bits of a block and the hazard words can name.
const MAX_RANKS: u32 = 4096;

/// Joins the ranks of `bootstrap`, all on this host. Collective.
///
/// Rank 0's options hold for all ranks, except the timeout and the route to foreign memory.
///
/// # Errors
/// [`Error::Unreachable`] if a rank is on another host or does not join in time;
/// [`Error::PeerLost`] if a rank ends before it has joined.
pub fn attach(bootstrap: &mut dyn Bootstrap, options: &SmpOptions) -> Result<Smp, Error> {
    join(bootstrap, options, Extra::default(), 0, |_| Ok(())).map(|(smp, ())| smp)
}

/// Like [`attach`], for a conduit on top that has areas of the shared file and needs `descriptors`
/// file descriptors for each peer. `prepare` has run before any other rank's `join` returns.
///
/// # Errors
/// The errors of [`attach`] and of `prepare`; [`Error::Unreachable`] if rank 0 joins with other
/// areas.
pub fn join<T>(
    bootstrap: &mut dyn Bootstrap,
    options: &SmpOptions,
    extra: Extra,
    descriptors: u64,
    prepare: impl FnOnce(&Areas<'_>) -> Result<T, Error>,
) -> Result<(Smp, T), Error> {
    let rank = bootstrap.rank();
    let ranks = bootstrap.size();
    if ranks > MAX_RANKS {
        return Err(Error::Exhausted {
            what: "ranks on one host",
            limit: u64::from(MAX_RANKS),
            remedy: "start fewer",
        });
    }
    descriptors::allow(u64::from(ranks) - 1, WATCHED + descriptors);
    let (shape, file) = if rank == 0 {
        host(bootstrap, options, extra)?
    } else {
        visit(bootstrap, options)?
    };
    if shape.extra != extra {
        let what = "rank 0 joins by another conduit: HYDRANT_CONDUIT is the same for all ranks";
        return Err(Error::Unreachable(what.to_owned()));
    }
    let mapping = SharedMapping::new(file, &shape, rank as usize)?;
    let whole = mapping.window(0, 128);
    if rank == 0 {
        let _ = whole.store(header::MAGIC, MAGIC);
    }
    let mut shared = SharedState::new(Rank(rank), shape, mapping, options.foreign)?;
    shared.present();
    let prepared = prepare(&shared.areas())?;
    fence(bootstrap)?;
    if whole.load::<u64>(header::MAGIC) != Ok(MAGIC) {
        let what = "the shared file is not of this version of hydrant";
        return Err(Error::Unreachable(what.to_owned()));
    }
    shared.meet();
    Ok((Smp::new(shared)?, prepared))
}

/// Makes the file and hands it out, on rank 0.
fn host(
    bootstrap: &mut dyn Bootstrap,
    options: &SmpOptions,
    extra: Extra,
) -> Result<(FileShape, OwnedFd), Error> {
    let (payload, message) = payload_of_ring(options.payload, bootstrap.size());
    let shape = FileShape {
        ranks: u64::from(bootstrap.size()),
        slots: options.slots.clamp(8, 1 << 20).next_power_of_two() as u64,
        payload: payload as u64,
        message: message as u64,
        segment: options.segment.next_multiple_of(4096) as u64,
        extents: options.extents.clamp(1, 1 << 20) as u64,
        extra,
    };
    let file = mapping::create(&shape)?;
    let (host, invitation) = rendezvous::open()?;
    put(bootstrap, &invitation, &shape)?;
    fence(bootstrap)?;
    let others = 1..bootstrap.size();
    let pids = check_hosts(bootstrap, others)?;
    host.serve(file.as_fd(), &pids, options.timeout)?;
    Ok((shape, file))
}

/// Fetches the file, on the other ranks.
fn visit(
    bootstrap: &mut dyn Bootstrap,
    options: &SmpOptions,
) -> Result<(FileShape, OwnedFd), Error> {
    put_host(bootstrap)?;
    fence(bootstrap)?;
    let first = check_hosts(bootstrap, 0..1)?;
    let bad = || Error::Unreachable("rank 0 published an unreadable invitation".to_owned());
    let published = get(bootstrap, 0, "smp")?;
    let (shape, invitation) = published
        .split_at_checked(size_of::<FileShape>())
        .ok_or_else(bad)?;
    let shape: FileShape = bytemuck::try_pod_read_unaligned(shape).map_err(|_| bad())?;
    let invitation = bytemuck::try_pod_read_unaligned(invitation).map_err(|_| bad())?;
    match rendezvous::join(&invitation, bootstrap.rank(), options.timeout) {
        Ok(file) => Ok((shape, file)),
        Err(error) => Err(cause(bootstrap, error, first[0])),
    }
}

fn put(
    bootstrap: &mut dyn Bootstrap,
    invitation: &Invitation,
    shape: &FileShape,
) -> Result<(), Error> {
    let published = [bytemuck::bytes_of(shape), bytemuck::bytes_of(invitation)].concat();
    bootstrap.put("smp", &published).map_err(unreachable)?;
    put_host(bootstrap)
}

/// Publishes this rank's process id and its site.
fn put_host(bootstrap: &mut dyn Bootstrap) -> Result<(), Error> {
    let site = Site::here().to_string();
    let published = [&std::process::id().to_le_bytes(), site.as_bytes()].concat();
    bootstrap.put("host", &published).map_err(unreachable)
}

/// Checks that this rank can share memory with the `others`, and returns their process ids. Every
/// rank checks rank 0, and rank 0 checks all.
fn check_hosts(
    bootstrap: &mut dyn Bootstrap,
    others: std::ops::Range<u32>,
) -> Result<Vec<u32>, Error> {
    let here = Site::here();
    let mut pids = Vec::with_capacity(others.len());
    for other in others {
        let published = get(bootstrap, other, "host")?;
        let said = published.split_first_chunk().and_then(|(pid, site)| {
            let site = Site::parse(str::from_utf8(site).ok()?)?;
            Some((u32::from_le_bytes(*pid), site))
        });
        let (pid, there) = said.ok_or_else(|| {
            Error::Unreachable(format!("rank {other} is of another version of hydrant"))
        })?;
        if let Some(apart) = here.apart(&there) {
            let mut ranks = [bootstrap.rank(), other];
            ranks.sort_unstable();
            return Err(Error::Unreachable(format!(
                "ranks {} and {} are {apart}, and shared memory joins only ranks of one host, within \
                 one PID and network namespace: start them all in one, or use HYDRANT_CONDUIT=auto \
                 and a network between them",
                ranks[0], ranks[1]
            )));
        }
        pids.push(pid);
    }
    Ok(pids)
}

/// Finds the reason why this rank did not get the file from rank 0, whose process id was `first`.
/// Rank 0 need not have ended: it may be unreachable, or have given up because of a third rank.
fn cause(bootstrap: &mut dyn Bootstrap, error: Error, first: u32) -> Error {
    let all = 0..bootstrap.size();
    if let Err(apart @ Error::Unreachable(_)) = check_hosts(bootstrap, all) {
        return apart;
    }
    match error {
        Error::PeerLost(Rank(0)) if stays_alive(first) => Error::Unreachable(format!(
            "rank 0 does not let rank {} join the shared memory, though its process is alive: it gave \
             up joining, or runs as another user",
            bootstrap.rank()
        )),
        other => other,
    }
}

/// Returns true if another process stays alive longer than a process that is about to end.
fn stays_alive(pid: u32) -> bool {
    let other = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let other = other.filter(|other| *other != rustix::process::getpid());
    let Some(Ok(process)) = other.map(|other| pidfd_open(other, PidfdFlags::empty())) else {
        return false;
    };
    let time = Timespec::try_from(AT_ITS_END).ok();
    let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], time.as_ref());
    ended == Ok(0)
}

fn get(bootstrap: &mut dyn Bootstrap, from: u32, key: &str) -> Result<Vec<u8>, Error> {
    bootstrap.get(from, key).map_err(unreachable)
}

fn fence(bootstrap: &mut dyn Bootstrap) -> Result<(), Error> {
    bootstrap.fence().map_err(unreachable)
}

fn unreachable(cause: hydrant_launch::Error) -> Error {
    Error::Unreachable(cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_as_large_as_the_number_of_ranks_allows() {
        const KIB: usize = 1 << 10;
        for (ranks, kib) in [
            (1, 1024),
            (8, 1024),
            (9, 512),
            (16, 512),
            (17, 256),
            (32, 256),
            (128, 64),
            (4096, 64),
        ] {
            assert_eq!(
                payload_of_ring(None, ranks),
                (kib * KIB, 16 * KIB),
                "{ranks}"
            );
        }
        for (asked, ring, message) in [
            (1, 1 << 10, 256),
            (5000, 5056, 1264),
            (64 << 20, 64 << 20, MAX_PAYLOAD),
            (usize::MAX, 64 << 20, MAX_PAYLOAD),
        ] {
            assert_eq!(
                payload_of_ring(Some(asked), 100),
                (ring, message),
                "{asked}"
            );
        }
    }
}
