//! The registered memory of an engine, by address.

#![allow(unsafe_code)] // lends memory of C

use std::{collections::BTreeMap, time::Duration};

use hydrant_endpoint::{Descriptor, Endpoint, Error, Region, Rights};
use parking_lot::Mutex;

use crate::{
    failure::{BUSY, EngineFailure, NOT_REGISTERED, OVERLAPPED, Result},
    wire::RangeRefusal,
};

/// How long to wait until peers touch memory no more that is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Memory to be registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryRange {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl MemoryRange {
    /// # Errors
    /// If there is no such memory.
    pub(crate) fn new(start: usize, len: usize) -> Result<Self> {
        if len == 0 || start == 0 || start.checked_add(len).is_none() {
            let text = format!("there is no memory of {len} bytes at {start:#x}");
            return Err(EngineFailure::argument(text));
        }
        Ok(Self { start, len })
    }
}

/// The users of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemoryAccess {
    /// Peers read and write it.
    Remote,
    /// Only this process uses it.
    Local,
}

/// All registered memory.
#[derive(Default)]
pub(crate) struct RegisteredMemory {
    by_start: Mutex<BTreeMap<usize, RegisteredRange>>,
}

#[derive(Clone)]
struct RegisteredRange {
    len: usize,
    /// The region that is lent, if peers may use it.
    region: Option<Region>,
    /// The number of the registration.
    number: u64,
}

/// Registered memory for a peer.
pub(crate) struct LentRange {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) descriptor: Descriptor,
}

impl RegisteredMemory {
    /// Registers all ranges or none.
    ///
    /// # Errors
    /// OVERLAPPED, ENDPOINT.
    ///
    /// # Safety
    /// 1. Until a range is not registered any more, the conditions of [`Endpoint::expose_raw`] hold for it.
    pub(crate) unsafe fn register(
        &self,
        endpoint: &Endpoint,
        ranges: &[MemoryRange],
        access: MemoryAccess,
    ) -> Result<()> {
        let mut table = self.by_start.lock();
        let mut added = Vec::with_capacity(ranges.len());
        let result = ranges.iter().try_for_each(|range| {
            let MemoryRange { start, len } = *range;
            let before = table.range(..start + len).next_back();
            if let Some((other, registered)) = before
                && other + registered.len > start
            {
                let text = format!(
                    "{len} bytes at {start:#x} overlap with the {} bytes at {other:#x} that are registered",
                    registered.len
                );
                return Err(EngineFailure::new(OVERLAPPED, text));
            }
            let region = match access {
                MemoryAccess::Local => None,
                MemoryAccess::Remote => {
                    let base = std::ptr::with_exposed_provenance_mut(start);
                    // SAFETY: 1. to 3. the caller's condition 1.
                    Some(unsafe { endpoint.expose_raw(base, len)? })
                }
            };
            let number = fresh();
            let registered = RegisteredRange {
                len,
                region,
                number,
            };
            table.insert(start, registered);
            added.push(start);
            Ok(())
        });
        if result.is_err() {
            // Nobody can have asked for them, because the table is locked.
            for start in added {
                table.remove(&start);
            }
        }
        result
    }

    /// Gives memory up. When this returns, no peer touches it any more.
    ///
    /// # Errors
    /// NOT_REGISTERED; BUSY if a peer that is stopped in the middle of a copy uses it. The next call goes on to wait.
    pub(crate) fn unregister(&self, start: usize) -> Result<()> {
        let found = self.by_start.lock().get(&start).cloned();
        let found = found.ok_or_else(|| {
            let text = format!("no registered memory begins at {start:#x}");
            EngineFailure::new(NOT_REGISTERED, text)
        })?;
        if let Some(region) = &found.region {
            // The table is not locked meanwhile, so that peers get answers.
            match region.revoke_within(PATIENCE) {
                Err(cause @ Error::StillInUse { .. }) => {
                    return Err(EngineFailure::new(BUSY, cause.to_string()));
                }
                other => other?,
            }
        }
        let mut table = self.by_start.lock();
        if (table.get(&start)).is_some_and(|other| other.number == found.number) {
            table.remove(&start);
        }
        Ok(())
    }

