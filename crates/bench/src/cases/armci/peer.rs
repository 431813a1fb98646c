//! A partner's memory, as ARMCI reaches it. Its operations take slices, so that no caller can name
//! an address out of bounds.

#![allow(unsafe_code)] // ARMCI names memory by its address

use armci::{Armci, Rmw, Strides, Vector};
use hydrant::Factor;

use super::{FACTOR, raised};
use crate::bare::{BarePlace, ColumnShape, SectionShape};
use crate::ensemble::Ensemble;
use crate::network::PARTNER;

/// A word's bytes.
const WORD: usize = size_of::<u64>();

/// Memory of rank 1, for rank 0 to work on.
pub(super) struct ArmciPeer<'a> {
    /// The ARMCI instance.
    pub(super) armci: &'a Armci,
    /// The same memory, where it is mapped in this process.
    pub(super) place: Option<BarePlace>,
    parts: Vec<*mut u8>,
    /// The process that owns the memory.
    proc: i32,
    len: usize,
    scale: Factor,
}

/// A section as ARMCI has it: strides of both sides in bytes, and counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArmciSection {
    here: [i32; 2],
    there: [i32; 2],
    count: [i32; 3],
    levels: usize,
    words: usize,
}

impl ArmciSection {
    pub(super) fn new(shape: &SectionShape) -> Self {
        let bytes = |words: usize| (words * WORD) as i32;
        let [rows, planes] = shape.counts;
        Self {
            here: [bytes(shape.run), bytes(shape.run * rows)],
            there: shape.there.map(bytes),
            count: [bytes(shape.run), rows as i32, planes as i32],
            levels: if planes == 1 { 1 } else { 2 },
            words: shape.words(),
        }
    }

    /// A column, with gaps on the local side, too.
    pub(super) fn column(column: &ColumnShape) -> Self {
        let bytes = |words: usize| (words * WORD) as i32;
        let strides = [bytes(column.stride), 0];
        Self {
            here: strides,
            there: strides,
            count: [bytes(column.run), column.rows as i32, 1],
            levels: 1,
            words: column.span(),
        }
    }
}

impl<'a> ArmciPeer<'a> {
    /// Allocates memory of `len` bytes. Collective.
    pub(super) fn new(e: &Ensemble<'_>, armci: &'a Armci, len: usize) -> hydrant::Result<Self> {
        let parts = raised(armci.malloc(len as i64))?;
        let proc = PARTNER.0 as i32;
        let at = parts[PARTNER.index()];
        // The memory is touched first, because page faults are not to be measured.
        let own = parts[e.job.rank().index()].cast::<f64>();
        for word in 0..len / WORD {
            // SAFETY: the word is in this rank's own part, which nobody uses before the barrier.
            unsafe { own.wrapping_add(word).write(1.0) }
        }
        raised(armci.barrier())?;
        // Each rank's own memory is mapped. The decision is rank 0's view of rank 1.
        let is_mapped = !e.registered && raised(armci.is_mapped(proc))?;
        // SAFETY: 1. the memory is freed at the end, after the last use; 2. rank 0 alone reads and
        // writes it, one operation at a time; 3. ARMCI's memory is aligned.
        let place = is_mapped.then(|| unsafe { BarePlace::new(at, len) });
        let scale = FACTOR.to_ne_bytes();
        // SAFETY: the pointer is to a double, as ACC_DBL needs.
        let scale = raised(unsafe { Armci::scale(armci::ACC_DBL, scale.as_ptr()) })?;
        Ok(Self {
            armci,
            place,
            parts,
            proc,
            len,
            scale,
        })
    }

    /// Frees the memory. Collective.
    pub(super) fn free(self, e: &Ensemble<'_>) -> hydrant::Result<()> {
        raised(self.armci.barrier())?;
        raised(self.armci.free(self.parts[e.job.rank().index()]))
    }

    fn at(&self) -> *mut u8 {
        self.parts[PARTNER.index()]
    }

    /// The address of a word of it.
    pub(super) fn word(&self, index: usize) -> *mut u8 {
        assert!(index < self.len / WORD);
        self.at().wrapping_add(index * WORD)
    }

    #[inline(always)]
    pub(super) fn put(&self, from: &[u64]) -> hydrant::Result<()> {
        let (src, bytes) = (from.as_ptr().cast(), size_of_val(from) as i32);
        // SAFETY: 1. the source is a slice; 2. the target is another process's memory, whose bounds
        // ARMCI checks.
        raised(unsafe { self.armci.put(src, self.at(), bytes, self.proc) })
    }

    /// Puts the words of `from` at an offset in bytes.
    pub(super) fn put_to(&self, place: usize, from: &[u64]) -> hydrant::Result<()> {
        let (src, bytes) = (from.as_ptr().cast(), size_of_val(from) as i32);
        assert!(place + size_of_val(from) <= self.len);
        let dst = self.at().wrapping_add(place);
        // SAFETY: as in `put`.
        raised(unsafe { self.armci.put(src, dst, bytes, self.proc) })
    }

    /// The first bytes of the local part, which nobody writes.
    pub(super) fn local(&self, e: &Ensemble<'_>, bytes: usize) -> &[u64] {
        assert!(bytes <= self.len);
        let own = self.parts[e.job.rank().index()];
        // SAFETY: the words were written at the allocation. Only rank 0 runs operations, and they
        // reach only its partner's part. `free` consumes `self`, so the slice ends before.
        unsafe { std::slice::from_raw_parts(own.cast(), bytes / WORD) }
    }

