//! Joining the ranks of a job over RDMA.

#![allow(unsafe_code)] // registers the whole address space where the NIC supports paging

use std::{io, sync::Arc};

use bytemuck::Zeroable;
use hydrant_conduit::{
    Caps, Cost, Error, Footprint, Rank, RegistrationCaps, measure,
    memory::{PAGE, Segment, memlock, pinnable, pinned},
};
use hydrant_launch::Bootstrap;
use rustc_hash::FxHasher;

use crate::{
    Verbs, VerbsOptions,
    address::EndpointAddress,
    completions::Completions,
    connection::{SendLimits, SendPool},
    control,
    datagrams::Datagrams,
    device,
    endpoint::{EndpointParts, VerbsEndpoint},
    inline_copies::InlineCopies,
    memlock::memlock_error,
    message::{MAX_ARGS, MAX_WINDOW},
    nic::{CompletionChannel, CompletionQueue, MemoryRegion, Nic, QueuePair, SharedQueue},
    options, paging, probe,
    result_words::ResultWords,
    shared::VerbsShared,
    slots::{ReceiveSlots, SendSlots},
    table::ExtentTable,
};

/// Most requests with the NIC on one connection.
const DEPTH: u32 = 128;
/// Most requests with the NIC on all connections.
const ALL_DEPTH: u32 = 4096;
/// Sizes of inline data to request of the NIC, the largest first.
const INLINE: [u32; 4] = [InlineCopies::BYTES as u32, 128, 64, 0];
/// The acknowledgement timeout in hardware, where a fabric loses next to nothing.
const ACK_TIMEOUT: u8 = 18;
/// The shorter timeout of soft-RoCE, which drops packets under load.
const ACK_TIMEOUT_SOFTWARE: u8 = 14;

/// Joins the ranks that `bootstrap` knows. Collective.
///
/// # Errors
/// [`Error::Unreachable`] if there is no RDMA here, or if ranks are not compatible;
/// [`Error::System`].
pub fn attach(bootstrap: &mut dyn Bootstrap, options: &VerbsOptions) -> Result<Verbs, Error> {
    let (rank, ranks) = (bootstrap.rank(), bootstrap.size());
    let ports = device::ports(&options.devices, options.gid_index).map_err(Error::Unreachable)?;
    let port = ports[rank as usize % ports.len()].clone();
    let (nic, pinned_because) = paging::open(port, options.on_demand)
        .map_err(|cause| Error::system("opening the RDMA device", cause))?;
    if let Some(why) = pinned_because {
        tracing::info!(port = %nic.port, why, "memory is pinned, not paged on demand");
    }
    if u64::from(nic.limits.queue_pairs) < 2 * u64::from(ranks) {
        let (most, port) = (nic.limits.queue_pairs, &nic.port);
        tracing::warn!(%port, most, "the NIC has no queue pairs for a rank that speaks to all");
    }
    let datagrams = Datagrams::new(&nic, ranks)
        .map_err(|cause| setup_error("the queue pair for datagrams", cause))?;
    // SAFETY: only peers are told the key, and users of `Key::ANY` vouch for any change of memory.
    let everything =
        (nic.limits.paging.everything).then(|| unsafe { MemoryRegion::everything(&nic) });
    let everything = everything.and_then(Result::ok);
    let channel =
        CompletionChannel::new(&nic).map_err(|cause| setup_error("a completion channel", cause))?;
    let completions = ALL_DEPTH.min(nic.limits.completions);
    let sent = queue(&channel, completions)?;
    let depth = DEPTH.min(nic.limits.work_requests);
    let own = EndpointAddress {
        extents: u32::try_from(options.extents)
            .unwrap_or(u32::MAX)
            .min(nic.limits.regions),
        inline: granted_inline(&nic, &sent, depth)?,
        ..own_address(&nic, &datagrams, everything.as_ref())
    };
    let (addresses, parameters) = exchange(bootstrap, own, costs(&nic)?)?;
    let slot = options.slot();
    let sends = SendSlots::new(&nic, options.sends.max(4), slot)
        .map_err(|cause| setup_error("the slots that messages are sent from", cause))?;
    let words = ResultWords::new(&nic)
        .map_err(|cause| setup_error("the words for the results of atomic operations", cause))?;
    let window = window(
        options.window,
        ranks,
        nic.limits.shared_requests.min(nic.limits.completions),
    );
    let in_chunk = options::slots_for(window);
    let receive_slots = in_chunk * ranks.saturating_sub(1).max(1);
    let received = queue(&channel, receive_slots)?;
    let shared_queue = SharedQueue::new(&nic, receive_slots)
        .map_err(|cause| setup_error("the shared receive queue", cause))
        .map(Arc::new)?;
    let receives = ReceiveSlots::new(&nic, Arc::clone(&shared_queue), ranks, in_chunk, slot);
    let fixed =
        pages(options.sends as usize * slot) + pages(ResultWords::MEMORY) + pages(Datagrams::BYTES);
    let per_pair = options.buffers_for_a_peer(window);
    let registration = registration(&addresses, &parameters, nic.on_demand);
    let inline = registration.inline as u32;
    // All ranks use the least number of extents that any NIC holds.
    let extents = (addresses.iter()).map(|address| address.extents).min();
    let extents = extents.unwrap_or(1);
    let caps = Caps {
        name: "verbs",
        registration: Some(registration),
        reads: true,
        any_address: addresses.iter().all(|address| address.everything != 0),
        host_ranks: host_ranks(&addresses, rank),
        stores_wake: false,
        atomics: EndpointAddress::atomics_of(&addresses),
        max_args: MAX_ARGS,
        max_payload: options.payload,
        segment: options.segment,
    };
    let footprint = Footprint {
        per_rank: fixed,
        per_pair: 2 * per_pair,
    };
    let ack_timeout = if nic.limits.software {
        ACK_TIMEOUT_SOFTWARE
    } else {
        ACK_TIMEOUT
    };
    let nic_on_demand = nic.on_demand;
    let longest = nic.port.max_message.max(1 << 20).into();
    let endpoint = VerbsEndpoint::new(EndpointParts {
        rank: Rank(rank),
        caps,
        footprint,
        ack_timeout: options.ack_timeout.unwrap_or(ack_timeout).min(31),
        addresses,
        secret: parameters.secret,
        receives,
        window,
        shared_queue,
        segment: Segment::new(options.segment)?,
        nic,
    });
    let limits = SendLimits {
        // One more request may be in flight uncounted: see `Connection::post_fast`.
        posted: completions.saturating_sub(1).max(1),
        depth: depth as usize,
        inline,
        longest,
        paged_rank: nic_on_demand.then_some(Rank(rank)),
    };
    let pool = SendPool::new(sends, words, limits);
    let table = ExtentTable::new(extents as usize);
    let completions = Completions::new(sent, received, channel);
    let shared = VerbsShared::new(endpoint, table, pool, completions, datagrams)?;
    let shared = Arc::new(shared);
    let control = control::start(Arc::clone(&shared), options.peer_timeout)?;
    let verbs = Verbs::new(shared, control, everything);
    // No rank sends requests before every rank can answer.
    bootstrap.fence().map_err(unreachable)?;
    Ok(verbs)
}

