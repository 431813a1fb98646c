//! Rows that need several jobs: the cost of one more rank, and the effect of a crowd on times.

use hydrant::Strategy;

use crate::measure::median;
use crate::row::{Goal, Row, WORKING_SET};
use crate::timing::Spread;

/// Inserts the rows that follow from `rows`, each after the rows it is made of.
pub(crate) fn insert(rows: &mut Vec<Row>) {
    together(rows);
    rounds(rows);
    growth(rows, "am", |ranks| {
        format!("call the next, {ranks} ranks at once")
    });
    growth(rows, "barrier", |ranks| format!("barrier, {ranks} ranks"));
    memory(rows);
    strategies(rows);
    sections(rows);
}

/// Moves the rows of one bench together, even if several jobs took turns at several benches.
fn together(rows: &mut [Row]) {
    let mut order: Vec<String> = Vec::new();
    for row in rows.iter() {
        if !order.contains(&row.bench) {
            order.push(row.bench.clone());
        }
    }
    rows.sort_by_key(|row| order.iter().position(|bench| *bench == row.bench));
}

/// Twice the ranks on the same cores may take twice the time, with half as much again for noise.
const GROWTH: f64 = 3.0;

/// Compares eight ranks with four. With a core for each rank there is no growth to judge.
fn growth(rows: &mut Vec<Row>, bench: &str, case: impl Fn(u32) -> String) {
    let at = |rows: &[Row], ranks| {
        rows.iter()
            .position(|row| row.bench == bench && row.case == case(ranks))
    };
    if let (Some(four), Some(eight)) = (at(rows, 4), at(rows, 8)) {
        let (before, after) = (rows[four].median, rows[eight].median);
        let row = Row::new(bench, format!("{} beside 4", case(8)), "ns", after).against(before);
        let crowded = rows[four].goal.is_some();
        let last = rows
            .iter()
            .rposition(|row| row.bench == bench)
            .unwrap_or(eight);
        rows.insert(
            last + 1,
            row.goal_if(crowded.then_some(Goal::AtMostTimes(GROWTH))),
        );
    }
}

/// The factor over the best of the others that `auto` may reach at a point.
const AUTO: f64 = 1.05;

/// True if a row belongs to a strategy at a point of its bench.
fn is_point(row: &Row) -> bool {
    row.bench.ends_with(WORKING_SET) && row.bench.contains(", ")
}

/// Replaces the rows of several rounds at a point with one row of their median, at the position of
/// the first.
fn rounds(rows: &mut Vec<Row>) {
    let mut at = 0;
    while at < rows.len() {
        let row = rows[at].clone();
        let is_same = |other: &Row| {
            (&other.bench, &other.case, other.bytes) == (&row.bench, &row.case, row.bytes)
        };
        if is_point(&row) {
            let same = rows.iter().filter(|other| is_same(other));
            let mut medians: Vec<f64> = same.map(|row| row.median).collect();
            let same = rows.iter().filter(|other| is_same(other));
            let spreads: Vec<Spread> = same.filter_map(|row| row.spread.clone()).collect();
            let mut seen = false;
            rows.retain(|other| !is_same(other) || !std::mem::replace(&mut seen, true));
            rows[at].median = median(&mut medians);
            rows[at].spread = Spread::over(&spreads);
        }
        at += 1;
    }
}

/// Compares `auto` with the best of the others at each point, and over all points.
fn strategies(rows: &mut Vec<Row>) {
    let auto = Strategy::Auto.name();
    let mut ratios = Vec::new();
    for at in 0..rows.len() {
        let point = &rows[at];
        if !is_point(point) || point.case != auto {
            continue;
        }
        let best = (rows.iter())
            .filter(|row| row.bench == point.bench && row.bytes == point.bytes && row.case != auto)
            .map(|row| row.median)
            .min_by(f64::total_cmp);
        let Some(best) = best else { continue };
        let judged = point.clone().against(best).goal(Goal::AtMostTimes(AUTO));
        ratios.extend(judged.ratio.map(|ratio| (ratio, judged.met)));
        rows[at] = judged;
    }
    let Some((worst, _)) = ratios.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0)) else {
        return;
    };
    let bench = "auto beside the best other strategy";
    let met = ratios.iter().filter(|(_, met)| *met == Some(true)).count();
    let share = 100.0 * met as f64 / ratios.len() as f64;
    let points = format!("points within {AUTO} times, of {}", ratios.len());
    rows.push(Row::new(bench, "worst ratio", "times", worst));
    rows.push(Row::new(bench, points, "%", share));
}

