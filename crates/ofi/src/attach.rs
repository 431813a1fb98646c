//! Joining the ranks of a job over libfabric.

use std::{
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Error, Rank, RegistrationCaps, descriptors, measure,
    memory::{PAGE, memlock, pinnable, pinned},
};
use hydrant_launch::Bootstrap;

use crate::{
    Ofi, OfiOptions,
    announcement::{self, Announcement},
    choice::{self, Candidate},
    commands::LinkCommand,
    fabric::{Fabric, Offer},
    interfaces,
    keys::ProviderKeys,
    open::{Opening, PeerSetup, costs},
    peers::OfiPeers,
    shared::OfiShared,
    slots::INLINE,
    socket_address,
    sockets::{self, ListenerState},
    strangers,
};

/// The descriptors for each peer: either rank may have made a connection.
const CONNECTIONS: u64 = 2;

/// Joins the ranks that `bootstrap` knows. Collective.
///
/// # Errors
/// [`Error::Unreachable`] if libfabric is not installed or has no provider in common to all ranks, or if the ranks cannot
/// reach each other; [`Error::System`].
pub fn attach(bootstrap: &mut dyn Bootstrap, options: &OfiOptions) -> Result<Ofi, Error> {
    let usable = choice::usable(options).map_err(Error::Unreachable);
    let all = announce(bootstrap, usable.as_ref().map_err(ToString::to_string))?;
    let lists: Vec<&[Candidate]> = all.iter().map(|it| &it.candidates[..]).collect();
    let candidate = choice::common(&lists).map_err(Error::Unreachable)?;
    let (rank, ranks) = (bootstrap.rank(), bootstrap.size());
    descriptors::allow(u64::from(ranks) - 1, CONNECTIONS);
    let secret = bootstrap.secret().map_err(unreachable)?;
    let secret = *secret.first_chunk().unwrap_or(&[0; 16]);
    let mut offers: Vec<Offer> = (usable?.into_iter())
        .filter(|(it, _)| *it == candidate)
        .map(|(_, offer)| offer)
        .collect();
    let own: Vec<_> = offers.iter().map(Offer::ip).collect();
    let best = announcement::best_address(&own, rank as usize, &all);
    let interfaces = interface_choice(&offers, best);
    if best >= offers.len() {
        let why = "the chosen provider is gone".to_owned();
        return Err(Error::Unreachable(why));
    }
    let offer = offers.swap_remove(best);
    let opening = Opening::new(offer, options, ranks)?;
    let fabric = Arc::clone(&opening.fabric);
    let published = Published::new(&fabric)?;
    admit_hosts(&fabric, &published.name, &all);
    let all = published.exchange(bootstrap)?;
    let key_size = fabric.offer().key_size();
    let ofi = opening.compose(PeerSetup {
        rank: Rank(rank),
        registration: all.registration,
        host_ranks: all.host_ranks,
        peers: OfiPeers::of_job(Rank(rank), secret, key_size, all.names),
        keys: ProviderKeys::new(secret, Rank(rank), key_size),
        listening: None,
    })?;
    let shared = Arc::clone(&ofi.shared);
    // No rank sends before every rank can answer.
    bootstrap.fence().map_err(unreachable)?;
    reach_next(&shared, options.join_timeout, &interfaces).inspect_err(|_| {
        // Nobody waits for an acknowledgement of this rank's leave.
        shared.commands.push(LinkCommand::LoseAll);
    })?;
    bootstrap.fence().map_err(unreachable)?;
    Ok(ofi)
}

