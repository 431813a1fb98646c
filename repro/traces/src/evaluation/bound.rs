//! The accuracy that the noise of a trace permits.

use std::collections::HashMap;
use std::hash::Hash;

use hydrant_base::mix;

use hydrant_foresight::{RegistrationBacklog, Signature, SignatureContext, Time};

use super::{BOUNDS, Errors, EvaluationSetting, communications};
use crate::trace::Trace;

/// Counts the uses that one constant could have predicted for uses in the same circumstances. The constant is the
/// best for the neighbouring uses, known in hindsight.
///
/// No predictor knows these constants, nor the circumstances, in advance. It is the limit that noise sets to all
/// predictors that say the same in the same circumstances. The result of [`evaluate`](super::evaluate) is to be
/// compared with it. Circumstances that never recur count as predictable.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HindsightBound {
    /// The whole period, for uses with the same signature and the same communications since their last.
    pub periods: Errors,
    /// The time since the last communication that left enough time to register the buffer, for uses with the same
    /// signature and the same such communication.
    pub gaps: Errors,
}

/// The number of uses before and after one that share its constant.
const AROUND: usize = 16;

/// Computes the bound of a trace.
pub fn bound(trace: &Trace, setting: &EvaluationSetting) -> HindsightBound {
    let mut all = HindsightBound::default();
    for rank in trace.ranks() {
        let mut context = SignatureContext::new(setting.window, setting.grain_bits);
        let mut last: HashMap<Signature, (Time, u64)> = HashMap::new();
        let (mut periods, mut gaps) = (TimeSeries::default(), TimeSeries::default());
        let mut backlog = RegistrationBacklog::default();
        let mut sum = 0u64;
        let mut stream: Vec<(Time, Signature)> = Vec::new();
        for it in communications(rank, setting.clock) {
            let (now, signature) = (it.begun, context.sign(&it));
            let lead_ns = setting.lead_ns(&mut backlog, &it);
            sum = sum.wrapping_add(mix(signature.0));
            if it.bytes > setting.threshold_bytes
                && let Some((before, sum_before)) = last.insert(signature, (now, sum))
            {
                let period_ns = now.since(before);
                let outcome = sum.wrapping_sub(sum_before);
                periods.add((signature, outcome), period_ns, period_ns);
                let early_enough = stream.partition_point(|other| other.0.after(lead_ns) <= now);
                let landmark = early_enough.checked_sub(1).and_then(|at| stream.get(at));
                // A communication before the use before adds no information.
                let landmark = landmark.filter(|other| other.0 > before);
                let (from, by) = landmark.map_or((before, 0), |other| (other.0, other.1.0));
                gaps.add((signature, by), now.since(from), period_ns);
            }
            stream.push((now, signature));
        }
        periods.judge(&mut all.periods);
        gaps.judge(&mut all.gaps);
    }
    all
}

/// Durations in the same circumstances, in order, each with its period.
#[derive(Debug)]
struct TimeSeries<K>(HashMap<K, Vec<(u64, u64)>>);

impl<K> Default for TimeSeries<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> TimeSeries<K> {
    fn add(&mut self, circumstances: K, time_ns: u64, period_ns: u64) {
        self.0
            .entry(circumstances)
            .or_default()
            .push((time_ns, period_ns));
    }

    fn judge(&self, errors: &mut Errors) {
        for times in self.0.values() {
            for at in 0..times.len() {
                let around = &times[at.saturating_sub(AROUND)..times.len().min(at + AROUND + 1)];
                errors.forecasts += 1;
                for (count, bound) in errors.within.iter_mut().zip(BOUNDS) {
                    *count += u64::from(is_near(times[at], around, bound));
                }
            }
        }
    }
}

/// True if a duration is within `bound` thousandths of the period of the constant that is near most of its
/// neighbours.
fn is_near((time_ns, period_ns): (u64, u64), around: &[(u64, u64)], bound: u32) -> bool {
    let allowed_ns = u128::from(period_ns) * u128::from(bound);
    let near = |a: u64, b: u64| u128::from(a.abs_diff(b)) * 1000 <= allowed_ns;
    let rated = around.iter().map(|&(constant, _)| {
        let count = around
            .iter()
            .filter(|other| near(constant, other.0))
            .count();
        (count, near(constant, time_ns))
    });
    // Among constants with equal counts, one near this duration wins.
    rated.max().is_some_and(|it| it.1)
}
