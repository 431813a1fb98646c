//! Each predictor on streams whose next use is known.

use hydrant_base::mix;

use super::shortest::MOST_SITES;
use super::*;
use crate::time::Time;

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

#[test]
fn the_trip_count_of_a_loop_is_learned() {
    // Five uses 100 apart, then other work and 1000 until the next five.
    let round = |n: u64| {
        let base = n * 1400;
        let inner = (0..5).map(move |it| (1, base + it * 100, true));
        inner.chain([(2, base + 500, true)])
    };
    let stream: Vec<_> = (0..4).flat_map(round).collect();
    let at = |end: usize| {
        run(Method::Landmarks, &stream[..end])[&1]
            .unwrap()
            .expected
            .0
    };
    // In the last round: after the third use comes another inner one, after the fifth the outer.
    assert_eq!(at(21), 3 * 1400 + 300);
    assert_eq!(at(23), 4 * 1400);
    // The other methods do not see it.
    for method in [Method::Shortest, Method::Median { of: 9 }] {
        assert_eq!(
            run(method, &stream[..23])[&1].unwrap().expected.0,
            3 * 1400 + 500
        );
    }
}

#[test]
fn the_landmark_of_a_way_that_is_not_taken_means_nothing() {
    // As above, with a small message 40 before each inner use; the message comes after the last use, too.
    let round = |n: u64| {
        let base = n * 1400;
        let inner = (0..5)
            .flat_map(move |it| [(1, base + it * 100, true), (9, base + it * 100 + 60, false)]);
        inner.chain([(2, base + 700, true), (8, base + 1200, false)])
    };
    let stream: Vec<_> = (0..8).flat_map(round).collect();
    let at = |end: usize| run(Method::Landmarks, &stream[..end])[&1].unwrap();
    // In the last round: the third use and its message, the fifth and its message, the whole round.
    let before = stream.len() - 12;
    assert_eq!(at(before + 6).expected, Time(7 * 1400 + 300));
    let fifth = at(before + 10);
    assert_eq!((fifth.expected, fifth.awaits), (Time(8 * 1400), true));
    assert_eq!(at(before + 12).expected, Time(8 * 1400));
}

#[test]
fn a_landmark_takes_the_noise_out() {
    // A noisy computation, a small message, and 50 later the use.
    let noise = [0, 40, 7, 300, 12, 90, 33];
    let mut stream = Vec::new();
    let mut now = 0;
    for extra in noise {
        stream.push((1, now, true));
        now += 1000 + extra;
        stream.push((9, now, false));
        now += 50;
    }
    let forecast = run(Method::Landmarks, &stream)[&1].unwrap();
    assert_eq!(forecast.expected, Time(now));
    assert!(!forecast.awaits);
    // Before the landmark comes it is awaited, because it always came.
    stream.pop();
    assert!(run(Method::Landmarks, &stream)[&1].unwrap().awaits);
}

#[test]
fn a_landmark_too_late_to_register_after_it_is_none() {
    let mut stream = Vec::new();
    for round in 0..6 {
        stream.push((1, round * 1000, true));
        stream.push((8, round * 1000 + 600, false));
        // Nearer to the next use than the lead.
        stream.push((9, round * 1000 + 1000 - LEAD / 2, false));
    }
    let forecast = run(Method::Landmarks, &stream[..17])[&1].unwrap();
    assert_eq!((forecast.expected, forecast.awaits), (Time(6000), false));
    let changed = run(Method::Landmarks, &stream)[&1].unwrap();
    assert_eq!(changed, forecast, "the late one changes nothing");
}

#[test]
fn endless_new_buffers_take_bounded_memory() {
    let mut predictor = Landmarks::new();
    let mut updates = Vec::new();
    for number in 0..300_000 {
        let seen = Observation {
            signature: Signature(mix(number)),
            at: Time(number * 100),
            heard: Time(number * 100),
            wanted: true,
            lead_ns: LEAD,
        };
        predictor.observe(&seen, &mut updates);
        assert_eq!(updates.pop().unwrap().forecast, None);
    }
    assert!(predictor.sites.len() <= MOST_SITES && predictor.awaited.len() <= MOST_SITES);
}

#[test]
fn a_landmark_heard_of_too_late_is_none() {
    // A message is recorded at its end, just before the next use. The record at 600 comes early enough.
    let round = |n: u64| {
        let base = n * 1000;
        [(1, base, 0), (2, base + 600, 0), (3, base + 700, 298)]
    };
    let mut predictor = Landmarks::new();
    let mut said_by = Vec::new();
    for (signature, at, late) in (0..6).flat_map(round) {
        let mut updates = Vec::new();
        let seen = Observation {
            signature: Signature(signature),
            at: Time(at),
            heard: Time(at + late),
            wanted: signature == 1,
            lead_ns: LEAD,
        };
        predictor.observe(&seen, &mut updates);
        let of_the_use = updates.iter().filter(|it| it.signature == Signature(1));
        said_by.extend(of_the_use.map(|it| (signature, it.forecast.map(|it| it.expected.0))));
    }
    assert_eq!(said_by.last(), Some(&(2, Some(6000))));
}
