//! Table 3: the NAS benchmarks IS and FT, by copied messages and by zero copy.

use hydrant::{MessageProtocol, Strategy};
use hydrant_traces::trace::{RankTrace, Trace};

use crate::papers::derive::{Scaling, derive};
use crate::papers::job::MB;
use crate::papers::part::{Part, Sheet};
use crate::papers::published::value;
use crate::papers::replays::{Replay, Replayed, script};
use crate::papers::traces::Traces;
use crate::papers::{ExperimentInputs, PaperResult};
use crate::replay::Script;

const MACHINE: &str = "myrinet-pm";

/// The largest message that both MPIs send asynchronously, by copies (§6.2).
const ASYNCHRONOUS: usize = 8 << 10;

/// A benchmark.
struct Benchmark {
    name: &'static str,
    program: &'static str,
    /// The class for a quick run.
    small: &'static str,
    /// Millions of operations that define its rate, in the timed iterations.
    operations: f64,
    /// Exchanges of data in the trace, and in the timed part.
    exchanges: f64,
    timed: f64,
}

const BENCHMARKS: [Benchmark; 2] = [
    Benchmark {
        name: "IS",
        program: "is",
        small: "S",
        // 2^23 keys, ten times.
        operations: 83.886,
        exchanges: 11.0,
        timed: 10.0,
    },
    Benchmark {
        name: "FT",
        program: "ft",
        small: "W",
        // 256 x 256 x 128 points by the formula of the benchmark, six iterations.
        operations: 7137.0,
        exchanges: 8.0,
        timed: 7.0,
    },
];

/// The results of a benchmark by both protocols.
struct BenchmarkResult {
    slowdown: f64,
    copied: Replayed,
    written: Replayed,
    /// The hits of each rank, at both ends of its messages.
    hits: f64,
    misses: f64,
}

/// Table 3.
pub(in crate::papers) fn table_3(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let ranks = inputs.pick(64, 4);
    let mut part = Part::new(
        "pindown-table-3",
        "Pin-down cache, table 3: NAS IS and FT, class A",
    );
    part.note(format!(
        "The benchmarks on {ranks} ranks. Their traces are derived from some of four ranks: arrays and computing are \
         divided among more, so that the exchanged parts are as long as the paper's. Message: all are copied on both \
         sides, in parts of 8 KB. VWrite: those above 8 KB are written without a copy, both sides pinned down through \
         the cache, at most 4 MB and 1,024 pages of a rank. Each end of a message written so is a use of a buffer; \
         those for which something had to be pinned down are misses."
    ));
    part.note(
        "The computing was recorded on a processor of today. It is stretched until the copied run takes as long as the \
         paper's, so that the rates of that column are the paper's by construction; the other column and the counts \
         are not.",
    );
    let mut sheet = Sheet::new(
        "pindown-table-3",
        format!(
            "NAS parallel benchmarks, {}, {ranks} ranks",
            inputs.pick("class A", "small classes")
        ),
        &[
            "program",
            "whose",
            "message_mops",
            "vwrite_mops",
            "speed_up",
            "hits",
            "misses",
            "ratio_pct",
            "size_kb",
            "stretched",
        ],
    );
    let traces = Traces::own()?;
    for benchmark in &BENCHMARKS {
        let class = inputs.pick("A", benchmark.small);
        let Some(recorded) = traces.find(benchmark.program, class) else {
            continue;
        };
        let trace = derive(&recorded.trace, ranks, Scaling::Strong)?;
        let parts = parts(&trace);
        let size_kb = parts.iter().sum::<u64>() as f64 / parts.len().max(1) as f64 / 1024.0;
        let written = parts.iter().filter(|it| **it > ASYNCHRONOUS as u64);
        let uses = written.count() as f64 / f64::from(ranks);
        let paper = |what: &str| value("pindown", &format!("nas_{}_{what}", benchmark.program));
        let seconds =
            benchmark.operations / paper("message")? * benchmark.exchanges / benchmark.timed;
        let found = by_both_protocols(inputs, benchmark, &script(&trace, MACHINE)?, uses, seconds)?;
        let rate = |run: &Replayed| {
            benchmark.operations / (run.seconds() * benchmark.timed / benchmark.exchanges)
        };
        let speed_up = found.copied.seconds() / found.written.seconds();
        let ratio = 100.0 * found.hits / (found.hits + found.misses);
        sheet.row([
            benchmark.name.into(),
            "ours".into(),
            rate(&found.copied).into(),
            rate(&found.written).into(),
            speed_up.into(),
            found.hits.round().into(),
            found.misses.round().into(),
            ratio.into(),
            size_kb.into(),
            found.slowdown.into(),
        ]);
        sheet.row([
            benchmark.name.into(),
            "paper".into(),
            paper("message")?.into(),
            paper("write")?.into(),
            paper("speedup")?.into(),
            paper("hits")?.into(),
            paper("misses")?.into(),
            paper("ratio")?.into(),
            paper("size")?.into(),
        ]);
        judge(&mut part, benchmark, speed_up, ratio)?;
    }
    part.sheets.push(sheet);
    Ok(part)
}

