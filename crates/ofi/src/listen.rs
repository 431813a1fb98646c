//! Endpoints without a job: peers come and go, in any order, and nobody launched them.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Error, Rank, RegistrationCaps, Standing, descriptors, measure,
    memory::{PAGE, memlock, pinnable, pinned},
};

use crate::{
    Ofi, OfiOptions,
    announcement::source_towards,
    choice::{self, Candidate},
    commands::LinkCommand,
    events::PeerHandler,
    fabric::{Fabric, Offer},
    introduction::{MOST_NAME, MOST_TEXT, Secret},
    keys::ProviderKeys,
    listening::{Acquaintanceship, Attempt, Listening},
    locator::{self, LocatorEntry},
    message::MAX_HEAD,
    open::{Opening, PeerSetup, costs},
    peers::OfiPeers,
    shared::OfiShared,
    slots::INLINE,
};

/// The descriptors for each peer: either process may have made a connection.
const CONNECTIONS: u64 = 2;
/// The peers for which descriptors and completions are provided from the start.
const USUAL_PEERS: u32 = 1024;
/// Least payload bytes of a message: introductions are messages.
const LEAST_PAYLOAD: usize = 2048;

/// The options of an endpoint without a job.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// The options that jobs have, too. `peer_timeout` is the time after which a silent peer is lost.
    pub ofi: OfiOptions,
    /// The port to listen at, if the provider has ports; 0 for the kernel's choice.
    pub port: u16,
    /// Most peers at once.
    pub capacity: u32,
    /// How long an attempt to connect lasts.
    pub connect_timeout: Duration,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            ofi: OfiOptions {
                segment: PAGE,
                peer_timeout: Some(Duration::from_secs(3)),
                ..OfiOptions::default()
            },
            port: 0,
            capacity: 1 << 16,
            // TCP may try again only after some seconds, once a link was down.
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// The handle with which the layer above begins and ends sessions of an endpoint without a job.
#[derive(Clone)]
pub struct PeerControl {
    shared: Arc<OfiShared>,
}

/// Opens an endpoint without a job. Processes that know its locator and `key` may become its peers. In the conduit,
/// this process is rank 0, and peers have the other numbers. Each process has its own numbers.
///
/// # Errors
/// [`Error::Unreachable`] if libfabric is not installed or has no endpoint that the options allow; [`Error::System`],
/// above all if the port is in use.
pub fn listen(
    options: &ListenOptions,
    key: [u8; 16],
    handler: Arc<dyn PeerHandler>,
) -> Result<(Ofi, PeerControl), Error> {
    let capacity = options.capacity.clamp(2, 1 << 24);
    let (candidate, mut offer) = choose(&options.ofi)?;
    offer.set_port(options.port);
    let usual = capacity.min(USUAL_PEERS);
    descriptors::allow(usual.into(), CONNECTIONS);
    let options_ofi = OfiOptions {
        payload: options.ofi.payload.max(LEAST_PAYLOAD),
        segment: options.ofi.segment.max(PAGE),
        ..options.ofi.clone()
    };
    let opening = Opening::new(offer, &options_ofi, usual)?;
    let fabric = Arc::clone(&opening.fabric);
    let name = fabric.name()?;
    if name.len() > MOST_NAME {
        let why = format!("the provider's addresses have {} bytes", name.len());
        return Err(Error::Unreachable(why));
    }
    let own = LocatorEntry {
        candidate,
        name: name.clone(),
    };
    let patience = options.ofi.peer_timeout;
    let listening = Listening::new(
        key,
        own,
        handler,
        capacity,
        options.connect_timeout,
        patience,
    );
    let key_size = fabric.offer().key_size();
    let ofi = opening.compose(PeerSetup {
        rank: Rank(0),
        registration: registration(&fabric)?,
        host_ranks: 1,
        peers: OfiPeers::without_job(capacity, name),
        keys: ProviderKeys::new(listening.memory, Rank(0), key_size),
        listening: Some(Box::new(listening)),
    })?;
    let shared = Arc::clone(&ofi.shared);
    Ok((ofi, PeerControl { shared }))
}

/// Chooses the best endpoint: at the interface of the default route, if that is allowed and has one.
fn choose(options: &OfiOptions) -> Result<(Candidate, Offer), Error> {
    /// Addresses of no host, for which the kernel takes the default route (RFC 5737, RFC 3849).
    const OUTSIDE: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    ];
    let mut usable = choice::usable(options).map_err(Error::Unreachable)?;
    let best = usable.first().map(|(candidate, _)| candidate.clone());
    let routes = OUTSIDE.map(source_towards);
    let at_default = usable.iter().position(|(candidate, offer)| {
        Some(candidate) == best.as_ref() && offer.ip().is_some_and(|ip| routes.contains(&Some(ip)))
    });
    if usable.is_empty() {
        return Err(Error::Unreachable(
            "libfabric offers no endpoint".to_owned(),
        ));
    }
    Ok(usable.swap_remove(at_default.unwrap_or(0)))
}

