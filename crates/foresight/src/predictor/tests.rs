//! The predictor on streams whose next use is known.

use hydrant_base::mix;

use super::landmarks::{MOST_SITE_BYTES, MOST_SITES};
use super::*;
use crate::time::Time;

const LEAD: u64 = 10;

/// Runs a stream of (signature, time, wanted). Returns the last forecast of each signature.
fn run(stream: &[(u64, u64, bool)]) -> std::collections::BTreeMap<u64, Option<Forecast>> {
    let mut predictor = Landmarks::new();
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

#[test]
fn the_trip_count_of_a_loop_is_learned() {
    // Five uses 100 apart, then other work and 1000 until the next five.
    let round = |n: u64| {
        let base = n * 1400;
        let inner = (0..5).map(move |it| (1, base + it * 100, true));
        inner.chain([(2, base + 500, true)])
    };
    let stream: Vec<_> = (0..4).flat_map(round).collect();
    let at = |end: usize| run(&stream[..end])[&1].unwrap().expected.0;
    // In the last round: after the third use comes another inner one, after the fifth the outer.
    assert_eq!(at(21), 3 * 1400 + 300);
    assert_eq!(at(23), 4 * 1400);
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
    let at = |end: usize| run(&stream[..end])[&1].unwrap();
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
    let forecast = run(&stream)[&1].unwrap();
    assert_eq!(forecast.expected, Time(now));
    assert!(!forecast.awaits);
    // Before the landmark comes it is awaited, because it always came.
    stream.pop();
    assert!(run(&stream)[&1].unwrap().awaits);
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
    let forecast = run(&stream[..17])[&1].unwrap();
    assert_eq!((forecast.expected, forecast.awaits), (Time(6000), false));
    let changed = run(&stream)[&1].unwrap();
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
fn the_history_of_a_use_takes_bounded_memory() {
    // The use takes one of eight paths, each with a landmark, in no order.
    let mut predictor = Landmarks::new();
    let mut updates = Vec::new();
    for round in 0..5000 {
        let path = mix(round) % 8;
        for (signature, offset, wanted) in [(1, 0, true), (100 + path, 100 * (path + 1), false)] {
            let at = Time(10_000 * round + offset);
            let seen = Observation {
                signature: Signature(signature),
                at,
                heard: at,
                wanted,
                lead_ns: LEAD,
            };
            predictor.observe(&seen, &mut updates);
            updates.clear();
        }
    }
    let bytes: usize = predictor.sites.values().map(|it| it.bytes()).sum();
    assert!(
        (MOST_SITE_BYTES / 2..MOST_SITE_BYTES).contains(&bytes),
        "{bytes}"
    );
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
