//! An axis with chosen ticks: at powers on a logarithmic scale, at round numbers on a plain one.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// A logarithmic scale with ticks for any base, or a plain one.
#[derive(Clone, Debug)]
pub(super) struct TickAxis {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl TickAxis {
    /// Plain numbers from zero on, with a margin; four to ten ticks at round numbers.
    pub(super) fn plain(values: impl Iterator<Item = f64>) -> Self {
        let most = values.fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        let decade = 10f64.powf((most / 4.0).log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .map(|factor| factor * decade)
            .into_iter()
            .find(|step| most / step <= 9.0)
            .unwrap_or(10.0 * decade);
        let end = most * 1.05;
        TickAxis {
            ticks: (0..=(end / step) as u32)
                .map(|at| f64::from(at) * step)
                .collect(),
            range: 0.0..end,
        }
    }

    /// Nanoseconds, by powers of ten: whole decades that hold all values, one where there are none.
    pub(super) fn nanos(values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = span(values, f64::log10).unwrap_or((0.0, 1.0));
        let range = least.floor()..most.ceil().max(least.floor() + 1.0);
        TickAxis {
            ticks: whole(&range, 1),
            range,
        }
    }

    /// Bytes, by powers of two, with a margin; none where there are no values.
    pub(super) fn bytes(values: impl Iterator<Item = f64>) -> Option<Self> {
        let (least, most) = span(values, f64::log2)?;
        let range = least.floor()..most.ceil();
        let ticks = whole(&range, ((most - least) / 11.0).ceil() as usize);
        Some(TickAxis {
            ticks,
            range: range.start - 0.25..range.end + 0.25,
        })
    }
}

fn span(values: impl Iterator<Item = f64>, log: fn(f64) -> f64) -> Option<(f64, f64)> {
    let logs = values.filter(|value| *value > 0.0).map(log);
    logs.fold(None, |span, log| {
        let (least, most) = span.unwrap_or((log, log));
        Some((log.min(least), log.max(most)))
    })
}

fn whole(range: &Range<f64>, step: usize) -> Vec<f64> {
    (range.start as i64..=range.end as i64)
        .step_by(step.max(1))
        .map(|at| at as f64)
        .collect()
}

impl Ranged for TickAxis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let part = (value - self.range.start) / (self.range.end - self.range.start);
        from + (f64::from(to - from) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_hold_all_values() {
        let axis = TickAxis::nanos([3.1, 450.0].into_iter());
        assert_eq!(
            (axis.range(), axis.ticks),
            (0.0..3.0, vec![0.0, 1.0, 2.0, 3.0])
        );
        assert_eq!(TickAxis::nanos([100.0].into_iter()).range(), 2.0..3.0);
        assert_eq!(TickAxis::nanos([0.0].into_iter()).range(), 0.0..1.0);
    }

    #[test]
    fn sizes_get_at_most_a_dozen_ticks() {
        let axis = TickAxis::bytes([8.0, 4194304.0].into_iter()).unwrap();
        assert_eq!(
            axis.ticks,
            [3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0, 17.0, 19.0, 21.0]
        );
        assert!(TickAxis::bytes([].into_iter()).is_none());
    }

    #[test]
    fn plain_axes_have_round_ticks_from_zero() {
        let axis = TickAxis::plain([3.0, 47.0].into_iter());
        assert_eq!(axis.ticks[..3], [0.0, 10.0, 20.0]);
        assert!(axis.range.end > 47.0 && axis.ticks.len() <= 10);
        assert_eq!(TickAxis::plain([].into_iter()).range.start, 0.0);
    }

    #[test]
    fn values_map_onto_pixels() {
        let axis = TickAxis::nanos([1.0, 1000.0].into_iter());
        assert_eq!(
            [0.0, 1.5, 3.0].map(|value| axis.map(&value, (400, 100))),
            [400, 250, 100]
        );
    }
}