fn setup_error(what: &'static str, cause: io::Error) -> Error {
    memlock_error(&cause).unwrap_or_else(|| Error::System {
        what: "setting up the RDMA device",
        cause: format!("{what} could not be made: {cause}"),
    })
}

fn own_address(
    nic: &Nic,
    datagrams: &Datagrams,
    everything: Option<&MemoryRegion>,
) -> EndpointAddress {
    // The kernel compares the limit with all pins of the process.
    let held = pinned();
    EndpointAddress {
        gid: nic.port.gid,
        host: host_name(),
        datagrams: datagrams.number(),
        mtu: nic.port.mtu,
        pid: std::process::id(),
        lid: nic.port.lid,
        reads: nic.limits.reads_answered.into(),
        everything: everything.map_or(0, |region| region.rkey),
        version: EndpointAddress::VERSION,
        pinnable: pinnable().saturating_sub(held),
        // The kernel counts pins, and memory that the NIC pages is not pinned.
        memlock: (memlock().filter(|_| !nic.on_demand))
            .map_or(u64::MAX, |limit| limit.saturating_sub(held)),
        extents: 0,
        extent_bytes: nic.limits.region_bytes,
        inline: 0,
        atomics: EndpointAddress::code_of(nic.limits.atomics),
        datagrams_key: datagrams.key(),
    }
}

/// Parameters that rank 0 publishes, the same for every rank.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct JobParameters {
    /// The job's secret, drawn by rank 0.
    secret: [u8; 16],
    /// Costs in ns: registering for each operation and page, deregistering likewise, and copying a
    /// byte.
    costs: [f64; 5],
}

/// Exchanges the addresses of all ranks, and the parameters of rank 0.
fn exchange(
    bootstrap: &mut dyn Bootstrap,
    own: EndpointAddress,
    costs: [f64; 5],
) -> Result<(Box<[EndpointAddress]>, JobParameters), Error> {
    let mut value = bytemuck::bytes_of(&own).to_vec();
    if bootstrap.rank() == 0 {
        let mut secret = [0; 16];
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
            .map_err(|cause| Error::system("drawing the job's secret", cause))?;
        value.extend(bytemuck::bytes_of(&JobParameters { secret, costs }));
    }
    bootstrap.put("verbs", &value).map_err(unreachable)?;
    bootstrap.fence().map_err(unreachable)?;
    let mut addresses = vec![EndpointAddress::zeroed(); bootstrap.size() as usize];
    let mut parameters = None;
    for (rank, address) in (0..).zip(&mut addresses) {
        let value = bootstrap.get(rank, "verbs").map_err(unreachable)?;
        let bad = || {
            let what = format!("the address that rank {rank} published is malformed");
            Error::Unreachable(what)
        };
        let (own, rest) = value
            .split_at_checked(size_of::<EndpointAddress>())
            .ok_or_else(bad)?;
        *address = bytemuck::try_pod_read_unaligned(own).map_err(|_| bad())?;
        if address.version != EndpointAddress::VERSION {
            let what = format!("rank {rank} is of another version of hydrant");
            return Err(Error::Unreachable(what));
        }
        if rank == 0 {
            parameters = Some(bytemuck::try_pod_read_unaligned(rest).map_err(|_| bad())?);
        }
    }
    let nobody = || Error::Unreachable("a job of no ranks".to_owned());
    Ok((addresses.into(), parameters.ok_or_else(nobody)?))
}