/// Returns the costs and limits of registration of this process.
fn registration(fabric: &Fabric) -> Result<RegistrationCaps, Error> {
    let [register, deregister] = costs(fabric)?;
    // Providers over TCP only note a region.
    let most = if fabric.is_over_tcp() {
        u64::MAX
    } else {
        (pinnable().min(memlock().unwrap_or(u64::MAX))).saturating_sub(pinned())
    };
    Ok(RegistrationCaps {
        page: PAGE,
        register,
        deregister,
        copy_ns_per_byte: measure::copy_cost(),
        max_extent: usize::MAX,
        max_bytes: usize::try_from(most).unwrap_or(usize::MAX),
        follows_mapping: false,
        pins_read_only: true,
        local: true,
        inline: INLINE,
    })
}

impl PeerControl {
    fn listening(&self) -> &Listening {
        let listening = self.shared.listening.as_deref();
        listening.expect("the handle belongs to an endpoint without a job")
    }

    /// Returns the locator of this endpoint. With the key, it is enough to connect.
    pub fn locator(&self) -> Vec<u8> {
        locator::write(std::slice::from_ref(&self.listening().own))
    }

    /// Asks for a session with the endpoint at `locator`, whose key is `key`. Its layer above gets `introduction`, of at
    /// most 1024 bytes. Returns the number of the peer at once. [`Met`](crate::PeerEvent::Met) or
    /// [`Failed`](crate::PeerEvent::Failed) follows. If a session with that endpoint is there or is being made, the
    /// number is that one's, and no further event follows for one that is there.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the locator is malformed, names no provider that this endpoint uses, or names this
    /// endpoint; [`Error::MessageTooLong`]; [`Error::Exhausted`] if all numbers are taken; [`Error::System`].
    pub fn connect(
        &self,
        locator: &[u8],
        key: &[u8; 16],
        introduction: &[u8],
    ) -> Result<Rank, Error> {
        let (shared, listening) = (&*self.shared, self.listening());
        if introduction.len() > MOST_TEXT {
            return Err(Error::MessageTooLong {
                len: introduction.len(),
                limit: MOST_TEXT,
            });
        }
        let addresses = locator::read(locator).map_err(Error::Unreachable)?;
        let own = &listening.own;
        let fits =
            |it: &&LocatorEntry| it.candidate == own.candidate && it.name.len() == own.name.len();
        let there = addresses.iter().find(fits).ok_or_else(|| {
            let theirs = addresses.iter().map(|it| it.candidate.to_string());
            let theirs = theirs.collect::<Vec<_>>().join(", ");
            Error::Unreachable(format!(
                "the endpoint uses {theirs}, and this one {}; install the same libfabric on all hosts, or name a \
                 provider (HYDRANT_OFI_PROVIDER)",
                own.candidate
            ))
        })?;
        if there.name == own.name {
            let why = "the locator is that of this endpoint".to_owned();
            return Err(Error::Unreachable(why));
        }
        let attempt = Attempt::new(*key, introduction.to_vec(), Instant::now());
        let mut book = listening.book.lock();
        for number in book.at(&there.name).to_vec() {
            match book.stage(number) {
                // Another key is that of another process, which had the address before or has it now.
                Some(Acquaintanceship::Asking(other)) if other.key == *key => return Ok(number),
                Some(Acquaintanceship::Admitting(guest)) => {
                    guest.own.get_or_insert(attempt);
                    return Ok(number);
                }
                Some(Acquaintanceship::Met { .. })
                    if shared.peers.standings.of(number) == Standing::Present =>
                {
                    return Ok(number);
                }
                _ => {}
            }
        }
        let number = book.take().ok_or(Error::Exhausted {
            what: "peers at once",
            limit: shared.peers.size().into(),
            remedy: "disconnect from some",
        })?;
        if let Err(error) = shared.begin_peer(number, &there.name) {
            book.give_back(number);
            return Err(error);
        }
        let asked: Secret = attempt.asked;
        listening.attempts.lock().insert(asked, (number, *key));
        let stage = Acquaintanceship::Asking(attempt);
        book.add(number, there.name.clone(), stage);
        drop(book);
        shared.commands.push(LinkCommand::Attempt(number));
        Ok(number)
    }

    /// Leaves the session with a peer in good order, or gives up the attempt. Messages that were sent before arrive. The
    /// session is over when the event says so.
    pub fn disconnect(&self, peer: Rank) {
        self.shared.commands.push(LinkCommand::Disconnect(peer));
    }

    /// Gives up the session with a peer: nothing is posted to it any more. [`Lost`](crate::PeerEvent::Lost) follows once
    /// nothing of the session lands any more, here or there. That is when the peer confirms it. A peer that does not
    /// answer ends the session itself, because it hears nothing, and that time is waited for.
    pub fn abandon(&self, peer: Rank) {
        self.shared.commands.push(LinkCommand::Abandon(peer));
    }

    /// Frees the number of a peer whose end was told. The caller uses the number no more: no call with it is under way,
    /// and all operations with it have ended.
    pub fn release(&self, peer: Rank) {
        self.shared.commands.push(LinkCommand::Release(peer));
    }
}

/// The longest introduction fits a message.
const _: () = assert!(
    size_of::<crate::introduction::IntroductionHead>() + MOST_NAME + MOST_TEXT + MAX_HEAD
        <= LEAST_PAYLOAD
);
