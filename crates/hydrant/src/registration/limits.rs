//! The limits in force: the user's settings within the capabilities of the conduit.

use hydrant_conduit::{Conduit, RegistrationCaps, memory::pinned};
use hydrant_pinning::{Config, CostModel, EngineMessage, Strategy};

use super::bulk;
use crate::{Error, Result, Settings};

/// The share of the memory that can be pinned at all that peers may have by default: four tenths,
/// as in the paper (400 MB of 1 GB).
const M_SHARE: (u64, u64) = (4, 10);

pub(super) fn config(
    settings: &Settings,
    registration: &RegistrationCaps,
    conduit: &dyn Conduit,
) -> Result<Config> {
    let caps = conduit.caps();
    let least = EngineMessage::MAX_BYTES;
    if caps.max_payload < 2 * least {
        return Err(Error::other(format!(
            "messages of the conduit {} carry {} bytes, and registration needs {}: if HYDRANT_RING_PAYLOAD or \
             `ring_payload` says how much a ring holds, that is to be four times that at least",
            caps.name,
            caps.max_payload,
            2 * least
        )));
    }
    if settings.registration == Strategy::Paging && !caps.any_address {
        return Err(Error::Setting {
            name: "HYDRANT_REGISTRATION",
            value: settings.registration.to_string(),
            expected: format!("another strategy: the NIC of {} does not page", caps.name),
        });
    }
    #[cfg(not(feature = "foresight"))]
    if settings.registration == Strategy::Foresight {
        return Err(Error::Setting {
            name: "HYDRANT_REGISTRATION",
            value: settings.registration.to_string(),
            expected: format!(
                "another strategy: foresight needs {}",
                crate::settings::built_without("foresight")
            ),
        });
    }
    let available = registration.max_bytes as u64;
    let page = registration.page;
    // On a network in virtual time, nothing is pinned.
    let held = if registration.follows_mapping {
        0
    } else {
        pinned()
    };
    let (m, maxvictim) = bytes(settings, (available, page as u64), conduit.size(), held)?;
    Ok(Config {
        rank: conduit.rank().0,
        ranks: conduit.size(),
        strategy: settings.registration,
        page,
        bucket: settings.bucket.unwrap_or(page),
        m,
        maxvictim,
        available,
        adaptive_victims: settings.adaptive_victims,
        borrowing: settings.borrow,
        widening: settings.widen,
        entries: settings.pin_down_entries,
        max_extent: registration.max_extent as u64,
        chunk: bulk::chunk(settings, registration),
        cost: CostModel {
            per_op_ns: registration.register.per_op_ns + registration.deregister.per_op_ns,
            per_page_ns: registration.register.per_page_ns + registration.deregister.per_page_ns,
        },
        register: CostModel {
            per_op_ns: registration.register.per_op_ns,
            per_page_ns: registration.register.per_page_ns,
        },
        piggyback: settings.piggyback.min(caps.max_payload - least),
        max_payload: caps.max_payload,
        reads: caps.reads,
    })
}