/// Rounds up to whole pages, since registration pins whole pages.
fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}

/// Returns how many requests a peer may have unhandled, with room for all of them in the shared
/// receive queue.
fn window(wanted: u32, ranks: u32, most: u32) -> u32 {
    let peers = ranks.saturating_sub(1).max(1);
    let fitting = (most / peers).saturating_sub(1) / 2;
    wanted.min(MAX_WINDOW).min(fitting).max(1)
}

fn queue(channel: &Arc<CompletionChannel>, depth: u32) -> Result<Arc<CompletionQueue>, Error> {
    CompletionQueue::new(channel, depth).map_err(|cause| setup_error("a completion queue", cause))
}

/// Returns the most inline data that the NIC grants.
fn granted_inline(nic: &Arc<Nic>, queue: &Arc<CompletionQueue>, depth: u32) -> Result<u32, Error> {
    let shared = SharedQueue::new(nic, 1).map_err(|cause| setup_error("a receive queue", cause))?;
    let shared = Arc::new(shared);
    let mut last = None;
    for inline in INLINE {
        match QueuePair::connected(nic, queue, queue, &shared, depth, inline) {
            Ok(pair) => return Ok((pair.inline as u32).min(INLINE[0])),
            Err(cause) => last = Some(cause),
        }
    }
    let cause = last.unwrap_or_else(|| io::ErrorKind::Unsupported.into());
    Err(setup_error("a queue pair", cause))
}

/// Measures the costs of registering and copying here, in the format of [`JobParameters`].
fn costs(nic: &Arc<Nic>) -> Result<[f64; 5], Error> {
    let [register, deregister] = probe::costs(nic)?;
    Ok([
        register.per_op_ns,
        register.per_page_ns,
        deregister.per_op_ns,
        deregister.per_page_ns,
        measure::copy_cost(),
    ])
}

/// Returns the number of ranks on the host of `rank`.
fn host_ranks(addresses: &[EndpointAddress], rank: u32) -> u32 {
    let host = addresses.get(rank as usize).map(|own| own.host);
    let mates = addresses.iter().filter(|other| Some(other.host) == host);
    mates.count().max(1) as u32
}

/// Returns the costs and limits of registration, the same at every rank: the least limit of any
/// rank. `follows_mapping`: as far as this rank's own registrations go.
fn registration(
    addresses: &[EndpointAddress],
    parameters: &JobParameters,
    follows_mapping: bool,
) -> RegistrationCaps {
    let share = |address: &EndpointAddress| {
        let here = addresses
            .iter()
            .filter(|other| other.host == address.host)
            .count() as u64;
        (address.pinnable / here.max(1)).min(address.memlock)
    };
    let least = |of: &dyn Fn(&EndpointAddress) -> u64| {
        usize::try_from(addresses.iter().map(of).min().unwrap_or(0)).unwrap_or(usize::MAX)
    };
    let [
        register_op,
        register_page,
        deregister_op,
        deregister_page,
        copy,
    ] = parameters.costs;
    let cost = |per_op_ns, per_page_ns| Cost {
        per_op_ns,
        per_page_ns,
    };
    RegistrationCaps {
        page: PAGE,
        register: cost(register_op, register_page),
        deregister: cost(deregister_op, deregister_page),
        copy_ns_per_byte: copy,
        max_extent: least(&|address| address.extent_bytes).min(1 << 40),
        max_bytes: least(&share),
        follows_mapping,
        pins_read_only: true,
        local: true,
        inline: least(&|address| address.inline.into()),
    }
}

/// Returns a short identity of the host and its process namespace.
fn host_name() -> [u8; 16] {
    use std::hash::{BuildHasher, BuildHasherDefault};
    let hasher = BuildHasherDefault::<FxHasher>::default();
    // Process ids are valid only in their own namespace.
    let processes = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let id = (hydrant_launch::host_id(), processes);
    let halves = [hasher.hash_one(&id), hasher.hash_one((&id, 1))];
    bytemuck::cast(halves)
}

fn unreachable(cause: hydrant_launch::Error) -> Error {
    Error::Unreachable(cause.to_string())
}
