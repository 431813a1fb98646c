//! What a rank has registered.

use hydrant_conduit::Permission;
use hydrant_pinning::Use;

use crate::{memory::Place, rng::mix};

/// Low bits of a key: the entry. The others look like chance, so that no key is another's
/// neighbour.
const INDEX_BITS: u32 = 24;

#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) place: Place,
    pub(crate) permission: Permission,
}

/// Why a key does not open what was asked for.
pub(crate) enum Refused {
    /// It is not in force.
    Revoked,
    /// It covers so many bytes only.
    Outside(u64),
    /// It does not permit writing.
    ReadOnly,
}

/// The extents of a rank.
pub(crate) struct Registry {
    entries: Vec<Option<(u64, Extent)>>,
    free: Vec<u32>,
    made: u64,
}

impl Registry {
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

    pub(crate) fn insert(&mut self, extent: Extent) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        let key = loop {
            self.made += 1;
            let key = mix(self.made) << INDEX_BITS | u64::from(index);
            // Neither is one that has a meaning.
            if key >> INDEX_BITS != 0 && key != u64::MAX {
                break key;
            }
        };
        self.entries[index as usize] = Some((key, extent));
        key
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<Extent> {
        let index = Self::index(key);
        let entry = self.entries.get_mut(index)?;
        let (_, extent) = entry.take_if(|(word, _)| *word == key)?;
        self.free.push(index as u32);
        Some(extent)
    }

    pub(crate) fn get(&self, key: u64) -> Option<&Extent> {
        (self.entries.get(Self::index(key))?.as_ref())
            .filter(|(word, _)| *word == key)
            .map(|(_, extent)| extent)
    }

    /// The memory at an address, if the key opens it.
    pub(crate) fn open(&self, key: u64, addr: u64, len: u64, used: Use) -> Result<Place, Refused> {
        let extent = self.get(key).ok_or(Refused::Revoked)?;
        let whole = extent.place;
        let offset = addr.wrapping_sub(whole.addr);
        if len > whole.len || offset > whole.len - len {
            return Err(Refused::Outside(whole.len));
        }
        if used == Use::Write && extent.permission == Permission::Read {
            return Err(Refused::ReadOnly);
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
