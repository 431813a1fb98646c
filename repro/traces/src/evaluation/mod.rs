//! The accuracy of predictions on traces of real programs (the paper's Figures 5 and 6).
//!
//! [`evaluate`] plays a trace to a predictor, rank by rank, and compares each forecast with the actual use. The error
//! of a forecast is a share of the period, and is taken twice:
//!
//! - *at the use before*, as the paper does: the forecast when the period began;
//! - *when acted upon*: the forecast in force when the helper has to begin to register the buffer. For predictors
//!   that never correct themselves both are the same.
//!
//! [`bound()`] computes the reach of the best constants in hindsight; the rest is the trace's own jitter.

mod bound;
mod stream;

use std::collections::HashMap;

use hydrant_foresight::{
    Communication, Costs, DEFAULT_WINDOW, PageRun, RegistrationBacklog, Signature,
    SignatureContext, Time,
    predictor::{Forecast, Observation},
};

use crate::predictor::Method;
use crate::trace::Trace;

pub use bound::{HindsightBound, bound};
pub use stream::{TraceClock, communications};

/// The parameters of an evaluation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EvaluationSetting {
    /// The number of earlier communications in a signature.
    pub window: usize,
    /// The number of low address bits that signatures ignore.
    pub grain_bits: u32,
    /// Buffers of more bytes than this are registered (16 KB in the paper, §2).
    pub threshold_bytes: u64,
    /// The clock of the trace.
    pub clock: TraceClock,
    /// The costs of the helper's steps, which determine when a forecast is acted upon.
    pub costs: Costs,
    /// The bytes of a page.
    pub page_bytes: u64,
}

impl EvaluationSetting {
    /// The paper's parameters, by computing time.
    pub const PAPER: EvaluationSetting = EvaluationSetting {
        window: DEFAULT_WINDOW,
        grain_bits: 0,
        threshold_bytes: 16 << 10,
        clock: TraceClock::Computing,
        costs: Costs::TYPICAL,
        page_bytes: 4096,
    };

    /// The lead time of a use: one deregistration of another buffer, and the registration of this buffer and of those
    /// used just before.
    fn lead_ns(&self, backlog: &mut RegistrationBacklog, it: &Communication) -> u64 {
        if it.bytes <= self.threshold_bytes {
            return 0;
        }
        let page = self.page_bytes.max(1);
        let pages = PageRun::of_pages(page, it.addr, it.bytes).bytes / page;
        let one_use_ns = self.costs.one_use(pages, 0, 0);
        backlog.add(
            it.begun,
            one_use_ns.saturating_add(self.costs.register.of(pages)),
        )
    }
}

/// The bounds by which errors are counted, in thousandths of the period: 50 is the paper's 5 %, and 5 its 0.5 %.
pub const BOUNDS: [u32; 8] = [1, 2, 5, 10, 20, 50, 100, 200];

/// Counts of forecasts by their error.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Errors {
    /// The number of forecasts.
    pub forecasts: u64,
    /// Those within each of the [`BOUNDS`].
    pub within: [u64; BOUNDS.len()],
    /// Uses that came before they were expected.
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

/// The accuracy of a predictor.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Accuracy {
    /// Uses of registered buffers.
    pub uses: u64,
    /// Uses with a signature that was seen before.
    pub repeated: u64,
    /// The forecasts as they were at the use before.
    pub at_use: Errors,
    /// The forecasts as they were when acted upon.
    pub acted: Errors,
    /// The deadlines of these forecasts; uses that came before are [`late`](Errors::late).
    pub deadlines: Errors,
}

impl Accuracy {
    /// Adds the counts of another evaluation.
    pub fn join(&mut self, other: &Accuracy) {
        self.uses += other.uses;
        self.repeated += other.repeated;
        self.at_use.join(&other.at_use);
        self.acted.join(&other.acted);
        self.deadlines.join(&other.deadlines);
    }
}

/// Plays a trace to a predictor of its own for each rank.
pub fn evaluate(trace: &Trace, method: Method, setting: &EvaluationSetting) -> Accuracy {
    let mut all = Accuracy::default();
    for rank in trace.ranks() {
        let mut judge = Judge::default();
        let mut predictor = method.predictor();
        let mut context = SignatureContext::new(setting.window, setting.grain_bits);
        let mut updates = Vec::new();
        let mut backlog = RegistrationBacklog::default();
        for it in communications(rank, setting.clock) {
            let seen = Observation {
                signature: context.sign(&it),
                at: it.begun,
                // A trace's communications take no time.
                heard: it.begun,
                wanted: it.bytes > setting.threshold_bytes,
                lead_ns: setting.lead_ns(&mut backlog, &it),
            };
            judge.judge_use(&seen);
            predictor.observe(&seen, &mut updates);
            for update in updates.drain(..) {
                judge.record_forecast(seen.at, update.signature, update.forecast);
            }
        }
        all.join(&judge.accuracy);
    }
    all
}

/// Compares forecasts with the actual uses.
#[derive(Debug, Default)]
struct Judge {
    uses: HashMap<Signature, PendingUse>,
    accuracy: Accuracy,
}

/// A use that may come again.
#[derive(Debug)]
struct PendingUse {
    last: Time,
    lead_ns: u64,
    /// The forecast at the use before, and the forecast in force.
    forecasts: Option<(Forecast, Forecast)>,
}

impl Judge {
    /// Judges the forecasts of a use that has come.
    fn judge_use(&mut self, seen: &Observation) {
        if !seen.wanted {
            return;
        }
        self.accuracy.uses += 1;
        let fresh = PendingUse {
            last: seen.at,
            lead_ns: seen.lead_ns,
            forecasts: None,
        };
        let Some(pending) = self.uses.insert(seen.signature, fresh) else {
            return;
        };
        self.accuracy.repeated += 1;
        if let Some((at_use, acted)) = pending.forecasts {
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

    /// Records a forecast made at `now`; it is too late if the forecast in force was acted upon.
    fn record_forecast(&mut self, now: Time, signature: Signature, forecast: Option<Forecast>) {
        let Some(pending) = self.uses.get_mut(&signature) else {
            return;
        };
        let lead_ns = pending.lead_ns;
        match (&mut pending.forecasts, forecast) {
            (None, Some(first)) => pending.forecasts = Some((first, first)),
            (Some((_, in_force)), Some(other)) if !is_acted_upon(in_force, now, lead_ns) => {
                *in_force = other
            }
            _ => {}
        }
    }
}

/// True if the helper has begun to register by `now`.
fn is_acted_upon(forecast: &Forecast, now: Time, lead_ns: u64) -> bool {
    !forecast.awaits && now >= forecast.expected.before(lead_ns)
}

#[cfg(test)]
mod tests;
