//! What elements can be reduced by.

use bytemuck::Pod;

use crate::{Error, Result};

/// How two elements become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Their sum; integers wrap around.
    Sum,
    /// Their product; integers wrap around.
    Product,
    /// The smaller one. A float that is not a number loses against one that is.
    Min,
    /// The larger one. A float that is not a number loses against one that is.
    Max,
    /// Bits set in both; integers only.
    And,
    /// Bits set in either; integers only.
    Or,
    /// Bits set in one alone; integers only.
    Xor,
}

const ALL: [(Op, &str); 7] = [
    (Op::Sum, "sum"),
    (Op::Product, "product"),
    (Op::Min, "min"),
    (Op::Max, "max"),
    (Op::And, "and"),
    (Op::Or, "or"),
    (Op::Xor, "xor"),
];

impl Op {
    /// For people: the operation that a header holds, which is its number and one.
    pub(super) fn name_of(held: u8) -> &'static str {
        (ALL.iter().find(|(op, _)| *op as u8 + 1 == held)).map_or("a closure", |(_, name)| name)
    }
}

/// A type whose elements an [`Op`] can reduce.
///
/// | type | operations |
/// |---|---|
/// | the primitive integers | all |
/// | `f32`, `f64`; with the feature `half` its `f16` and `bf16`, each step in `f32` | sum, product, minimum, maximum |
/// | with the feature `num-complex` its `Complex<f32>` and `Complex<f64>` | sum, product |
/// | [`Located`](crate::Located) integers and floats | minimum, maximum |
/// | arrays of these, element by element | as theirs |
///
/// Any other [`Pod`] is reduced by a function, as in [`Team::reduce_with`](crate::Team::reduce_with).
pub trait Reducible: Pod + sealed::Sealed {}

pub(super) mod sealed {
    use super::Op;

    pub trait Sealed: Sized {
        /// A number for the type; an array has that of its elements.
        const KIND: u8;
        /// Combines `with` into `into`, element by element. Whether the type has such an
        /// operation: without elements this only tells that.
        fn fold(op: Op, into: &mut [Self], with: &[Self]) -> bool;
        /// What changes nothing.
        fn identity(op: Op) -> Self;
    }
}

/// The fold of `op`: combines the second slice into the first, element by element.
pub(super) fn fold_of<T: Reducible>(op: Op) -> impl Fn(&mut [T], &[T]) + Send + Sync {
    move |into: &mut [T], with: &[T]| {
        T::fold(op, into, with);
    }
}

/// Whether there is a fold of `op`.
///
/// # Errors
/// [`Error::UnsuitableOp`].
pub(super) fn suits<T: Reducible>(op: Op) -> Result<()> {
    if T::fold(op, &mut [], &[]) {
        return Ok(());
    }
    Err(Error::UnsuitableOp {
        what: std::any::type_name::<T>(),
        op: Op::name_of(op as u8 + 1),
    })
}

/// The number of a type in headers.
pub(super) fn kind_of<T: Reducible>() -> u8 {
    T::KIND
}

/// What an exclusive scan gives the first member.
pub(super) fn identity_of<T: Reducible>(op: Op) -> T {
    T::identity(op)
}

/// Combines by a function. Each has a loop of its own, so that the compiler makes vector code of it.
pub(super) fn each<T: Copy>(into: &mut [T], with: &[T], combine: impl Fn(T, T) -> T) -> bool {
    for (into, with) in into.iter_mut().zip(with) {
        *into = combine(*into, *with);
    }
    true
}

macro_rules! integers {
    ($($kind:literal $type:ty),+) => {$(
        impl Reducible for $type {}
        impl sealed::Sealed for $type {
            const KIND: u8 = $kind;
            fn fold(op: Op, into: &mut [Self], with: &[Self]) -> bool {
                match op {
                    Op::Sum => each(into, with, Self::wrapping_add),
                    Op::Product => each(into, with, Self::wrapping_mul),
                    Op::Min => each(into, with, Ord::min),
                    Op::Max => each(into, with, Ord::max),
                    Op::And => each(into, with, |a, b| a & b),
                    Op::Or => each(into, with, |a, b| a | b),
                    Op::Xor => each(into, with, |a, b| a ^ b),
                }
            }
            fn identity(op: Op) -> Self {
                match op {
                    Op::Sum | Op::Or | Op::Xor => 0,
                    Op::Product => 1,
                    Op::Min => Self::MAX,
                    Op::Max => Self::MIN,
                    Op::And => !0,
                }
            }
        }
    )+};
}

macro_rules! floats {
    ($($kind:literal $type:ty),+) => {$(
        impl Reducible for $type {}
        impl sealed::Sealed for $type {
            const KIND: u8 = $kind;
            fn fold(op: Op, into: &mut [Self], with: &[Self]) -> bool {
                match op {
                    Op::Sum => each(into, with, |a, b| a + b),
                    Op::Product => each(into, with, |a, b| a * b),
                    Op::Min => each(into, with, Self::min),
                    Op::Max => each(into, with, Self::max),
                    Op::And | Op::Or | Op::Xor => false,
                }
            }
            fn identity(op: Op) -> Self {
                match op {
                    Op::Product => 1.0,
                    Op::Min => Self::INFINITY,
                    Op::Max => Self::NEG_INFINITY,
                    _ => 0.0,
                }
            }
        }
    )+};
}

integers!(1 u8, 2 i8, 3 u16, 4 i16, 5 u32, 6 i32, 7 u64, 8 i64, 9 usize, 10 isize, 11 u128, 12 i128);
floats!(13 f32, 14 f64);

impl<T: Reducible, const N: usize> Reducible for [T; N] {}
impl<T: Reducible, const N: usize> sealed::Sealed for [T; N] {
    // How many they are follows from the size, which headers have.
    const KIND: u8 = T::KIND;
    fn fold(op: Op, into: &mut [Self], with: &[Self]) -> bool {
        T::fold(op, into.as_flattened_mut(), with.as_flattened())
    }
    fn identity(op: Op) -> Self {
        [T::identity(op); N]
    }
}
