//! One measured row: the result that every benchmark prints, as JSON or in a table.

use serde::{Deserialize, Serialize};

use crate::place::JobPlace;
use crate::timing::Spread;

/// The ending of names of benches whose `bytes` are those of the working set.
pub(crate) const WORKING_SET: &str = "over a working set";

/// A measurement and its reference; every benchmark of Hydrant keeps this shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The benchmark: `rma`, `am`, …
    pub(crate) bench: String,
    /// The operation that was measured.
    pub(crate) case: String,
    /// The bytes that one operation moves, if any.
    pub(crate) bytes: Option<u64>,
    /// The unit of `median` and `reference`.
    pub(crate) unit: String,
    /// The median over the repetitions.
    pub(crate) median: f64,
    /// The median of the bare reference, from the same run.
    pub(crate) reference: Option<f64>,
    /// `median / reference`.
    pub(crate) ratio: Option<f64>,
    /// The goal, in words.
    pub(crate) goal: Option<String>,
    /// True if this run reached the goal.
    pub(crate) met: Option<bool>,
    /// The rivals' medians, measured in turns with Hydrant. Their keys are present only if they
    /// were measured.
    #[serde(flatten)]
    pub(crate) others: Others,
    /// The spread of the samples, between hosts.
    #[serde(flatten)]
    pub(crate) spread: Option<Spread>,
    /// The place of the job, between hosts.
    #[serde(flatten)]
    pub(crate) place: Option<JobPlace>,
}

/// A rival that users might choose instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    Mpich,
    OpenMpi,
}

impl Other {
    pub(crate) const ALL: [Self; 2] = [Self::Mpich, Self::OpenMpi];

    /// The name that the rival gives itself.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mpich => "MPICH",
            Self::OpenMpi => "Open MPI",
        }
    }
}

/// The rivals' medians, in the unit of the row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Others {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mpich: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) open_mpi: Option<f64>,
}

impl Others {
    /// The median of one rival.
    pub(crate) fn of(self, other: Other) -> Option<f64> {
        match other {
            Other::Mpich => self.mpich,
            Other::OpenMpi => self.open_mpi,
        }
    }

    /// The better of the two: the shorter time, or the higher rate.
    pub(crate) fn best(self, unit: &str) -> Option<Ahead> {
        let figures = Other::ALL.into_iter().filter_map(|other| self.of(other));
        let is_rate = unit.ends_with("/s");
        let best = figures.reduce(if is_rate { f64::max } else { f64::min })?;
        Some(Ahead { best, is_rate })
    }
}

/// The rival's figure to beat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ahead {
    best: f64,
    is_rate: bool,
}

impl Row {
    /// A row in `unit` without reference or goal.
    pub(crate) fn new(bench: &str, case: impl Into<String>, unit: &str, median: f64) -> Self {
        Row {
            bench: bench.to_owned(),
            case: case.into(),
            bytes: None,
            unit: unit.to_owned(),
            median,
            reference: None,
            ratio: None,
            goal: None,
            met: None,
            others: Others::default(),
            spread: None,
            place: None,
        }
    }

    /// Sets the spread of the samples, if there is one.
    pub(crate) fn spread(mut self, spread: Option<Spread>) -> Self {
        self.spread = spread;
        self
    }

    /// Like [`Row::against`], if there is a reference.
    pub(crate) fn against_if(self, reference: Option<f64>) -> Self {
        match reference {
            Some(reference) => self.against(reference),
            None => self,
        }
    }

    /// Sets the bytes that one operation moves.
    pub(crate) fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Sets the bare reference.
    pub(crate) fn against(mut self, reference: f64) -> Self {
        self.reference = Some(reference);
        self.ratio = (reference > 0.0).then(|| self.median / reference);
        self
    }

    /// Sets the goal and judges it at once, so call it after [`Row::against`].
    pub(crate) fn goal(mut self, goal: Goal) -> Self {
        self.met = goal.met(self.median, self.reference);
        self.goal = Some(goal.words());
        self
    }

    /// Like [`Row::goal`], if there is a goal.
    pub(crate) fn goal_if(self, goal: Option<Goal>) -> Self {
        match goal {
            Some(goal) => self.goal(goal),
            None => self,
        }
    }
}