/// Returns M and MAXVICTIM, where `held` bytes of the process are pinned beside what is available. Defaults give way to values that were set, to the least that `ranks`
/// ranks need, and to the amount that can be registered. So no default is refused.
///
/// # Errors
/// [`Error::Registration`] if too little can be registered for any limits.
fn bytes(
    settings: &Settings,
    (available, page): (u64, u64),
    ranks: u32,
    held: u64,
) -> Result<(u64, u64)> {
    let bucket = settings.bucket.map_or(page, |bucket| bucket as u64);
    let peers = u64::from(ranks - 1).max(1);
    let for_peers = match settings.registration {
        Strategy::Firehose | Strategy::Auto => peers.saturating_mul(bucket),
        _ => 0,
    };
    let least = for_peers.saturating_add(bucket);
    if settings.m.is_none() && settings.maxvictim.is_none() && least > available {
        return Err(Error::Registration(
            hydrant_pinning::Error::MemoryTooLittle {
                available,
                pinned: held,
                least,
                bucket,
                page,
                ranks,
            },
        ));
    }
    let m = settings.m.unwrap_or_else(|| {
        let beside = settings.maxvictim.unwrap_or(bucket);
        (available / M_SHARE.1 * M_SHARE.0)
            .min(available.saturating_sub(beside))
            .max(for_peers)
    });
    let maxvictim = settings
        .maxvictim
        .unwrap_or_else(|| (m / 8).min(available.saturating_sub(m)).max(bucket));
    Ok((m, maxvictim))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn settings(m: Option<u64>, maxvictim: Option<u64>, bucket: u64) -> Settings {
        let mut settings = Settings::new();
        (settings.m, settings.maxvictim) = (m, maxvictim);
        settings.bucket = Some(bucket as usize);
        settings
    }

    fn is_possible(m: u64, maxvictim: u64, bucket: u64, available: u64, ranks: u32) -> bool {
        let config = Config {
            bucket: bucket as usize,
            m,
            maxvictim,
            available,
            strategy: Strategy::Auto,
            ..Config::firehose_paper(0, ranks)
        };
        config.check().is_ok()
    }

    #[test]
    fn defaults_are_never_refused() {
        for ranks in [1, 2, 4, 33] {
            for bucket in [PAGE, 16 * PAGE] {
                for pages in (0..200).chain([1000, 1 << 20]) {
                    let available = pages * PAGE + 5 * (pages % 3);
                    let found = bytes(&settings(None, None, bucket), (available, PAGE), ranks, 0);
                    match found {
                        Ok((m, maxvictim)) => {
                            let possible = is_possible(m, maxvictim, bucket, available, ranks);
                            assert!(possible, "{ranks} ranks, {bucket}, {available}");
                        }
                        Err(error) => {
                            // No division of the memory is possible.
                            let peers = u64::from(ranks - 1).max(1);
                            assert!(available < (peers + 1) * bucket, "{error}");
                            assert!(error.to_string().contains("ulimit -l"), "{error}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn defaults_give_way_to_values_that_were_set() {
        let available = 1 << 20;
        let of =
            |m, maxvictim| bytes(&settings(m, maxvictim, PAGE), (available, PAGE), 2, 0).unwrap();
        // The usual defaults.
        assert_eq!(of(Some(400 << 10), None), (400 << 10, 50 << 10));
        // Less than a bucket would be left, or the value exceeds the available memory.
        assert_eq!(of(Some(16 << 10), None), (16 << 10, PAGE));
        assert_eq!(of(Some(1000 << 10), None), (1000 << 10, 24 << 10));
        assert_eq!(of(None, Some(900 << 10)), (124 << 10, 900 << 10));
        let (m, maxvictim) = of(None, None);
        assert_eq!(maxvictim, m / 8);
    }

    #[test]
    fn pins_that_leave_nothing_are_named() {
        let refused = bytes(&settings(None, None, PAGE), (0, PAGE), 2, 12 << 20);
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("beside the 12 MiB"), "{text}");
        let refused = bytes(&settings(None, None, PAGE), (0, PAGE), 2, 0);
        let text = refused.unwrap_err().to_string();
        assert!(!text.contains("beside"), "{text}");
    }

    /// A conflict between two values that were set is refused.
    #[test]
    fn values_that_were_set_stay() {
        let available = 1 << 20;
        let of =
            |m, maxvictim| bytes(&settings(m, maxvictim, PAGE), (available, PAGE), 2, 0).unwrap();
        assert_eq!(of(Some(1), Some(2)), (1, 2));
        let (m, maxvictim) = of(Some(2 << 20), None);
        assert_eq!((m, maxvictim), (2 << 20, PAGE));
        assert!(!is_possible(m, maxvictim, PAGE, available, 2));
    }
}
