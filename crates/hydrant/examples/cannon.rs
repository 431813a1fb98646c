//! Cannon's product of matrices: blocks lie on a square mesh of ranks. Each rank multiplies its two
//! blocks, then those of A go one rank to the left, and those of B one rank up.
//!
//! `hydrant run -n 4 target/release/examples/cannon [ROWS]`

use hydrant::{Error, Job, Op, Rank, Result};

/// Elements of the factors.
fn a(row: usize, column: usize) -> f64 {
    ((row * 7 + column * 3) % 11) as f64 - 5.0
}

fn b(row: usize, column: usize) -> f64 {
    ((row * 5 + column * 2) % 13) as f64 - 6.0
}

/// A block of a matrix, row by row.
fn block(rows: usize, columns: usize, element: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..rows * columns)
        .map(|at| element(at / columns, at % columns))
        .collect()
}

/// `c` += `left` × `right`: of so many rows, terms and columns.
fn multiply(c: &mut [f64], left: &[f64], right: &[f64], terms: usize, columns: usize) {
    for (row, left) in c.chunks_exact_mut(columns).zip(left.chunks_exact(terms)) {
        for (factor, right) in left.iter().zip(right.chunks_exact(columns)) {
            for (sum, element) in row.iter_mut().zip(right) {
                *sum += factor * element;
            }
        }
    }
}

/// Sends this block to one rank, and replaces it by the block of another.
fn shift(
    job: &Job,
    block: &mut Vec<f64>,
    other: &mut Vec<f64>,
    to: Rank,
    from: Rank,
) -> Result<()> {
    if to != job.rank() {
        job.send_receive((to, 0, &block[..]), (from, 0, &mut other[..]))?;
        std::mem::swap(block, other);
    }
    Ok(())
}

/// Multiplies matrices of about `size` rows and columns: the sum of this rank's elements of the
/// product, each checked against rows and columns multiplied here alone; and the seconds that took.
pub(crate) fn cannon(job: &Job, size: usize) -> Result<(f64, f64)> {
    let ranks = job.size() as usize;
    let mesh = ranks.isqrt();
    if mesh * mesh != ranks {
        return Err(Error::other("the number of ranks is no square"));
    }
    let (row, column) = (job.rank().index() / mesh, job.rank().index() % mesh);
    // The rank so far down and to the right, around the edges.
    let at = |down: usize, right: usize| {
        Rank(((row + down) % mesh * mesh + (column + right) % mesh) as u32)
    };
    let side = size.div_ceil(mesh);
    let (size, top, left) = (side * mesh, row * side, column * side);
    let mut own_a = block(side, side, |row, column| a(top + row, left + column));
    let mut own_b = block(side, side, |row, column| b(top + row, left + column));
    let (mut other, mut c) = (vec![0.0; side * side], vec![0.0; side * side]);

    job.barrier()?;
    let start = job.now();
    // Row i of A goes i ranks to the left, and column j of B goes j ranks up.
    shift(job, &mut own_a, &mut other, at(0, mesh - row), at(0, row))?;
    shift(
        job,
        &mut own_b,
        &mut other,
        at(mesh - column, 0),
        at(column, 0),
    )?;
    for step in 0..mesh {
        multiply(&mut c, &own_a, &own_b, side, side);
        if step + 1 < mesh {
            shift(job, &mut own_a, &mut other, at(0, mesh - 1), at(0, 1))?;
            shift(job, &mut own_b, &mut other, at(mesh - 1, 0), at(1, 0))?;
        }
    }
    let seconds = (job.now() - start).as_secs_f64();

    // All are whole numbers, so that no order of the terms changes a sum.
    let serial_left = block(side, size, |row, term| a(top + row, term));
    let serial_right = block(size, side, |term, column| b(term, left + column));
    let mut serial = vec![0.0; side * side];
    multiply(&mut serial, &serial_left, &serial_right, size, side);
    if let Some(at) = (0..c.len()).find(|at| c[*at] != serial[*at]) {
        let (row, column) = (top + at / side, left + at % side);
        return Err(Error::other(format!(
            "element {row}, {column} is {}, not {}",
            c[at], serial[at]
        )));
    }
    Ok((c.iter().sum(), seconds))
}

#[allow(dead_code)] // tests call what it calls
fn main() -> Result<()> {
    let size = std::env::args()
        .nth(1)
        .map_or(512, |size| size.parse().expect("a number"));
    hydrant::run_spmd(|job| {
        let (sum, seconds) = cannon(job, size)?;
        let (mut sum, mut seconds) = ([sum], [seconds]);
        job.all_reduce(&mut sum, Op::Sum)?;
        job.all_reduce(&mut seconds, Op::Max)?;
        if job.rank() == Rank(0) {
            println!(
                "cannon: elements sum up to {} in {:.6} s",
                sum[0], seconds[0]
            );
        }
        Ok(())
    })
}
