//! How well uses are predicted on traces of real programs (the paper's Figures 5 and 6).
//!
//! [`evaluate`] plays a trace to a predictor, rank by rank, and compares each forecast with the use that
//! then came. The error of a forecast is a share of the period, and is taken twice:
//!
//! - *at the use before*, as the paper does: of what was said when the period began;
//! - *when acted upon*: of what was in force at the moment at which the helper has to begin to
//!   register the buffer, for that to be done when the use is expected. For predictors that never
//!   correct themselves both are the same.
//!
//! [`bound()`] says what the best constants could have reached in hindsight: the rest is the trace's own
//! jitter.

mod bound;
mod stream;

use std::collections::HashMap;

use crate::communication::{Communication, Region};
use crate::costs::{Backlog, Costs};
use crate::predictor::{Forecast, Method, Observation};
use crate::signature::{Context, DEFAULT_WINDOW, Signature};
use crate::time::Time;
use crate::trace::Trace;

pub use bound::{Bound, bound};
pub use stream::{Clock, communications};

/// What is counted as a use, and how.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setting {
    /// How many communications before belong to a signature.
    pub window: usize,
    /// Low bits of addresses that signatures leave out.
    pub grain_bits: u32,
    /// Buffers of more bytes than this are registered (16 KB in the paper, §2).
    pub threshold_bytes: u64,
    /// Which clock of the trace.
    pub clock: Clock,
    /// What the helper's steps cost: so long before a use a forecast of it is acted upon.
    pub costs: Costs,
    /// The bytes of a page.
    pub page_bytes: u64,
}

impl Setting {
    /// As the paper has it, by computing time.
    pub const PAPER: Setting = Setting {
        window: DEFAULT_WINDOW,
        grain_bits: 0,
        threshold_bytes: 16 << 10,
        clock: Clock::Computing,
        costs: Costs::TYPICAL,
        page_bytes: 4096,
    };

    /// How long before a use the helper has to act: as long as it takes to deregister another buffer and to
    /// register this one, and all that are used just before.
    fn lead_ns(&self, backlog: &mut Backlog, it: &Communication) -> u64 {
        if it.bytes <= self.threshold_bytes {
            return 0;
        }
        let page = self.page_bytes.max(1);
        let pages = Region::of_pages(page, it.addr, it.bytes).bytes / page;
        let one_use_ns = self.costs.one_use(pages, 0, 0);
        backlog.add(
            it.begun,
            one_use_ns.saturating_add(self.costs.register.of(pages)),
        )
    }
}

/// The bounds by which errors are counted, in thousandths of the period: 50 is the paper's 5 %, and 5 its 0.5 %.
pub const BOUNDS: [u32; 8] = [1, 2, 5, 10, 20, 50, 100, 200];

/// How many forecasts were how near.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Errors {
    /// All of them.
    pub forecasts: u64,
    /// Those within each of the [`BOUNDS`].
    pub within: [u64; BOUNDS.len()],
    /// The use came before it was expected.
    pub late: u64,
}

impl Errors {
    fn add(&mut self, expected: Time, came: Time, period_ns: u64) {
        let error_ns = expected.0.abs_diff(came.0);
        self.forecasts += 1;
        for (count, bound) in self.within.iter_mut().zip(BOUNDS) {
            let is_within =
                u128::from(error_ns) * 1000 <= u128::from(period_ns) * u128::from(bound);
            *count += u64::from(is_within);
        }
        self.late += u64::from(expected > came);
    }

    fn join(&mut self, other: &Errors) {
        self.forecasts += other.forecasts;
        for (count, other) in self.within.iter_mut().zip(other.within) {
            *count += other;
        }
        self.late += other.late;
    }

    /// A count of these as a percentage of all.
    pub fn percent(&self, count: u64) -> f64 {
        match self.forecasts {
            0 => 0.0,
            all => 100.0 * count as f64 / all as f64,
        }
    }

    /// The percentage of forecasts that were within one of the [`BOUNDS`]; 0 for any other bound.
    pub fn percent_within(&self, bound: u32) -> f64 {
        let at = BOUNDS.iter().position(|it| *it == bound);
        at.map_or(0.0, |at| self.percent(self.within[at]))
    }
}

/// How well a predictor did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Accuracy {
    /// Uses of registered buffers.
    pub uses: u64,
    /// Those of a signature that was seen before.
    pub repeated: u64,
    /// The forecasts as they were at the use before.
    pub at_use: Errors,
    /// The forecasts as they were when acted upon.
    pub acted: Errors,
    /// The deadlines that these gave: uses that came before are [`late`](Errors::late).
    pub deadlines: Errors,
}