/// The memory of n ranks is n times that of a rank plus n (n − 1) / 2 times that of a pair. Two
/// sizes of job separate the two.
fn memory(rows: &mut Vec<Row>) {
    let of = |rows: &[Row], ranks: u32| {
        rows.iter()
            .find(|row| row.case == format!("memory, {ranks} ranks"))
            .map(|row| row.median / f64::from(ranks))
    };
    let (Some(two), Some(eight)) = (of(rows, 2), of(rows, 8)) else {
        return;
    };
    let pair = (eight - two) / 3.0;
    let rank = two - pair / 2.0;
    let last = rows
        .iter()
        .rposition(|row| row.case.starts_with("memory, "))
        .unwrap_or(0);
    rows.insert(
        last + 1,
        Row::new("cost", "memory for each rank", "bytes", rank),
    );
    rows.insert(
        last + 2,
        Row::new("cost", "memory for each pair of ranks", "bytes", pair),
    );
}

/// The time of an ARMCI operation on a section, compared with contiguous bytes of the same size. It
/// is the gap that Nieplocha and others 2002 find (§4).
fn sections(rows: &mut Vec<Row>) {
    const BYTES: u64 = 64 << 10;
    let mut more = Vec::new();
    for operation in ["put", "get", "accumulate"] {
        let of = |case: &str| {
            let is =
                |row: &&Row| row.bench == "armci" && row.case == case && row.bytes == Some(BYTES);
            rows.iter().find(is).map(|row| row.median)
        };
        let Some(whole) = of(operation) else {
            continue;
        };
        for form in ["2-D", "3-D", "vector"] {
            if let Some(time) = of(&format!("{operation}, {form}")) {
                let case = format!("{operation}, {form}, beside contiguous");
                more.push(
                    Row::new("armci", case, "ns", time)
                        .bytes(BYTES)
                        .against(whole),
                );
            }
        }
    }
    let last = rows.iter().rposition(|row| row.bench == "armci");
    let after = last.map_or(rows.len(), |last| last + 1);
    rows.splice(after..after, more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_rank_and_of_a_pair_are_told_apart() {
        let of = |ranks: f64| ranks * 1000.0 + ranks * (ranks - 1.0) / 2.0 * 64.0;
        let mut rows = vec![
            Row::new("cost", "memory, 2 ranks", "bytes", of(2.0)),
            Row::new("cost", "memory, 8 ranks", "bytes", of(8.0)),
            Row::new("cost", "start-up, 2 ranks", "ns", 1e6),
        ];
        insert(&mut rows);
        assert_eq!(rows.len(), 5);
        assert_eq!(
            (rows[2].case.as_str(), rows[2].median),
            ("memory for each rank", 1000.0)
        );
        assert_eq!(
            (rows[3].case.as_str(), rows[3].median),
            ("memory for each pair of ranks", 64.0)
        );
    }

    #[test]
    fn the_median_of_the_rounds_counts() {
        let bench = format!("put 8 B, random, {WORKING_SET}");
        let row = |strategy: Strategy, median| Row::new(&bench, strategy.name(), "ns", median);
        let (bounce, auto) = (Strategy::Bounce, Strategy::Auto);
        let mut rows = Vec::new();
        for (ours, best) in [(1.0, 9.0), (7.0, 2.0), (3.0, 3.0)] {
            rows.extend([row(auto, ours), row(bounce, best)]);
        }
        insert(&mut rows);
        let medians: Vec<f64> = rows[..2].iter().map(|row| row.median).collect();
        assert_eq!(medians, [3.0, 3.0]);
        assert_eq!((rows[0].ratio, rows.len()), (Some(1.0), 4));
    }

    #[test]
    fn rows_of_one_bench_stand_together_in_their_order() {
        let row = |bench: &str, median| Row::new(bench, "case", "ns", median);
        let mut rows = vec![row("b", 1.0), row("a", 2.0), row("b", 3.0), row("a", 4.0)];
        insert(&mut rows);
        let medians: Vec<f64> = rows.iter().map(|row| row.median).collect();
        assert_eq!(medians, [1.0, 3.0, 2.0, 4.0]);
    }

    #[test]
    fn sections_are_compared_with_contiguous_bytes() {
        let row = |case: &str, median| Row::new("armci", case, "ns", median).bytes(64 << 10);
        let mut rows = vec![
            row("put", 100.0),
            row("put, 3-D", 150.0),
            row("get, 2-D", 9.0),
        ];
        insert(&mut rows);
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[3].case, "put, 3-D, beside contiguous");
        assert_eq!(rows[3].ratio, Some(1.5));
    }

    #[test]
    fn growth_is_judged_where_it_was_crowded() {
        let rows = |goal: Option<Goal>| {
            let row = |ranks: u32, time: f64| {
                Row::new("barrier", format!("barrier, {ranks} ranks"), "ns", time)
                    .against(1000.0)
                    .goal_if(goal)
            };
            let mut rows = vec![row(4, 5e3), row(8, 16e3)];
            insert(&mut rows);
            rows.pop()
        };
        let crowded = rows(Some(Goal::AtMostTimes(20.0))).unwrap();
        assert_eq!((crowded.ratio, crowded.met), (Some(3.2), Some(false)));
        assert_eq!(rows(None).unwrap().met, None);
    }
}
