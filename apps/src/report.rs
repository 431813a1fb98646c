//! The measurements, printed by the first rank.

use std::{
    io::{self, Write},
    time::Duration,
};

use hydrant::{Job, Op, Result};
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{
    exchange::Putting,
    options::{SummaryFormat, Verify},
    program::ignore_closed_reader,
};

/// The time of this rank, divided into computation and communication, by the job's clock.
#[derive(Debug)]
pub struct PhaseTimer<'job> {
    job: &'job Job,
    computing: Duration,
    communicating: Duration,
}

impl<'job> PhaseTimer<'job> {
    fn new(job: &'job Job) -> Self {
        Self {
            job,
            computing: Duration::ZERO,
            communicating: Duration::ZERO,
        }
    }

    /// Runs a computation of `operations` operations.
    pub fn compute<R>(&mut self, operations: u64, body: impl FnOnce() -> R) -> R {
        let start = self.job.now();
        let result = body();
        self.job.compute(operations);
        self.computing += self.job.now().saturating_sub(start);
        result
    }

    /// Runs communication, or a wait for it.
    pub fn communicate<R>(&mut self, body: impl FnOnce() -> R) -> R {
        let start = self.job.now();
        let result = body();
        self.communicating += self.job.now().saturating_sub(start);
        result
    }
}

/// The figures of all ranks together.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// The time from the common start until all ranks were done: that of the slowest rank.
    pub seconds: f64,
    /// The computing part: that of the slowest rank.
    pub compute_seconds: f64,
    /// The part in communication and waits: that of the slowest rank.
    pub communication_seconds: f64,
    /// Puts of all ranks in that time.
    pub puts: u64,
    /// The bytes that these puts carried.
    pub put_bytes: u64,
    /// The mean time of a put: the time of all ranks in puts, divided by their number.
    pub mean_put_nanoseconds: Option<f64>,
    /// The mean over puts with memory already registered on both sides, where registration is
    /// needed.
    pub one_sided_put_nanoseconds: Option<f64>,
    /// The mean over the other puts there.
    pub other_put_nanoseconds: Option<f64>,
    /// The counters of all ranks, from the start of the program on.
    #[serde(serialize_with = "as_map")]
    pub counters: Vec<(&'static str, u64)>,
}

