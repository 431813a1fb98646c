//! Registers own memory, clipped to its mapped part. A bucket may be larger than the mapping in it
//! (Firehose §3.2, bucket size), and an extent may be wider.

#![allow(unsafe_code)] // registers memory of this rank with the conduit

use std::fs;

use hydrant_conduit::{Error, Key, Permission};
use hydrant_pinning::{Refusal, RegisteredExtent, Run};

use super::Registration;
use crate::counters::Count;

/// A range of addresses with equal rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stretch {
    start: u64,
    end: u64,
    writable: bool,
}

impl Registration {
    /// Registers the needed part of own memory, and the preferred part beside it as far as that is
    /// mapped.
    pub(super) fn register(&self, need: Run, preferred: Run) -> Result<RegisteredExtent, Refusal> {
        let got = self.register_mapped(need, preferred)?;
        let geometry = self.geometry;
        let (start, end) = (
            geometry.address_of(got.run.first),
            geometry.address_of(got.run.end()),
        );
        if self.may_hold_removed((start, end)) {
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
        let stretch = only_stretch(&own_maps(), start, end)
            // Each needed bucket must have something mapped in it.
            .filter(|stretch| {
                let (first, last) = (need.first + 1, need.end().saturating_sub(1));
                stretch.start < geometry.address_of(first)
                    && stretch.end > geometry.address_of(last)
            })
            .ok_or(Refusal::NotMapped)?;
        let permission = if stretch.writable {
            Permission::ReadWrite
        } else {
            Permission::Read
        };
        let last = geometry.bucket_of(stretch.end - 1) + 1;
        let run = Run {
            first: need.first,
            count: last.clamp(need.end(), preferred.end()) - need.first,
        };
        let (from, to) = bytes(run);
        let clipped = (from.max(stretch.start), to.min(stretch.end));
        (self.register_bytes(clipped, permission))
            .map(got(run, permission))
            .map_err(|cause| refusal(&cause))
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

/// Returns the mappings that hold bytes between two addresses, in order: the start and the end of each.
pub(super) fn mappings(start: u64, end: u64) -> Vec<(u64, u64)> {
    let all = own_maps().into_iter().map(|it| (it.start, it.end));
    all.filter(|(from, to)| *from < end && start < *to)
        .collect()
}

/// Returns the readable ranges of this process's memory.
fn own_maps() -> Vec<Stretch> {
    let text = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

/// Parses a line such as `7f00a000-7f00c000 rw-p 00000000 00:00 0`.
fn parse(line: &str) -> Option<Stretch> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let stretch = Stretch {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        writable: rest.as_bytes().get(1) == Some(&b'w'),
    };
    rest.starts_with('r').then_some(stretch)
}

/// Returns the mapped range between two addresses with the range that follows on it, with the
/// rights that all its parts have. Returns `None` if there is none, or if it has a hole.
fn only_stretch(maps: &[Stretch], start: u64, end: u64) -> Option<Stretch> {
    let mut found: Option<Stretch> = None;
    for next in maps.iter().filter(|next| next.end > start) {
        match &mut found {
            None if next.start < end => found = Some(*next),
            None => return None,
            Some(found) if found.end == next.start => {
                if found.writable == next.writable {
                    found.end = next.end;
                } else if next.start < end {
                    // The whole is only readable.
                    found.end = next.end;
                    found.writable = false;
                } else {
                    break;
                }
            }
            // A hole in the needed range.
            Some(_) if next.start < end => return None,
            Some(_) => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(start: u64, end: u64, writable: bool) -> Stretch {
        Stretch {
            start,
            end,
            writable,
        }
    }

    #[test]
    fn lines_of_the_kernel_are_parsed() {
        let line = "7f3a1000-7f3a3000 rw-p 00000000 00:00 0                          [heap]";
        assert_eq!(parse(line), Some(stretch(0x7f3a_1000, 0x7f3a_3000, true)));
        let line = "7f3a1000-7f3a3000 r--p 00000000 08:01 12 /lib/x";
        assert_eq!(parse(line), Some(stretch(0x7f3a_1000, 0x7f3a_3000, false)));
        assert_eq!(parse("7f3a1000-7f3a3000 ---p 00000000 00:00 0"), None);
        assert_eq!(parse("nonsense"), None);
        assert!(!own_maps().is_empty());
    }

    #[test]
    fn a_stretch_is_clipped_to_its_mapped_part_without_a_hole() {
        let maps = [
            stretch(0x1000, 0x3000, true),
            stretch(0x3000, 0x5000, true),
            stretch(0x8000, 0x9000, true),
            stretch(0x9000, 0xa000, false),
        ];
        let only = |start, end| only_stretch(&maps, start, end);
        assert_eq!(only(0x2000, 0x4000), Some(stretch(0x1000, 0x5000, true)));
        assert_eq!(only(0x4000, 0x8000), Some(stretch(0x3000, 0x5000, true)));
        assert_eq!(only(0x4000, 0x9000), None);
        assert_eq!(only(0x5000, 0x8000), None);
        assert_eq!(only(0x8000, 0xa000), Some(stretch(0x8000, 0xa000, false)));
        assert_eq!(only(0x8000, 0x9000), Some(stretch(0x8000, 0x9000, true)));
        assert_eq!(only(0xb000, 0xc000), None);
    }
}