    /// Returns the registered memory that has all of a range.
    pub(crate) fn find(&self, addr: u64, len: u64) -> Result<LentRange, RangeRefusal> {
        let at = usize::try_from(addr).map_err(|_| RangeRefusal::NotRegistered)?;
        let table = self.by_start.lock();
        let (start, registered) = (table.range(..=at))
            .next_back()
            .filter(|(start, registered)| at - **start < registered.len)
            .ok_or(RangeRefusal::NotRegistered)?;
        let end = (start + registered.len) as u64;
        if addr.checked_add(len).is_none_or(|its_end| its_end > end) {
            return Err(RangeRefusal::PastTheEnd { end });
        }
        let region = (registered.region.as_ref()).ok_or(RangeRefusal::NotAccessible)?;
        Ok(LentRange {
            start: *start as u64,
            len: registered.len as u64,
            descriptor: region.descriptor(Rights::READ_WRITE),
        })
    }

    /// Returns the number of registrations, and their bytes.
    pub(crate) fn sum(&self) -> (usize, u64) {
        let table = self.by_start.lock();
        let bytes = table.values().map(|registered| registered.len as u64).sum();
        (table.len(), bytes)
    }

    /// Gives all memory up.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.by_start.lock());
        // The drop of each region waits until nobody uses it.
        drop(all);
    }
}

/// Returns a number that was not given out before.
fn fresh() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_and_none_overlap() {
        let endpoint = Endpoint::builder().listen().unwrap();
        let bytes = vec![0_u8; 300].leak();
        let base = bytes.as_mut_ptr().expose_provenance();
        let memory = RegisteredMemory::default();
        let register = |offset: usize, len, access| {
            let range = MemoryRange::new(base + offset, len)?;
            // SAFETY: 1. the memory is never freed, and nobody uses it.
            unsafe { memory.register(&endpoint, &[range], access) }
        };
        register(100, 50, MemoryAccess::Remote).unwrap();
        register(150, 50, MemoryAccess::Local).unwrap();
        for (offset, len) in [(100, 50), (99, 2), (149, 1), (0, 300), (120, 1), (199, 9)] {
            let code = register(offset, len, MemoryAccess::Remote)
                .unwrap_err()
                .code;
            assert_eq!(code, OVERLAPPED, "{offset} {len}");
        }
        // A batch is registered as a whole or not at all.
        let range = |offset: usize, len| MemoryRange::new(base + offset, len).unwrap();
        let overlapping = [range(0, 50), range(40, 5)];
        // SAFETY: 1. as above.
        let failed = unsafe { memory.register(&endpoint, &overlapping, MemoryAccess::Remote) };
        assert_eq!(failed.unwrap_err().code, OVERLAPPED);
        assert_eq!(memory.sum(), (2, 100));

        let find = |offset: u64, len| memory.find(base as u64 + offset, len);
        assert_eq!(find(100, 50).ok().unwrap().start, base as u64 + 100);
        assert_eq!(find(149, 1).ok().unwrap().len, 50);
        let end = base as u64 + 150;
        for (offset, len, refusal) in [
            (99, 1, RangeRefusal::NotRegistered),
            (200, 0, RangeRefusal::NotRegistered),
            (149, 2, RangeRefusal::PastTheEnd { end }),
            (149, u64::MAX, RangeRefusal::PastTheEnd { end }),
            (150, 50, RangeRefusal::NotAccessible),
        ] {
            assert_eq!(find(offset, len).err(), Some(refusal), "{offset} {len}");
        }

        memory.unregister(base + 100).unwrap();
        let code = memory.unregister(base + 100).unwrap_err().code;
        assert_eq!(code, NOT_REGISTERED);
        assert_eq!(find(100, 50).err(), Some(RangeRefusal::NotRegistered));
        register(90, 60, MemoryAccess::Remote).unwrap();
        for (start, len) in [(0, 1), (base, 0), (base, usize::MAX)] {
            assert!(MemoryRange::new(start, len).is_err());
        }
    }
}
