//! Cannon's matrix multiplication on a square mesh of ranks (Firehose §4.3).
//!
//! Each rank is home to one block of each matrix, multiplies locally, and moves blocks to other
//! ranks by puts. [`plan`] decides the moves, and [`Exchange`] makes them.

mod factors;
pub mod plan;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use hydrant::{Job, Result};
use serde::Serialize;

use crate::{
    exchange::{Exchange, Putting},
    input,
    matrix::{self, Matrix, WrongProduct},
    options::{Granularity, ResultArgs, Verify, positive},
    program::Failure,
    progress::ProgressDisplay,
    report::{self, PhaseTimer, Report, Rows},
    shape::Mesh,
    together,
};
use factors::Factors;

/// Multiply two square matrices with Cannon's algorithm, on a square number of ranks
#[derive(Debug, Parser)]
#[command(name = "cannon", version)]
pub struct CannonArgs {
    /// Rows of the matrices [default: 512, or as the files have]
    #[arg(long, value_name = "ROWS", value_parser = positive)]
    n: Option<usize>,

    /// Fill the matrices with whole numbers from -8 to 8 made of this
    #[arg(long, value_name = "SEED", default_value_t = 1, conflicts_with_all = ["a", "b"])]
    seed: u64,

    /// Read the left matrix: text with a line a row if the name ends in .txt, else raw
    /// little-endian f64
    #[arg(long, value_name = "FILE", requires = "b")]
    a: Option<PathBuf>,

    /// Read the right matrix
    #[arg(long, value_name = "FILE", requires = "a")]
    b: Option<PathBuf>,

    /// The rank that sums up the products
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = SumLocation::Remote)]
    accumulate: SumLocation,

    /// The elements in a put: a block, a row of one, or this many elements
    #[arg(long, visible_alias = "put-elements", value_name = "HOW", default_value_t = Granularity::Block)]
    put: Granularity,

    /// Rows of the tiles that the local multiplication keeps in the cache
    #[arg(long, value_name = "ROWS", default_value_t = matrix::TILE, value_parser = positive)]
    tile: usize,

    #[command(flatten)]
    result: ResultArgs,
}

/// The rank that sums up the products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SumLocation {
    /// On the rank that multiplies; A and B travel
    Local,
    /// On the rank that is home to the sum; B and the products travel
    Remote,
}

/// Multiplies with the user's options. Collective.
///
/// # Errors
/// [`Failure::Common`] if the number of ranks is no square, a file cannot be used, memory is
/// missing, or the product is wrong. Otherwise the error of the job.
pub fn run(job: &Job, options: CannonArgs) -> Result<(), Failure> {
    let mesh = Mesh::new(job.size()).map_err(Failure::common)?;
    let factors = match (&options.a, &options.b) {
        (Some(a), Some(b)) => Factors::from_files(job, &[a.clone(), b.clone()], options.n)?,
        _ => Factors::from_seed(options.n.unwrap_or(512), options.seed),
    };
    let side = factors.side();
    let block = side.div_ceil(mesh.side());
    let movers = Movers::new(job, mesh, block, &options)?;
    let home = factors.blocks(job, mesh, block)?;

    let units = mesh.side() * matrix::tiles(block, options.tile);
    let progress = ProgressDisplay::new(job, units);
    progress.phase("multiplying");
    let (mine, figures) = report::measure(job, |clock| {
        let mut machine = TimedSteps {
            clock,
            progress: &progress,
            tile: options.tile,
        };
        movers.multiply(&mut machine, mesh, home)
    })?;

    let verify = options.result.verify();
    progress.phase("checking");
    if verify != Verify::None || options.result.out.is_some() {
        let product = factors::gather(job, mesh, &mine, side)?;
        together::on_first(job, || check(factors, &product, verify, options.seed))?;
        if let Some(path) = &options.result.out {
            together::on_first(job, || input::write(path, product.elements(), side))?;
        }
    }
    drop(progress);

    let problem = ProductProblem {
        mesh: mesh.side(),
        n: side,
        block,
        accumulate: options.accumulate,
        put_elements: options.put.elements(block, block).min(block * block),
        gflops: 2e-9 * (side as f64).powi(3) / figures.seconds,
    };
    let report = Report {
        program: "cannon",
        ranks: job.size(),
        problem,
        verified: verify,
        figures,
    };
    together::on_first(job, || report.print(options.result.format))?;
    Ok(())
}

fn check(factors: Factors, product: &Matrix, how: Verify, seed: u64) -> Result<(), WrongProduct> {
    let [a, b] = match how {
        Verify::None => return Ok(()),
        Verify::Full | Verify::Quick => factors.whole(),
    };
    match how {
        Verify::Quick => matrix::quick(&a, &b, product, seed),
        _ => matrix::compare(&a, &b, product),
    }
}

/// The exchanges that move the blocks, in either variant.
enum Movers<'job> {
    Local {
        a: Exchange<'job, f64>,
        b: Exchange<'job, f64>,
    },
    Remote {
        b: Exchange<'job, f64>,
        products: Exchange<'job, f64>,
    },
}

