//! The bare network as a reference for benchmarks: one endpoint of the provider at each of two ranks, without the
//! conduit.
//!
//! It works as libfabric's own benchmarks do: one thread posts and reads the completion queue, and every wait spins. A
//! provider over TCP moves data only while a thread of the target reads its queue, so the end that
//! [serves](BareEndpoint::connect) has a thread for that.

#![allow(unsafe_code)] // posts work on memory of its own

use std::{
    cell::UnsafeCell,
    io, ptr,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use hydrant_conduit::Permission;
use parking_lot::Mutex;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::{
    OfiOptions, choice,
    context::{OperationContext, PostedKind},
    fabric::{
        Fabric, FabricRegion, LocalBuffer, PeerAddress, PostResult, QueueBatch, RegionRequest,
        RemoteBuffer,
    },
    session,
};

/// Most operations in flight.
const DEPTH: usize = 64;
/// Receive buffers, of which a ping-pong uses one at a time.
const RECEIVES: usize = 4;
/// Bytes of the longest message.
const MESSAGE: usize = 4096;
/// Bytes of an endpoint's name in an [`address`](BareEndpoint::address).
const NAME: usize = 8 * (BareEndpoint::ADDRESS_WORDS - 4);
/// The time that the serving thread reads the queue after its last entry, before it sleeps.
const AWAKE: Duration = Duration::from_millis(1);
/// The longest sleep of the serving thread.
const NAP: Duration = Duration::from_millis(5);

/// The kinds of access to the other end's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BareAccess {
    /// Writes the other end's memory. Ends when the data is there.
    Write,
    /// Reads the other end's memory.
    Read,
}

/// One end of the bare network.
pub struct BareEndpoint {
    ends: Arc<BareEnd>,
    peer: Option<RemoteBuffer>,
    /// Messages that were taken by [`ping`](Self::ping) and [`pong`](Self::pong).
    taken: u64,
    /// The thread that reads the queue while this rank does something else.
    server: Option<JoinHandle<()>>,
}

/// The parts of an end that its two threads share.
struct BareEnd {
    /// The first half is local memory of operations, and the peer accesses the second half.
    memory: BareMemory,
    /// The buffers for messages: one to send from, then those to receive into.
    messages: BareMemory,
    half: usize,
    contexts: Vec<OperationContext>,
    batch: Mutex<QueueBatch>,
    /// Accesses and sends that have completed.
    completed: AtomicU64,
    /// Messages that have arrived.
    received: AtomicU64,
    /// The first error number of an operation; 0 if none failed.
    failed: AtomicU64,
    /// True while the rank itself reads the queue.
    is_read: AtomicBool,
    is_over: AtomicBool,
    fabric: Arc<Fabric>,
}

/// Registered memory of an end.
struct BareMemory {
    /// `None` at the end.
    region: Option<FabricRegion>,
    words: Box<[UnsafeCell<u64>]>,
}

// SAFETY: only libfabric accesses the words.
unsafe impl Send for BareMemory {}
// SAFETY: as above.
unsafe impl Sync for BareMemory {}

impl BareMemory {
    fn new(fabric: &Fabric, bytes: usize) -> io::Result<Self> {
        let words: Box<[UnsafeCell<u64>]> =
            (0..bytes.div_ceil(8)).map(|_| UnsafeCell::new(0)).collect();
        let request = RegionRequest {
            addr: words.as_ptr().cast::<u8>().cast_mut(),
            len: words.len() * 8,
            permission: Permission::ReadWrite,
            key: session::fresh() >> 32,
        };
        // SAFETY: the words may have any value, nothing but libfabric reads them, and they outlive the region.
        let region = unsafe { fabric.register(request) }
            .map_err(|code| io::Error::other(fabric.error_text(code as isize)))?;
        Ok(Self {
            region: Some(region),
            words,
        })
    }

    fn start(&self) -> *mut u8 {
        self.words.as_ptr().cast::<u8>().cast_mut()
    }

    /// Returns the memory from an offset on, which lies inside.
    fn at(&self, offset: usize, len: usize) -> LocalBuffer {
        debug_assert!(offset + len <= 8 * self.words.len());
        LocalBuffer {
            addr: self.start().wrapping_add(offset),
            len,
            descriptor: (self.region.as_ref()).map_or(ptr::null_mut(), FabricRegion::descriptor),
        }
    }
}

impl BareEndpoint {
    /// The number of words of an [`address`](Self::address).
    pub const ADDRESS_WORDS: usize = 36;

