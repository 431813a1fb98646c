//! The predictors on traces of real programs.

use std::path::Path;

use hydrant_foresight::LinearCost;

use super::*;

fn trace(name: &str) -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    crate::read(&folder.join(format!("{name}.S.4.tar.zst"))).unwrap()
}

/// Class S computes little and its buffers are short. So buffers of 1500 bytes or more count here, and registering is
/// cheaper in proportion.
const SETTING: EvaluationSetting = EvaluationSetting {
    threshold_bytes: 1500,
    costs: Costs {
        register: SHORT,
        deregister: SHORT,
        hash_ns: 100,
        comparison_ns: 0,
    },
    ..EvaluationSetting::PAPER
};

const SHORT: LinearCost = LinearCost {
    per_page_ns: 25.0,
    per_operation_ns: 1000.0,
};

fn errors(trace: &Trace, method: Method, clock: TraceClock) -> Accuracy {
    evaluate(trace, method, &EvaluationSetting { clock, ..SETTING })
}

fn percent(errors: &Errors) -> (f64, f64) {
    (errors.percent_within(50), errors.percent_within(5))
}

#[test]
fn landmarks_beat_the_shortest_period_and_the_median() {
    for name in ["bt", "lu"] {
        let trace = trace(name);
        let ours = errors(&trace, Method::Landmarks, TraceClock::Computing);
        let best = percent(&ours.acted);
        for method in [Method::Shortest, Method::Median { of: 9 }] {
            let theirs = errors(&trace, method, TraceClock::Computing);
            assert_eq!(
                (theirs.uses, theirs.at_use.forecasts),
                (ours.uses, ours.at_use.forecasts)
            );
            assert_eq!(
                theirs.at_use, theirs.acted,
                "{method} never corrects itself"
            );
            let (within_5, within_half) = percent(&theirs.acted);
            assert!(
                best.0 > within_5 + 1.0,
                "{name}, {method}: {within_5} beside {}",
                best.0
            );
            assert!(
                best.1 > within_half + 5.0,
                "{name}, {method}: {within_half} beside {}",
                best.1
            );
        }
        // Deadlines that are safe by the paper's rule are safe here.
        assert!(
            ours.deadlines.percent(ours.deadlines.late) < 15.0,
            "{:?}",
            ours.deadlines
        );
    }
}

#[test]
fn without_jitter_every_use_is_foreseen() {
    for name in ["bt", "lu", "ft", "is"] {
        let trace = trace(name);
        for method in [Method::Shortest, Method::Landmarks] {
            let found = errors(&trace, method, TraceClock::Smooth);
            assert!(found.acted.forecasts > 0, "{name}");
            let (within_5, _) = percent(&found.acted);
            assert!(within_5 >= 95.0, "{name}, {method}: {within_5}");
        }
        let best = bound(
            &trace,
            &EvaluationSetting {
                clock: TraceClock::Smooth,
                ..SETTING
            },
        );
        assert!(percent(&best.gaps).1 > 98.0, "{name}: {best:?}");
    }
}

#[test]
fn a_periodicity_needs_its_window() {
    let trace = trace("ft");
    // Each iteration of FT exchanges eight large buffers, six times.
    let forecasts = |window| {
        let setting = EvaluationSetting {
            window: 0,
            ..SETTING
        };
        evaluate(&trace, Method::Periodicity { window }, &setting)
            .at_use
            .forecasts
    };
    assert!(forecasts(8) > forecasts(16));
    assert_eq!(forecasts(128), 0);
}

#[test]
fn no_predictor_beats_hindsight_by_much() {
    for name in ["bt", "lu"] {
        let trace = trace(name);
        let best = bound(&trace, &SETTING);
        let ours = errors(&trace, Method::Landmarks, TraceClock::Computing);
        assert!(
            percent(&ours.acted).1 <= percent(&best.gaps).1 + 2.0,
            "{name}"
        );
    }
}
