//! How elements are combined.

use hydrant::{Pod, bytemuck};

use crate::{Error, Result};

/// What is combined.
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

/// How it is combined.
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
    /// Bits set in any; of integers alone.
    Or,
}

/// What [`Reduction`] asks of a type.
pub(crate) trait Combine: Pod + PartialOrd {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn size(self) -> Self;
    fn or(self, other: Self) -> Self;
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
            fn or(self, other: Self) -> Self {
                self | other
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
            fn or(self, _: Self) -> Self {
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

    /// Bytes of one.
    pub fn bytes(self) -> usize {
        match self {
            Self::Int | Self::Float => 4,
            Self::Long | Self::Double => 8,
        }
    }
}

impl Reduction {
    /// The reduction that ARMCI names so, for elements of a type.
    ///
    /// # Errors
    /// [`Error::Code`].
    pub fn of_name(name: &[u8], element: Element) -> Result<Self> {
        // As ARMCI does, by what a name begins with.
        let begins = |with: &[u8]| name.starts_with(with);
        let floats = matches!(element, Element::Float | Element::Double);
        Ok(match name {
            _ if begins(b"+") => Self::Sum,
            _ if begins(b"*") => Self::Product,
            _ if begins(b"max") => Self::Max,
            _ if begins(b"min") => Self::Min,
            _ if begins(b"absmax") => Self::AbsMax,
            _ if begins(b"absmin") => Self::AbsMin,
            _ if begins(b"or") && !floats => Self::Or,
            _ => {
                return Err(Error::Code {
                    what: "a reduction of such elements, of which the first letter is",
                    code: name.first().copied().unwrap_or(0).into(),
                });
            }
        })
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
            Self::Or => a.or(b),
        }
    }

    /// Makes elements what the result of one process alone is: absolute values, if those are asked for.
    pub(crate) fn begin(self, element: Element, bytes: &mut [u8]) {
        if matches!(self, Self::AbsMax | Self::AbsMin) {
            let same = bytes.to_vec();
            self.fold(element, bytes, &same);
        }
    }

    /// Combines elements with others, which are as many.
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
    fn every_reduction_is_what_it_says() {
        for (name, right) in [
            ("+", -4),
            ("*", -21),
            ("max", 3),
            ("min", -7),
            ("absmax", 7),
            ("absmin", 3),
            ("or", -5),
        ] {
            let reduction = Reduction::of_name(name.as_bytes(), Element::Int).unwrap();
            assert_eq!(reduction.combine(-7, 3), right, "{name}");
            assert_eq!(reduction.combine(-7_i64, 3), right.into(), "{name}");
            let floats = Reduction::of_name(name.as_bytes(), Element::Double);
            if name == "or" {
                assert!(floats.is_err());
            } else {
                assert_eq!(reduction.combine(-7.0, 3.0), f64::from(right));
            }
        }
        assert!(Reduction::of_name(b"", Element::Int).is_err());
        assert!(Element::of_code(0).is_err());
    }
}