/// The goal of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// At most this many units above the reference.
    Within(f64, &'static str),
    /// At most this factor of the reference.
    AtMostTimes(f64),
    /// At least this factor of the reference.
    AtLeastTimes(f64),
    /// At most this much, whatever the reference.
    AtMost(f64, &'static str),
    /// Between the two, whatever the reference.
    Between(f64, f64),
    /// At most this factor of the reference. Also at most this much, where the reference itself is.
    AtMostTimesAnd(f64, f64, &'static str),
    /// Better than the rivals, whatever the reference.
    Ahead(Ahead),
}

impl Goal {
    fn words(self) -> String {
        match self {
            Goal::Within(extra, unit) => format!("within {extra} {unit} of bare"),
            Goal::AtMostTimes(times) => format!("≤ {times} × reference"),
            Goal::AtLeastTimes(times) => format!("≥ {times} × reference"),
            Goal::AtMost(most, unit) => format!("≤ {most} {unit}"),
            Goal::Between(least, most) => format!("{least} to {most}"),
            Goal::Ahead(_) => "ahead of MPI".to_owned(),
            Goal::AtMostTimesAnd(times, most, unit) => {
                format!("≤ {times} × reference, ≤ {most} {unit} where bare is")
            }
        }
    }

    /// `None` where the goal needs a reference and there is none.
    fn met(self, median: f64, reference: Option<f64>) -> Option<bool> {
        match self {
            Goal::Within(extra, _) => reference.map(|bare| median - bare <= extra),
            Goal::AtMostTimes(times) => reference.map(|bare| median <= times * bare),
            Goal::AtLeastTimes(times) => reference.map(|bare| median >= times * bare),
            Goal::AtMost(most, _) => Some(median <= most),
            Goal::Between(least, most) => Some((least..=most).contains(&median)),
            Goal::Ahead(Ahead { best, is_rate }) => Some(if is_rate {
                median > best
            } else {
                median < best
            }),
            Goal::AtMostTimesAnd(times, most, _) => {
                reference.map(|bare| median <= times * bare && (median <= most || bare > most))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::{Sampled, Timing};

    #[test]
    fn json_has_the_agreed_keys_in_order_and_null_where_none() {
        let row = Row::new("rma", "put", "ns", 3.5).bytes(8).against(3.0);
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(
            text,
            r#"{"bench":"rma","case":"put","bytes":8,"unit":"ns","median":3.5,"reference":3.0,"ratio":1.1666666666666667,"goal":null,"met":null}"#
        );
        assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), row);
    }

    #[test]
    fn spread_and_place_have_keys_beside_the_others() {
        let timing = Timing::new(vec![1.0, 2.0, 9.0], Sampled::Operation);
        let mut row = Row::new("rma", "put", "ns", 2.0).spread(timing.spread());
        row.place = Some(JobPlace::new("ofi".to_owned(), &[], &[], &[]));
        let text = serde_json::to_string(&row).unwrap();
        let keys = [
            r#""min":1.0"#,
            r#""p50":2.0"#,
            r#""p99":9.0"#,
            r#""sampled":"operation""#,
            r#""conduit":"ofi""#,
        ];
        assert!(keys.iter().all(|key| text.contains(key)), "{text}");
        assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), row);
    }

    #[test]
    fn goals_are_judged_against_the_reference_of_the_same_row() {
        let row = |median, reference, goal| {
            Row::new("b", "c", "ns", median)
                .against(reference)
                .goal(goal)
        };
        assert_eq!(row(5.0, 3.0, Goal::Within(2.0, "ns")).met, Some(true));
        assert_eq!(row(5.1, 3.0, Goal::Within(2.0, "ns")).met, Some(false));
        assert_eq!(row(98.0, 100.0, Goal::AtLeastTimes(0.98)).met, Some(true));
        assert_eq!(row(97.0, 100.0, Goal::AtLeastTimes(0.98)).met, Some(false));
        assert_eq!(row(130.0, 100.0, Goal::AtMostTimes(1.3)).met, Some(true));
        let both = Goal::AtMostTimesAnd(1.5, 500.0, "ns");
        assert_eq!(row(480.0, 330.0, both).met, Some(true));
        assert_eq!(
            row(520.0, 400.0, both).met,
            Some(false),
            "above 500 though bare is below"
        );
        assert_eq!(
            row(700.0, 600.0, both).met,
            Some(true),
            "bare does not allow 500"
        );
        assert_eq!(row(950.0, 600.0, both).met, Some(false));
        let share = |share| row(share, 1.0, Goal::Between(0.2, 0.3)).met;
        let judged = [0.19, 0.2, 0.3, 0.31].map(share);
        assert_eq!(judged, [Some(false), Some(true), Some(true), Some(false)]);
    }

    #[test]
    fn a_rival_is_the_goal_and_has_its_own_key() {
        let others = Others {
            mpich: Some(4.0),
            open_mpi: Some(6.0),
        };
        let met = |unit, median| {
            let row = Row::new("b", "c", unit, median);
            row.goal_if(others.best(unit).map(Goal::Ahead)).met
        };
        assert_eq!(
            [3.9, 4.0, 5.0].map(|median| met("ns", median)),
            [Some(true), Some(false), Some(false)]
        );
        assert_eq!(
            [5.0, 6.0, 6.1].map(|median| met("MB/s", median)),
            [Some(false), Some(false), Some(true)]
        );
        assert_eq!(Others::default().best("ns"), None);
        let mut row = Row::new("b", "c", "ns", 1.0);
        row.others.open_mpi = Some(2.5);
        let text = serde_json::to_string(&row).unwrap();
        assert!(text.ends_with(r#""met":null,"open_mpi":2.5}"#), "{text}");
        assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), row);
    }

    #[test]
    fn a_goal_without_its_reference_is_not_judged() {
        let row = Row::new("b", "c", "ns", 1.0).goal(Goal::AtMostTimes(2.0));
        assert_eq!(row.met, None);
        assert_eq!(
            Row::new("b", "c", "ns", 36.0)
                .goal(Goal::AtMost(35.0, "ns"))
                .met,
            Some(false)
        );
    }
}
