//! Registers own memory, clipped to its mapped part. A bucket may be larger than the mapping in it
//! (Firehose §3.2, bucket size), and an extent may be wider.

#![allow(unsafe_code)] // registers memory of this rank with the conduit

use hydrant_conduit::{Error, Key, Permission};
use hydrant_monitor::{MappedRange, mapped_ranges};
use hydrant_pinning::{Refusal, RegisteredExtent, Run};

use super::Registration;
use crate::counters::Count;

impl Registration {
    /// Registers the needed part of own memory, and the preferred part beside it as far as that is
    /// mapped.
    pub(super) fn register(&self, need: Run, preferred: Run) -> Result<RegisteredExtent, Refusal> {
        let namings = self.namings();
        let got = self.register_mapped(need, preferred)?;
        let geometry = self.geometry;
        let (start, end) = (
            geometry.address_of(got.run.first),
            geometry.address_of(got.run.end()),
        );
        if self.may_hold_removed((start, end), namings) {
            // SAFETY: nobody was told of the key.
            let ended = unsafe { self.progress.conduit().deregister_unused(Key(got.key)) };
            if let Err(cause) = ended {
                tracing::error!(%cause, "memory was not deregistered");
            }
            // The operations are copied.
            return Err(Refusal::Limit);
        }
        Ok(got)
    }

    fn register_mapped(&self, need: Run, preferred: Run) -> Result<RegisteredExtent, Refusal> {
        let geometry = self.geometry;
        // Memory registered beside the need may outlive the operation. So it must be persistent,
        // and must not depend on chance.
        let around = Run {
            first: need.end(),
            count: preferred.end() - need.end(),
        };
        let end = (self.lent).known_until(geometry, around);
        let preferred = Run {
            first: need.first,
            count: end - need.first,
        };
        let bytes = |run: Run| {
            (
                geometry.address_of(run.first),
                geometry.address_of(run.end()),
            )
        };
        let got = |run, permission: Permission| {
            move |key: Key| RegisteredExtent {
                run,
                key: key.0,
                writable: permission == Permission::ReadWrite,
            }
        };
        match self.register_bytes(bytes(preferred), Permission::ReadWrite) {
            Ok(key) => return Ok(got(preferred, Permission::ReadWrite)(key)),
            Err(Error::BadAddress { .. }) => {}
            Err(cause) => return Err(refusal(&cause)),
        }
        // Some of the memory is not mapped or not writable.
        let (start, end) = bytes(need);
        let maps = mapped_ranges(start, geometry.address_of(preferred.end()));
        let stretch = only_stretch(maps, start, end)
            // Each needed bucket must have something mapped in it.
            .filter(|stretch| {
                let (first, last) = (need.first + 1, need.end().saturating_sub(1));
                stretch.start < geometry.address_of(first)
                    && stretch.end > geometry.address_of(last)
            })
            .ok_or(Refusal::NotMapped)?;
        let permission = if stretch.is_writable {
            Permission::ReadWrite
        } else if self.pins_read_only() {
            Permission::Read
        } else {
            // The registered copy would not follow what another mapping, or this one after `mprotect`, writes there. So
            // the operations are copied.
            return Err(Refusal::Limit);
        };
        let last = geometry.bucket_of(stretch.end - 1) + 1;
        let mut run = Run {
            first: need.first,
            count: last.clamp(need.end(), preferred.end()) - need.first,
        };
        let is_watched =
            |from: u64, to: u64| from < to && self.lent.watched.has_some((from, to - from));
        // The bytes of a clipped bucket that are heard of must be registered with it. Those that are inaccessible now may be
        // accessible later, of which nobody tells, and operations on them would find the registration.
        if is_watched(stretch.end, bytes(run).1) && run.count > need.count {
            run.count -= 1;
        }
        let (from, to) = bytes(run);
        let clipped = (from.max(stretch.start), to.min(stretch.end));
        if is_watched(from, clipped.0) || is_watched(clipped.1, to) {
            // The operations are copied.
            return Err(Refusal::Limit);
        }
        (self.register_bytes(clipped, permission))
            .map(got(run, permission))
            .map_err(|cause| refusal(&cause))
    }

    fn pins_read_only(&self) -> bool {
        let caps = self.progress.conduit().caps();
        (caps.registration).is_some_and(|registration| registration.pins_read_only)
    }

    fn register_bytes(
        &self,
        (start, end): (u64, u64),
        permission: Permission,
    ) -> Result<Key, Error> {
        self.progress.tally.one(Count::Registrations);
        let addr = std::ptr::with_exposed_provenance_mut::<u8>(start as usize);
        // SAFETY: the conduit refuses memory that is not mapped. Peers get the key only for memory that
        // is lent to them, and the registration ends before the loan.
        unsafe {
            self.progress
                .conduit()
                .register(addr, (end - start) as usize, permission)
        }
    }
}

fn refusal(cause: &Error) -> Refusal {
    match cause {
        Error::BadAddress { .. } => Refusal::NotMapped,
        Error::Exhausted { .. } => Refusal::Exhausted,
        cause => {
            tracing::warn!(%cause, "memory could not be registered");
            Refusal::Exhausted
        }
    }
}

/// Returns the mapped range between two addresses with what follows on it in `maps`, with the rights that all its parts
/// have. Returns `None` if there is none, or if it has a hole. `maps` begin with the first that ends behind `start`.
fn only_stretch(
    mut maps: impl Iterator<Item = MappedRange>,
    start: u64,
    end: u64,
) -> Option<MappedRange> {
    debug_assert!(start < end);
    let mut found = maps.next().filter(|first| first.start < end)?;
    for next in maps {
        if found.end != next.start {
            // A hole, unless the needed range ends before it.
            return (next.start >= end).then_some(found);
        }
        if found.is_writable != next.is_writable {
            if next.start >= end {
                break;
            }
            // The whole is only readable.
            found.is_writable = false;
        }
        found.end = next.end;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(start: u64, end: u64, is_writable: bool) -> MappedRange {
        MappedRange {
            start,
            end,
            is_writable,
            is_system_v: false,
        }
    }

    #[test]
    fn a_stretch_is_clipped_to_its_mapped_part_without_a_hole() {
        let maps = [
            stretch(0x1000, 0x3000, true),
            stretch(0x3000, 0x5000, true),
            stretch(0x8000, 0x9000, true),
            stretch(0x9000, 0xa000, false),
        ];
        let only = |start, end| {
            let after = maps.into_iter().filter(move |found| found.end > start);
            only_stretch(after, start, end)
        };
        assert_eq!(only(0x2000, 0x4000), Some(stretch(0x1000, 0x5000, true)));
        assert_eq!(only(0x4000, 0x8000), Some(stretch(0x3000, 0x5000, true)));
        assert_eq!(only(0x4000, 0x9000), None);
        assert_eq!(only(0x5000, 0x8000), None);
        assert_eq!(only(0x8000, 0xa000), Some(stretch(0x8000, 0xa000, false)));
        assert_eq!(only(0x8000, 0x9000), Some(stretch(0x8000, 0x9000, true)));
        assert_eq!(only(0xb000, 0xc000), None);
    }
}
