//! The NIC's own list of registrations, against which the uses are checked.

use std::collections::BTreeMap;

use super::registrations::Registrations;
use hydrant_foresight::Time;

/// Registrations by their key.
#[derive(Debug, Default)]
pub(crate) struct NaiveNic {
    registered: BTreeMap<u64, (u64, u64)>,
    in_use: BTreeMap<u64, u32>,
    limit_bytes: u64,
    next_key: u64,
    pub(crate) peak_bytes: u64,
    /// Bytes times nanoseconds, up to the moment of the last change.
    area: f64,
    since: Time,
}

impl NaiveNic {
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

    /// Begins a transfer of bytes that must be registered under this key.
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

    /// The registrations include those in progress.
    pub(crate) fn check(&self, registrations: &Registrations, _now: Time) {
        assert!(registrations.registered_bytes() >= self.bytes());
        assert!(registrations.registered_bytes() <= self.limit_bytes);
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
