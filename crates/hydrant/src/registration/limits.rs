//! The limits in force: what the user said, within what the conduit has.

use hydrant_conduit::{Conduit, Registration};
use hydrant_pinning::{Config, CostModel, Message, Strategy};

use crate::{Error, RegistrationSettings, Result};

/// Of what can be pinned at all, peers may have four in ten, as in the paper (400 MB of 1 GB).
const M_SHARE: (u64, u64) = (4, 10);

pub(super) fn config(
    settings: &RegistrationSettings,
    registration: &Registration,
    conduit: &dyn Conduit,
) -> Result<Config> {
    let caps = conduit.caps();
    let least = Message::MAX_BYTES;
    if caps.max_payload < 2 * least {
        return Err(Error::other(format!(
            "messages of the conduit {} carry {} bytes, and registration needs {}: if HYDRANT_RING_PAYLOAD or \
             `ring_payload` says how much a ring holds, that is to be four times that at least",
            caps.name,
            caps.max_payload,
            2 * least
        )));
    }
    if settings.strategy == Strategy::Paging && !caps.any_address {
        return Err(Error::Setting {
            name: "HYDRANT_REGISTRATION",
            value: settings.strategy.to_string(),
            expected: format!("another strategy: the NIC of {} does not page", caps.name),
        });
    }
    let available = registration.max_bytes as u64;
    let page = registration.page;
    let m = (settings.m).unwrap_or(available / M_SHARE.1 * M_SHARE.0);
    Ok(Config {
        rank: conduit.rank().0,
        ranks: conduit.size(),
        strategy: settings.strategy,
        page,
        bucket: settings.bucket.unwrap_or(page),
        m,
        maxvictim: (settings.maxvictim).unwrap_or(m / 8),
        available,
        adaptive_victims: settings.adaptive_victims,
        borrowing: settings.borrowing,
        widening: settings.widening,
        entries: settings.entries,
        max_extent: registration.max_extent as u64,
        cost: CostModel {
            per_op_ns: registration.register.per_op_ns + registration.deregister.per_op_ns,
            per_page_ns: registration.register.per_page_ns + registration.deregister.per_page_ns,
        },
        register: CostModel {
            per_op_ns: registration.register.per_op_ns,
            per_page_ns: registration.register.per_page_ns,
        },
        piggyback: settings.ride.min(caps.max_payload - least),
        max_payload: caps.max_payload,
        reads: caps.reads,
    })
}
