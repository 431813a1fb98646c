//! The element types and reductions of ARMCI's collectives.

use hydrant::{Pod, bytemuck};

use crate::{Error, Result};

/// The type of elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Element {
    /// `int`.
    Int,
    /// `long`, and `long long`, which are alike on Linux.
    Long,
    /// `float`.
    Float,
    /// `double`.
    Double,
}

/// The way in which elements are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The product.
    Product,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The largest absolute value.
    AbsMax,
    /// The smallest absolute value.
    AbsMin,
    /// The bits set in any element; for integers only.
    Or,
    /// The bits set in all elements; for integers only.
    And,
    /// 1 if no element is zero, otherwise 0; for integers only.
    LogicalAnd,
    /// 1 if any element is not zero, otherwise 0; for integers only.
    LogicalOr,
}

/// The reductions of integers by bits or truth values.
#[derive(Clone, Copy)]
pub(crate) enum Logic {
    Or,
    And,
    LogicalOr,
    LogicalAnd,
}

/// The prefixes of names, and their reductions.
const NAMES: [(&[u8], Reduction); 15] = [
    (b"+", Reduction::Sum),
    (b"*", Reduction::Product),
    (b"max", Reduction::Max),
    (b"min", Reduction::Min),
    (b"absmax", Reduction::AbsMax),
    (b"absmin", Reduction::AbsMin),
    (b"or", Reduction::Or),
    (b"&&", Reduction::LogicalAnd),
    (b"land", Reduction::LogicalAnd),
    (b"||", Reduction::LogicalOr),
    (b"lor", Reduction::LogicalOr),
    (b"&", Reduction::And),
    (b"band", Reduction::And),
    (b"|", Reduction::Or),
    (b"bor", Reduction::Or),
];

/// The operations of an element type that [`Reduction`] needs.
pub(crate) trait Combine: Pod + PartialOrd {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn size(self) -> Self;
    fn logic(self, other: Self, logic: Logic) -> Self;
}

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl Combine for $type {
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn size(self) -> Self {
                self.wrapping_abs()
            }
            fn logic(self, other: Self, logic: Logic) -> Self {
                match logic {
                    Logic::Or => self | other,
                    Logic::And => self & other,
                    Logic::LogicalOr => (self | other != 0).into(),
                    Logic::LogicalAnd => (self != 0 && other != 0).into(),
                }
            }
        }
    )+};
}

macro_rules! floats {
    ($($type:ty),+) => {$(
        impl Combine for $type {
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn times(self, other: Self) -> Self {
                self * other
            }
            fn size(self) -> Self {
                self.abs()
            }
            fn logic(self, _: Self, _: Logic) -> Self {
                self
            }
        }
    )+};
}

integers!(i32, i64);
floats!(f32, f64);

impl Element {
    /// The type that ARMCI names by a code.
    ///
    /// # Errors
    /// [`Error::Code`].
    pub fn of_code(code: i32) -> Result<Self> {
        match code {
            -99 => Ok(Self::Int),
            -101 | -102 => Ok(Self::Long),
            -306 => Ok(Self::Float),
            -307 => Ok(Self::Double),
            code => Err(Error::Code {
                what: "a type",
                code,
            }),
        }
    }

    /// The plural of the type's name in C.
    fn plural(self) -> &'static str {
        match self {
            Self::Int => "ints",
            Self::Long => "longs",
            Self::Float => "floats",
            Self::Double => "doubles",
        }
    }

    /// The bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Self::Int | Self::Float => 4,
            Self::Long | Self::Double => 8,
        }
    }
}

impl Reduction {
    /// The reduction of a name in ARMCI, for elements of a type.
    ///
    /// # Errors
    /// [`Error::Reduction`].
    pub fn of_name(name: &[u8], element: Element) -> Result<Self> {
        let is_integer = matches!(element, Element::Int | Element::Long);
        // As in ARMCI, a prefix of the name decides. So longer prefixes come first.
        let known = NAMES.iter().find(|(begin, _)| name.starts_with(begin));
        let known = known.filter(|(_, reduction)| is_integer || !reduction.is_of_integers());
        let unknown = || Error::Reduction {
            name: String::from_utf8_lossy(name).into_owned(),
            elements: element.plural(),
            others: if is_integer {
                ", or, |, bor, &, band, ||, lor, && and land"
            } else {
                ""
            },
        };
        known.map(|(_, reduction)| *reduction).ok_or_else(unknown)
    }

