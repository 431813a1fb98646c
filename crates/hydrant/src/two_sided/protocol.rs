//! How a message goes, by its size and what the network costs.

use hydrant_conduit::{Caps, Registration};

use crate::settings::{MessageProtocol, Settings};

/// Bytes of a chunk of the pipeline protocol, which is registered while those before it go.
const CHUNK: usize = 128 << 10;

/// How messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Protocols {
    /// Most bytes of a message that is sent at once.
    pub(super) eager: usize,
    /// How longer ones go.
    pub(super) long: Long,
    /// Most bytes of a part that is copied.
    pub(super) part: usize,
}

/// How a message goes once its receiver has asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Long {
    /// In active messages, each of which is copied on both sides.
    Copied,
    /// By writes into the receiver's buffer, of at most so many bytes.
    Written(usize),
}

impl Protocols {
    pub(super) fn choose(settings: &Settings, caps: &Caps) -> Self {
        let most = caps.max_payload;
        let (eager, long) = match settings.messages {
            MessageProtocol::Eager => (most, Long::Copied),
            MessageProtocol::Rendezvous => (0, Long::Written(usize::MAX)),
            MessageProtocol::Pipeline => (0, Long::Written(CHUNK)),
            MessageProtocol::Auto => by_costs(caps),
        };
        Self {
            eager: settings.messages_eager.unwrap_or(eager).min(most),
            long,
            part: most,
        }
    }

    /// Whether a message is sent at once, if there is room for it.
    pub(super) fn is_eager(&self, len: usize) -> bool {
        len <= self.eager
    }
}

/// Most bytes that are sent at once because their copies cost less than what they save, and how longer ones go unless
/// they are copied.
fn by_costs(caps: &Caps) -> (usize, Long) {
    let eager = match &caps.registration {
        Some(registration) => worth_copying(registration, caps.max_payload),
        None => caps.max_payload,
    };
    (eager, Long::Written(usize::MAX))
}

/// Most bytes of a long message that is copied first, if which way those go is [chosen](super::choice) by what they
/// take. Both ranks copy at the same time, as both register at the same time.
///
/// Where nothing is registered, either way may take three times as long as the other: two copies through shared memory,
/// made at both ranks at the same time, or the system's one, which looks up each page. It depends on whether the
/// processors share a cache.
pub(super) fn copied_first(settings: &Settings, caps: &Caps) -> Option<usize> {
    let is_chosen = settings.messages == MessageProtocol::Auto;
    is_chosen.then(|| match &caps.registration {
        Some(registration) => worth_copying(registration, usize::MAX),
        None => usize::MAX,
    })
}

/// Bytes whose two copies cost less than registering and deregistering both buffers, doubled until
/// they do not.
fn worth_copying(registration: &Registration, most: usize) -> usize {
    let pays = |bytes: &usize| {
        let pages = bytes.div_ceil(registration.page);
        let copies = 2.0 * registration.copy_ns_per_byte * *bytes as f64;
        copies < 2.0 * (registration.register.of(pages) + registration.deregister.of(pages))
    };
    let sizes = std::iter::successors(Some(64_usize), |bytes| bytes.checked_mul(2));
    let worth = sizes
        .take_while(|bytes| *bytes < most)
        .take_while(pays)
        .last();
    let all = Some(most).filter(pays);
    all.or(worth).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use hydrant_conduit::Cost;

    use super::*;

    #[test]
    fn what_costs_less_to_copy_is_sent_at_once() {
        let registration = |per_op_ns, per_page_ns, copy_ns_per_byte| Registration {
            page: 4096,
            register: Cost {
                per_op_ns,
                per_page_ns,
            },
            deregister: Cost {
                per_op_ns: 0.0,
                per_page_ns: 0.0,
            },
            copy_ns_per_byte,
            max_extent: 1 << 30,
            max_bytes: 1 << 30,
            follows_mapping: false,
            inline: 0,
        };
        // A call costs as much as 10,000 bytes.
        assert_eq!(
            worth_copying(&registration(1000.0, 0.0, 0.1), 1 << 16),
            8192
        );
        assert_eq!(worth_copying(&registration(1000.0, 0.0, 0.1), 5000), 5000);
        // A page costs more than its copy.
        assert_eq!(
            worth_copying(&registration(0.0, 500.0, 0.1), 1 << 16),
            1 << 16
        );
        assert_eq!(worth_copying(&registration(10.0, 0.0, 1.0), 1 << 16), 0);
    }
}
