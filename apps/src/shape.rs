//! Numbers of ranks that fit an algorithm, and the position of each rank.

use hydrant::Rank;

/// A number of ranks that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{ranks} ranks make no {shape}: the nearest numbers that do are {nearest}")]
pub struct ShapeError {
    ranks: u32,
    shape: &'static str,
    nearest: String,
}

impl ShapeError {
    fn new(ranks: u32, shape: &'static str, below: u32, above: u64) -> Self {
        Self {
            ranks,
            shape,
            nearest: format!("{below} and {above}"),
        }
    }
}

/// Ranks laid out on a square, row by row; each edge touches the opposite one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mesh {
    side: u32,
}

impl Mesh {
    /// The square of so many ranks.
    ///
    /// # Errors
    /// [`ShapeError`] naming the square numbers around `ranks`.
    pub fn new(ranks: u32) -> Result<Self, ShapeError> {
        let side = ranks.isqrt();
        if ranks > 0 && side * side == ranks {
            return Ok(Self { side });
        }
        let above = (u64::from(side) + 1).pow(2);
        Err(ShapeError::new(ranks, "square mesh", side * side, above))
    }

    /// Ranks along an edge.
    pub fn side(self) -> usize {
        self.side as usize
    }

    /// The rank at a position; rows and columns wrap around the edges.
    pub fn rank(self, row: usize, column: usize) -> Rank {
        let side = self.side();
        // Below `side` squared, which is a number of ranks.
        Rank(((row % side) * side + column % side) as u32)
    }

    /// The row and column of a rank.
    pub fn place(self, rank: Rank) -> (usize, usize) {
        (rank.index() / self.side(), rank.index() % self.side())
    }
}

/// Ranks laid out on a hypercube: a power of two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hypercube {
    dimensions: u32,
}

impl Hypercube {
    /// The hypercube of so many ranks.
    ///
    /// # Errors
    /// [`ShapeError`] naming the powers of two around `ranks`.
    pub fn new(ranks: u32) -> Result<Self, ShapeError> {
        if ranks.is_power_of_two() {
            return Ok(Self {
                dimensions: ranks.ilog2(),
            });
        }
        let below = ranks.checked_ilog2().map_or(0, |log| 1 << log);
        let above = u64::from(ranks).next_power_of_two();
        let shape = "hypercube (a power of two of them)";
        Err(ShapeError::new(ranks, shape, below, above))
    }

    /// Its dimensions: the logarithm of the number of ranks.
    pub fn dimensions(self) -> u32 {
        self.dimensions
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_nearest_that_fit_are_named() {
        assert_eq!(
            Mesh::new(5).unwrap_err().to_string(),
            "5 ranks make no square mesh: the nearest numbers that do are 4 and 9"
        );
        assert_eq!(
            Hypercube::new(12).unwrap_err().to_string(),
            "12 ranks make no hypercube (a power of two of them): the nearest numbers that do \
             are 8 and 16"
        );
        let beyond = Mesh::new(u32::MAX).unwrap_err().to_string();
        assert!(beyond.ends_with("4294836225 and 4294967296"), "{beyond}");
    }

    proptest! {
        #[test]
        fn squares_and_no_others_are_meshes(ranks in 1_u32..100_000) {
            let naive = (1..=ranks).take_while(|n| n * n <= ranks).last().unwrap_or(0);
            let mesh = Mesh::new(ranks);
            prop_assert_eq!(mesh.is_ok(), naive * naive == ranks);
        }

        #[test]
        fn places_and_ranks_are_inverse(side in 1_u32..40, row in 0_usize..100, column in 0_usize..100) {
            let mesh = Mesh::new(side * side).unwrap();
            let rank = mesh.rank(row, column);
            prop_assert!(rank.0 < side * side);
            prop_assert_eq!(mesh.place(rank), (row % mesh.side(), column % mesh.side()));
        }

        #[test]
        fn powers_of_two_and_no_others_are_hypercubes(ranks in 1_u32..100_000) {
            let cube = Hypercube::new(ranks);
            prop_assert_eq!(cube.is_ok(), ranks.count_ones() == 1);
            if let Ok(cube) = cube {
                prop_assert_eq!(1 << cube.dimensions(), ranks);
            }
        }
    }
}
