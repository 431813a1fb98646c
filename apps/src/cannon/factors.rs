//! The two matrices to multiply: from a seed, or from files that the first rank reads.

use std::path::PathBuf;

use hydrant::{Job, Rank, Result};

use crate::{
    input::InputError,
    matrix::Matrix,
    program::Failure,
    seed::Seed,
    shape::Mesh,
    together::{self, FIRST},
};

/// The source of the matrices.
pub(super) struct Factors {
    side: usize,
    source: FactorSource,
}

enum FactorSource {
    Seed([Seed; 2]),
    /// Only on the first rank.
    Files(Option<[Matrix; 2]>),
}

impl Factors {
    /// Matrices of small whole numbers.
    pub(super) fn from_seed(side: usize, seed: u64) -> Self {
        let source = FactorSource::Seed([0, 1].map(|stream| Seed::new(seed, stream)));
        Self { side, source }
    }

    /// Matrices from files; `side` if the user expects one. Collective.
    ///
    /// # Errors
    /// [`InputError`], and the errors of [`Job::broadcast`].
    pub(super) fn from_files(
        job: &Job,
        paths: &[PathBuf; 2],
        side: Option<usize>,
    ) -> Result<Self, Failure> {
        let matrices = together::on_first(job, || read(paths, side))?;
        let mut side = [matrices.as_ref().map_or(0, |[a, _]| a.side() as u64)];
        job.broadcast(FIRST, &mut side)?;
        Ok(Self {
            side: side[0] as usize,
            source: FactorSource::Files(matrices),
        })
    }

    /// Rows of the matrices.
    pub(super) fn side(&self) -> usize {
        self.side
    }

    /// The blocks of this home rank, of `block` rows. Collective.
    ///
    /// # Errors
    /// The errors of [`Job::scatter`].
    pub(super) fn blocks(&self, job: &Job, mesh: Mesh, block: usize) -> Result<[Matrix; 2]> {
        match &self.source {
            FactorSource::Seed(seeds) => {
                let (row, column) = corner(mesh, job.rank(), block);
                Ok(seeds.map(|seed| {
                    Matrix::from_fn(block, |below, right| {
                        self.element(seed, row + below, column + right)
                    })
                }))
            }
            FactorSource::Files(matrices) => {
                let mut blocks = [Matrix::zero(block), Matrix::zero(block)];
                for (index, mine) in blocks.iter_mut().enumerate() {
                    let all = matrices.as_ref().map(|matrices| {
                        (job.ranks())
                            .flat_map(|rank| {
                                let (row, column) = corner(mesh, rank, block);
                                matrices[index].block(row, column, block).into_elements()
                            })
                            .collect::<Vec<f64>>()
                    });
                    job.scatter(FIRST, all.as_deref(), mine.elements_mut())?;
                }
                Ok(blocks)
            }
        }
    }

    /// The whole matrices, on the first rank.
    pub(super) fn whole(self) -> [Matrix; 2] {
        match self.source {
            FactorSource::Seed(seeds) => seeds.map(|seed| {
                Matrix::from_fn(self.side, |row, column| self.element(seed, row, column))
            }),
            FactorSource::Files(matrices) => {
                matrices.unwrap_or_else(|| [Matrix::zero(0), Matrix::zero(0)])
            }
        }
    }

    /// Zero beyond the edges, where blocks may reach.
    fn element(&self, seed: Seed, row: usize, column: usize) -> f64 {
        if row < self.side && column < self.side {
            seed.small((row * self.side + column) as u64)
        } else {
            0.0
        }
    }
}

fn read(paths: &[PathBuf; 2], side: Option<usize>) -> Result<[Matrix; 2], InputError> {
    let [a, b] = paths;
    let matrices = [Matrix::read(a)?, Matrix::read(b)?];
    let other = |path: &PathBuf, found, wanted, by| InputError::OtherSize {
        path: path.clone(),
        what: "rows",
        found,
        wanted,
        by,
    };
    let [a_side, b_side] = [matrices[0].side(), matrices[1].side()];
    match side {
        Some(side) if side != a_side => Err(other(a, a_side, side, format!("--n {side}"))),
        _ if a_side != b_side => Err(other(b, b_side, a_side, a.display().to_string())),
        _ => Ok(matrices),
    }
}

/// Gathers the whole matrix from the blocks `mine` of all ranks, on the first rank. Collective.
///
/// # Errors
/// The errors of [`Job::gather`].
pub(super) fn gather(job: &Job, mesh: Mesh, mine: &Matrix, side: usize) -> Result<Matrix> {
    let block = mine.side();
    let Some(all) = job.gather(FIRST, mine.elements())? else {
        return Ok(Matrix::zero(0));
    };
    let mut whole = Matrix::zero(side);
    for (rank, elements) in job.ranks().zip(all.chunks(block * block)) {
        let (row, column) = corner(mesh, rank, block);
        whole.set_block(row, column, &Matrix::from_elements(block, elements));
    }
    Ok(whole)
}

/// The position of a rank's block.
fn corner(mesh: Mesh, rank: Rank, block: usize) -> (usize, usize) {
    let (row, column) = mesh.place(rank);
    (row * block, column * block)
}
