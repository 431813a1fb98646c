//! The registered extents of a rank.

use hydrant_base::mix;
use hydrant_conduit::Permission;
use hydrant_pinning::Use;

use crate::memory::Place;

/// Low bits of a key hold the entry's index. The other bits look random, so that no key is close to
/// another.
const INDEX_BITS: u32 = 24;

#[derive(Clone, Copy)]
pub(crate) struct SimExtent {
    pub(crate) place: Place,
    pub(crate) permission: Permission,
}

/// The reason why a key does not open the requested memory.
pub(crate) enum KeyRefusal {
    /// The key is not in force.
    Revoked,
    /// The extent has only so many bytes.
    Outside(u64),
    /// The key does not permit writing.
    ReadOnly,
}

/// The extents of a rank.
pub(crate) struct ExtentRegistry {
    entries: Vec<Option<(u64, SimExtent)>>,
    free: Vec<u32>,
    made: u64,
}

impl ExtentRegistry {
    pub(crate) fn new(rank: usize) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            made: (rank as u64) << 40,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, extent: SimExtent) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        let key = loop {
            self.made += 1;
            let key = mix(self.made) << INDEX_BITS | u64::from(index);
            // Zero and `u64::MAX` have special meanings.
            if key >> INDEX_BITS != 0 && key != u64::MAX {
                break key;
            }
        };
        self.entries[index as usize] = Some((key, extent));
        key
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<SimExtent> {
        let index = Self::index(key);
        let entry = self.entries.get_mut(index)?;
        let (_, extent) = entry.take_if(|(word, _)| *word == key)?;
        self.free.push(index as u32);
        Some(extent)
    }

    pub(crate) fn get(&self, key: u64) -> Option<&SimExtent> {
        (self.entries.get(Self::index(key))?.as_ref())
            .filter(|(word, _)| *word == key)
            .map(|(_, extent)| extent)
    }

    /// The memory at an address, if the key opens it.
    pub(crate) fn open(
        &self,
        key: u64,
        addr: u64,
        len: u64,
        used: Use,
    ) -> Result<Place, KeyRefusal> {
        let extent = self.get(key).ok_or(KeyRefusal::Revoked)?;
        let whole = extent.place;
        let offset = addr.wrapping_sub(whole.addr);
        if len > whole.len || offset > whole.len - len {
            return Err(KeyRefusal::Outside(whole.len));
        }
        if used == Use::Write && extent.permission == Permission::Read {
            return Err(KeyRefusal::ReadOnly);
        }
        Ok(whole.part(offset, len))
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.free.clear();
    }

    fn index(key: u64) -> usize {
        (key & ((1 << INDEX_BITS) - 1)) as usize
    }
}
