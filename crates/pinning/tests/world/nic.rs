//! A NIC: the valid registrations, and their age.

use std::collections::BTreeMap;

use hydrant_pinning::{Run, Use};

use super::{memory::ModelMemory, plan::PAGE};

#[derive(Clone, Debug)]
pub(crate) struct NicEntry {
    pub(crate) run: Run,
    pub(crate) writable: bool,
    /// The number of times that its pages had been mapped then.
    pub(crate) mapped: Vec<u64>,
}

/// A key is useless as soon as its deregistration was decided, but counts as registered until that
/// is done. Memory counts as registered as soon as that was decided.
#[derive(Default)]
pub(crate) struct ModelNic {
    pub(crate) keys: BTreeMap<u64, NicEntry>,
    /// The buckets being registered, registered, or being deregistered.
    pub(crate) buckets: u64,
}

impl ModelNic {
    /// Returns true if a key covers the bytes as they are mapped now, and false if it shows older pages.
    pub(crate) fn covers(
        &self,
        key: u64,
        bucket: u64,
        addr: u64,
        len: u64,
        used: Use,
        memory: &ModelMemory,
    ) -> Result<bool, String> {
        let Some(it) = self.keys.get(&key) else {
            return Err(format!("key {key} is not in force"));
        };
        let (from, to) = (it.run.first * bucket, it.run.end() * bucket);
        if addr < from || addr + len > to {
            return Err(format!("{len} bytes at {addr:#x} are outside {:?}", it.run));
        }
        if !used.is_permitted(it.writable) {
            return Err(format!("key {key} is read-only"));
        }
        let first = ((addr - from) / PAGE as u64) as usize;
        let now = memory.mapped(addr, len);
        let then = it.mapped.get(first..first + now.len());
        Ok(then == Some(now))
    }

    pub(crate) fn touches(&self, run: Run) -> bool {
        self.keys.values().any(|it| it.run.overlaps(run))
    }
}
