//! What the noise of a trace leaves to be predicted.

use std::collections::HashMap;
use std::hash::Hash;

use super::{BOUNDS, Errors, Setting, communications};
use crate::costs::Backlog;
use crate::signature::{Context, Signature, mix};
use crate::time::Time;
use crate::trace::Trace;

/// How many uses could have been predicted by one constant for uses of the same circumstances, the best
/// one for those before and after, known in hindsight.
///
/// No predictor knows these constants, nor the circumstances in advance. It is what noise leaves to all that
/// say the same of the same, and so what [`evaluate`](super::evaluate) is to be compared with. Circumstances that
/// never come again count as predictable.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Bound {
    /// The whole period, for uses of the same signature and the same communications since its last.
    pub periods: Errors,
    /// The time since the last communication that came early enough to register the buffer after it,
    /// for uses of the same signature and the same last communication.
    pub gaps: Errors,
}

/// Uses before and after one that share its constant.
const AROUND: usize = 16;

/// The bound of a trace.
pub fn bound(trace: &Trace, setting: &Setting) -> Bound {
    let mut all = Bound::default();
    for rank in trace.ranks() {
        let mut context = Context::new(setting.window, setting.grain_bits);
        let mut last: HashMap<Signature, (Time, u64)> = HashMap::new();
        let (mut periods, mut gaps) = (Series::default(), Series::default());
        let mut backlog = Backlog::default();
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
                let way = sum.wrapping_sub(sum_before);
                periods.add((signature, way), period_ns, period_ns);
                let early_enough = stream.partition_point(|other| other.0.after(lead_ns) <= now);
                let landmark = early_enough.checked_sub(1).and_then(|at| stream.get(at));
                // What came before the use before tells no more than that.
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

/// Times of the same circumstances, in their order, each with the period it is a part of.
#[derive(Debug)]
struct Series<K>(HashMap<K, Vec<(u64, u64)>>);

impl<K> Default for Series<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> Series<K> {
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

/// Whether a time is within so many thousandths of the period of the constant that most of those around it are near.
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
    // Of several that are near as many, one that is near this.
    rated.max().is_some_and(|it| it.1)
}
