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

/// A type whose elements an [`Op`] can reduce: the primitive integers and floats.
pub trait Reducible: Pod + sealed::Sealed {}

/// Combines the second slice into the first, element by element.
pub(super) type FoldBy<T> = fn(into: &mut [T], with: &[T]);

mod sealed {
    use super::{FoldBy, Op};

    pub trait Sealed: Sized {
        /// A number for the type.
        const KIND: u8;
        /// Combines `with` into `into`, element by element; `None` if the type has no such
        /// operation.
        fn fold(op: Op) -> Option<FoldBy<Self>>;
        /// What changes nothing.
        fn identity(op: Op) -> Self;
    }
}

/// The fold of `op`.
///
/// # Errors
/// [`Error::UnsuitableOp`].
pub(super) fn fold_of<T: Reducible>(op: Op) -> Result<FoldBy<T>> {
    T::fold(op).ok_or_else(|| Error::UnsuitableOp {
        what: std::any::type_name::<T>(),
        op: Op::name_of(op as u8 + 1),
    })
}

/// The number of a type in headers.
pub(super) fn kind_of<T: Reducible>() -> u8 {
    T::KIND
}

/// Types by their number in headers.
pub(super) const KINDS: [&str; 15] = [
    "any", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "usize", "isize", "u128", "i128",
    "f32", "f64",
];

/// What an exclusive scan gives the first member.
pub(super) fn identity_of<T: Reducible>(op: Op) -> T {
    T::identity(op)
}

/// A loop for each operation, so that the compiler makes vector code of it.
macro_rules! each {
    ($combine:expr) => {
        Some(|into: &mut [Self], with: &[Self]| {
            for (into, with) in into.iter_mut().zip(with) {
                *into = $combine(*into, *with);
            }
        })
    };
}

macro_rules! integers {
    ($($kind:literal $type:ty),+) => {$(
        impl Reducible for $type {}
        impl sealed::Sealed for $type {
            const KIND: u8 = $kind;
            fn fold(op: Op) -> Option<FoldBy<Self>> {
                match op {
                    Op::Sum => each!(Self::wrapping_add),
                    Op::Product => each!(Self::wrapping_mul),
                    Op::Min => each!(Ord::min),
                    Op::Max => each!(Ord::max),
                    Op::And => each!(|a, b| a & b),
                    Op::Or => each!(|a, b| a | b),
                    Op::Xor => each!(|a, b| a ^ b),
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
            fn fold(op: Op) -> Option<FoldBy<Self>> {
                match op {
                    Op::Sum => each!(|a, b| a + b),
                    Op::Product => each!(|a, b| a * b),
                    Op::Min => each!(Self::min),
                    Op::Max => each!(Self::max),
                    Op::And | Op::Or | Op::Xor => None,
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
