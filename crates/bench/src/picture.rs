//! Rows as a picture: a sweep for each bench with sizes, dots for the rest.

use hydrant_report::plot::{Dot, Figure, Mark, Panel, Series, SeriesKind};

use crate::peers::PublishedPeer;
use crate::row::{Other, Row, WORKING_SET};

/// The picture of these rows. Rows that are no times appear only in the table.
pub(crate) fn figure(rows: &[Row], peer: &PublishedPeer, machine: String) -> Figure {
    let times: Vec<&Row> = rows
        .iter()
        .filter(|row| row.unit == "ns" && row.median > 0.0)
        .collect();
    let mut panels = Vec::new();
    for rows in times.chunk_by(|a, b| a.bench == b.bench) {
        let (swept, single): (Vec<&Row>, Vec<&Row>) =
            rows.iter().partition(|row| is_swept(row, rows));
        // Rows with a goal or a peer's figure must not drown among their variants.
        let noted = |row: &Row| row.goal.is_some() || peer.beside(row).is_some();
        let (main, variants): (Vec<&Row>, Vec<&Row>) = swept.iter().partition(|row| {
            swept
                .iter()
                .any(|other| other.case == row.case && noted(other))
        });
        let title = if rows[0].bench.ends_with(WORKING_SET) {
            format!("{}: time of a put over the size of the set", rows[0].bench)
        } else {
            format!("{}: time over size", rows[0].bench)
        };
        let other = if main.is_empty() {
            title.clone()
        } else {
            format!("{title}, other forms")
        };
        for (title, rows) in [(title, main), (other, variants)] {
            if !rows.is_empty() {
                panels.push(Panel::Sweep {
                    title,
                    series: series(&rows, peer),
                });
            }
        }
        if !single.is_empty() {
            let title = rows[0].bench.clone();
            panels.push(Panel::Dots {
                title,
                dots: single.iter().map(|row| dot(row, peer)).collect(),
                peer: peer.name,
            });
        }
    }
    Figure {
        title: "hydrant bench: medians beside their bare references".to_owned(),
        subtitle: machine,
        panels,
    }
}

/// A case is a sweep if it was measured at several sizes.
fn is_swept(row: &Row, rows: &[&Row]) -> bool {
    row.bytes.is_some() && rows.iter().filter(|other| other.case == row.case).count() > 1
}

fn series(rows: &[&Row], peer: &PublishedPeer) -> Vec<Series> {
    let mut cases: Vec<&str> = Vec::new();
    for row in rows {
        if !cases.contains(&row.case.as_str()) {
            cases.push(&row.case);
        }
    }
    let mut series = Vec::new();
    for (colour, case) in cases.into_iter().enumerate() {
        let of_case = || rows.iter().filter(|row| row.case == case);
        let points = |figure: &dyn Fn(&Row) -> Option<f64>| -> Vec<(f64, f64)> {
            of_case()
                .filter_map(|row| Some((row.bytes? as f64, figure(row)?)))
                .collect()
        };
        let mut kinds = vec![
            (
                SeriesKind::Ours,
                case.to_owned(),
                points(&|row| Some(row.median)),
            ),
            (
                SeriesKind::Reference,
                format!("{case}, bare"),
                points(&|row| row.reference),
            ),
            (
                SeriesKind::Peer,
                format!("{case}, {}", peer.name),
                points(&|row| peer.beside(row)),
            ),
        ];
        kinds.extend(Other::ALL.map(|other| {
            let name = format!("{case}, {}", other.name());
            (
                SeriesKind::Other(mark(other)),
                name,
                points(&|row| row.others.of(other)),
            )
        }));
        let filled = kinds
            .into_iter()
            .filter(|(_, _, points)| !points.is_empty());
        series.extend(filled.map(|(kind, name, points)| Series {
            name,
            kind,
            colour,
            points,
        }));
    }
    series
}

/// The mark of a rival.
fn mark(other: Other) -> Mark {
    match other {
        Other::Mpich => Mark::Square,
        Other::OpenMpi => Mark::Triangle,
    }
}

fn dot(row: &Row, peer: &PublishedPeer) -> Dot {
    let bytes = row.bytes.filter(|bytes| *bytes > 8);
    let name = match bytes {
        Some(bytes) => format!(
            "{}, {}",
            row.case,
            hydrant_report::units::bytes(bytes as f64)
        ),
        None => row.case.clone(),
    };
    Dot {
        name,
        ours: row.median,
        reference: row.reference,
        peer: peer.beside(row),
        others: (Other::ALL.into_iter())
            .filter_map(|other| Some((mark(other), other.name(), row.others.of(other)?)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let mut rows = Vec::new();
        for (case, start) in [
            ("put", 3.1),
            ("get", 3.3),
            ("put in a scope", 6.0),
            ("strided put, rows of 64", 12.0),
        ] {
            for bits in 3..=22 {
                let bytes = 1u64 << bits;
                let bare = 2.9 + bytes as f64 / 45.0;
                rows.push(
                    Row::new("rma", case, "ns", start + bytes as f64 / 44.0)
                        .bytes(bytes)
                        .against(bare),
                );
            }
        }
        rows.push(
            Row::new("rma", "put_value", "ns", 1.2)
                .bytes(8)
                .against(0.9),
        );
        for (case, nanos, bare) in [
            ("short round trip", 320.0, 240.0),
            ("short flood, 0 → 1", 31.0, 8.0),
        ] {
            rows.push(Row::new("am", case, "ns", nanos).against(bare));
        }
        for bits in 6..=16 {
            let row = Row::new(
                "am",
                "medium round trip",
                "ns",
                500.0 + f64::from(1 << bits) / 10.0,
            );
            rows.push(row.bytes(1 << bits).against(240.0));
        }
        rows.push(Row::new("barrier", "barrier, 2 ranks", "ns", 290.0).against(241.0));
        rows.push(Row::new("cost", "start-up, 64 ranks", "ns", 93e6));
        rows.push(Row::new("cost", "memory for each rank", "bytes", 3e6));
        rows
    }

    #[test]
    fn sweeps_and_single_figures_go_to_their_panels() {
        let peer = PublishedPeer::mapped().unwrap();
        let figure = figure(&rows(), &peer, "machine".to_owned());
        let kinds: Vec<(&str, usize)> = figure
            .panels
            .iter()
            .map(|panel| match panel {
                Panel::Sweep { series, .. } => ("sweep", series.len()),
                Panel::Curves { series, .. } => ("curves", series.len()),
                Panel::Dots { dots, .. } => ("dots", dots.len()),
            })
            .collect();
        // The series of put and get have a point of the peer; the other two have none.
        let expected = [
            ("sweep", 6),
            ("sweep", 4),
            ("dots", 1),
            ("sweep", 3),
            ("dots", 2),
            ("dots", 1),
            ("dots", 1),
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn the_picture_is_an_svg_that_names_everything() {
        let peer = PublishedPeer::mapped().unwrap();
        let figure = figure(&rows(), &peer, "AMD EPYC, 2 cores".to_owned());
        let text = figure.svg().unwrap();
        for word in [
            "</svg>",
            "put, bare",
            peer.name,
            "size, bytes",
            "time for one operation",
            "2 MiB",
            "AMD EPYC",
        ] {
            assert!(text.contains(word), "{word} is missing");
        }
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }
}
