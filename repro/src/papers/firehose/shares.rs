//! New: figures 3 and 4 again where a static share is too small.

use hydrant::Strategy;

use super::load::{AreaPoint, Load};
use super::random::{BANDWIDTH, LATENCY, MACHINE, curve, details, over_area, picture, smaller};
use crate::papers::job::{bandwidth, micros};
use crate::papers::part::Part;
use crate::papers::{ExperimentInputs, PaperResult};

/// Figures 3 and 4 again where one of four ranks puts. Its static share is a third of M; borrowing
/// and adaptive victims give it the rest.
pub(in crate::papers) fn shares(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let modes = [
        ("static share", false, false),
        ("adaptive victims", false, true),
        ("borrowing", true, false),
        ("both", true, true),
    ];
    let mut part = Part::new(
        "firehose-shares",
        "New: figures 3 and 4 with borrowing and adaptive victims",
    );
    part.note(
        "One of four ranks puts, the others are silent. F = M / 3 is its static share: 133 MB; what \
         is put to beyond that moves firehoses although two thirds of M are unused. With borrowing \
         the target lends what its other peers leave unused, all but an eighth of M. With adaptive \
         victims the target keeps what was released in the unused part of M, so a move finds it \
         registered. This is the paper's future work; it has no figures.",
    );
    let mut panels = Vec::new();
    let mut all = Vec::new();
    for (bytes, puts, at_once, title) in [
        (
            8,
            inputs.pick(3000, 300),
            1,
            "mean latency of an 8-byte put",
        ),
        (64 << 10, inputs.pick(240, 40), 8, "bandwidth of 64 KB puts"),
    ] {
        let mut load = Load::of(inputs, bytes, puts, at_once);
        load.areas = [50, 500, inputs.pick(50, 150)];
        if bytes == 8 {
            smaller(&mut part, &load);
        }
        let mut series = Vec::new();
        for (colour, (name, borrowing, adaptive)) in modes.into_iter().enumerate() {
            inputs.doing(format!(
                "firehose: one of four ranks puts {bytes} bytes, {name}"
            ));
            let mut setup = load.setup(MACHINE, Strategy::Firehose);
            setup.ranks = 4;
            setup.borrowing = borrowing;
            setup.adaptive = adaptive;
            let points = load.run(&setup)?;
            series.push(curve(name, colour, &points, |point| match bytes {
                8 => micros(point.mean),
                _ => bandwidth(bytes as u64, point.mean),
            }));
            all.push((format!("{name}, {bytes} bytes"), points));
        }
        let axis = if bytes == 8 { LATENCY } else { BANDWIDTH };
        panels.push(over_area(title, axis, series));
    }
    let named: Vec<(&str, &[AreaPoint])> = all
        .iter()
        .map(|(name, points)| (&name[..], &points[..]))
        .collect();
    part.sheets
        .push(details("firehose-shares", "all points", &named));
    let at = |mode: usize| {
        (all[mode].1.iter())
            .rfind(|point| point.mb <= 350.0)
            .map_or(f64::NAN, |point| micros(point.mean))
    };
    let [fixed, adaptive, borrowing] = [at(0), at(1), at(2)];
    part.expect(
        "an area between F and M: borrowing beats the static share",
        "(new)",
        format!("{borrowing:.1} µs against {fixed:.0} µs"),
        borrowing < fixed,
        "",
    );
    part.expect(
        "adaptive victims do, too",
        "(new)",
        format!("{adaptive:.1} µs against {fixed:.0} µs"),
        adaptive < fixed,
        "",
    );
    part.pictures
        .push(picture("firehose-shares", &part.title, panels));
    Ok(part)
}
