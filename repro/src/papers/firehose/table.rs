//! Table 3: Cannon and bitonic sort.

use hydrant::Strategy;

use crate::papers::part::{Cell, Part, Sheet};
use crate::papers::programs::{ParsedReport, Program};
use crate::papers::published::value;
use crate::papers::{ExperimentInputs, ReproduceError};
use hydrant_report::units;

/// The paper's three strategies, in its order.
const PAPERS: [(Strategy, &str); 3] = [
    (Strategy::Rendezvous { unpin: true }, "unpin"),
    (Strategy::Rendezvous { unpin: false }, "no_unpin"),
    (Strategy::Firehose, "firehose"),
];

struct ProgramCase {
    short: &'static str,
    title: &'static str,
    program: Program,
    quick: u64,
    /// The size with unpin, where each put takes three messages and milliseconds.
    unpin: u64,
    /// The size with the other strategies.
    others: u64,
}

/// As many puts as in the paper (docs/apps.md).
const CASES: [ProgramCase; 2] = [
    ProgramCase {
        short: "cannon",
        title: "Cannon, 4 ranks",
        program: Program {
            name: "cannon",
            ranks: 4,
            n: 740,
        },
        quick: 64,
        unpin: 262,
        others: 128,
    },
    ProgramCase {
        short: "bitonic",
        title: "Bitonic sort, 8 ranks",
        program: Program {
            name: "bitonic",
            ranks: 8,
            n: 354_167,
        },
        quick: 4_000,
        unpin: 44_271,
        others: 16_000,
    },
];

pub(in crate::papers) fn table_3(inputs: &ExperimentInputs<'_>) -> Result<Part, ReproduceError> {
    let mut part = Part::new(
        "firehose-table-3",
        "Firehose, table 3: Cannon and bitonic sort under each strategy",
    );
    part.note(
        "The programs of apps/, as `hydrant run --conduit sim:myrinet-gm --registration … cannon` \
         runs them: every element is a put of 8 bytes, which its rank waits for; results are \
         checked. M = 400 MB, MAXVICTIM = 50 MB, buckets of a page, no borrowing, no adaptive \
         victims, nothing rides on moves: the paper's algorithm to the letter.",
    );
    part.note(
        "Run times are not the paper's: what Titanium computed between its puts, and on how large \
         a problem, is not in the paper. Ours compute what the same number of puts takes in a C \
         kernel, so they are nearly all communication, and the ratios between strategies are \
         those of the puts.",
    );
    part.note(if inputs.quick {
        "A quick run: problems are smaller, so start-up weighs more."
    } else {
        "With unpin the problems are scaled down to an eighth of the puts, to keep the whole run \
         below five minutes; the ratio to firehose is for as many puts."
    });
    part.note(
        "With unpin our puts take longer than the paper's 5.1 ms and 0.5 ms. Probably every rank is \
         deregistering for one peer or another nearly all the time, 6 ms for each page, and its own \
         puts wait for that. The paper's bitonic sort cannot have deregistered once for each put at \
         6 ms and taken 0.5 ms.",
    );
    part.note(
        "We move fewer firehoses for Cannon than the paper, since misses in sequence register more \
         pages at a time here. Each takes longer: more pages are registered, and probably, most of \
         all, the target answers only when it next looks, which a rank that multiplies its blocks \
         does not for long.",
    );
    let mut sheet = Sheet::new(
        "firehose-table-3",
        "The paper's three strategies",
        &[
            "program",
            "strategy",
            "kind of put",
            "puts",
            "puts_pct",
            "mean_put_us",
            "run_time_s",
            "computing_s",
            "paper_puts",
            "paper_pct",
            "paper_mean_put_us",
            "paper_run_time_s",
        ],
    );
    let mut others = Sheet::new(
        "firehose-table-3-others",
        "Every strategy, on a smaller problem",
        &[
            "program",
            "strategy",
            "puts",
            "hits",
            "registrations",
            "deregistrations",
            "messages",
            "mean_put_us",
            "run_time_s",
        ],
    );
    for case in &CASES {
        let mut reports = Vec::new();
        for (strategy, name) in PAPERS {
            inputs.doing(format!("{} under {strategy}", case.program.name));
            let mut n = inputs.pick(case.program.n, case.quick);
            if name == "unpin" && !inputs.quick {
                n = case.unpin;
            }
            let report = Program { n, ..case.program }.run(strategy)?;
            rows(&mut sheet, case, strategy, name, &report)?;
            reports.push(report);
        }
        judge(&mut part, case, &reports)?;
        for strategy in Strategy::ALL {
            inputs.doing(format!("{} under {strategy}", case.program.name));
            let program = Program {
                n: inputs.pick(case.others, case.quick / 2),
                ..case.program
            };
            let row = |cells: Vec<Cell>| {
                [case.title.into(), strategy.name().into()]
                    .into_iter()
                    .chain(cells)
            };
            match program.run(strategy) {
                Ok(report) => others.row(row(vec![
                    report.puts.into(),
                    report.counter("hits").into(),
                    report.counter("registrations").into(),
                    report.counter("deregistrations").into(),
                    report.counter("registration_messages").into(),
                    mean(&report).into(),
                    report.seconds.into(),
                ])),
                Err(why) => others.row(row(vec![why.to_string().into()])),
            }
        }
    }
    part.sheets.extend([sheet, others]);
    Ok(part)
}