    /// Opens an end at the endpoint that these options name, with `bytes` bytes as local memory of its operations, and
    /// as many for the peer to access.
    ///
    /// # Errors
    /// There is no such endpoint, or libfabric refuses a resource.
    pub fn open(options: &OfiOptions, bytes: usize) -> io::Result<Self> {
        let usable = choice::usable(options).map_err(io::Error::other)?;
        let (_, offer) = usable.into_iter().next().ok_or(io::ErrorKind::NotFound)?;
        let fabric =
            Fabric::open(offer, 2, 4 * DEPTH).map_err(|why| io::Error::other(why.to_string()))?;
        let half = bytes.next_multiple_of(8);
        let kinds = (0..=RECEIVES).map(|at| {
            if at < RECEIVES {
                PostedKind::Receive
            } else {
                PostedKind::Access
            }
        });
        let contexts = (kinds.chain(std::iter::repeat_n(PostedKind::Access, DEPTH - 1)))
            .enumerate()
            .map(|(index, kind)| OperationContext::new(kind, index as u32))
            .collect();
        let end = BareEnd {
            memory: BareMemory::new(&fabric, 2 * half)?,
            messages: BareMemory::new(&fabric, (1 + RECEIVES) * MESSAGE)?,
            half,
            contexts,
            batch: Mutex::new(QueueBatch::new()),
            completed: AtomicU64::new(0),
            received: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            is_read: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            fabric,
        };
        for buffer in 0..RECEIVES {
            end.post_receive(buffer)?;
        }
        Ok(Self {
            ends: Arc::new(end),
            peer: None,
            taken: 0,
            server: None,
        })
    }

    /// Returns the bytes that the end keeps registered.
    pub fn registered_bytes(&self) -> usize {
        2 * self.ends.half + (1 + RECEIVES) * MESSAGE
    }

