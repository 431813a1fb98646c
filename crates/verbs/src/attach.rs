//! Joining the ranks of a job over RDMA.

#![allow(unsafe_code)] // measures registration; registers everything where the NIC pages

use std::{
    fs, io,
    sync::{Arc, atomic::AtomicU32},
    time::Instant,
};

use bytemuck::Zeroable;
use hydrant_conduit::{
    Access, Caps, Cost, Error, Rank, Registration, measure,
    memory::{PAGE, Segment, pinnable},
};
use hydrant_launch::Bootstrap;

use crate::{
    Options, Verbs,
    control::{self, Post},
    device,
    lane::Roads,
    message::{FRONT, MAX_ARGS},
    nic::{Channel, CompletionQueue, Nic, QueuePair, Region, SharedQueue},
    place::Place,
    shared::{Parts, Shared},
    slots::{ReceiveSlots, SendSlots},
    table::Table,
};

/// Requests with the NIC on one lane, and on all.
const DEPTH: u32 = 128;
const ALL_DEPTH: u32 = 4096;
/// Bytes that a NIC is asked to take along with a request, the most it grants first.
const INLINE: [u32; 4] = [220, 128, 64, 0];
/// Acknowledgements: a fabric in hardware loses next to nothing; soft-RoCE drops under load.
const ACK_TIMEOUT: u8 = 18;
const ACK_TIMEOUT_SOFTWARE: u8 = 14;

/// Joins the ranks that `bootstrap` knows. Collective.
///
/// # Errors
/// [`Error::Unreachable`] if there is no RDMA here, or ranks do not fit together;
/// [`Error::System`].
pub fn attach(bootstrap: &mut dyn Bootstrap, options: &Options) -> Result<Verbs, Error> {
    let (rank, ranks) = (bootstrap.rank(), bootstrap.size());
    let ports = device::ports(&options.devices, options.gid_index).map_err(Error::Unreachable)?;
    let port = ports[rank as usize % ports.len()].clone();
    let nic = Nic::open(port).map_err(|cause| Error::system("opening the RDMA device", cause))?;
    if u64::from(nic.limits.queue_pairs) < 2 * u64::from(ranks) {
        let (most, port) = (nic.limits.queue_pairs, &nic.port);
        tracing::warn!(%port, most, "the NIC has no queue pairs for a rank that speaks to all");
    }
    let post = Post::new(&nic, ranks).map_err(|cause| made("the queue pair for datagrams", cause))?;
    // SAFETY: peers are told the key; that they may change any memory is what the user of
    // `Key::ANY` vouches for, and nobody else is told.
    let everything = (nic.limits.paging).then(|| unsafe { Region::everything(&nic) });
    let everything = everything.and_then(Result::ok);
    let (places, secret) = exchange(bootstrap, card(&nic, &post, everything.as_ref()))?;
    let slot = (FRONT + options.payload).next_multiple_of(64);
    let sends = SendSlots::new(&nic, options.sends.max(4), slot)
        .map_err(|cause| made("the slots that messages are sent from", cause))?;
    let window = window(options.window, ranks, nic.limits.shared_requests);
    let housed = 2 * window * ranks.saturating_sub(1).max(1);
    let channel = Channel::new(&nic).map_err(|cause| made("a completion channel", cause))?;
    let most_posted = ALL_DEPTH.min(nic.limits.completions);
    let queue = |depth: u32| {
        CompletionQueue::new(&channel, depth.min(nic.limits.completions))
            .map_err(|cause| made("a completion queue", cause))
    };
    let (sent, received) = (queue(most_posted)?, queue(housed)?);
    let shared_queue = SharedQueue::new(&nic, housed)
        .map_err(|cause| made("the shared receive queue", cause))
        .map(Arc::new)?;
    let depth = DEPTH.min(nic.limits.work_requests);
    let queues = (&sent, &received, &shared_queue);
    let inline = granted_inline(&nic, queues, depth)?;
    let receives =
        ReceiveSlots::new(&nic, Arc::clone(&shared_queue), ranks, 2 * window, slot);
    let extents = options.extents.min(nic.limits.regions as usize);
    let fixed = options.sends as usize * slot + Post::BYTES;
    let of_a_pair = 2 * window as usize * slot;
    let own = &places[rank as usize];
    let here = places.iter().filter(|place| place.host == own.host).count() as u32;
    let caps = Caps {
        name: "verbs",
        registration: Some(registration(&nic, extents, inline as usize, here)?),
        reads: true,
        any_address: places.iter().all(|place| place.everything != 0),
        max_args: MAX_ARGS,
        max_payload: options.payload,
        segment: options.segment,
        bytes_per_rank: fixed,
        bytes_per_pair: 2 * of_a_pair,
        asymmetric_fence: true,
    };
    let ack_timeout = if nic.limits.software { ACK_TIMEOUT_SOFTWARE } else { ACK_TIMEOUT };
    let shared = Arc::new(Shared::new(Parts {
        rank: Rank(rank),
        caps,
        ack_timeout: options.ack_timeout.unwrap_or(ack_timeout).min(31),
        places,
        secret,
        table: Table::new(extents),
        roads: Roads {
            slots: sends,
            posted: AtomicU32::new(0),
            most_posted,
            depth: depth as usize,
            inline,
        },
        receives,
        window,
        shared_queue,
        sent,
        received,
        channel,
        segment: Segment::new(options.segment)?,
        post,
        nic,
    })?);
    let control = control::start(Arc::clone(&shared), options.peer_timeout)?;
    let verbs = Verbs::new(shared, control, everything);
    // Nobody is called before there is somebody to answer.
    bootstrap.fence().map_err(unreachable)?;
    Ok(verbs)
}

