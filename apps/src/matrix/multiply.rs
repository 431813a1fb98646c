//! The local multiplication: tiles that stay in the cache, with as many sums in registers as fit.
//! The tiles are packed so that the innermost loop reads both in order (Goto and van de Geijn,
//! *Anatomy of high-performance matrix multiplication*, 2008).

/// Rows and columns of the sums that are kept in registers.
const ROWS: usize = 4;
const COLUMNS: usize = 4;

/// The side of a tile, unless the user says otherwise.
pub const TILE: usize = 128;

/// The number of pairs of tiles that [`multiply_add`] multiplies.
pub fn tiles(side: usize, tile: usize) -> usize {
    side.div_ceil(tile.max(1)).pow(3)
}

/// The operations of [`multiply_add`]: a multiplication and an addition for each of `side` cubed
/// terms.
pub fn operations(side: usize) -> u64 {
    2 * (side as u64).saturating_pow(3)
}

/// `c += a × b`, all of them square and row by row. Calls `done` after each pair of tiles.
///
/// # Panics
/// If they are not of `side` squared elements.
pub fn multiply_add(
    c: &mut [f64],
    a: &[f64],
    b: &[f64],
    side: usize,
    tile: usize,
    mut done: impl FnMut(),
) {
    assert!([c.len(), a.len(), b.len()] == [side * side; 3]);
    let tile = tile.clamp(1, side.max(1));
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let starts = || (0..side).step_by(tile);
    for inner in starts() {
        let depth = tile.min(side - inner);
        for column in starts() {
            let width = tile.min(side - column);
            pack_columns(&mut right, &b[inner * side + column..], side, depth, width);
            for row in starts() {
                let height = tile.min(side - row);
                pack_rows(&mut left, &a[row * side + inner..], side, height, depth);
                let corner = &mut c[row * side + column..];
                add_tile(corner, side, height, width, depth, &left, &right);
                done();
            }
        }
    }
}

/// Adds the product of two packed tiles.
fn add_tile(
    c: &mut [f64],
    side: usize,
    height: usize,
    width: usize,
    depth: usize,
    left: &[[f64; ROWS]],
    right: &[[f64; COLUMNS]],
) {
    for (strip, right) in right.chunks_exact(depth).enumerate() {
        let column = strip * COLUMNS;
        let columns = COLUMNS.min(width - column);
        for (strip, left) in left.chunks_exact(depth).enumerate() {
            let row = strip * ROWS;
            let sums = strip_product(left, right);
            for (below, sums) in sums.iter().take(height - row).enumerate() {
                let at = (row + below) * side + column;
                for (c, sum) in c[at..at + columns].iter_mut().zip(sums) {
                    *c += sum;
                }
            }
        }
    }
}

/// The innermost loop: `ROWS × COLUMNS` sums in registers.
fn strip_product(left: &[[f64; ROWS]], right: &[[f64; COLUMNS]]) -> [[f64; COLUMNS]; ROWS] {
    let mut sums = [[0.0; COLUMNS]; ROWS];
    for (left, right) in left.iter().zip(right) {
        for (sums, left) in sums.iter_mut().zip(left) {
            for (sum, right) in sums.iter_mut().zip(right) {
                *sum += left * right;
            }
        }
    }
    sums
}

/// Strips of `ROWS` rows, column by column; zero below the last row.
fn pack_rows(into: &mut Vec<[f64; ROWS]>, a: &[f64], side: usize, height: usize, depth: usize) {
    into.clear();
    into.resize(height.div_ceil(ROWS) * depth, [0.0; ROWS]);
    for row in 0..height {
        let strip = &mut into[row / ROWS * depth..][..depth];
        for (to, from) in strip.iter_mut().zip(&a[row * side..][..depth]) {
            to[row % ROWS] = *from;
        }
    }
}

/// Strips of `COLUMNS` columns, row by row; zero right of the last column.
fn pack_columns(
    into: &mut Vec<[f64; COLUMNS]>,
    b: &[f64],
    side: usize,
    depth: usize,
    width: usize,
) {
    into.clear();
    into.resize(width.div_ceil(COLUMNS) * depth, [0.0; COLUMNS]);
    for row in 0..depth {
        let from = &b[row * side..][..width];
        for (strip, from) in from.chunks(COLUMNS).enumerate() {
            into[strip * depth + row][..from.len()].copy_from_slice(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        matrix::{Matrix, serial_product},
        seed::Seed,
    };

    proptest! {
        #[test]
        fn tiles_add_up_to_the_product(side in 0_usize..40, tile in 0_usize..50, seed: u64) {
            let [a, b, before] = [0, 1, 2].map(|stream| {
                let seed = Seed::new(seed, stream);
                Matrix::from_fn(side, |row, column| seed.small((row * side + column) as u64))
            });
            let mut c = before.clone();
            let mut pairs = 0;
            let count = || pairs += 1;
            multiply_add(c.elements_mut(), a.elements(), b.elements(), side, tile, count);
            prop_assert_eq!(pairs, tiles(side, tile.clamp(1, side.max(1))));
            let product = serial_product(&a, &b);
            for (index, c) in c.elements().iter().enumerate() {
                prop_assert_eq!(*c, before.elements()[index] + product.elements()[index]);
            }
        }
    }
}
