//! Handles that C holds. A handle is a number in the shape of a pointer, never an address: its kind, its
//! place in a table and the place's generation. So a handle that was freed, or never made, is an error.

use std::{
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
};

use parking_lot::RwLock;

use crate::status::{
    CallFailure, HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_MEMORY, HYDRANT_ERROR_NULL, Result,
};

/// The lowest bits of a handle are 0, as in an aligned pointer.
const ALIGN_BITS: u32 = 4;
/// The bits of the place.
const PLACE_BITS: u32 = 24;
/// The bits of the kind.
const KIND_BITS: u32 = 6;
/// The generations of a place.
const GENERATIONS: u32 = 1 << (64 - ALIGN_BITS - PLACE_BITS - KIND_BITS);

/// The kinds of handles, by number.
const KINDS: [&str; 14] = [
    "nothing",
    "a job",
    "memory",
    "a team",
    "locks",
    "exposed memory",
    "a loan",
    "an operation",
    "a message",
    "an endpoint",
    "a peer",
    "a region",
    "a peer's region",
    "a batch",
];

/// The values of one kind that C has handles of. `H` is the type of the handle in C.
pub(crate) struct CHandles<H, T> {
    kind: u64,
    places: RwLock<HandleSlots<T>>,
    /// The number of values that were removed. A copy of a value that was found before is out of date if it
    /// has changed.
    removals: AtomicU64,
    _handle: PhantomData<fn(H)>,
}

struct HandleSlots<T> {
    all: Vec<HandleSlot<T>>,
    free: Vec<usize>,
}

struct HandleSlot<T> {
    generation: u32,
    value: Option<Arc<T>>,
}

impl<H, T> CHandles<H, T> {
    /// Makes the table of the kind with this number, which is not 0.
    pub(crate) const fn new(kind: u64) -> Self {
        Self {
            kind,
            places: RwLock::new(HandleSlots {
                all: Vec::new(),
                free: Vec::new(),
            }),
            removals: AtomicU64::new(0),
            _handle: PhantomData,
        }
    }

    /// Keeps a value, and returns its handle.
    pub(crate) fn insert(&self, value: T) -> Result<*mut H> {
        self.insert_shared(Arc::new(value))
    }

    pub(crate) fn insert_shared(&self, value: Arc<T>) -> Result<*mut H> {
        let mut places = self.places.write();
        let at = match places.free.pop() {
            Some(at) => at,
            None if places.all.len() >> PLACE_BITS == 0 => {
                places.all.push(HandleSlot {
                    generation: 0,
                    value: None,
                });
                places.all.len() - 1
            }
            None => {
                let text = format!("there are {} handles of {}", places.all.len(), self.name());
                return Err(CallFailure::new(HYDRANT_ERROR_MEMORY, text));
            }
        };
        let place = &mut places.all[at];
        place.value = Some(value);
        let generation = u64::from(place.generation);
        let bits = ((generation << KIND_BITS | self.kind) << PLACE_BITS | at as u64) << ALIGN_BITS;
        Ok(std::ptr::without_provenance_mut(bits as usize))
    }

    /// Returns the value of a handle.
    ///
    /// # Errors
    /// HYDRANT_ERROR_NULL, HYDRANT_ERROR_HANDLE.
    pub(crate) fn get(&self, handle: *const H) -> Result<Arc<T>> {
        let (at, generation) = self.parts(handle)?;
        let places = self.places.read();
        let place = places.all.get(at);
        let found = place.filter(|place| place.generation == generation);
        (found.and_then(|place| place.value.clone())).ok_or_else(|| self.freed())
    }

