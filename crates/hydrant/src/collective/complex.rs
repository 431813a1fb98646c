//! Reductions of complex numbers.

use num_complex::Complex;

use super::{
    Op, Reducible,
    op::{each, sealed::Sealed},
};

macro_rules! complex {
    ($($kind:literal $type:ty),+) => {$(
        impl Reducible for Complex<$type> {}
        impl Sealed for Complex<$type> {
            const KIND: u8 = $kind;
            fn fold(op: Op, into: &mut [Self], with: &[Self]) -> bool {
                match op {
                    Op::Sum => each(into, with, |a, b| a + b),
                    Op::Product => each(into, with, |a, b| a * b),
                    Op::Min | Op::Max | Op::And | Op::Or | Op::Xor => false,
                }
            }
            fn identity(op: Op) -> Self {
                Self::new(<$type>::identity(op), 0.0)
            }
        }
    )+};
}

complex!(17 f32, 18 f64);
