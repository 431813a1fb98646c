//! Pointers that one atomic store publishes.

use std::{fmt, marker::PhantomData};

use bytemuck::{Pod, Zeroable};

use super::{
    GlobalPtr,
    pointer::{PointerTarget, PointerWords},
};
use crate::{Error, Rank, Result};

/// A [`GlobalPtr`] in eight bytes, so that an atomic operation can publish, swap or compare it. It
/// serves lists, queues and tables whose links lead from rank to rank.
/// [`Job::pack`](crate::Job::pack) makes it, and [`Job::unpack`](crate::Job::unpack) reads it in
/// the same job. The same element always has the same bits.
///
/// ```
/// # fn main() -> hydrant::Result<()> {
/// use hydrant::PackedPtr;
/// # hydrant::Job::builder()?.run_local(2, |job| {
/// // Each rank pushes a node onto the list whose head lies at rank 0.
/// let head = job.alloc::<u64>(1)?;
/// let node = job.expose(vec![0_u64, 100 + u64::from(job.rank().0)])?;
/// let mine = job.pack(node.pointer(0)?)?;
/// let mut first = head.atomic_load(hydrant::Rank(0), 0)?;
/// loop {
///     node.view().store(0, first)?;
///     let found = head.compare_swap(hydrant::Rank(0), 0, first, mine.to_bits())?;
///     if found == first {
///         break;
///     }
///     first = found;
/// }
/// job.barrier()?;
/// let (mut sum, mut next) = (0, PackedPtr::of_bits(head.atomic_load(hydrant::Rank(0), 0)?));
/// while !next.is_null() {
///     let mut words = [0; 2];
///     job.get_from(job.unpack(next)?, &mut words)?;
///     (next, sum) = (PackedPtr::of_bits(words[0]), sum + words[1]);
/// }
/// assert_eq!(sum, 201);
/// # job.barrier()
/// # }).into_iter().collect()
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Pod, Zeroable, serde::Serialize, serde::Deserialize)]
#[repr(transparent)]
#[serde(transparent, bound = "")]
pub struct PackedPtr<T> {
    /// Fields from the lowest bit on:
    ///
    /// - the kind: 1 bit;
    /// - the bits of the upper and of the lower half of the name: 6 bits each;
    /// - the rank: as many bits as the job's ranks need;
    /// - the upper and the lower half of the name;
    /// - the index of the element, in all bits that are left.
    #[serde(with = "super::fixed")]
    bits: u64,
    _element: PhantomData<T>,
}

/// The bits of the kind and of the two lengths.
const HEADER: u32 = 1 + 2 * LENGTH;
const LENGTH: u32 = 6;
/// The most bits of each half of a name.
const HALF: u32 = 32;

impl<T: Pod> PackedPtr<T> {
    /// The null pointer, which [`Job::unpack`](crate::Job::unpack) refuses. Its bits are zero, as
    /// new symmetric memory is.
    pub const NULL: Self = Self::of_bits(0);

    /// Makes a pointer of these bits, which are checked when it is unpacked.
    pub const fn of_bits(bits: u64) -> Self {
        Self {
            bits,
            _element: PhantomData,
        }
    }

    /// Returns the bits to publish.
    pub const fn to_bits(self) -> u64 {
        self.bits
    }

    /// Returns whether this is the null pointer.
    pub const fn is_null(self) -> bool {
        self.bits == 0
    }

    /// Packs a pointer of the job with number `job` and so many `ranks`.
    ///
    /// # Errors
    /// As [`Job::pack`](crate::Job::pack).
    pub(crate) fn pack(pointer: &GlobalPtr<T>, (job, ranks): (u64, u32)) -> Result<Self> {
        let (rank, size) = (pointer.rank(), size_of::<T>() as u64);
        let what = std::any::type_name::<T>();
        let (kind, name) = match pointer.target() {
            _ if size == 0 => return Err(Error::ZeroSized { what }),
            Some(PointerTarget::Symmetric(number)) => (0, number),
            Some(PointerTarget::Extent(key)) => (1, key),
            None => {
                let why = "it is no pointer";
                return Err(Error::ForgedPointer { why });
            }
        };
        if pointer.job() != job {
            let what = "global pointer";
            return Err(Error::ForeignHandle { what });
        }
        if rank.0 >= ranks {
            return Err(Error::RankOutOfRange { rank, size: ranks });
        }
        let offset = pointer.bytes_in();
        if !offset.is_multiple_of(size) {
            return Err(Error::Misaligned {
                offset,
                align: size as usize,
                what,
            });
        }
        let halves = [name >> HALF, name & ((1 << HALF) - 1)];
        let [upper, lower] = halves.map(width);
        let mut bits = Bits::default();
        for (value, width) in [
            (kind, 1),
            (upper.into(), LENGTH),
            (lower.into(), LENGTH),
            (rank.0.into(), rank_bits(ranks)),
            (halves[0], upper),
            (halves[1], lower),
            (offset / size, width(offset / size)),
        ] {
            bits.push(value, width);
        }
        match bits.taken {
            ..=u64::BITS => Ok(Self::of_bits(bits.word)),
            bits => Err(Error::PointerTooWide { bits }),
        }
    }