    /// Returns the address to give the other end.
    ///
    /// # Errors
    /// The provider's addresses are too long.
    pub fn address(&self) -> io::Result<[u64; Self::ADDRESS_WORDS]> {
        let end = &self.ends;
        let name = end.fabric.name();
        let name = name.map_err(|why| io::Error::other(why.to_string()))?;
        if name.len() > NAME {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut words = [0; Self::ADDRESS_WORDS];
        words[0] = end.memory.region.as_ref().map_or(0, FabricRegion::key);
        words[1] = if end.fabric.by_address() {
            end.memory.at(end.half, end.half).addr.expose_provenance() as u64
        } else {
            end.half as u64
        };
        words[2] = name.len() as u64;
        bytemuck::cast_slice_mut(&mut words[4..])[..name.len()].copy_from_slice(&name);
        Ok(words)
    }

    /// Connects to the end with this address. The end that `serves` answers accesses by a thread from now on. The other
    /// one makes the connection, so the other end serves before.
    ///
    /// # Errors
    /// The error of libfabric.
    pub fn connect(&mut self, address: [u64; Self::ADDRESS_WORDS], serves: bool) -> io::Result<()> {
        let name: &[u8] = bytemuck::cast_slice(&address[4..]);
        let name = (name.get(..address[2] as usize)).ok_or(io::ErrorKind::InvalidData)?;
        let peer = self.ends.fabric.insert(name);
        let peer = peer.map_err(|why| io::Error::other(why.to_string()))?;
        self.peer = Some(RemoteBuffer {
            peer,
            addr: address[1],
            key: address[0],
        });
        if !serves {
            return self.once(BareAccess::Write, 8);
        }
        let end = Arc::clone(&self.ends);
        let server = thread::Builder::new().name("bare".to_owned());
        self.server = Some(server.spawn(move || end.serve())?);
        Ok(())
    }

    /// Writes or reads `len` bytes, and waits for the completion.
    ///
    /// # Errors
    /// The error of the network.
    #[inline]
    pub fn once(&mut self, access: BareAccess, len: usize) -> io::Result<()> {
        let before = self.ends.completed.load(Relaxed);
        self.post(access, 0, 0, len)?;
        self.ends.await_completions(before + 1)
    }

    /// Writes or reads `count` blocks of `len` bytes and waits for all. The blocks lie side by side in both memories,
    /// and wrap around at the end. A bounded number is in flight.
    ///
    /// # Errors
    /// The error of the network.
    pub fn stream(&mut self, access: BareAccess, len: usize, count: u64) -> io::Result<()> {
        let blocks = (self.ends.half / len.max(1)).max(1) as u64;
        let before = self.ends.completed.load(Relaxed);
        for index in 0..count {
            if index >= DEPTH as u64 {
                // The completions of a connection come in order.
                (self.ends).await_completions(before + index + 1 - DEPTH as u64)?;
            }
            let place = (index % blocks) as usize * len;
            self.post(access, (index % DEPTH as u64) as usize, place, len)?;
        }
        self.ends.await_completions(before + count)
    }

    /// Sends `len` bytes, and waits for as many back.
    ///
    /// # Errors
    /// The error of the network.
    #[inline]
    pub fn ping(&mut self, len: usize) -> io::Result<()> {
        self.send(len)?;
        self.await_message()
    }

    /// Answers a [`ping`](Self::ping) of the other end.
    ///
    /// # Errors
    /// The error of the network.
    #[inline]
    pub fn pong(&mut self, len: usize) -> io::Result<()> {
        self.await_message()?;
        self.send(len)
    }

    fn target(&self) -> io::Result<RemoteBuffer> {
        self.peer.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    #[inline]
    fn post(&self, access: BareAccess, slot: usize, offset: usize, len: usize) -> io::Result<()> {
        let mut remote = self.target()?;
        let end = &*self.ends;
        if offset > end.half || len > end.half - offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        remote.addr += offset as u64;
        let local = end.memory.at(offset, len);
        let context = end.contexts[RECEIVES + slot].as_ptr();
        end.until_taken(|| match access {
            BareAccess::Write => {
                // SAFETY: 1. Only libfabric uses the memory, which lives as long as the endpoint. 2. No other operation
                // in flight has this slot. 3. The peer told the key for this.
                unsafe { end.fabric.write(local, remote, None, context) }
            }
            BareAccess::Read => {
                // SAFETY: as above.
                unsafe { end.fabric.read(local, remote, context) }
            }
        })
    }

    fn send(&mut self, len: usize) -> io::Result<()> {
        if len > MESSAGE {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let RemoteBuffer { peer, .. } = self.target()?;
        let end = &*self.ends;
        if len <= end.fabric.offer().inject_size() {
            let zeros = [0; MESSAGE];
            return end.until_taken(|| end.fabric.inject(peer, &zeros[..len]));
        }
        let before = end.completed.load(Relaxed);
        end.send_from_memory(peer, len)?;
        end.await_completions(before + 1)
    }

    /// Waits for one more message.
    #[inline]
    fn await_message(&mut self) -> io::Result<()> {
        let end = &*self.ends;
        end.is_read.store(true, Relaxed);
        while end.received.load(Acquire) == self.taken {
            end.advance()?;
        }
        end.is_read.store(false, Relaxed);
        self.taken += 1;
        Ok(())
    }
}

impl Drop for BareEndpoint {
    fn drop(&mut self) {
        self.ends.is_over.store(true, Release);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

impl Drop for BareEnd {
    /// Closes the endpoint before the memory of its operations is freed.
    fn drop(&mut self) {
        self.memory.region = None;
        self.messages.region = None;
        // SAFETY: no other thread has this end, and nothing is posted after this.
        unsafe { self.fabric.close_endpoint() }
    }
}

impl BareEnd {
    /// Posts an operation, and reads the queue until the provider takes it.
    #[inline]
    fn until_taken(&self, post: impl Fn() -> PostResult) -> io::Result<()> {
        loop {
            match post() {
                PostResult::Taken => return Ok(()),
                PostResult::Busy => self.advance()?,
                PostResult::Refused(code) => return Err(self.refusal(code)),
            }
        }
    }

    fn send_from_memory(&self, peer: PeerAddress, len: usize) -> io::Result<()> {
        let (memory, context) = (self.messages.at(0, len), self.contexts[RECEIVES].as_ptr());
        self.until_taken(|| {
            // SAFETY: 1. Nobody writes to the memory. 2. No other operation is in flight at this end.
            unsafe { self.fabric.send(peer, memory, context) }
        })
    }

    fn post_receive(&self, buffer: usize) -> io::Result<()> {
        let memory = self.messages.at((1 + buffer) * MESSAGE, MESSAGE);
        let context = self.contexts[buffer].as_ptr();
        self.until_posted(|| {
            // SAFETY: 1. Only libfabric uses the memory. 2. The context belongs to this buffer.
            unsafe { self.fabric.receive(memory, context) }
        })
    }

    /// As [`until_taken`](Self::until_taken), for a caller that reads the queue itself.
    fn until_posted(&self, post: impl Fn() -> PostResult) -> io::Result<()> {
        loop {
            match post() {
                PostResult::Taken => return Ok(()),
                PostResult::Busy => std::hint::spin_loop(),
                PostResult::Refused(code) => return Err(self.refusal(code)),
            }
        }
    }

    /// Reads the completion queue once, unless the other thread does.
    #[inline]
    fn advance(&self) -> io::Result<()> {
        self.read_entries().map(drop)
    }

    /// As [`advance`](Self::advance). Returns the number of entries.
    fn read_entries(&self) -> io::Result<usize> {
        let Some(mut batch) = self.batch.try_lock() else {
            return Ok(0);
        };
        let mut again = [None; 16];
        let mut messages = 0;
        let read = self.fabric.read_queue(&mut batch, |arrival| {
            if arrival.error != 0 {
                self.failed.store(arrival.error as u64, Relaxed);
            }
            match arrival.context {
                Some(name) if name.kind == PostedKind::Receive => {
                    again[messages] = Some(name.index as usize);
                    messages += 1;
                }
                Some(_) => {
                    self.completed.fetch_add(1, Release);
                }
                None => {}
            }
        });
        let count = read.map_err(|why| self.refusal(why.0))?;
        for buffer in again.into_iter().flatten() {
            self.post_receive(buffer)?;
            self.received.fetch_add(1, Release);
        }
        match self.failed.load(Relaxed) {
            0 => Ok(count),
            code => Err(self.refusal(code as isize)),
        }
    }

    #[inline]
    fn await_completions(&self, count: u64) -> io::Result<()> {
        while self.completed.load(Acquire) < count {
            self.advance()?;
        }
        Ok(())
    }

    /// Answers the peer's accesses until the end.
    fn serve(&self) {
        let mut last = Instant::now();
        while !self.is_over.load(Acquire) {
            if self.is_read.load(Relaxed) {
                thread::sleep(NAP);
                continue;
            }
            match self.read_entries() {
                Ok(0) => {}
                Ok(_) => last = Instant::now(),
                Err(cause) => {
                    tracing::error!(%cause, "the bare network failed");
                    return;
                }
            }
            if last.elapsed() > AWAKE && self.fabric.may_sleep() {
                let mut watched = [PollFd::new(&*self.fabric, PollFlags::IN)];
                let nap = Timespec {
                    tv_sec: 0,
                    tv_nsec: NAP.as_nanos() as _,
                };
                match poll(&mut watched, Some(&nap)) {
                    Ok(0) | Err(Errno::INTR) => {}
                    _ => last = Instant::now(),
                }
            }
        }
    }

    fn refusal(&self, code: isize) -> io::Error {
        io::Error::other(self.fabric.error_text(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints;

    /// Opens two ends and connects them: the second one serves. `None` without libfabric.
    fn pair(bytes: usize) -> Option<[BareEndpoint; 2]> {
        let options = OfiOptions::default();
        if let Err(why) = endpoints(&options) {
            println!("left out: {why}");
            return None;
        }
        let mut ends = [(); 2].map(|()| BareEndpoint::open(&options, bytes).expect("an endpoint"));
        let [here, there] = ends.each_ref().map(|end| end.address().expect("a name"));
        ends[1].connect(here, true).expect("a peer");
        ends[0].connect(there, false).expect("a peer that serves");
        Some(ends)
    }

    #[test]
    fn accesses_complete_one_by_one_and_in_streams() {
        let Some([mut here, there]) = pair(1 << 20) else {
            return;
        };
        let word = |end: &BareEndpoint, at: usize, value: Option<u64>| {
            let word = &end.ends.memory.words[at / 8];
            // SAFETY: no operation on this word is in flight, and only this thread uses it.
            let word = unsafe { &mut *word.get() };
            value.map_or(*word, |value| std::mem::replace(word, value))
        };
        word(&here, 0, Some(7));
        here.once(BareAccess::Write, 8).expect("a completion");
        assert_eq!(word(&there, 1 << 20, Some(9)), 7);
        here.once(BareAccess::Read, 8).expect("a completion");
        assert_eq!(word(&here, 0, None), 9);
        for access in [BareAccess::Write, BareAccess::Read] {
            here.once(access, 1 << 20).expect("a completion");
            here.stream(access, 16 << 10, 200).expect("completions");
        }
        let beyond = here.once(BareAccess::Write, (1 << 20) + 1);
        assert_eq!(beyond.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn messages_go_back_and_forth() {
        let Some([mut here, mut there]) = pair(8) else {
            return;
        };
        thread::scope(|scope| {
            scope.spawn(move || {
                for len in [8, MESSAGE] {
                    (0..100).for_each(|_| there.pong(len).expect("a message"));
                }
            });
            for len in [8, MESSAGE] {
                (0..100).for_each(|_| here.ping(len).expect("an answer"));
            }
            assert!(here.ping(MESSAGE + 1).is_err());
        });
    }

    #[test]
    fn an_end_that_is_not_connected_says_so() {
        if endpoints(&OfiOptions::default()).is_err() {
            return;
        }
        let mut alone = BareEndpoint::open(&OfiOptions::default(), 8).expect("an endpoint");
        let outcome = alone.once(BareAccess::Read, 8);
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::NotConnected);
    }
}