/// Tells all ranks what this one could use. A rank without a provider tells the others why.
fn announce(
    bootstrap: &mut dyn Bootstrap,
    usable: Result<&Vec<(Candidate, Offer)>, String>,
) -> Result<Vec<Announcement>, Error> {
    let own = match &usable {
        Ok(usable) => {
            let candidates = usable.iter().map(|(candidate, _)| candidate.clone());
            let addresses = usable.iter().filter_map(|(_, offer)| offer.ip());
            let own = Announcement {
                candidates: candidates.collect(),
                host: format!("{:?}", hydrant_launch::host_id()),
                addresses: addresses.collect(),
            };
            own.to_text()
        }
        Err(why) => format!("!{why}"),
    };
    bootstrap.put("ofi", own.as_bytes()).map_err(unreachable)?;
    bootstrap.fence().map_err(unreachable)?;
    let mut all = Vec::new();
    for rank in 0..bootstrap.size() {
        let value = bootstrap.get(rank, "ofi").map_err(unreachable)?;
        let text = String::from_utf8_lossy(&value);
        if let Some(why) = text.strip_prefix('!') {
            return Err(Error::Unreachable(if rank == bootstrap.rank() {
                why.to_owned()
            } else {
                format!("rank {rank} cannot use libfabric: {why}")
            }));
        }
        let malformed = || {
            let what = format!("rank {rank} is of another version of hydrant");
            Error::Unreachable(what)
        };
        all.push(Announcement::from_text(&text).ok_or_else(malformed)?);
    }
    Ok(all)
}

/// The interface that this rank uses, and all that it could use, for errors.
fn interface_choice(offers: &[Offer], best: usize) -> String {
    let chosen = offers.get(best).map(choice::interface_of);
    let chosen = chosen.unwrap_or_default();
    let mut others: Vec<String> = (offers.iter())
        .filter(|offer| !offer.ip().is_some_and(|ip| ip.is_loopback()))
        .map(choice::interface_of)
        .filter(|other| *other != chosen)
        .collect();
    others.dedup();
    if others.is_empty() {
        format!("this rank uses {chosen} and has no other interface; the other rank may have one")
    } else {
        format!("this rank uses {chosen}, and has {}", others.join(", "))
    }
}

/// The values that a rank publishes about its endpoint.
struct Published {
    name: Vec<u8>,
    host: String,
    costs: [f64; 5],
    pins: bool,
}

/// The values that all ranks published.
struct Exchanged {
    names: Vec<Vec<u8>>,
    host_ranks: u32,
    registration: RegistrationCaps,
}

impl Published {
    fn new(fabric: &Fabric) -> Result<Self, Error> {
        let [register, deregister] = costs(fabric)?;
        // Providers over TCP only note a region.
        let pins = !fabric.is_over_tcp();
        Ok(Self {
            name: fabric.name()?,
            host: format!("{:?}", hydrant_launch::host_id()),
            costs: [
                register.per_op_ns,
                register.per_page_ns,
                deregister.per_op_ns,
                deregister.per_page_ns,
                measure::copy_cost(),
            ],
            pins,
        })
    }

    fn exchange(self, bootstrap: &mut dyn Bootstrap) -> Result<Exchanged, Error> {
        let costs: &[u8] = bytemuck::cast_slice(&self.costs);
        let limit = if self.pins {
            (pinnable().min(memlock().unwrap_or(u64::MAX))).saturating_sub(pinned())
        } else {
            u64::MAX
        };
        let mut value = limit.to_ne_bytes().to_vec();
        value.extend(costs);
        value.extend((self.name.len() as u32).to_ne_bytes());
        value.extend(&self.name);
        value.extend(self.host.as_bytes());
        bootstrap.put("ofi-address", &value).map_err(unreachable)?;
        bootstrap.fence().map_err(unreachable)?;
        let (mut names, mut host_ranks) = (Vec::new(), 0);
        let (mut least, mut costs) = (u64::MAX, self.costs);
        for rank in 0..bootstrap.size() {
            let value = bootstrap.get(rank, "ofi-address").map_err(unreachable)?;
            let bad = || {
                let what = format!("the address that rank {rank} published is malformed");
                Error::Unreachable(what)
            };
            let (limit, rest) = value.split_first_chunk::<8>().ok_or_else(bad)?;
            let (theirs, rest) = rest.split_first_chunk::<40>().ok_or_else(bad)?;
            let (len, rest) = rest.split_first_chunk::<4>().ok_or_else(bad)?;
            let len = u32::from_ne_bytes(*len) as usize;
            let (name, host) = rest.split_at_checked(len).ok_or_else(bad)?;
            least = least.min(u64::from_ne_bytes(*limit));
            if rank == 0 {
                costs = bytemuck::pod_read_unaligned(theirs);
            }
            names.push(name.to_vec());
            host_ranks += u32::from(host == self.host.as_bytes());
        }
        let cost = |at: usize| hydrant_conduit::Cost {
            per_op_ns: costs[at],
            per_page_ns: costs[at + 1],
        };
        let registration = RegistrationCaps {
            page: PAGE,
            register: cost(0),
            deregister: cost(2),
            copy_ns_per_byte: costs[4],
            max_extent: usize::MAX,
            max_bytes: usize::try_from(least).unwrap_or(usize::MAX),
            follows_mapping: false,
            pins_read_only: true,
            local: true,
            inline: INLINE,
        };
        Ok(Exchanged {
            names,
            host_ranks: host_ranks.max(1),
            registration,
        })
    }
}