    #[inline(always)]
    pub(super) fn get(&self, to: &mut [u64]) -> hydrant::Result<()> {
        let (dst, bytes) = (to.as_mut_ptr().cast(), size_of_val(to) as i32);
        // SAFETY: as in `put`; all bytes are words.
        raised(unsafe { self.armci.get(self.at(), dst, bytes, self.proc) })
    }

    #[inline(always)]
    pub(super) fn accumulate(&self, from: &[u64]) -> hydrant::Result<()> {
        let (src, bytes) = (from.as_ptr().cast(), size_of_val(from) as i32);
        // SAFETY: as in `put`.
        raised(unsafe { (self.armci).accumulate(&self.scale, src, self.at(), bytes, self.proc) })
    }

    #[inline(always)]
    pub(super) fn put_section(&self, from: &[u64], section: &ArmciSection) -> hydrant::Result<()> {
        assert!(section.words <= from.len());
        let strides = Strides {
            src: &section.here[..section.levels],
            dst: &section.there[..section.levels],
            count: &section.count[..=section.levels],
        };
        // SAFETY: as in `put`; the slice has all of the section.
        raised(unsafe {
            (self.armci).put_strided(from.as_ptr().cast(), self.at(), strides, self.proc)
        })
    }

    #[inline(always)]
    pub(super) fn get_section(
        &self,
        to: &mut [u64],
        section: &ArmciSection,
    ) -> hydrant::Result<()> {
        assert!(section.words <= to.len());
        let strides = Strides {
            src: &section.there[..section.levels],
            dst: &section.here[..section.levels],
            count: &section.count[..=section.levels],
        };
        // SAFETY: as in `put_section`.
        raised(unsafe {
            (self.armci).get_strided(self.at(), to.as_mut_ptr().cast(), strides, self.proc)
        })
    }

    /// Like [`put_section`](Self::put_section), for a column, without any work that a C program
    /// would not do for the call.
    #[inline(always)]
    pub(super) fn put_column(&self, from: &[u64], column: &ArmciSection) -> hydrant::Result<()> {
        assert!(column.words <= from.len());
        let strides = Strides {
            src: &column.here[..1],
            dst: &column.there[..1],
            count: &column.count[..2],
        };
        let (src, dst) = (from.as_ptr().cast(), self.at());
        // SAFETY: as in `put`; the slice has all of the column.
        raised(unsafe { (self.armci).put_strided(src, dst, strides, self.proc) })
    }

    /// Like [`put_column`](Self::put_column), in the other direction.
    #[inline(always)]
    pub(super) fn get_column(&self, to: &mut [u64], column: &ArmciSection) -> hydrant::Result<()> {
        assert!(column.words <= to.len());
        let strides = Strides {
            src: &column.there[..1],
            dst: &column.here[..1],
            count: &column.count[..2],
        };
        let (src, dst) = (self.at(), to.as_mut_ptr().cast());
        // SAFETY: as in `put_column`.
        raised(unsafe { (self.armci).get_strided(src, dst, strides, self.proc) })
    }

    #[inline(always)]
    pub(super) fn accumulate_section(
        &self,
        from: &[u64],
        section: &ArmciSection,
    ) -> hydrant::Result<()> {
        assert!(section.words <= from.len());
        let strides = Strides {
            src: &section.here[..section.levels],
            dst: &section.there[..section.levels],
            count: &section.count[..=section.levels],
        };
        let src = from.as_ptr().cast();
        // SAFETY: as in `put_section`.
        raised(unsafe {
            (self.armci).accumulate_strided(&self.scale, src, self.at(), strides, self.proc)
        })
    }

    /// # Safety
    /// 1. The local runs are readable.
    #[inline(always)]
    pub(super) unsafe fn put_vector(&self, vector: &Vector<'_>) -> hydrant::Result<()> {
        // SAFETY: 1. The local runs are readable, by the caller's condition 1. 2. as in `put`.
        raised(unsafe { (self.armci).put_vector(std::slice::from_ref(vector), self.proc) })
    }

    /// # Safety
    /// 1. The local runs are writable.
    /// 2. Nobody else uses them.
    #[inline(always)]
    pub(super) unsafe fn get_vector(&self, vector: &Vector<'_>) -> hydrant::Result<()> {
        // SAFETY: the local runs are writable and unshared (the caller's conditions 1 and 2); the
        // rest as in `put`.
        raised(unsafe { (self.armci).get_vector(std::slice::from_ref(vector), self.proc) })
    }

    /// # Safety
    /// 1. The local runs are readable.
    #[inline(always)]
    pub(super) unsafe fn accumulate_vector(&self, vector: &Vector<'_>) -> hydrant::Result<()> {
        let vectors = std::slice::from_ref(vector);
        // SAFETY: 1. The local runs are readable, by the caller's condition 1. 2. as in `put`.
        raised(unsafe { (self.armci).accumulate_vector(&self.scale, vectors, self.proc) })
    }

    /// Changes the first word, of 64 or of 32 bits.
    #[inline(always)]
    pub(super) fn change<W: armci::Word>(&self, op: Rmw, value: W) -> hydrant::Result<W> {
        // SAFETY: the word is in another process's memory.
        raised(unsafe { (self.armci).read_modify_write(op, self.at().cast(), value, self.proc) })
    }

    #[inline(always)]
    pub(super) fn fence(&self) -> hydrant::Result<()> {
        raised(self.armci.fence(self.proc))
    }
}