/// The bytes of each part of an exchange that a rank sends or receives.
fn parts(trace: &Trace) -> Vec<u64> {
    let of = |rank: &RankTrace| -> Vec<u64> {
        let own = rank.rank() as i32;
        let records = rank.records().iter();
        // Counts are not data.
        let data = records.filter(|it| it.call.is_exchange() && it.peer != own && it.bytes > 64);
        data.map(|it| it.bytes).collect()
    };
    trace.ranks().iter().flat_map(of).collect()
}

/// Runs a benchmark by both protocols. Each rank uses the given number of buffers. The computation
/// is scaled until the copied run takes the given number of seconds.
fn by_both_protocols(
    inputs: &ExperimentInputs<'_>,
    benchmark: &Benchmark,
    script: &Script,
    uses: f64,
    seconds: f64,
) -> PaperResult<BenchmarkResult> {
    let run = |strategy, messages, slowdown| {
        let mut replay = Replay::new(MACHINE, strategy);
        replay.messages = messages;
        replay.eager = Some(ASYNCHRONOUS);
        replay.limit = Some(4 * MB);
        replay.widening = false;
        replay.how.slowdown = slowdown;
        replay.run(
            inputs,
            &format!("pin-down: table 3, {}", benchmark.name),
            script,
        )
    };
    let copied = |slowdown| run(Strategy::Bounce, MessageProtocol::Eager, slowdown);
    let without = copied(0.0)?.seconds();
    let once = copied(1.0)?.seconds();
    // No rank's computation is hidden by another's wait, so time grows linearly with it.
    let slowdown = ((seconds - without) / (once - without)).max(0.0);
    let copied = copied(slowdown)?;
    let written = run(Strategy::PinDown, MessageProtocol::Rendezvous, slowdown)?;
    let misses = written.all.on_path as f64 / written.ranks.len() as f64;
    Ok(BenchmarkResult {
        slowdown,
        copied,
        hits: (uses - misses).max(0.0),
        misses,
        written,
    })
}

fn judge(part: &mut Part, benchmark: &Benchmark, speed_up: f64, ratio: f64) -> PaperResult<()> {
    let paper = |what: &str| value("pindown", &format!("nas_{}_{what}", benchmark.program));
    part.expect(
        format!("{}: zero copy is faster than copying", benchmark.name),
        format!("{} ×", paper("speedup")?),
        format!("{speed_up:.2} ×"),
        speed_up > 1.0,
        "",
    );
    let theirs = paper("ratio")?;
    let (what, met) = if theirs > 50.0 {
        ("most uses hit", ratio > 50.0)
    } else {
        ("most uses miss", ratio < 50.0)
    };
    part.expect(
        format!("{}: {what}", benchmark.name),
        format!("{theirs} % hit"),
        format!("{ratio:.1} % hit"),
        met,
        "",
    );
    Ok(())
}