impl<'job> Movers<'job> {
    /// Symmetric memory is allocated first, because every rank sees that failure.
    fn new(
        job: &'job Job,
        mesh: Mesh,
        block: usize,
        options: &CannonArgs,
    ) -> Result<Self, Failure> {
        let rank = job.rank();
        let elements = block.saturating_mul(block);
        let put = options.put.elements(block, block);
        let exchange =
            |plan| Exchange::new(job, plan, elements, put).map_err(Failure::of_allocation);
        Ok(match options.accumulate {
            SumLocation::Local => Self::Local {
                a: exchange(plan::a_moves(mesh, rank))?,
                b: exchange(plan::b_moves(mesh, rank))?,
            },
            SumLocation::Remote => Self::Remote {
                b: exchange(plan::b_moves_remote(mesh, rank))?,
                products: exchange(plan::product_moves(mesh, rank))?,
            },
        })
    }

    /// Turns this rank's blocks of A and B into its block of C. Returns the time spent in puts.
    fn multiply(
        self,
        machine: &mut TimedSteps<'_, '_>,
        mesh: Mesh,
        [mut left, mut right]: [Matrix; 2],
    ) -> Result<(Matrix, Putting)> {
        let mut sum = Matrix::zero(left.side());
        let last = mesh.side() - 1;
        match self {
            Self::Local { mut a, mut b } => {
                machine.send(&mut a, &left)?;
                machine.send(&mut b, &right)?;
                for step in 0..=last {
                    machine.receive(&mut a, &mut left)?;
                    machine.receive(&mut b, &mut right)?;
                    // The blocks travel while this rank multiplies.
                    if step < last {
                        machine.send(&mut a, &left)?;
                        machine.send(&mut b, &right)?;
                    }
                    machine.multiply_add(&mut sum, &left, &right);
                }
                let putting = a.putting() + b.putting();
                a.close()?;
                b.close()?;
                Ok((sum, putting))
            }
            Self::Remote {
                mut b,
                mut products,
            } => {
                let mut product = Matrix::zero(left.side());
                machine.send(&mut b, &right)?;
                for step in 0..=last {
                    machine.receive(&mut b, &mut right)?;
                    if step < last {
                        machine.send(&mut b, &right)?;
                    }
                    product.elements_mut().fill(0.0);
                    machine.multiply_add(&mut product, &left, &right);
                    machine.send(&mut products, &product)?;
                    machine.receive(&mut products, &mut product)?;
                    machine.add(&mut sum, &product);
                }
                let putting = b.putting() + products.putting();
                b.close()?;
                products.close()?;
                Ok((sum, putting))
            }
        }
    }
}

/// The steps of both variants, timed.
struct TimedSteps<'a, 'b> {
    clock: &'a mut PhaseTimer<'b>,
    progress: &'a ProgressDisplay,
    tile: usize,
}

impl TimedSteps<'_, '_> {
    fn send(&mut self, through: &mut Exchange<'_, f64>, block: &Matrix) -> Result<()> {
        self.clock.communicate(|| through.send(block.elements()))
    }

    fn receive(&mut self, through: &mut Exchange<'_, f64>, block: &mut Matrix) -> Result<()> {
        self.clock
            .communicate(|| through.receive(block.elements_mut()))
    }

    fn multiply_add(&mut self, sum: &mut Matrix, a: &Matrix, b: &Matrix) {
        let (side, tile, progress) = (a.side(), self.tile, self.progress);
        self.clock.compute(matrix::operations(side), || {
            let (a, b) = (a.elements(), b.elements());
            matrix::multiply_add(sum.elements_mut(), a, b, side, tile, || progress.advance(1));
        });
    }

    fn add(&mut self, sum: &mut Matrix, term: &Matrix) {
        let additions = sum.elements().len() as u64;
        self.clock.compute(additions, || {
            for (sum, term) in sum.elements_mut().iter_mut().zip(term.elements()) {
                *sum += term;
            }
        });
    }
}

#[derive(Debug, Serialize)]
struct ProductProblem {
    mesh: usize,
    n: usize,
    block: usize,
    accumulate: SumLocation,
    put_elements: usize,
    gflops: f64,
}

impl Rows for ProductProblem {
    fn rows(&self) -> Vec<(&'static str, String)> {
        let Self { mesh, n, block, .. } = self;
        let puts = match self.put_elements {
            all if all == block * block => "a block each".to_owned(),
            row if row == *block => "a row of a block each".to_owned(),
            1 => "an element each".to_owned(),
            some => format!("{some} elements each"),
        };
        let sums = match self.accumulate {
            SumLocation::Local => "accumulated locally",
            SumLocation::Remote => "accumulated on remote ranks",
        };
        vec![
            ("matrices", format!("{n} x {n}")),
            (
                "mesh",
                format!("{mesh} x {mesh}, blocks of {block} x {block}"),
            ),
            ("products", sums.to_owned()),
            ("puts carry", puts),
        ]
    }

    fn rate(&self) -> String {
        report::digits(self.gflops, "GFLOP/s")
    }

    fn passed(&self, check: Verify) -> &'static str {
        match check {
            Verify::Full => "every element is that of the serial product",
            Verify::Quick => "passed Freivalds' check, 16 rounds",
            Verify::None => "not checked",
        }
    }
}
