//! Reductions of floats of 16 bits: each step computes in `f32` and rounds.

use half::{bf16, f16};

use super::{
    Op, Reducible,
    op::{each, sealed::Sealed},
};

macro_rules! half_precision {
    ($($kind:literal $type:ty),+) => {$(
        impl Reducible for $type {}
        impl Sealed for $type {
            const KIND: u8 = $kind;
            fn fold(op: Op, into: &mut [Self], with: &[Self]) -> bool {
                let by = |combine: fn(f32, f32) -> f32| {
                    move |a: Self, b: Self| Self::from_f32(combine(a.to_f32(), b.to_f32()))
                };
                match op {
                    Op::Sum => each(into, with, by(|a, b| a + b)),
                    Op::Product => each(into, with, by(|a, b| a * b)),
                    Op::Min => each(into, with, by(f32::min)),
                    Op::Max => each(into, with, by(f32::max)),
                    Op::And | Op::Or | Op::Xor => false,
                }
            }
            fn identity(op: Op) -> Self {
                Self::from_f32(f32::identity(op))
            }
        }
    )+};
}

half_precision!(15 f16, 16 bf16);
