//! Square matrices, row by row, and their blocks.

mod check;
mod multiply;

use std::path::Path;

pub use check::{WrongProduct, compare, quick, serial_product};
pub use multiply::{TILE, multiply_add, operations, tiles};

use crate::{
    buffer::Buffer,
    input::{self, InputError},
};

/// A square matrix of `f64`.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    side: usize,
    elements: Buffer<f64>,
}

impl Matrix {
    /// Zeros.
    ///
    /// # Panics
    /// If there is no memory for them.
    pub fn zero(side: usize) -> Self {
        Self {
            side,
            elements: Buffer::zeroed(side * side),
        }
    }

    /// Computes each element from its row and column.
    ///
    /// # Panics
    /// If there is no memory for the elements.
    pub fn from_fn(side: usize, element: impl Fn(usize, usize) -> f64) -> Self {
        let mut elements = Buffer::zeroed(side * side);
        for (index, place) in elements.iter_mut().enumerate() {
            *place = element(index / side, index % side);
        }
        Self { side, elements }
    }

    /// A matrix of these elements, row by row.
    ///
    /// # Panics
    /// If there are not `side` squared elements.
    pub fn from_elements(side: usize, elements: &[f64]) -> Self {
        assert_eq!(elements.len(), side * side);
        let elements = Buffer::from(elements);
        Self { side, elements }
    }

    /// Reads a square matrix; a text file has a line for each row.
    ///
    /// # Errors
    /// [`InputError`].
    pub fn read(path: &Path) -> Result<Self, InputError> {
        let file = input::read::<f64>(path)?;
        let elements = file.values;
        let side = elements.len().isqrt();
        if side * side != elements.len() {
            let beyond = (side + 1) * (side + 1) - elements.len() < elements.len() - side * side;
            return Err(InputError::NotSquare {
                path: path.to_owned(),
                elements: elements.len(),
                nearest: side + usize::from(beyond),
            });
        }
        if let Some(row) = file.lines.iter().position(|line| *line != side) {
            return Err(InputError::Ragged {
                path: path.to_owned(),
                row: row + 1,
                found: file.lines[row],
                side,
            });
        }
        Ok(Self::from_elements(side, &elements))
    }

    /// The number of rows, and of columns.
    pub fn side(&self) -> usize {
        self.side
    }

    /// All elements.
    pub fn elements(&self) -> &[f64] {
        &self.elements
    }

    /// All elements, mutable.
    pub fn elements_mut(&mut self) -> &mut [f64] {
        &mut self.elements
    }

    /// All elements, without the matrix.
    pub fn into_elements(self) -> Vec<f64> {
        self.elements.to_vec()
    }

    /// A row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> &[f64] {
        &self.elements[row * self.side..][..self.side]
    }

    /// The block of `side` rows and columns from `row` and `column` on. It is zero beyond the edges
    /// of this matrix.
    pub fn block(&self, row: usize, column: usize, side: usize) -> Self {
        let mut block = Self::zero(side);
        for (from, to) in self.overlap(row, column, side) {
            block.elements[to].copy_from_slice(&self.elements[from]);
        }
        block
    }

    /// Sets the block from `row` and `column` on. Elements beyond the edges of this matrix are left
    /// out.
    pub fn set_block(&mut self, row: usize, column: usize, block: &Self) {
        for (to, from) in self.overlap(row, column, block.side) {
            self.elements[to].copy_from_slice(&block.elements[from]);
        }
    }

    /// The rows that this matrix shares with a block, as ranges of elements in both.
    fn overlap(
        &self,
        row: usize,
        column: usize,
        side: usize,
    ) -> impl Iterator<Item = (std::ops::Range<usize>, std::ops::Range<usize>)> + use<> {
        let own = self.side;
        let width = side.min(own.saturating_sub(column));
        let rows = if width == 0 {
            0
        } else {
            side.min(own.saturating_sub(row))
        };
        (0..rows).map(move |below| {
            let (here, there) = ((row + below) * own + column, below * side);
            (here..here + width, there..there + width)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_cover_the_matrix(side in 0_usize..20, parts in 1_usize..6) {
            let matrix = Matrix::from_fn(side, |row, column| (row * 100 + column + 1) as f64);
            let block_side = side.div_ceil(parts);
            let mut again = Matrix::zero(side);
            for row in (0..parts).map(|part| part * block_side) {
                for column in (0..parts).map(|part| part * block_side) {
                    let block = matrix.block(row, column, block_side);
                    for (index, element) in block.elements().iter().enumerate() {
                        let (y, x) = (row + index / block_side, column + index % block_side);
                        let inside = y < side && x < side;
                        prop_assert_eq!(*element, if inside { matrix.row(y)[x] } else { 0.0 });
                    }
                    again.set_block(row, column, &block);
                }
            }
            prop_assert_eq!(again, matrix);
        }
    }

    #[test]
    fn files_that_hold_no_square_matrix_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let read = |content: &str| {
            let path = folder.path().join("m.txt");
            std::fs::write(&path, content).unwrap();
            let outcome = Matrix::read(&path).map_err(|error| error.to_string());
            outcome.map_err(|text| text.replace(&format!("{}/", folder.path().display()), ""))
        };
        assert_eq!(
            read("1 2 3\n4 5 6\n").unwrap_err(),
            "m.txt holds 6 numbers, which make no square matrix: the nearest has 2 x 2"
        );
        assert!(read("1 2 3 4 5 6 7").unwrap_err().ends_with("3 x 3"));
        assert_eq!(
            read("1 2 3\n4\n").unwrap_err(),
            "row 1 of m.txt has 3 numbers, but its matrix has 2 rows"
        );
        assert_eq!(read("1 2\n3 4\n").unwrap().row(1), [3.0, 4.0]);
    }
}