fn made(what: &'static str, cause: io::Error) -> Error {
    Error::System {
        what: "setting up the RDMA device",
        cause: format!("{what} could not be made: {cause}"),
    }
}

fn card(nic: &Nic, post: &Post, everything: Option<&Region>) -> Place {
    Place {
        gid: nic.port.gid,
        host: this_host(),
        datagrams: post.number(),
        mtu: nic.port.mtu,
        pid: std::process::id(),
        lid: nic.port.lid,
        reads: nic.limits.reads_answered.into(),
        everything: everything.map_or(0, |region| region.rkey),
        version: Place::VERSION,
    }
}

/// Where every rank is, and the secret that rank 0 drew.
fn exchange(
    bootstrap: &mut dyn Bootstrap,
    card: Place,
) -> Result<(Box<[Place]>, [u8; 16]), Error> {
    let mut secret = [0; 16];
    let mut value = bytemuck::bytes_of(&card).to_vec();
    if bootstrap.rank() == 0 {
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
            .map_err(|cause| Error::system("drawing the job's secret", cause))?;
        value.extend(secret);
    }
    bootstrap.put("verbs", &value).map_err(unreachable)?;
    bootstrap.fence().map_err(unreachable)?;
    let mut places = vec![Place::zeroed(); bootstrap.size() as usize];
    for (rank, place) in (0..).zip(&mut places) {
        let value = bootstrap.get(rank, "verbs").map_err(unreachable)?;
        let bad = || Error::Unreachable(format!("rank {rank} says of its NIC what no rank can read"));
        let (card, rest) = value.split_at_checked(size_of::<Place>()).ok_or_else(bad)?;
        *place = bytemuck::try_pod_read_unaligned(card).map_err(|_| bad())?;
        if place.version != Place::VERSION {
            let what = format!("rank {rank} is of another version of hydrant");
            return Err(Error::Unreachable(what));
        }
        if rank == 0 {
            secret = rest.try_into().map_err(|_| bad())?;
        }
    }
    Ok((places.into(), secret))
}

/// As many requests unhandled at a peer as the shared receive queue has room for.
fn window(wanted: u32, ranks: u32, most: u32) -> u32 {
    let peers = ranks.saturating_sub(1).max(1);
    wanted.min(most / 2 / peers).max(1)
}

/// The most that the NIC takes along with a request.
fn granted_inline(
    nic: &Arc<Nic>,
    (sent, received, shared): (&Arc<CompletionQueue>, &Arc<CompletionQueue>, &Arc<SharedQueue>),
    depth: u32,
) -> Result<u32, Error> {
    let mut last = None;
    for inline in INLINE {
        match QueuePair::connected(nic, sent, received, shared, depth, inline) {
            Ok(pair) => return Ok((pair.inline as u32).min(INLINE[0])),
            Err(cause) => last = Some(cause),
        }
    }
    let cause = last.unwrap_or_else(|| io::ErrorKind::Unsupported.into());
    Err(made("a queue pair", cause))
}

/// What registering costs and allows here.
fn registration(
    nic: &Arc<Nic>,
    extents: usize,
    inline: usize,
    ranks_here: u32,
) -> Result<Registration, Error> {
    let [register, deregister]: [Cost; 2] = measure::registration_costs(|addr, len| {
        let since = Instant::now();
        // SAFETY: nobody is told the key.
        let region = unsafe { Region::new(nic, addr, len, Access::ReadWrite) };
        let region = region.map_err(|cause| Error::system("registering memory", cause))?;
        let registered = since.elapsed();
        drop(region);
        Ok([registered, since.elapsed() - registered])
    })?;
    let most = usize::try_from(nic.limits.region_bytes).unwrap_or(usize::MAX);
    Ok(Registration {
        page: PAGE,
        register,
        deregister,
        copy_ns_per_byte: measure::copy_cost(),
        max_extents: Some(extents),
        max_extent: most.min(1 << 40),
        max_bytes: usize::try_from(pinnable(ranks_here)).unwrap_or(usize::MAX),
        follows_mapping: false,
        inline,
    })
}

/// Names the running kernel: the same for two processes if and only if they share it.
fn this_host() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut host = [0; 16];
    for (byte, pair) in host.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).unwrap_or_default();
        *byte = u8::from_str_radix(pair, 16).unwrap_or(0);
    }
    host
}

fn unreachable(cause: hydrant_launch::Error) -> Error {
    Error::Unreachable(cause.to_string())
}