/// Keeps connections from hosts without a rank away. Ranks connect from the addresses that they announced.
fn admit_hosts(fabric: &Fabric, name: &[u8], all: &[Announcement]) {
    let own = socket_address::parse(name).filter(|_| fabric.is_over_tcp());
    let Some(own) = own else {
        return;
    };
    let addresses = all.iter().flat_map(|rank| &rank.addresses);
    if let Err(cause) = strangers::admit_only(own, &addresses.copied().collect()) {
        tracing::debug!(%cause, "connections from any host are accepted");
    }
}

/// Waits until the next rank of the ring was reached.
fn reach_next(shared: &OfiShared, timeout: Duration, interfaces: &str) -> Result<(), Error> {
    let (size, own) = (shared.peers.size(), shared.rank.0);
    if size == 1 {
        return Ok(());
    }
    let next = Rank((own + 1) % size);
    let peer = shared.peer(next)?;
    shared.bring_up(peer, &mut peer.link.lock());
    let since = Instant::now();
    while !OfiShared::was_up(peer) {
        if let Some(mut collector) = shared.collector.try_lock() {
            collector.collect(shared, true);
        }
        let waited = since.elapsed();
        if shared.peers.standings.present(next).is_err() || waited >= timeout {
            return Err(unreached(shared, next, waited, interfaces));
        }
        thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

fn unreached(shared: &OfiShared, rank: Rank, waited: Duration, interfaces: &str) -> Error {
    let waited = waited.as_secs_f32();
    let Some(address) = shared.peers.address_of(rank) else {
        return Error::Unreachable(format!("rank {rank} did not answer within {waited:.1} s"));
    };
    let cause = match sockets::probe(address, Duration::from_secs(1)) {
        ListenerState::NoDescriptor => return no_descriptors(),
        ListenerState::Gone | ListenerState::Silent if address.ip().is_loopback() => {
            "only its own host reaches that address, and it announced no other: its interfaces \
             are down, or HYDRANT_OFI_INTERFACE there excludes them"
        }
        ListenerState::Gone => "the connection is refused: a firewall, or its process ended",
        ListenerState::Silent => {
            "connections get no answer: a firewall drops them, or no way leads there"
        }
        ListenerState::NoRoute => {
            "this host has no route there, nobody has that address on its network, or a firewall \
             rejects connections"
        }
        ListenerState::Alive => "it accepts connections, but does not answer as a rank of this job",
    };
    let defect = interfaces::link_defect(&shared.fabric.offer().domain_name());
    let cause = defect.as_deref().unwrap_or(cause);
    Error::Unreachable(format!(
        "rank {rank} at {address} was not reached within {waited:.1} s: {cause}; {interfaces} \
         (HYDRANT_OFI_INTERFACE names the interface to use)"
    ))
}

fn no_descriptors() -> Error {
    let cause = io::Error::from_raw_os_error(libc::EMFILE);
    Error::system("connecting to another rank", cause)
}

fn unreachable(cause: hydrant_launch::Error) -> Error {
    Error::Unreachable(cause.to_string())
}
