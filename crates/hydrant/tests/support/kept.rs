//! A network whose registrations keep pointing at the pages they were made of, and whose NIC takes
//! a few bytes along with a write: the simulated one, or another, watched.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hydrant::{Caps, Rank};
use hydrant_conduit::{
    Access, AccessKind, Conduit, Error, Forward, Key, Local, Permission, Posted,
};

/// Most bytes that the NIC takes along.
const INLINE: usize = 64;
/// Writes of which it holds the bytes at once.
const HELD: usize = 1 << 12;

/// What is registered, by rank and key: address and bytes.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    extents: BTreeMap<(u32, u64), (usize, usize)>,
    /// Bytes registered at one rank at most.
    most: u64,
    inline: u64,
}

impl Kept {
    /// What stands between each rank and the network.
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) fn layer(&self) -> impl Fn(Box<dyn Conduit>) -> Box<dyn Conduit> + use<> {
        let kept = self.clone();
        move |inner| Box::new(Layer::new(inner, kept.clone()))
    }

    /// The same around a network that is so by itself; or that is said to follow what is mapped.
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) fn around(&self, inner: Box<dyn Conduit>, follows: bool) -> Box<dyn Conduit> {
        let mut layer = Layer::new(inner, self.clone());
        layer.caps = layer.inner.caps().clone();
        if let Some(registration) = &mut layer.caps.registration {
            registration.follows_mapping = follows;
            registration.inline = registration.inline.min(INLINE);
            if follows {
                registration.inline = 0;
            }
        }
        Box::new(layer)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What of a buffer is registered at a rank.
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) fn registered<T>(&self, rank: Rank, buffer: &[T]) -> Vec<(usize, usize)> {
        let (start, size) = (buffer.as_ptr().addr(), size_of_val(buffer));
        let meets = |(addr, len): &(usize, usize)| *addr < start + size && start < addr + len;
        let state = self.state();
        let own = state.extents.iter().filter(|((of, _), _)| *of == rank.0);
        own.map(|(_, extent)| *extent).filter(meets).collect()
    }

    /// Bytes registered at one rank, at most.
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) fn most(&self) -> u64 {
        self.state().most
    }

    /// Writes whose bytes the NIC took along.
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) fn inline(&self) -> u64 {
        self.state().inline
    }
}

struct Layer {
    inner: Box<dyn Conduit>,
    caps: Caps,
    kept: Kept,
    /// The NIC's own memory, with its key.
    held: Box<[[u8; INLINE]]>,
    key: Key,
    next: Mutex<usize>,
}

impl Layer {
    fn new(inner: Box<dyn Conduit>, kept: Kept) -> Self {
        let mut caps = inner.caps().clone();
        if let Some(registration) = &mut caps.registration {
            registration.follows_mapping = false;
            registration.inline = INLINE;
            // Dear enough that copying is worth it, and never for all.
            registration.register.per_op_ns = 20_000.0;
            registration.copy_ns_per_byte = 0.1;
        }
        let mut held = vec![[0; INLINE]; HELD + 2 * 4096 / INLINE].into_boxed_slice();
        // In whole pages.
        let start = held.as_mut_ptr().cast::<u8>();
        let start = start.wrapping_add(start.align_offset(4096));
        // SAFETY: memory of the layer, which lives as long as the conduit.
        let key = unsafe { inner.register(start, HELD * INLINE, Permission::ReadWrite) };
        Self {
            inner,
            caps,
            kept,
            held,
            key: key.expect("it registers"),
            next: Mutex::new(0),
        }
    }

    /// Takes bytes along: where they are from now on.
    fn take(&self, from: *const u8, len: usize) -> *mut u8 {
        let start = self.held.as_ptr().cast::<u8>().cast_mut();
        let start = start.wrapping_add(start.align_offset(4096));
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let to = start.wrapping_add(*next * INLINE);
        *next = (*next + 1) % HELD;
        // SAFETY: a write's source; and a place within the layer's own memory, of which the
        // network has taken what was there before, so many writes ago.
        unsafe { to.copy_from_nonoverlapping(from, len) };
        to
    }
}

// SAFETY: every call is handed on to a conduit that keeps the contract; what a write takes along is
// the layer's own memory for as long as the layer lives.
unsafe impl Forward for Layer {
    fn inner(&self) -> &dyn Conduit {
        &*self.inner
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        permission: Permission,
    ) -> Result<Key, Error> {
        // SAFETY: the same contract.
        let key = unsafe { self.inner.register(addr, len, permission) }?;
        let mut state = self.kept.state();
        let rank = self.inner.rank().0;
        state.extents.insert((rank, key.0), (addr.addr(), len));
        let own = state.extents.iter().filter(|((of, _), _)| *of == rank);
        let bytes = own.map(|(_, (_, len))| *len as u64).sum();
        state.most = state.most.max(bytes);
        Ok(key)
    }

    fn deregister(&self, key: Key) -> Result<(), Error> {
        self.kept
            .state()
            .extents
            .remove(&(self.inner.rank().0, key.0));
        self.inner.deregister(key)
    }

    unsafe fn deregister_unused(&self, key: Key) -> Result<(), Error> {
        Forward::deregister(self, key)
    }

    unsafe fn post(&self, access: &Access) -> Result<Posted, Error> {
        let Access {
            peer, local, len, ..
        } = *access;
        let put = access.kind == AccessKind::Put;
        if put && peer != self.inner.rank() && local.key == Key::ANY {
            assert!(len <= INLINE, "{len} bytes do not go along");
            self.kept.state().inline += 1;
            let addr = self.take(local.addr, len);
            let key = self.key;
            let access = Access {
                local: Local { addr, key },
                ..*access
            };
            // SAFETY: the same contract, from the layer's own memory.
            return unsafe { self.inner.post(&access) };
        }
        // SAFETY: the same contract.
        unsafe { self.inner.post(access) }
    }
}