    fn is_of_integers(self) -> bool {
        matches!(
            self,
            Self::Or | Self::And | Self::LogicalOr | Self::LogicalAnd
        )
    }

    pub(crate) fn combine<T: Combine>(self, a: T, b: T) -> T {
        let larger = |a: T, b: T| if b > a { b } else { a };
        let smaller = |a: T, b: T| if b < a { b } else { a };
        match self {
            Self::Sum => a.plus(b),
            Self::Product => a.times(b),
            Self::Max => larger(a, b),
            Self::Min => smaller(a, b),
            Self::AbsMax => larger(a.size(), b.size()),
            Self::AbsMin => smaller(a.size(), b.size()),
            Self::Or => a.logic(b, Logic::Or),
            Self::And => a.logic(b, Logic::And),
            Self::LogicalOr => a.logic(b, Logic::LogicalOr),
            Self::LogicalAnd => a.logic(b, Logic::LogicalAnd),
        }
    }

    /// Replaces elements by their absolute values if the reduction is of absolute values. So a
    /// reduction over one process is right too.
    pub(crate) fn begin(self, element: Element, bytes: &mut [u8]) {
        if matches!(self, Self::AbsMax | Self::AbsMin) {
            let same = bytes.to_vec();
            self.fold(element, bytes, &same);
        }
    }

    /// Combines the elements in `into` with as many in `with`.
    pub(crate) fn fold(self, element: Element, into: &mut [u8], with: &[u8]) {
        match element {
            Element::Int => self.fold_as::<i32>(into, with),
            Element::Long => self.fold_as::<i64>(into, with),
            Element::Float => self.fold_as::<f32>(into, with),
            Element::Double => self.fold_as::<f64>(into, with),
        }
    }

    fn fold_as<T: Combine>(self, into: &mut [u8], with: &[u8]) {
        let size = size_of::<T>();
        for (into, with) in into.chunks_exact_mut(size).zip(with.chunks_exact(size)) {
            let sum: T = self.combine(
                bytemuck::pod_read_unaligned(into),
                bytemuck::pod_read_unaligned(with),
            );
            into.copy_from_slice(bytemuck::bytes_of(&sum));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reduction_gives_the_documented_result() {
        for (name, right) in [
            ("+", -4),
            ("*", -21),
            ("max", 3),
            ("min", -7),
            ("absmax", 7),
            ("absmin", 3),
            ("or", -5),
            ("|", -5),
            ("bor", -5),
            ("&", 1),
            ("band", 1),
            ("&&", 1),
            ("land", 1),
            ("||", 1),
            ("lor", 1),
        ] {
            let reduction = Reduction::of_name(name.as_bytes(), Element::Int).unwrap();
            assert_eq!(reduction.combine(-7, 3), right, "{name}");
            assert_eq!(reduction.combine(-7_i64, 3), i64::from(right), "{name}");
            match Reduction::of_name(name.as_bytes(), Element::Double) {
                Ok(same) => assert_eq!(same.combine(-7.0, 3.0), f64::from(right)),
                Err(_) => assert!(reduction.is_of_integers(), "{name}"),
            }
        }
        let truth = |name: &[u8], a: i64, b: i64| {
            let reduction = Reduction::of_name(name, Element::Long).unwrap();
            reduction.combine(a, b)
        };
        assert_eq!(truth(b"&&", 2, 1), 1);
        assert_eq!(truth(b"&&", 2, 0), 0);
        assert_eq!(truth(b"||", 0, i64::MIN), 1);
        assert_eq!(truth(b"||", 0, 0), 0);
        assert_eq!(truth(b"&", 2, 1), 0);
        let unknown = Reduction::of_name(b"%", Element::Int).unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "\"%\" is no reduction of ints, of which there are: +, *, max, min, absmax, absmin, or, |, bor, \
             &, band, ||, lor, && and land"
        );
        assert!(Reduction::of_name(b"", Element::Int).is_err());
        assert!(Element::of_code(0).is_err());
    }
}