fn mean(report: &ParsedReport) -> Option<f64> {
    report.mean_put_nanoseconds.map(|nanos| nanos / 1e3)
}

fn rows(
    sheet: &mut Sheet,
    case: &ProgramCase,
    strategy: Strategy,
    name: &str,
    report: &ParsedReport,
) -> Result<(), ReproduceError> {
    let paper = |what: &str| value("firehose", &format!("{}_{what}", case.short));
    let puts = paper("puts")?;
    let (whole, hits) = (report.puts as f64, report.counter("hits").min(report.puts));
    let cells = |kind: &str, count: u64, put: Option<f64>, paper_count: f64, paper_put: f64| {
        vec![
            case.title.into(),
            strategy.name().into(),
            kind.into(),
            count.into(),
            (100.0 * count as f64 / whole).into(),
            put.into(),
            report.seconds.into(),
            report.compute_seconds.into(),
            paper_count.into(),
            (100.0 * paper_count / puts).into(),
            paper_put.into(),
        ]
    };
    let time = paper(&format!("{name}_time"))?;
    if strategy != Strategy::Firehose {
        let kind = if name == "unpin" {
            "pin-put-unpin"
        } else {
            "pin-put"
        };
        let mut row = cells(
            kind,
            report.puts,
            mean(report),
            puts,
            paper(&format!("{name}_put"))?,
        );
        row.push(time.into());
        sheet.row(row);
        return Ok(());
    }
    let [moved, there] = report.kinds();
    for (kind, short, count, put) in [
        ("move", "move", report.puts - hits, moved),
        ("one-sided", "one_sided", hits, there),
    ] {
        let mut row = cells(
            kind,
            count,
            put,
            paper(&format!("{short}_puts"))?,
            paper(&format!("{short}_put"))?,
        );
        row.push(time.into());
        sheet.row(row);
    }
    Ok(())
}

fn judge(
    part: &mut Part,
    case: &ProgramCase,
    reports: &[ParsedReport],
) -> Result<(), ReproduceError> {
    let paper = |what: &str| value("firehose", &format!("{}_{what}", case.short));
    let [unpin, no_unpin, firehose] = reports else {
        return Ok(());
    };
    let share = 100.0 * firehose.counter("hits") as f64 / firehose.puts.max(1) as f64;
    part.expect(
        format!("{}: puts that are one-sided", case.title),
        format!("{:.2} %", 100.0 * paper("one_sided_puts")? / paper("puts")?),
        format!("{share:.2} %"),
        share >= 99.0,
        "99 % or more are expected",
    );
    let ratio = |a: f64, b: f64| format!("{} ×", units::digits(a / b));
    // Scaled to the same number of puts.
    let unpin_seconds = unpin.seconds * firehose.puts as f64 / unpin.puts.max(1) as f64;
    part.expect(
        format!("{}: with unpin takes at least 5 × firehose", case.title),
        ratio(paper("unpin_time")?, paper("firehose_time")?),
        ratio(unpin_seconds, firehose.seconds),
        unpin_seconds >= 5.0 * firehose.seconds,
        "ours computes less between puts than the paper's programs, so the ratio is larger",
    );
    part.expect(
        format!("{}: no-unpin takes longer than firehose", case.title),
        ratio(paper("no_unpin_time")?, paper("firehose_time")?),
        ratio(no_unpin.seconds, firehose.seconds),
        no_unpin.seconds > firehose.seconds,
        "as above",
    );
    Ok(())
}
