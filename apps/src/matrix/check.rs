//! Checks that a product is right.
//!
//! Where every sum of products is a whole number below 2⁵³, arithmetic in `f64` is exact, and the
//! check is equality. Elsewhere two orders of summation may differ; each is off by at most `n ε
//! |aᵢ|·|bⱼ|` (Higham, *Accuracy and Stability of Numerical Algorithms*, §3.5). The tolerance is
//! twice that, with the Euclidean norms that bound the scalar product.

use super::Matrix;
use crate::seed::Seed;

/// The error of a wrong product.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WrongProduct {
    /// An element differs from the serial answer.
    #[error(
        "the product is wrong first at row {row}, column {column}: {found} instead of {expected} \
         (tolerance {tolerance:e})"
    )]
    Element {
        /// Its row.
        row: usize,
        /// Its column.
        column: usize,
        /// The element found.
        found: f64,
        /// The serial answer.
        expected: f64,
        /// The tolerated difference.
        tolerance: f64,
    },

    /// A row fails Freivalds' check.
    #[error(
        "the product is wrong first in row {row}, whose scalar product with a random vector is \
         {found} instead of {expected} (tolerance {tolerance:e})"
    )]
    Row {
        /// The row.
        row: usize,
        /// The scalar product of the product's row.
        found: f64,
        /// The scalar product of the factors.
        expected: f64,
        /// The tolerated difference.
        tolerance: f64,
    },
}

/// The product by the definition: one rank, no tiles, no puts.
pub fn serial_product(a: &Matrix, b: &Matrix) -> Matrix {
    let side = a.side();
    let mut product = Matrix::zero(side);
    if side == 0 {
        return product;
    }
    for (row, sums) in product.elements_mut().chunks_exact_mut(side).enumerate() {
        for (inner, factor) in a.row(row).iter().enumerate() {
            for (sum, other) in sums.iter_mut().zip(b.row(inner)) {
                *sum += factor * other;
            }
        }
    }
    product
}

/// Compares `c` with the serial product of `a` and `b`.
///
/// # Errors
/// [`WrongProduct::Element`].
pub fn compare(a: &Matrix, b: &Matrix, c: &Matrix) -> Result<(), WrongProduct> {
    let side = a.side();
    let expected = serial_product(a, b);
    let exact = is_exact(a, b, 1.0);
    let columns = if exact { Vec::new() } else { column_norms(b) };
    for row in 0..side {
        let norm = if exact {
            0.0
        } else {
            dot(a.row(row), a.row(row)).sqrt()
        };
        for column in 0..side {
            let (found, expected) = (c.row(row)[column], expected.row(row)[column]);
            let tolerance = columns
                .get(column)
                .map_or(0.0, |other| 2.0 * side as f64 * f64::EPSILON * norm * other);
            if !within(found, expected, tolerance) {
                return Err(WrongProduct::Element {
                    row,
                    column,
                    found,
                    expected,
                    tolerance,
                });
            }
        }
    }
    Ok(())
}

/// Rounds of [`quick`]: each misses a wrong product with probability of at most one half.
const ROUNDS: u64 = 16;

/// Freivalds' check: `c` times a random vector of 1 and -1 against `a` times (`b` times it).
///
/// # Errors
/// [`WrongProduct::Row`].
pub fn quick(a: &Matrix, b: &Matrix, c: &Matrix, seed: u64) -> Result<(), WrongProduct> {
    let side = a.side();
    let times = |matrix: &Matrix, vector: &[f64]| -> Vec<f64> {
        (0..side).map(|row| dot(matrix.row(row), vector)).collect()
    };
    let exact = is_exact(a, b, side as f64);
    // |a|·(|b|·1) bounds every sum, in either order.
    let bound = || {
        let sums: Vec<f64> = (0..side)
            .map(|row| b.row(row).iter().map(|x| x.abs()).sum())
            .collect();
        (0..side)
            .map(|row| a.row(row).iter().zip(&sums).map(|(x, y)| x.abs() * y).sum())
            .collect::<Vec<f64>>()
    };
    let bounds = if exact { Vec::new() } else { bound() };
    for round in 0..ROUNDS {
        let seed = Seed::new(seed, 0x4652_4549 + round);
        let vector: Vec<f64> = (0..side)
            .map(|index| {
                if seed.bits(index as u64) & 1 == 0 {
                    1.0
                } else {
                    -1.0
                }
            })
            .collect();
        let expected = times(a, &times(b, &vector));
        for (row, (found, expected)) in times(c, &vector).into_iter().zip(expected).enumerate() {
            let tolerance = bounds
                .get(row)
                .map_or(0.0, |bound| 4.0 * side as f64 * f64::EPSILON * bound);
            if !within(found, expected, tolerance) {
                return Err(WrongProduct::Row {
                    row,
                    found,
                    expected,
                    tolerance,
                });
            }
        }
    }
    Ok(())
}

