//! The results of a replay, for readers and for programs.

use std::time::Duration;

use serde::Serialize;

use super::rank::Played;
use hydrant_report::{
    table::{Align, Table},
    units,
};

/// A rank's figures, or those of all ranks together.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ReplayRow {
    pub(crate) strategy: String,
    pub(crate) conduit: String,
    pub(crate) trace: String,
    /// None for all ranks together.
    pub(crate) rank: Option<u32>,
    /// The longest time of the ranks.
    pub(crate) run_ns: u64,
    /// The mean of the ranks.
    pub(crate) communication_ns: u64,
    /// The largest of the ranks: the limit is on each of them.
    pub(crate) peak_bytes: u64,
    /// The mean of the ranks, over time.
    pub(crate) mean_bytes: u64,
    /// Registrations and deregistrations that an operation waited for, or that made room for one.
    pub(crate) on_path: u64,
    /// Registrations by the helper, beside the application.
    pub(crate) off_path: u64,
    pub(crate) deregistrations: u64,
    /// Uses that found their buffer registered.
    pub(crate) hits: u64,
    /// Uses that were expected but came before the helper was ready.
    pub(crate) late: u64,
    /// Registrations of the helper that were not used in time.
    pub(crate) early: u64,
    /// Uses that the helper never heard of.
    pub(crate) overwritten: u64,
    /// Predictions with an error up to 0.5 %, 1 %, 5 %, 20 % of the period, and above.
    pub(crate) errors: [u64; 5],
    /// Messages whose data was checked.
    pub(crate) checked: u64,
}

impl ReplayRow {
    /// The row of a rank.
    pub(crate) fn of(rank: u32, played: &Played) -> Self {
        let foresight = played.foresight.unwrap_or_default();
        let (registration, page) = (played.registration.unwrap_or_default(), 4096);
        let off_path = foresight.registered_ahead.saturating_sub(foresight.failed);
        let ns = |it: Duration| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX);
        let peak = played.series.iter().map(|it| it.1).max();
        Self {
            rank: Some(rank),
            run_ns: ns(played.took),
            communication_ns: ns(played.communicating),
            peak_bytes: peak.unwrap_or(registration.local.peak * page),
            mean_bytes: mean(&played.series, played.took),
            on_path: registration.local.registrations.saturating_sub(off_path),
            off_path,
            deregistrations: registration.local.deregistrations,
            hits: match played.foresight {
                Some(foresight) => foresight.found,
                None => played.counters.hits + registration.served_from_cache,
            },
            late: foresight.late,
            early: foresight.early,
            overwritten: foresight.overwritten,
            errors: foresight.errors,
            checked: played.checked,
            ..Self::default()
        }
    }

    /// All ranks together.
    pub(crate) fn together(rows: &[ReplayRow]) -> Self {
        let count = rows.len().max(1) as u64;
        let sum = |of: fn(&ReplayRow) -> u64| rows.iter().map(of).sum::<u64>();
        let most = |of: fn(&ReplayRow) -> u64| rows.iter().map(of).max().unwrap_or(0);
        Self {
            run_ns: most(|it| it.run_ns),
            communication_ns: sum(|it| it.communication_ns) / count,
            peak_bytes: most(|it| it.peak_bytes),
            mean_bytes: sum(|it| it.mean_bytes) / count,
            on_path: sum(|it| it.on_path),
            off_path: sum(|it| it.off_path),
            deregistrations: sum(|it| it.deregistrations),
            hits: sum(|it| it.hits),
            late: sum(|it| it.late),
            early: sum(|it| it.early),
            overwritten: sum(|it| it.overwritten),
            errors: std::array::from_fn(|at| rows.iter().map(|it| it.errors[at]).sum()),
            checked: sum(|it| it.checked),
            ..Self::default()
        }
    }
}

/// The mean of a series, over time.
pub(crate) fn mean(series: &[(Duration, u64)], took: Duration) -> u64 {
    let (mut area, mut last) = (0_u128, (Duration::ZERO, 0_u64));
    for point in series.iter().copied().chain([(took, 0)]) {
        let at = point.0.clamp(last.0, took);
        area += u128::from(last.1) * (at - last.0).as_nanos();
        last = (at, point.1);
    }
    u64::try_from(area / took.as_nanos().max(1)).unwrap_or(u64::MAX)
}

/// The rows for a reader: each strategy's ranks together.
pub(super) fn table(rows: &[ReplayRow]) -> Table {
    use Align::{Left, Right};
    let title = rows.first().map_or(String::new(), |row| {
        format!(
            "{} on {}: peak of the largest rank, the rest of all ranks",
            row.trace, row.conduit
        )
    });
    let columns = [
        ("registration", Left),
        ("run", Right),
        ("communication", Right),
        ("peak", Right),
        ("mean", Right),
        ("on path", Right),
        ("off path", Right),
        ("given up", Right),
        ("hits", Right),
        ("late", Right),
        ("early", Right),
        ("within 0.5 %", Right),
        ("within 5 %", Right),
    ];
    let mut table = Table::new(title, &columns);
    for row in rows {
        let all: u64 = row.errors.iter().sum();
        let share = |upto: usize| match all {
            0 => String::new(),
            all => {
                let within: u64 = row.errors[..upto].iter().sum();
                format!("{:.1} %", within as f64 * 100.0 / all as f64)
            }
        };
        table.row([
            row.strategy.clone(),
            units::nanos(row.run_ns as f64),
            units::nanos(row.communication_ns as f64),
            units::bytes(row.peak_bytes as f64),
            units::bytes(row.mean_bytes as f64),
            row.on_path.to_string(),
            row.off_path.to_string(),
            row.deregistrations.to_string(),
            row.hits.to_string(),
            row.late.to_string(),
            row.early.to_string(),
            share(1),
            share(3),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_over_time() {
        let at = Duration::from_micros;
        assert_eq!(mean(&[(at(2), 100), (at(4), 0)], at(10)), 20);
        assert_eq!(mean(&[(at(5), 100)], at(10)), 50);
        assert_eq!(mean(&[(at(5), 100), (at(50), 0)], at(10)), 50);
        assert_eq!(mean(&[], Duration::ZERO), 0);
    }
}
