//! SUMMA: a product of matrices whose blocks lie on a grid of ranks. In each step the owners of a
//! panel of columns of A broadcast it along their rows of the grid, those of a panel of rows of B
//! along their columns, and everybody multiplies the two.
//!
//! `hydrant run -n 4 target/release/examples/summa [ROWS]`

use hydrant::{Error, Job, Op, Rank, Result, TeamRank};

/// Elements of the factors.
fn a(row: usize, column: usize) -> f64 {
    ((row * 7 + column * 3) % 11) as f64 - 5.0
}

fn b(row: usize, column: usize) -> f64 {
    ((row * 5 + column * 2) % 13) as f64 - 6.0
}

/// The ranks as a grid, as square as can be.
fn grid(ranks: usize) -> (usize, usize) {
    let fits = |up: &usize| up * up <= ranks && ranks.is_multiple_of(*up);
    let up = (1..=ranks).rev().find(fits).unwrap_or(1);
    (up, ranks / up)
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

/// Multiplies matrices of about `size` rows and columns: the sum of this rank's elements of the
/// product, each checked against rows and columns multiplied here alone; and the seconds that took.
pub(crate) fn summa(job: &Job, size: usize) -> Result<(f64, f64)> {
    let (up, across) = grid(job.size() as usize);
    let (row, column) = (job.rank().index() / across, job.rank().index() % across);
    // Panels do not cross blocks.
    let size = size.next_multiple_of(up * across);
    let (height, width, panel) = (size / up, size / across, size / (up * across));
    let (top, left) = (row * height, column * width);
    let own_a = block(height, width, |row, column| a(top + row, left + column));
    let own_b = block(height, width, |row, column| b(top + row, left + column));
    let mut c = vec![0.0; height * width];

    let team = |color: usize, key: usize| {
        let team = job.world().split(Some(color as u32), key as u32)?;
        team.ok_or_else(|| Error::other("every rank gave a color"))
    };
    let (row_team, column_team) = (team(row, column)?, team(column, row)?);
    let mut columns = block(height, panel, |_, _| 0.0);
    let mut rows = block(panel, width, |_, _| 0.0);
    job.barrier()?;
    let start = job.now();
    for step in 0..up * across {
        let first = step * panel;
        let (owner, own) = (first / width, first % width);
        if owner == column {
            let own_rows = own_a.chunks_exact(width);
            for (line, own_row) in columns.chunks_exact_mut(panel).zip(own_rows) {
                line.copy_from_slice(&own_row[own..][..panel]);
            }
        }
        row_team.broadcast(TeamRank(owner as u32), &mut columns)?;
        let (owner, own) = (first / height, first % height);
        if owner == row {
            rows.copy_from_slice(&own_b[own * width..][..panel * width]);
        }
        column_team.broadcast(TeamRank(owner as u32), &mut rows)?;
        multiply(&mut c, &columns, &rows, panel, width);
    }
    let seconds = (job.now() - start).as_secs_f64();

    // All are whole numbers, so that no order of the terms changes a sum.
    let serial_left = block(height, size, |row, term| a(top + row, term));
    let serial_right = block(size, width, |term, column| b(term, left + column));
    let mut serial = vec![0.0; height * width];
    multiply(&mut serial, &serial_left, &serial_right, size, width);
    if let Some(at) = (0..c.len()).find(|at| c[*at] != serial[*at]) {
        let (row, column) = (top + at / width, left + at % width);
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
        let (sum, seconds) = summa(job, size)?;
        let (mut sum, mut seconds) = ([sum], [seconds]);
        job.all_reduce(&mut sum, Op::Sum)?;
        job.all_reduce(&mut seconds, Op::Max)?;
        if job.rank() == Rank(0) {
            println!(
                "summa: elements sum up to {} in {:.6} s",
                sum[0], seconds[0]
            );
        }
        Ok(())
    })
}
