//! Each predictor on streams whose next use is known.

use hydrant_foresight::Signature;

use super::*;

const LEAD: u64 = 10;

/// Runs a stream of (signature, time, wanted); returns the last forecast of each signature.
fn run(
    method: Method,
    stream: &[(u64, u64, bool)],
) -> std::collections::BTreeMap<u64, Option<Forecast>> {
    let mut predictor = method.predictor();
    let mut last = std::collections::BTreeMap::new();
    let mut updates = Vec::new();
    for &(signature, at, wanted) in stream {
        let seen = Observation {
            signature: Signature(signature),
            at: Time(at),
            heard: Time(at),
            wanted,
            lead_ns: LEAD,
        };
        predictor.observe(&seen, &mut updates);
        for update in updates.drain(..) {
            last.insert(update.signature.0, update.forecast);
        }
    }
    last
}

fn uses(times: &[u64]) -> Vec<(u64, u64, bool)> {
    times.iter().map(|&at| (1, at, true)).collect()
}

fn expected(method: Method, times: &[u64]) -> Option<u64> {
    run(method, &uses(times))[&1].map(|it| it.expected.0)
}

const METHODS: [Method; 4] = [
    Method::Shortest,
    Method::Median { of: 9 },
    Method::Periodicity { window: 1 },
    Method::Landmarks,
];

#[test]
fn a_first_use_says_nothing_and_a_steady_one_all() {
    for method in METHODS {
        assert_eq!(expected(method, &[5]), None, "{method}");
        assert_eq!(expected(method, &[0, 100, 200, 300]), Some(400), "{method}");
    }
}

#[test]
fn an_irregular_use_is_expected_by_the_shortest() {
    assert_eq!(
        expected(Method::Shortest, &[0, 100, 170, 300, 400]),
        Some(470)
    );
    assert_eq!(
        expected(Method::Median { of: 3 }, &[0, 100, 170, 300, 400]),
        Some(500)
    );
}

#[test]
fn an_unwanted_buffer_has_no_forecast() {
    for method in METHODS {
        assert!(
            run(method, &[(1, 0, false), (1, 100, false), (1, 200, false)]).is_empty(),
            "{method}"
        );
    }
}

#[test]
fn a_clock_that_jumps_does_no_harm() {
    for method in METHODS {
        // The clock jumps far back, and goes on.
        let times = [1000, 1100, 1200, 100, 200, 300, 400, 500];
        assert_eq!(expected(method, &times), Some(600), "{method}");
        // The clock jumps far forward.
        let times = [0, 100, 200, 1_000_000, 1_000_100, 1_000_200, 1_000_300];
        assert_eq!(expected(method, &times), Some(1_000_400), "{method}");
        // The clock jumps to the last moment.
        let times = [0, u64::MAX, u64::MAX, 3, u64::MAX];
        expected(method, &times);
    }
}

#[test]
fn a_pattern_is_seen_when_it_fills_the_window_twice() {
    let round = |n: u64| {
        [
            (1, n * 100, true),
            (2, n * 100 + 30, true),
            (3, n * 100 + 50, true),
        ]
    };
    let stream = |rounds| (0..rounds).flat_map(round).collect::<Vec<_>>();
    let method = Method::Periodicity { window: 6 };
    // Two rounds are not a window's length apart from two others.
    assert_eq!(run(method, &stream(2))[&3], None);
    assert_eq!(run(method, &stream(3))[&3].unwrap().expected, Time(350));
}

#[test]
fn a_pattern_may_use_a_buffer_twice() {
    // 1 comes after 20, then after 80.
    let round = |n: u64| {
        [
            (1, n * 100, true),
            (1, n * 100 + 20, true),
            (2, n * 100 + 50, true),
        ]
    };
    let stream: Vec<_> = (0..6).flat_map(round).collect();
    let method = Method::Periodicity { window: 6 };
    assert_eq!(run(method, &stream[..16])[&1].unwrap().expected, Time(520));
    assert_eq!(run(method, &stream[..17])[&1].unwrap().expected, Time(600));
}
