//! The cost of registration, measured on this machine.

use std::time::{Duration, Instant};

use crate::{Cost, Error, memory::PAGE};

/// The numbers of pages to try, and the number of tries of each.
const PAGES: [usize; 4] = [1, 16, 64, 256];
const TIMES: usize = 7;
/// The bytes of one copy: about as many as are ever copied instead of being registered. A longer
/// copy may use other instructions, whose rate differs on some processors and emulators.
const COPIED: usize = 64 << 10;

/// Measures the costs of registering and deregistering, and fits a line to each.
///
/// `once` registers and deregisters this many bytes at an address, and returns the time of each.
///
/// # Errors
/// The error of `once` for a single page. If more pages may not be registered, the line goes
/// through the measured points.
pub fn registration_costs(
    mut once: impl FnMut(*mut u8, usize) -> Result<[Duration; 2], Error>,
) -> Result<[Cost; 2], Error> {
    let most = PAGES[PAGES.len() - 1] * PAGE;
    let mut scratch = vec![1_u8; most + PAGE];
    let start = scratch.as_mut_ptr();
    let start = start.wrapping_add(start.align_offset(PAGE));
    let mut points = [Vec::new(), Vec::new()];
    'sizes: for pages in PAGES {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..TIMES {
            let took = match once(start, pages * PAGE) {
                Ok(took) => took,
                // This many pages may not be registered, but fewer may.
                Err(_) if pages > PAGES[0] => break 'sizes,
                Err(cause) => return Err(cause),
            };
            for (times, took) in times.iter_mut().zip(took) {
                times.push(took.as_nanos() as f64);
            }
        }
        for (points, times) in points.iter_mut().zip(&mut times) {
            times.sort_unstable_by(f64::total_cmp);
            points.push((pages as f64, times[times.len() / 2]));
        }
    }
    Ok(points.map(|points| fit(&points)))
}

/// Returns the cost of copying a byte, in nanoseconds.
pub fn copy_cost() -> f64 {
    let (from, mut to) = (vec![1_u8; 1 << 20], vec![0_u8; 1 << 20]);
    let mut best = f64::INFINITY;
    for _ in 0..4 {
        let since = Instant::now();
        for (from, to) in from.chunks(COPIED).zip(to.chunks_mut(COPIED)) {
            to.copy_from_slice(std::hint::black_box(from));
        }
        std::hint::black_box(&mut to);
        best = best.min(since.elapsed().as_nanos() as f64);
    }
    best / (1 << 20) as f64
}

/// Fits a line to points, each weighted by its relative error, because most registrations have few
/// pages.
pub fn fit(points: &[(f64, f64)]) -> Cost {
    let [mut w, mut x, mut y, mut xx, mut xy] = [0.0; 5];
    for (pages, time) in points {
        let weight = 1.0 / time.max(1.0).powi(2);
        w += weight;
        x += weight * pages;
        y += weight * time;
        xx += weight * pages * pages;
        xy += weight * pages * time;
    }
    let slope = ((w * xy - x * y) / (w * xx - x * x)).max(0.0);
    Cost {
        per_op_ns: ((y - slope * x) / w).max(0.0),
        per_page_ns: slope,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_may_not_be_registered_are_left_out() {
        let refused = || Error::Unreachable("too much".to_owned());
        let costs = registration_costs(|_, len| {
            let time = Duration::from_nanos(500 + 10 * (len / PAGE) as u64);
            (len <= 16 * PAGE).then_some([time; 2]).ok_or_else(refused)
        });
        let [register, _] = costs.unwrap();
        assert!((register.per_op_ns - 500.0).abs() < 1e-6, "{register:?}");
        let costs = registration_costs(|_, len| {
            let time = Duration::from_nanos(700);
            (len <= PAGE).then_some([time; 2]).ok_or_else(refused)
        });
        let [register, _] = costs.unwrap();
        assert_eq!((register.per_op_ns, register.per_page_ns), (700.0, 0.0));
        assert!(registration_costs(|_, _| Err(refused())).is_err());
    }

    #[test]
    fn a_line_through_exact_points_is_recovered() {
        let points = PAGES.map(|pages| (pages as f64, 40_000.0 + 180.0 * pages as f64));
        let cost = fit(&points);
        assert!((cost.per_op_ns - 40_000.0).abs() < 1.0, "{cost:?}");
        assert!((cost.per_page_ns - 180.0).abs() < 0.1, "{cost:?}");
    }

    #[test]
    fn every_size_is_tried() {
        let mut bytes = Vec::new();
        let costs = registration_costs(|addr, len| {
            assert_eq!(addr.align_offset(PAGE), 0);
            bytes.push(len);
            Ok([
                Duration::from_nanos(100 + len as u64 / 4096),
                Duration::ZERO,
            ])
        });
        let [register, deregister] = costs.unwrap();
        assert!((register.per_page_ns - 1.0).abs() < 1e-6, "{register:?}");
        assert_eq!(deregister.per_page_ns, 0.0);
        assert_eq!(bytes.len(), PAGES.len() * TIMES);
    }
}