    /// Removes the value of a handle, which is useless from then on.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) fn remove(&self, handle: *const H) -> Result<Arc<T>> {
        let (at, generation) = self.parts(handle)?;
        let mut places = self.places.write();
        let place = places.all.get_mut(at);
        let found = place.filter(|place| place.generation == generation);
        let value = found
            .and_then(|place| place.take())
            .ok_or_else(|| self.freed())?;
        places.free.push(at);
        self.removals.fetch_add(1, Release);
        Ok(value)
    }

    /// Removes the values that `gone` names, and returns them.
    pub(crate) fn remove_all(&self, gone: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut places = self.places.write();
        let mut removed = Vec::new();
        let HandleSlots { all, free } = &mut *places;
        for (at, place) in all.iter_mut().enumerate() {
            if place.value.as_deref().is_some_and(&gone) {
                removed.extend(place.take());
                free.push(at);
            }
        }
        self.removals.fetch_add(1, Release);
        removed
    }

    /// Returns a number that changes whenever a value is removed.
    #[inline]
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Acquire)
    }

    /// Returns the place and the generation that a handle names.
    fn parts(&self, handle: *const H) -> Result<(usize, u32)> {
        let bits = handle.addr() as u64;
        if bits == 0 {
            let text = format!("the handle of {} is null", self.name());
            return Err(CallFailure::new(HYDRANT_ERROR_NULL, text));
        }
        let above = bits >> ALIGN_BITS;
        let kind = above >> PLACE_BITS & ((1 << KIND_BITS) - 1);
        if kind != self.kind || above << ALIGN_BITS != bits {
            let what = match KINDS.get(kind as usize) {
                Some(other) if kind != self.kind && above << ALIGN_BITS == bits => other,
                _ => "nothing",
            };
            let text = format!(
                "a handle of {} is needed, and this one is of {what}",
                self.name()
            );
            return Err(CallFailure::new(HYDRANT_ERROR_HANDLE, text));
        }
        let at = above & ((1 << PLACE_BITS) - 1);
        Ok((at as usize, (above >> PLACE_BITS >> KIND_BITS) as u32))
    }

    fn name(&self) -> &'static str {
        KINDS[self.kind as usize]
    }

    #[cold]
    fn freed(&self) -> CallFailure {
        let text = format!(
            "this handle of {} was freed or never made, or its job is over",
            self.name()
        );
        CallFailure::new(HYDRANT_ERROR_HANDLE, text)
    }
}

impl<T> HandleSlot<T> {
    /// Takes the value, and makes the handles of the place useless.
    fn take(&mut self) -> Option<Arc<T>> {
        let value = self.value.take()?;
        self.generation = (self.generation + 1) % GENERATIONS;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Here;

    #[test]
    fn a_freed_handle_is_no_other() -> Result<()> {
        let table: CHandles<Here, u32> = CHandles::new(3);
        let first = table.insert(7)?;
        assert_eq!(*table.get(first)?, 7);
        assert_eq!(first.addr() % 16, 0);
        let before = table.removals();
        table.remove(first)?;
        assert_ne!(table.removals(), before);
        let second = table.insert(8)?;
        assert_ne!(first, second);
        assert_eq!(
            table.get(first).map_err(|it| it.code()),
            Err(HYDRANT_ERROR_HANDLE)
        );
        assert_eq!(
            table.remove(first).map_err(|it| it.code()),
            Err(HYDRANT_ERROR_HANDLE)
        );
        assert_eq!(*table.get(second)?, 8);
        assert_eq!(table.remove_all(|it| *it == 8).len(), 1);
        assert!(table.get(second).is_err());
        Ok(())
    }

    #[test]
    fn other_pointers_are_no_handles() -> Result<()> {
        let (table, other): (CHandles<Here, u32>, CHandles<Here, u32>) =
            (CHandles::new(3), CHandles::new(4));
        let foreign = other.insert(1)?;
        let own = table.insert(2)?;
        let here = &Here;
        for pointer in [
            foreign.cast_const(),
            own.wrapping_byte_add(1),
            own.wrapping_byte_add(16),
            std::ptr::from_ref(here),
            std::ptr::without_provenance(usize::MAX),
        ] {
            let code = table.get(pointer).map_err(|it| it.code());
            assert_eq!(code, Err(HYDRANT_ERROR_HANDLE), "{pointer:?}");
        }
        assert_eq!(
            table.get(std::ptr::null()).map_err(|it| it.code()),
            Err(HYDRANT_ERROR_NULL)
        );
        Ok(())
    }
}
