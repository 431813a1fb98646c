//! The rivals' figures, in the rows of the same case and size.

use crate::measure::median;
use crate::row::{Goal, Other, Others, Row};

/// The time of a rival for an operation, in one turn.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    other: Other,
    bench: &'static str,
    /// The name of the case, as in the rows of that bench.
    case: String,
    bytes: Option<u64>,
    nanos: f64,
}

impl Sample {
    /// A line of the program in C: case, bytes, nanoseconds.
    pub(super) fn parse(other: Other, bench: &'static str, ranks: u32, line: &str) -> Option<Self> {
        let mut words = line.split('\t');
        let (case, bytes, nanos) = (words.next()?, words.next()?, words.next()?);
        let (bytes, nanos): (u64, f64) = (bytes.parse().ok()?, nanos.parse().ok()?);
        let is_right = words.next().is_none() && nanos.is_finite() && nanos > 0.0;
        is_right.then(|| Self {
            other,
            bench,
            case: match bench {
                "barrier" => format!("{case}, {ranks} ranks"),
                _ => case.to_owned(),
            },
            bytes: (bytes > 0).then_some(bytes),
            nanos,
        })
    }

    fn is_of(&self, row: &Row) -> bool {
        // The rows of messages name the protocol, too.
        let case = match self.bench {
            "messages" => row.case.split(", ").next().unwrap_or_default(),
            _ => &row.case,
        };
        self.bench == row.bench && self.case == case && self.bytes == row.bytes
    }

    /// The figure in the unit of a row.
    fn figure(&self, row: &Row) -> f64 {
        match (row.unit.as_str(), self.case.as_str()) {
            ("MB/s", _) => row.bytes.unwrap_or(0) as f64 / (self.nanos / 1e9) / 1e6,
            // The program times both directions.
            (_, "ping-pong") => self.nanos / 2.0,
            _ => self.nanos,
        }
    }
}

/// Merges the rows of several turns into one. The rivals' figures become the goal.
pub(crate) fn set(rows: &mut Vec<Row>, samples: &[Sample]) {
    let turns = std::mem::take(rows);
    for row in &turns {
        let is_same = |other: &&Row| {
            (&other.bench, &other.case, other.bytes) == (&row.bench, &row.case, row.bytes)
        };
        if rows.iter().any(|row| is_same(&row)) {
            continue;
        }
        let all = |figure: fn(&Row) -> Option<f64>| {
            let mut figures: Vec<f64> = turns.iter().filter(is_same).filter_map(figure).collect();
            (!figures.is_empty()).then(|| median(&mut figures))
        };
        let ours = all(|row| Some(row.median)).unwrap_or(row.median);
        let mut one = Row::new(&row.bench, &row.case, &row.unit, ours);
        one.bytes = row.bytes;
        if let Some(reference) = all(|row| row.reference) {
            one = one.against(reference);
        }
        let of = |other| {
            let of = samples
                .iter()
                .filter(|sample| sample.other == other && sample.is_of(row));
            let mut figures: Vec<f64> = of.map(|sample| sample.figure(row)).collect();
            (!figures.is_empty()).then(|| median(&mut figures))
        };
        let others = Others {
            mpich: of(Other::Mpich),
            open_mpi: of(Other::OpenMpi),
        };
        one.others = others;
        let best = others.best(&one.unit);
        rows.push(one.goal_if(best.map(Goal::Ahead)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(other: Other, bench: &'static str, line: &str) -> Sample {
        Sample::parse(other, bench, 4, line).unwrap()
    }

    #[test]
    fn lines_that_are_no_figures_are_refused() {
        let parse = |line| Sample::parse(Other::Mpich, "collectives", 2, line);
        assert!(parse("broadcast\t8\t12.5").is_some());
        for line in [
            "",
            "broadcast",
            "broadcast\t8",
            "broadcast\t8\tfast",
            "broadcast\t8\tnan",
        ] {
            assert_eq!(parse(line), None, "{line:?}");
        }
        assert_eq!(parse("broadcast\t8\t12.5\t3"), None);
        assert_eq!(parse("broadcast\t8\t0"), None);
    }

    #[test]
    fn turns_become_one_row_with_the_medians_of_all_sides() {
        let row = |median, bare| {
            Row::new("collectives", "reduce", "ns", median)
                .bytes(8)
                .against(bare)
        };
        let other = Row::new("collectives", "gather", "ns", 5.0).bytes(8);
        let mut rows = vec![row(9.0, 2.0), other, row(4.0, 1.0), row(5.0, 8.0)];
        let samples = [
            sample(Other::Mpich, "collectives", "reduce\t8\t7"),
            sample(Other::Mpich, "collectives", "reduce\t8\t9"),
            sample(Other::OpenMpi, "collectives", "reduce\t8\t6"),
            sample(Other::OpenMpi, "collectives", "reduce\t64\t1"),
        ];
        set(&mut rows, &samples);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].median, rows[0].ratio), (5.0, Some(2.5)));
        let others = rows[0].others;
        assert_eq!((others.mpich, others.open_mpi), (Some(8.0), Some(6.0)));
        assert_eq!(rows[0].met, Some(true));
        assert_eq!((rows[1].others, rows[1].met), (Others::default(), None));
    }

    #[test]
    fn barriers_are_told_apart_by_their_ranks_and_rates_are_made_of_times() {
        let mut rows = vec![
            Row::new("barrier", "barrier, 4 ranks", "ns", 3.0),
            Row::new("barrier", "barrier, 8 ranks", "ns", 3.0),
            Row::new("messages", "ping-pong, auto", "ns", 3.0).bytes(1000),
            Row::new("messages", "stream, auto", "MB/s", 900.0).bytes(1000),
        ];
        let samples = [
            sample(Other::Mpich, "barrier", "barrier\t0\t2"),
            sample(Other::Mpich, "messages", "ping-pong\t1000\t8"),
            sample(Other::OpenMpi, "messages", "stream\t1000\t1000"),
        ];
        set(&mut rows, &samples);
        let judged: Vec<Option<bool>> = rows.iter().map(|row| row.met).collect();
        assert_eq!(judged, [Some(false), None, Some(true), Some(false)]);
        assert_eq!(rows[2].others.mpich, Some(4.0));
        assert_eq!(rows[3].others.open_mpi, Some(1000.0));
    }
}
