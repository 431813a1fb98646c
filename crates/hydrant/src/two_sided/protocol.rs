//! Chooses the protocol of a message by its size and the costs of the network.

use hydrant_conduit::{Caps, RegistrationCaps};

use super::credit;
use crate::settings::{MessageProtocol, Settings};

/// The bytes of a chunk of the pipeline protocol. A chunk is registered while earlier ones are in
/// flight.
const CHUNK: usize = 128 << 10;

/// The bytes of the longest eager message of a network that pins no memory. It may go in pieces.
const EAGER_WITHOUT_PINNING: usize = 64 << 10;
/// The limit of bytes of a message in pieces. It is a quarter of the receiver's memory for the
/// messages of one peer.
const MOST_IN_PIECES: usize = credit::BYTES as usize / 4;

/// The protocols of a rank's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Protocols {
    /// The limit of bytes of an eager message.
    pub(super) eager: usize,
    /// The limit of bytes of an eager message in one piece.
    pub(super) whole: usize,
    /// The protocol of longer messages.
    pub(super) long: LongProtocol,
    /// The limit of bytes of a copied part.
    pub(super) part: usize,
}

/// The protocol of a message once its receiver has cleared it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LongProtocol {
    /// Sent in active messages, with a copy on both sides.
    Copied,
    /// Written into the receiver's buffer, by writes of at most this many bytes.
    Written(usize),
}

impl Protocols {
    pub(super) fn choose(settings: &Settings, caps: &Caps) -> Self {
        let most = caps.max_payload;
        let (eager, long) = match settings.messages {
            MessageProtocol::Eager => (most, LongProtocol::Copied),
            MessageProtocol::Rendezvous => (0, LongProtocol::Written(usize::MAX)),
            MessageProtocol::Pipeline => (0, LongProtocol::Written(CHUNK)),
            MessageProtocol::Auto => by_costs(caps),
        };
        let eager = match settings.messages_eager {
            Some(bytes) => bytes.min(most.max(MOST_IN_PIECES)),
            None => eager,
        };
        Self {
            eager,
            whole: eager.min(most),
            long,
            part: most,
        }
    }

    /// Returns whether a message may be sent at once, in one piece or several, if there is room for
    /// it.
    pub(super) fn is_eager(&self, len: usize) -> bool {
        len <= self.eager
    }

    /// Returns whether a message is sent at once in one piece, if there is room for it.
    #[inline]
    pub(super) fn is_eager_whole(&self, len: usize) -> bool {
        len <= self.whole
    }
}

/// Returns the limit of eager messages, whose copies cost less than they save, and the protocol of
/// longer messages.
fn by_costs(caps: &Caps) -> (usize, LongProtocol) {
    let eager = match &caps.registration {
        // The network moves the bytes by copies in any case, and a message in pieces takes no
        // answer of its receiver.
        Some(registration) if !registration.local => EAGER_WITHOUT_PINNING.max(caps.max_payload),
        Some(registration) => worth_copying(registration, caps.max_payload),
        None => caps.max_payload,
    };
    (eager, LongProtocol::Written(usize::MAX))
}

/// Returns the limit of long messages that are copied first, where routes are
/// [chosen](super::choice) by measured times. Both ranks copy at the same time, as both register at
/// the same time.
///
/// Without registration, either route may take three times as long as the other. One route is two
/// copies through shared memory, made at both ranks at the same time. The other route is the
/// system's single copy, which looks up each page. The result depends on whether the processors
/// share a cache.
pub(super) fn copied_first(settings: &Settings, caps: &Caps) -> Option<usize> {
    let is_chosen = settings.messages == MessageProtocol::Auto;
    is_chosen.then(|| match &caps.registration {
        Some(registration) => worth_copying(registration, usize::MAX),
        None => usize::MAX,
    })
}

/// Returns the bytes, in powers of two, whose two copies cost less than registering and
/// deregistering both buffers. Returns `most` if its copies do, too.
fn worth_copying(registration: &RegistrationCaps, most: usize) -> usize {
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
    fn a_message_is_eager_if_copying_it_costs_less() {
        let registration = |per_op_ns, per_page_ns, copy_ns_per_byte| RegistrationCaps {
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
            pins_read_only: true,
            local: true,
            inline: 0,
        };
        // A registration costs as much as copying 10,000 bytes.
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
