//! Opening an endpoint, for a rank of a job or for a process without one.

#![allow(unsafe_code)] // registers memory to measure what that costs

use std::{sync::Arc, time::Instant};

use hydrant_conduit::{
    Caps, Error, Footprint, Permission, Rank, RegistrationCaps, measure,
    memory::{PAGE, Segment},
};

use crate::{
    Ofi, OfiOptions, control,
    fabric::{Fabric, Offer, RegionRequest},
    keys::{MAX_EXTENTS, ProviderKeys},
    listening::Listening,
    message::MAX_ARGS,
    peers::OfiPeers,
    session,
    shared::{OfiShared, SharedParts, TrafficLimits},
    slots::{ArrivalSlots, INLINE, RECEIVES_PER_PEER, SendBuffers, receive_buffers},
    table::RegionTable,
};

/// Most accesses with the provider, for one peer and for all. Providers take any number, and 16 KiB of memory for each.
const PER_PEER: u32 = 64;
const ALL: u32 = 256;
/// The most buffers for messages. They are made when needed.
const SENDS: usize = 1 << 16;

/// An endpoint that was opened.
pub(crate) struct Opening<'a> {
    options: &'a OfiOptions,
    limits: TrafficLimits,
    max_message: usize,
    pub(crate) fabric: Arc<Fabric>,
}

/// The place of this process among its peers.
pub(crate) struct PeerSetup {
    pub(crate) rank: Rank,
    /// The costs and the limit of registration.
    pub(crate) registration: RegistrationCaps,
    pub(crate) host_ranks: u32,
    pub(crate) peers: OfiPeers,
    /// The keys of own memory.
    pub(crate) keys: ProviderKeys,
    pub(crate) listening: Option<Box<Listening>>,
}

impl<'a> Opening<'a> {
    /// Opens the endpoint of an offer, with room for `peers` peers.
    ///
    /// # Errors
    /// [`Error::System`]; [`Error::Unreachable`] if a setting names the provider.
    pub(crate) fn new(offer: Offer, options: &'a OfiOptions, peers: u32) -> Result<Self, Error> {
        let limits = TrafficLimits {
            window: options.window.max(1),
            per_peer: PER_PEER.min(offer.depth().max(1) as u32),
            all: ALL.min(offer.depth().max(1) as u32),
            inject: offer.inject_size(),
        };
        let max_message = offer.max_message();
        let completions = 4 * ALL as usize + receive_buffers(peers as usize);
        let fabric = Fabric::open(offer, peers, completions)
            .map_err(|error| of_provider(error, &options.provider))?;
        Ok(Self {
            options,
            limits,
            max_message,
            fabric,
        })
    }

    /// Makes the conduit, and starts its thread.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn compose(self, identity: PeerSetup) -> Result<Ofi, Error> {
        let Self {
            options,
            limits,
            max_message,
            fabric,
        } = self;
        let registration = RegistrationCaps {
            page: PAGE,
            max_extent: max_message.min(1 << 40),
            local: fabric.registers_locally(),
            inline: if fabric.registers_locally() {
                0
            } else {
                INLINE
            },
            ..identity.registration
        };
        let stride = options.stride();
        let caps = Caps {
            name: "ofi",
            registration: Some(registration),
            reads: true,
            any_address: false,
            host_ranks: identity.host_ranks,
            stores_wake: false,
            atomics: None,
            max_args: MAX_ARGS,
            max_payload: options.payload,
            segment: options.segment,
        };
        let receives = ArrivalSlots::new(&fabric, stride);
        receives.grow_to(receive_buffers(0))?;
        let footprint = Footprint {
            per_rank: receive_buffers(0) * stride,
            per_pair: 2 * RECEIVES_PER_PEER * stride,
        };
        let table = RegionTable::new(options.extents.min(MAX_EXTENTS), fabric.chooses_keys());
        let shared = OfiShared::new(SharedParts {
            rank: identity.rank,
            caps,
            footprint,
            limits,
            segment: Segment::new(options.segment)?,
            patience: options.peer_timeout,
            peers: identity.peers,
            keys: identity.keys,
            listening: identity.listening,
            table,
            sends: SendBuffers::new(&fabric, SENDS, stride),
            receives,
            fabric,
        })?;
        let shared = Arc::new(shared);
        let control = control::start(Arc::clone(&shared))?;
        Ok(Ofi::new(shared, control))
    }
}

/// Adds the provider to an error in opening its endpoint, if a setting names it.
fn of_provider(error: Error, named: &str) -> Error {
    if named.is_empty() {
        return error;
    }
    Error::Unreachable(format!(
        "HYDRANT_OFI_PROVIDER names {named}, which lacks what Hydrant needs: {error}; without the setting tcp or \
         tcp;ofi_rxm is used"
    ))
}

/// Measures the costs of registering and deregistering.
pub(crate) fn costs(fabric: &Fabric) -> Result<[hydrant_conduit::Cost; 2], Error> {
    measure::registration_costs(|addr, len| {
        let since = Instant::now();
        let request = RegionRequest {
            addr,
            len,
            permission: Permission::ReadWrite,
            key: session::fresh() >> 32,
        };
        // SAFETY: nobody is told the key, so nobody accesses the memory.
        let region = unsafe { fabric.register(request) };
        let region = region.map_err(|code| fabric.refusal("registering memory", code as isize))?;
        let registered = since.elapsed();
        drop(region);
        Ok([registered, since.elapsed() - registered])
    })
}
