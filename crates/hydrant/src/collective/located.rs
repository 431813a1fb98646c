//! Values and where they were found: MPI's MINLOC and MAXLOC.

use std::cmp::Ordering;

use bytemuck::{Pod, Zeroable};

use super::{
    Op, Reducible,
    kind::LOCATED,
    op::{each, sealed::Sealed},
};

/// A value and an index that says where it is: [`Op::Min`] and [`Op::Max`] find the smallest or
/// largest value and its index, the smallest index if several are equal.
///
/// ```
/// use hydrant::{Located, Op};
///
/// # hydrant::Job::builder()?.run_local(3, |job| {
/// let mine = Located::new([2.5, 0.5, 0.5][job.rank().index()], u64::from(job.rank().0));
/// let mut least = [mine];
/// job.all_reduce(&mut least, Op::Min)?;
/// assert_eq!((least[0].value(), least[0].index()), (0.5, 1));
/// # Ok(()) }).into_iter().collect::<hydrant::Result<()>>()?;
/// # Ok::<(), hydrant::Error>(())
/// ```
///
/// Values are integers and floats; complex numbers have no least one:
///
/// ```compile_fail,E0277
/// # use hydrant::{Job, Located, Op, num_complex::Complex};
/// # fn least(job: &Job) -> hydrant::Result<()> {
/// job.all_reduce(&mut [Located::new(Complex::new(1.0_f64, 0.0), 0)], Op::Min)
/// # }
/// ```
///
/// As in [`Op::Min`], a float that is not a number loses against one that is. There are no gaps in
/// memory between the two, so that they are plain data; that is why they are not fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, packed)]
pub struct Located<T> {
    value: T,
    index: u64,
}

impl<T: Copy> Located<T> {
    /// A value and its index.
    pub fn new(value: T, index: u64) -> Self {
        Self { value, index }
    }

    /// The value.
    pub fn value(&self) -> T {
        self.value
    }

    /// Its index.
    pub fn index(&self) -> u64 {
        self.index
    }
}

impl<T: Copy + PartialOrd> Located<T> {
    /// The one of the two whose value comes first, where `before` is how it compares.
    fn first(self, other: Self, before: Ordering) -> Self {
        let (left, right) = (self.value, other.value);
        let order = (left.partial_cmp(&right)).unwrap_or_else(|| {
            // A number, which is equal to itself, comes before what is none.
            let is_number = |value: T| value.partial_cmp(&value).is_some();
            match (is_number(left), is_number(right)) {
                (true, false) => before,
                (false, true) => before.reverse(),
                _ => Ordering::Equal,
            }
        });
        let other_is_first = match order {
            Ordering::Equal => other.index() < self.index(),
            order => order != before,
        };
        if other_is_first { other } else { self }
    }
}

macro_rules! located {
    ($($type:ty),+) => {$(
        impl Reducible for Located<$type> {}
        impl Sealed for Located<$type> {
            const KIND: u8 = LOCATED | <$type>::KIND;
            fn fold(op: Op, into: &mut [Self], with: &[Self]) -> bool {
                match op {
                    Op::Min => each(into, with, |a, b| a.first(b, Ordering::Less)),
                    Op::Max => each(into, with, |a, b| a.first(b, Ordering::Greater)),
                    Op::Sum | Op::Product | Op::And | Op::Or | Op::Xor => false,
                }
            }
            fn identity(op: Op) -> Self {
                Self::new(<$type>::identity(op), u64::MAX)
            }
        }
    )+};
}

located!(
    u8, i8, u16, i16, u32, i32, u64, i64, usize, isize, u128, i128, f32, f64
);
#[cfg(feature = "half")]
located!(half::f16, half::bf16);
