//! What is registered, as the NIC has it: the naive model that the cache is checked against.

use std::collections::BTreeMap;

use hydrant_foresight::Time;
use hydrant_foresight::cache::Cache;

/// Registrations by their key.
#[derive(Debug, Default)]
pub(crate) struct Nic {
    registered: BTreeMap<u64, (u64, u64)>,
    in_use: BTreeMap<u64, u32>,
    limit_bytes: u64,
    next_key: u64,
    pub(crate) peak_bytes: u64,
    /// Bytes times nanoseconds, up to the moment of the last change.
    area: f64,
    since: Time,
}

impl Nic {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            ..Self::default()
        }
    }

    pub(crate) fn register(&mut self, addr: u64, bytes: u64, now: Time) -> u64 {
        self.pass(now);
        self.next_key += 1;
        self.registered.insert(self.next_key, (addr, bytes));
        self.peak_bytes = self.peak_bytes.max(self.bytes());
        assert!(self.bytes() <= self.limit_bytes, "past the limit");
        self.next_key
    }

    pub(crate) fn deregister(&mut self, key: u64, now: Time) {
        self.pass(now);
        assert!(!self.in_use.contains_key(&key), "deregistered while in use");
        self.registered
            .remove(&key)
            .expect("only what is registered is deregistered");
    }

    /// A transfer begins: of bytes that are registered under this key.
    pub(crate) fn begin(&mut self, key: u64, addr: u64, bytes: u64) {
        let (start, length) = self.registered[&key];
        assert!(
            start <= addr && addr + bytes <= start + length,
            "outside of its registration"
        );
        *self.in_use.entry(key).or_default() += 1;
    }

    pub(crate) fn end(&mut self, key: u64) {
        let users = self.in_use.get_mut(&key).unwrap();
        *users -= 1;
        if *users == 0 {
            self.in_use.remove(&key);
        }
    }

    /// The cache counts what is registered, and what is about to be.
    pub(crate) fn check(&self, cache: &Cache, _now: Time) {
        assert!(cache.registered_bytes() >= self.bytes());
        assert!(cache.registered_bytes() <= self.limit_bytes);
    }

    pub(crate) fn mean_bytes(&self, end: Time) -> f64 {
        let rest = self.bytes() as f64 * end.since(self.since) as f64;
        (self.area + rest) / (end.0 as f64).max(1.0)
    }

    fn bytes(&self) -> u64 {
        self.registered.values().map(|it| it.1).sum()
    }

    fn pass(&mut self, now: Time) {
        self.area += self.bytes() as f64 * now.since(self.since) as f64;
        self.since = self.since.max(now);
    }
}
