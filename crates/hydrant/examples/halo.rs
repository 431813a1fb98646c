//! A stencil with halo exchange: heat spreads over a square plate, whose tiles the ranks have.
//!
//! Each rank computes on its tile as on a slice, ghost cells included, while nobody reaches it
//! ([`Job::exclusive`]). Then it shares the tile and puts its edges into the ghost cells of its
//! neighbours: rows as they lie, columns as sections.
//!
//! `hydrant run -n 4 target/release/examples/halo [CELLS [STEPS]]`

use hydrant::{Error, Job, Op, Rank, Result, Section};

/// The plate has its heat at one corner at first.
fn initial(row: usize, column: usize) -> f64 {
    if row < 3 && column < 5 { 100.0 } else { 0.0 }
}

/// What becomes of a cell, of itself and its four neighbours.
fn spread(cell: f64, north: f64, south: f64, west: f64, east: f64) -> f64 {
    cell + 0.2 * (north + south + west + east - 4.0 * cell)
}

/// The ranks as a grid, as square as can be.
fn grid(ranks: usize) -> (usize, usize) {
    let fits = |up: &usize| up * up <= ranks && ranks.is_multiple_of(*up);
    let up = (1..=ranks).rev().find(fits).unwrap_or(1);
    (up, ranks / up)
}

/// Which of `cells` the part `part` of `parts` has.
fn part(cells: usize, parts: usize, part: usize) -> std::ops::Range<usize> {
    cells * part / parts..cells * (part + 1) / parts
}

/// Lets heat spread over `cells` × `cells` for so many steps: the heat in the own tile, checked
/// against all cells computed here alone; and the seconds that the steps took.
pub(crate) fn halo(job: &Job, cells: usize, steps: usize) -> Result<(f64, f64)> {
    let (up, across) = grid(job.size() as usize);
    let (row, column) = (job.rank().index() / across, job.rank().index() % across);
    let (rows, columns) = (part(cells, up, row), part(cells, across, column));
    let (height, width) = (rows.len(), columns.len());
    // Alike at every rank: tiles differ by a row or column where the cells do not come out even.
    let stride = cells.div_ceil(across) + 2;
    let mut tile = job.alloc::<f64>((cells.div_ceil(up) + 2) * stride)?;
    let shape = [height + 2, stride];

    let mut next = vec![0.0; tile.len()];
    for (inner, there) in rows.clone().enumerate() {
        for (within, across) in columns.clone().enumerate() {
            next[(inner + 1) * stride + within + 1] = initial(there, across);
        }
    }
    let at = |up_by: isize, across_by: isize| {
        let (row, column) = (
            row.checked_add_signed(up_by)?,
            column.checked_add_signed(across_by)?,
        );
        (row < up && column < across).then(|| (Rank((row * across + column) as u32), (row, column)))
    };
    let start = job.now();
    for _ in 0..steps {
        // The edges go into the neighbours' ghost cells. At the rim of the plate these stay cold.
        if let Some((north, there)) = at(-1, 0) {
            let below = part(cells, up, there.0).len() + 1;
            tile.put(north, below * stride + 1, &next[stride + 1..][..width])?;
        }
        if let Some((south, _)) = at(1, 0) {
            tile.put(south, 1, &next[height * stride + 1..][..width])?;
        }
        if let Some((west, there)) = at(0, -1) {
            let beside = part(cells, across, there.1).len() + 1;
            let ghosts = Section::of(&shape, &[1..height + 1, beside..beside + 1])?;
            tile.put_section(
                west,
                &ghosts,
                &next,
                &Section::of(&shape, &[1..height + 1, 1..2])?,
            )?;
        }
        if let Some((east, _)) = at(0, 1) {
            let ghosts = Section::of(&shape, &[1..height + 1, 0..1])?;
            let edge = Section::of(&shape, &[1..height + 1, width..width + 1])?;
            tile.put_section(east, &ghosts, &next, &edge)?;
        }
        // From here on the tile is a slice, and all ghost cells have arrived.
        let mut own = job.exclusive(tile)?;
        for row in 1..=height {
            let line = row * stride + 1..row * stride + 1 + width;
            own[line.clone()].copy_from_slice(&next[line]);
        }
        for row in 1..=height {
            for cell in row * stride + 1..row * stride + 1 + width {
                let (north, south) = (own[cell - stride], own[cell + stride]);
                next[cell] = spread(own[cell], north, south, own[cell - 1], own[cell + 1]);
            }
        }
        tile = job.share(own)?;
    }
    let seconds = (job.now() - start).as_secs_f64();

    let serial = serially(cells, steps);
    let mut heat = 0.0;
    for (inner, there) in rows.enumerate() {
        for (within, across) in columns.clone().enumerate() {
            let cell = next[(inner + 1) * stride + within + 1];
            heat += cell;
            if cell != serial[there * cells + across] {
                return Err(Error::other(format!("cell {there}, {across} is {cell}")));
            }
        }
    }
    job.free(tile)?;
    Ok((heat, seconds))
}

/// The same by one rank.
fn serially(cells: usize, steps: usize) -> Vec<f64> {
    let mut plate: Vec<f64> = (0..cells * cells)
        .map(|cell| initial(cell / cells, cell % cells))
        .collect();
    for _ in 0..steps {
        let cell = |row: usize, column: usize| match row < cells && column < cells {
            true => plate[row * cells + column],
            false => 0.0,
        };
        let after = (0..cells * cells).map(|at| {
            let (row, column) = (at / cells, at % cells);
            let (north, south) = (cell(row.wrapping_sub(1), column), cell(row + 1, column));
            let (west, east) = (cell(row, column.wrapping_sub(1)), cell(row, column + 1));
            spread(cell(row, column), north, south, west, east)
        });
        plate = after.collect();
    }
    plate
}

#[allow(dead_code)] // tests call what it calls
fn main() -> Result<()> {
    let mut sizes = std::env::args()
        .skip(1)
        .map(|size| size.parse().expect("a number"));
    let (cells, steps) = (sizes.next().unwrap_or(512), sizes.next().unwrap_or(200));
    hydrant::run_spmd(|job| {
        let (heat, seconds) = halo(job, cells, steps)?;
        let (mut heat, mut seconds) = ([heat], [seconds]);
        job.all_reduce(&mut heat, Op::Sum)?;
        job.all_reduce(&mut seconds, Op::Max)?;
        if job.rank() == Rank(0) {
            println!("halo: {:.6} of heat in {:.6} s", heat[0], seconds[0]);
        }
        Ok(())
    })
}