/// False for NaN, too.
fn within(found: f64, expected: f64, tolerance: f64) -> bool {
    found == expected || (found - expected).abs() <= tolerance
}

/// True if all sums of `terms` times as many products as a row has are exact.
fn is_exact(a: &Matrix, b: &Matrix, terms: f64) -> bool {
    let largest = |matrix: &Matrix| {
        (matrix.elements().iter()).try_fold(0.0_f64, |largest, element| {
            (element.fract() == 0.0).then_some(largest.max(element.abs()))
        })
    };
    let Some((a_most, b_most)) = largest(a).zip(largest(b)) else {
        return false;
    };
    a_most * b_most * a.side() as f64 * terms <= (1_u64 << f64::MANTISSA_DIGITS) as f64
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn column_norms(matrix: &Matrix) -> Vec<f64> {
    let mut squares = vec![0.0; matrix.side()];
    for row in 0..matrix.side() {
        for (square, element) in squares.iter_mut().zip(matrix.row(row)) {
            *square += element * element;
        }
    }
    squares.into_iter().map(f64::sqrt).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::matrix::multiply_add;

    fn random(side: usize, seed: u64, stream: u64, whole: bool) -> Matrix {
        let seed = Seed::new(seed, stream);
        Matrix::from_fn(side, |row, column| {
            let index = (row * side + column) as u64;
            if whole {
                seed.small(index)
            } else {
                seed.small(index) / 7.0
            }
        })
    }

    proptest! {
        #[test]
        fn right_products_pass_and_wrong_ones_are_found(
            side in 1_usize..24, seed: u64, whole: bool, at: prop::sample::Index,
        ) {
            let (a, b) = (random(side, seed, 0, whole), random(side, seed, 1, whole));
            let mut c = Matrix::zero(side);
            multiply_add(c.elements_mut(), a.elements(), b.elements(), side, 5, || ());
            prop_assert_eq!(compare(&a, &b, &c), Ok(()));
            prop_assert_eq!(quick(&a, &b, &c, seed), Ok(()));

            let at = at.index(side * side);
            c.elements_mut()[at] += 0.001;
            match compare(&a, &b, &c) {
                Err(WrongProduct::Element { row, column, .. }) => {
                    prop_assert_eq!((row, column), (at / side, at % side));
                }
                other => prop_assert!(false, "{:?}", other),
            }
            // A single wrong element shows in any vector of 1 and -1.
            match quick(&a, &b, &c, seed) {
                Err(WrongProduct::Row { row, .. }) => prop_assert_eq!(row, at / side),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }

    #[test]
    fn nan_is_never_right() {
        let one = Matrix::from_fn(1, |_, _| 1.5);
        let wrong = Matrix::from_fn(1, |_, _| f64::NAN);
        let error = compare(&one, &one, &wrong).unwrap_err().to_string();
        assert!(
            error.contains("row 0, column 0: NaN instead of 2.25"),
            "{error}"
        );
        assert!(quick(&one, &one, &wrong, 0).is_err());
    }

    #[test]
    fn exactness_ends_where_sums_grow_too_large() {
        let whole = |value| Matrix::from_fn(2, |_, _| value);
        let large = (1_u64 << 26) as f64;
        assert!(is_exact(&whole(large), &whole(large), 1.0));
        assert!(!is_exact(&whole(large), &whole(large), 2.0));
        assert!(!is_exact(&whole(1.0), &whole(0.5), 1.0));
    }
}
