//! A job whose ranks are threads of the test and reach no memory but their own directly, as
//! over a network.

#![allow(unsafe_code)] // implements the contract's unsafe methods, by handing them on

use std::time::Duration;

use hydrant::{Caps, Job, JobBuilder, Rank, Result};
use hydrant_conduit::{
    Conduit, Door, Error, Key, Message, Permission, Posted, Remote, Sent, Sink, Sleeper, Standing,
    Window,
};

/// A conduit that does not show the memory of peers.
struct Veiled(Box<dyn Conduit>);

/// A builder with a small heap.
pub(crate) fn builder() -> JobBuilder {
    Job::builder()
        .expect("the settings are valid")
        .heap(64 << 20)
        .through(|conduit| Box::new(Veiled(conduit)))
}

/// Runs `n` ranks; every one must succeed.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) fn local<R: Send>(n: u32, body: impl Fn(&Job) -> Result<R> + Sync) -> Vec<R> {
    good(builder().run_local(n, body))
}

/// What the ranks returned, all of them in good order.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) fn good<R>(ends: Vec<Result<R>>) -> Vec<R> {
    (ends.into_iter().enumerate())
        .map(|(rank, end)| end.unwrap_or_else(|error| panic!("rank {rank}: {error}")))
        .collect()
}

// SAFETY: every call is handed on to a conduit that keeps the contract, which may map less.
unsafe impl Conduit for Veiled {
    fn window(&self, peer: Rank) -> Option<&Window> {
        (self.0.window(peer)).filter(|_| peer == self.0.rank())
    }

    fn door(&self, peer: Rank) -> Option<&Door> {
        (self.0.door(peer)).filter(|_| peer == self.0.rank())
    }

    fn rank(&self) -> Rank {
        self.0.rank()
    }

    fn size(&self) -> u32 {
        self.0.size()
    }

    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn commit(&self, offset: usize, len: usize) -> Result<(), Error> {
        self.0.commit(offset, len)
    }

    fn commit_huge(&self, offset: usize, len: usize) -> Result<usize, Error> {
        self.0.commit_huge(offset, len)
    }

    fn decommit(&self, offset: usize, len: usize) {
        self.0.decommit(offset, len);
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        permission: Permission,
    ) -> Result<Key, Error> {
        // SAFETY: the same contract.
        unsafe { self.0.register(addr, len, permission) }
    }

    fn deregister(&self, key: Key) -> Result<(), Error> {
        self.0.deregister(key)
    }

    unsafe fn write(
        &self,
        peer: Rank,
        to: Remote,
        from: *const u8,
        len: usize,
        local: Key,
    ) -> Result<Posted, Error> {
        // SAFETY: the same contract.
        unsafe { self.0.write(peer, to, from, len, local) }
    }

    unsafe fn read(
        &self,
        peer: Rank,
        from: Remote,
        to: *mut u8,
        len: usize,
        local: Key,
    ) -> Result<Posted, Error> {
        // SAFETY: the same contract.
        unsafe { self.0.read(peer, from, to, len, local) }
    }

    fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error> {
        self.0.send(peer, message)
    }

    fn handled(&self, peer: Rank) -> (u64, u64) {
        self.0.handled(peer)
    }

    fn poll(&self, sink: &mut dyn Sink) -> usize {
        self.0.poll(sink)
    }

    fn drain(&self, sink: &mut dyn Sink) -> usize {
        self.0.drain(sink)
    }

    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        self.0.wait(sleeper, timeout, ready);
    }

    fn ring(&self, peer: Rank) {
        self.0.ring(peer);
    }

    fn wake(&self, peer: Rank) {
        self.0.wake(peer);
    }

    fn standing(&self, peer: Rank) -> Standing {
        self.0.standing(peer)
    }

    fn first_lost(&self) -> Option<Rank> {
        self.0.first_lost()
    }

    fn changes(&self) -> u64 {
        self.0.changes()
    }

    fn expel(&self, peer: Rank) {
        self.0.expel(peer);
    }

    fn leave(&self, orderly: bool) {
        self.0.leave(orderly);
    }

    fn now(&self) -> Duration {
        self.0.now()
    }
}