fn as_map<S: Serializer>(rows: &[(&'static str, u64)], to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(rows.len()))?;
    for (name, value) in rows {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

/// Measures `body`, which all ranks begin together and end together. Returns the result of `body`.
/// `body` gets a clock for its computation and communication, and also returns its time in puts.
/// Collective.
///
/// # Errors
/// The errors of `body` and of [`Job::barrier`].
pub fn measure<R>(
    job: &Job,
    body: impl FnOnce(&mut PhaseTimer<'_>) -> Result<(R, Putting)>,
) -> Result<(R, Figures)> {
    job.barrier()?;
    let (before, start) = (job.counters(), job.now());
    let mut clock = PhaseTimer::new(job);
    let (result, putting) = body(&mut clock)?;
    job.barrier()?;
    let (after, elapsed) = (job.counters(), job.now().saturating_sub(start));

    let mut slowest = [elapsed, clock.computing, clock.communicating].map(nanoseconds);
    job.all_reduce(&mut slowest, Op::Max)?;
    let rows = after.rows();
    let mut sums: Vec<u64> = rows.iter().map(|(_, value)| *value).collect();
    sums.push(after.puts - before.puts);
    sums.push(after.put_bytes - before.put_bytes);
    sums.push(nanoseconds(putting.time));
    sums.push(putting.one_sided);
    sums.push(nanoseconds(putting.one_sided_time));
    job.all_reduce(&mut sums, Op::Sum)?;

    let [seconds, compute_seconds, communication_seconds] =
        slowest.map(|nanoseconds| nanoseconds as f64 * 1e-9);
    let [puts, put_bytes, putting, one_sided, in_one_sided] =
        [0, 1, 2, 3, 4].map(|figure| sums[rows.len() + figure]);
    let mean = |time: u64, puts: u64| (puts > 0).then(|| time as f64 / puts as f64);
    let registers = job.registration().is_some();
    let others = puts.saturating_sub(one_sided);
    let figures = Figures {
        seconds,
        compute_seconds,
        communication_seconds,
        puts,
        put_bytes,
        mean_put_nanoseconds: mean(putting, puts),
        one_sided_put_nanoseconds: mean(in_one_sided, one_sided),
        other_put_nanoseconds: mean(putting.saturating_sub(in_one_sided), others)
            .filter(|_| registers),
        counters: (rows.iter().zip(&sums))
            .map(|((name, _), sum)| (*name, *sum))
            .collect(),
    };
    Ok((result, figures))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The result of a program and its speed. `P` is the part for its own problem.
#[derive(Debug, Serialize)]
pub struct Report<P> {
    /// The program's name.
    pub program: &'static str,
    /// Ranks in the job.
    pub ranks: u32,
    /// The problem solved.
    #[serde(flatten)]
    pub problem: P,
    /// The check of the result. The result passed: otherwise there is no report.
    pub verified: Verify,
    /// The measurements.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A problem, for people.
pub trait Rows {
    /// Names and values, in order.
    fn rows(&self) -> Vec<(&'static str, String)>;

    /// The speed of the solution.
    fn rate(&self) -> String;

    /// The meaning of a passed check.
    fn passed(&self, check: Verify) -> &'static str;
}

impl<P: Rows + Serialize> Report<P> {
    /// Prints the report to standard output in one write. A closed reader is no failure.
    ///
    /// # Errors
    /// If the write fails.
    pub fn print(&self, format: SummaryFormat) -> io::Result<()> {
        let text = match format {
            SummaryFormat::Table => self.table(),
            SummaryFormat::Json => serde_json::to_string(self)? + "\n",
        };
        let mut out = io::stdout().lock();
        ignore_closed_reader(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
    }

    fn table(&self) -> String {
        let figures = &self.figures;
        let share = |seconds: f64| {
            let percent = 100.0 * seconds / figures.seconds.max(f64::MIN_POSITIVE);
            format!("{} ({percent:.0} %)", time(seconds))
        };
        let mut rows = self.problem.rows();
        rows.push(("time", time(figures.seconds)));
        rows.push(("  computing", share(figures.compute_seconds)));
        rows.push(("  communicating", share(figures.communication_seconds)));
        rows.push(("speed", self.problem.rate()));
        rows.push(("puts", figures.puts.to_string()));
        rows.push(("  bytes", bytes(figures.put_bytes)));
        if let Some(mean) = figures.mean_put_nanoseconds {
            rows.push(("  mean", time(mean * 1e-9)));
        }
        rows.push(("result", self.problem.passed(self.verified).to_owned()));
        let mut text = format!(
            "{} on {} rank{}\n",
            self.program,
            self.ranks,
            plural(self.ranks)
        );
        for (name, value) in rows {
            text += &format!("  {name:<16}{value}\n");
        }
        text += "counters, all ranks\n";
        text + &counters(&figures.counters)
    }
}

/// The counters that counted, in one column of names and one of values.
fn counters(all: &[(&'static str, u64)]) -> String {
    let counted = all.iter().filter(|(_, value)| *value > 0);
    let longest = counted.clone().map(|(name, _)| name.len()).max();
    let width = longest.map_or(16, |longest| (longest + 2).max(16));
    counted
        .map(|(name, value)| format!("  {name:<width$}{value}\n"))
        .collect()
}

fn plural(number: u32) -> &'static str {
    if number == 1 { "" } else { "s" }
}

/// A time with three digits and a unit.
fn time(seconds: f64) -> String {
    let (scaled, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s if s >= 1e-6 => (s * 1e6, "µs"),
        s => (s * 1e9, "ns"),
    };
    digits(scaled, unit)
}

/// Bytes with three digits and a unit.
fn bytes(number: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = number as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        return format!("{number} B");
    }
    digits(scaled, units[unit])
}

/// Three digits, or all digits before the point if there are more.
pub(crate) fn digits(value: f64, unit: &str) -> String {
    let places = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.places$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let seconds = [2.5, 0.123_456, 1.234e-5, 42e-9, 0.0, 99.99, 9.996];
        let shown = seconds.map(time);
        let expected = [
            "2.50 s", "123 ms", "12.3 µs", "42.0 ns", "0.00 ns", "100 s", "10.0 s",
        ];
        assert_eq!(shown, expected);
        let shown = [0, 1023, 1024, 3 << 19, 5 << 40].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.00 KiB", "1.50 MiB", "5.00 TiB"]);
    }

    #[test]
    fn counters_with_long_names_line_up() {
        let shown = counters(&[("puts", 11), ("gets", 0), ("registration_messages", 22)]);
        let expected = "  puts                   11\n  registration_messages  22\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn figures_are_those_of_all_ranks() {
        let ends = Job::builder().unwrap().heap(1 << 22).run_local(3, |job| {
            let memory = job.alloc::<u64>(4)?;
            let (_, figures) = measure(job, |clock| {
                for _ in 0..=job.rank().0 {
                    clock.communicate(|| memory.put(job.right(), 0, &[1, 2]))?;
                }
                Ok((
                    (),
                    Putting {
                        time: Duration::from_nanos(100),
                        ..Putting::default()
                    },
                ))
            })?;
            Ok(figures)
        });
        for figures in ends {
            let figures = figures.unwrap();
            assert_eq!((figures.puts, figures.put_bytes), (6, 96));
            assert_eq!(figures.mean_put_nanoseconds, Some(50.0));
            assert!(figures.communication_seconds <= figures.seconds);
        }
    }
}