impl Accuracy {
    /// Adds what was seen elsewhere.
    pub fn join(&mut self, other: &Accuracy) {
        self.uses += other.uses;
        self.repeated += other.repeated;
        self.at_use.join(&other.at_use);
        self.acted.join(&other.acted);
        self.deadlines.join(&other.deadlines);
    }
}

/// One predictor on one trace.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row {
    /// Which predictor.
    pub method: Method,
    /// How many communications before belonged to a signature.
    pub window: usize,
    /// How well it did.
    pub accuracy: Accuracy,
}

/// All predictors, each with the windows that tell how much it depends on them (Figures 5 and 6): those of
/// signatures, and for the periodicity predictor its own, as its patterns have their context in them.
pub fn compare(trace: &Trace, setting: &Setting) -> Vec<Row> {
    let by_signature = [
        Method::Shortest,
        Method::Median { of: 9 },
        Method::Landmarks,
    ];
    let with_windows = |method| [0, 1, 2, 4].map(|window| (method, window));
    let signatures = by_signature.into_iter().flat_map(with_windows);
    let patterns = [8, 16, 32, 64, 128, 256].map(|window| (Method::Periodicity { window }, 0));
    let all = signatures.chain(patterns);
    all.map(|(method, window)| Row {
        method,
        window,
        accuracy: evaluate(trace, method, &Setting { window, ..*setting }),
    })
    .collect()
}

/// Plays a trace to a predictor of its own for each rank.
pub fn evaluate(trace: &Trace, method: Method, setting: &Setting) -> Accuracy {
    let mut all = Accuracy::default();
    for rank in trace.ranks() {
        let mut judge = Judge::default();
        let mut predictor = method.predictor();
        let mut context = Context::new(setting.window, setting.grain_bits);
        let mut updates = Vec::new();
        let mut backlog = Backlog::default();
        for it in communications(rank, setting.clock) {
            let seen = Observation {
                signature: context.sign(&it),
                at: it.begun,
                // A trace's communications take no time.
                heard: it.begun,
                wanted: it.bytes > setting.threshold_bytes,
                lead_ns: setting.lead_ns(&mut backlog, &it),
            };
            judge.came(&seen);
            predictor.observe(&seen, &mut updates);
            for update in updates.drain(..) {
                judge.said(seen.at, update.signature, update.forecast);
            }
        }
        all.join(&judge.accuracy);
    }
    all
}

/// Compares what is said with what comes.
#[derive(Debug, Default)]
struct Judge {
    uses: HashMap<Signature, Pending>,
    accuracy: Accuracy,
}

/// A use that may come again.
#[derive(Debug)]
struct Pending {
    last: Time,
    lead_ns: u64,
    /// What was said at the use before, and what is in force.
    said: Option<(Forecast, Forecast)>,
}

impl Judge {
    /// A communication has come: what was said of it is judged.
    fn came(&mut self, seen: &Observation) {
        if !seen.wanted {
            return;
        }
        self.accuracy.uses += 1;
        let fresh = Pending {
            last: seen.at,
            lead_ns: seen.lead_ns,
            said: None,
        };
        let Some(pending) = self.uses.insert(seen.signature, fresh) else {
            return;
        };
        self.accuracy.repeated += 1;
        if let Some((at_use, acted)) = pending.said {
            let period_ns = seen.at.since(pending.last);
            self.accuracy
                .at_use
                .add(at_use.expected, seen.at, period_ns);
            self.accuracy.acted.add(acted.expected, seen.at, period_ns);
            self.accuracy
                .deadlines
                .add(acted.earliest, seen.at, period_ns);
        }
    }

    /// Something is said at the moment `now`; too late if what was said before was acted upon.
    fn said(&mut self, now: Time, signature: Signature, forecast: Option<Forecast>) {
        let Some(pending) = self.uses.get_mut(&signature) else {
            return;
        };
        let lead_ns = pending.lead_ns;
        match (&mut pending.said, forecast) {
            (None, Some(first)) => pending.said = Some((first, first)),
            (Some((_, in_force)), Some(other)) if !is_acted_upon(in_force, now, lead_ns) => {
                *in_force = other
            }
            _ => {}
        }
    }
}

/// Whether the helper has begun to register by `now`.
fn is_acted_upon(forecast: &Forecast, now: Time, lead_ns: u64) -> bool {
    !forecast.awaits && now >= forecast.expected.before(lead_ns)
}