    /// Unpacks the pointer in that job.
    ///
    /// # Errors
    /// As [`Job::unpack`](crate::Job::unpack).
    pub(crate) fn unpack(self, (job, ranks): (u64, u32)) -> Result<GlobalPtr<T>> {
        let forged = |why| Error::ForgedPointer { why };
        if self.is_null() {
            return Err(forged("it is null"));
        }
        let mut rest = self.bits;
        let mut take = |width: u32| {
            let value = rest & (1_u64.checked_shl(width).unwrap_or(0).wrapping_sub(1));
            rest = rest.checked_shr(width).unwrap_or(0);
            value
        };
        let (kind, upper, lower) = (take(1), take(LENGTH) as u32, take(LENGTH) as u32);
        let rank = Rank(take(rank_bits(ranks)) as u32);
        if upper.max(lower) > HALF || HEADER + rank_bits(ranks) + upper + lower > u64::BITS {
            return Err(forged("its name is longer than the pointer"));
        }
        let name = take(upper) << HALF | take(lower);
        let index = take(u64::BITS);
        if rank.0 >= ranks {
            return Err(Error::RankOutOfRange { rank, size: ranks });
        }
        let bytes = index.checked_mul(size_of::<T>() as u64);
        let bytes = bytes.ok_or(forged("its offset exceeds any memory"))?;
        Ok(match kind {
            0 => GlobalPtr::from_words(PointerWords::symmetric(job, rank, name, bytes)),
            _ => GlobalPtr::extent(job, rank, name, bytes),
        })
    }
}

/// Returns the bits of a rank in a job of `ranks` ranks.
fn rank_bits(ranks: u32) -> u32 {
    width(ranks.saturating_sub(1).into())
}

/// Returns the bits that a number needs.
fn width(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

/// A word that is filled from the lowest bit on.
#[derive(Default)]
struct Bits {
    word: u64,
    /// The bits pushed so far. Those beyond the length of the word are lost.
    taken: u32,
}

impl Bits {
    fn push(&mut self, value: u64, width: u32) {
        self.word |= value.checked_shl(self.taken).unwrap_or(0);
        self.taken += width;
    }
}

impl<T> fmt::Debug for PackedPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedPtr({:#018x})", self.bits)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const JOB: u64 = 77;

    fn pointer(extent: bool, rank: u32, name: u64, index: u64) -> GlobalPtr<u64> {
        if extent {
            GlobalPtr::extent(JOB, Rank(rank), name, index * 8)
        } else {
            GlobalPtr::from_words(PointerWords::symmetric(JOB, Rank(rank), name, index * 8))
        }
    }

    proptest! {
        #[test]
        fn a_pointer_that_fits_is_unpacked_unchanged(
            extent: bool,
            ranks in 1_u32..5000,
            rank: u32,
            name in prop_oneof![1_u64..9, (1_u64..500, 1_u64..500).prop_map(|(a, b)| a << 32 | b), 1_u64..],
            index in prop_oneof![0_u64..9, 0_u64..1 << 30, 0_u64..1 << 60],
        ) {
            let (job, whole) = ((JOB, ranks), pointer(extent, rank % ranks, name, index));
            let needed = HEADER + rank_bits(ranks) + width(name >> 32)
                + width(name & 0xffff_ffff) + width(index);
            match PackedPtr::pack(&whole, job) {
                Ok(packed) => {
                    prop_assert!(needed <= 64 && !packed.is_null());
                    prop_assert_eq!(packed.unpack(job).unwrap(), whole);
                }
                Err(Error::PointerTooWide { bits }) => {
                    prop_assert_eq!(bits, needed);
                    prop_assert!(needed > 64);
                }
                Err(other) => prop_assert!(false, "{}", other),
            }
        }

        #[test]
        fn any_bits_are_a_pointer_or_an_error(bits: u64, ranks in 1_u32..) {
            let packed = PackedPtr::<[u8; 3]>::of_bits(bits);
            if let Ok(pointer) = packed.unpack((JOB, ranks)) {
                prop_assert!(pointer.rank().0 < ranks);
                // Bits that no job made may encode the same pointer at greater length.
                if let Ok(again) = PackedPtr::pack(&pointer, (JOB, ranks)) {
                    prop_assert_eq!(again.unpack((JOB, ranks)).unwrap(), pointer);
                }
            }
        }
    }

    #[test]
    fn pointers_that_cannot_be_packed_are_refused() {
        let good = pointer(true, 1, 5, 9);
        let pack = |pointer: &GlobalPtr<u64>, job| PackedPtr::pack(pointer, job).unwrap_err();
        assert!(matches!(pack(&good, (1, 2)), Error::ForeignHandle { .. }));
        assert!(matches!(
            pack(&good, (JOB, 1)),
            Error::RankOutOfRange { .. }
        ));
        let odd = GlobalPtr::extent(JOB, Rank(0), 5, 9);
        assert!(matches!(pack(&odd, (JOB, 1)), Error::Misaligned { .. }));
        let none = GlobalPtr::zeroed();
        assert!(matches!(pack(&none, (0, 1)), Error::ForgedPointer { .. }));
        let null = PackedPtr::<u64>::NULL.unpack((JOB, 2));
        assert!(matches!(null, Err(Error::ForgedPointer { .. })));
        let empty = PackedPtr::pack(&GlobalPtr::<()>::extent(JOB, Rank(0), 5, 0), (JOB, 1));
        assert!(matches!(empty, Err(Error::ZeroSized { .. })));
    }
}
