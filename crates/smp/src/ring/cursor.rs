//! Where payloads lie in the byte ring.
//!
//! Positions count bytes since the start and never wrap. A payload that would run over the
//! end of the ring begins at the next lap instead; both sides work that out alike.

/// Payloads begin at multiples of this.
const ALIGN: u64 = 8;

/// A payload's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Offset in the ring.
    pub(super) offset: usize,
    /// Position behind the payload: where the next one starts.
    pub(super) end: u64,
}

/// The place of a payload of `len` bytes when `position` is the end of the one before.
///
/// `None` if it can never fit.
pub(super) fn place(position: u64, len: usize, ring: usize) -> Option<Place> {
    if len > ring {
        return None;
    }
    let ring = ring as u64;
    let len = len as u64;
    let mut start = position;
    if start % ring + len > ring {
        start = (start / ring + 1) * ring;
    }
    Some(Place {
        offset: (start % ring) as usize,
        end: (start + len).next_multiple_of(ALIGN),
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn payloads_lie_in_one_piece_and_in_order() {
        let ring = 256;
        let mut position = 0;
        for len in (0..=128).chain((0..=128).rev()).cycle().take(4000) {
            let place = place(position, len, ring).unwrap();
            assert!(place.offset + len <= ring);
            assert!(place.end >= position + len as u64);
            assert!(place.end - position < (ring + len + 8) as u64);
            position = place.end;
        }
        assert_eq!(place(0, 257, ring), None);
    }
}
