//! The landmark predictor: it learns the program's path, the path's duration, and the communication just before a
//! use.
//!
//! Three ideas make it better than one period for each signature.
//!
//! **Paths.** Between two uses of a signature the program makes other communications: the *path* it takes. A call
//! site in a nested loop (Figure 4) takes one path 24 times and then another, far longer one; one period fits
//! neither. Each path has its own history. The next path is predicted from the length of the current run, which is
//! the loop's trip count.
//!
//! **The densest time.** Of a path's last durations, the predictor takes the one around which most lie, not the
//! shortest nor the median ([`History::densest`]).
//!
//! **Landmarks.** Each path has a *landmark*: the last communication before the use that leaves enough time to
//! register the buffer. When the landmark comes, the use is forecast anew from it. The remaining time is a small part
//! of the period, and so has a small part of its noise. As the use never comes before its landmark, nothing needs to
//! be done until then.
//!
//! A landmark is recognized by the communications since the use, as a sum of hashes that grows with the stream. So
//! one lookup in a table finds all uses that await it, however many. The bound of this method is the noise of the
//! longest computation without communication just before a use.

use std::collections::VecDeque;

use hydrant_base::mix;

use super::generations::Generations;
use super::history::History;
use super::path::{Passed, ProgramPath, Sum};
use super::{Forecast, Observation, Update};
use crate::signature::Signature;
use crate::time::Time;

/// The number of signatures kept, by one predictor, or by all threads of a plan together. Each takes less than
/// [`MOST_SITE_BYTES`].
pub(crate) const MOST_SITES: usize = 1 << 13;

/// The most bytes of the history of one signature, when each of its paths has been taken often.
#[cfg(all(test, not(loom)))]
pub(super) const MOST_SITE_BYTES: usize = 10 << 10;

/// The number of last communications that may be landmarks.
const RECENT: usize = 128;

/// The most paths of one signature; the least recently taken is forgotten.
const MOST_PATHS: usize = 8;

/// The most ends of runs that one signature remembers.
const MOST_TURNS: usize = 64;

/// The number of equal ends of a run after which the next path is taken for certain.
const CERTAIN: u32 = 2;

/// The landmark predictor.
#[derive(Debug)]
pub struct Landmarks {
    pub(super) sites: Generations<Signature, SiteHistory>,
    /// Awaited landmarks: for each sum, the uses whose landmark is reached at it.
    pub(super) awaited: Generations<Sum, Vec<Signature>>,
    /// The last communications, newest last.
    recent: VecDeque<Passed>,
    sum: Sum,
}

impl Landmarks {
    /// Makes an empty predictor.
    pub fn new() -> Self {
        Self {
            sites: Generations::new(MOST_SITES),
            awaited: Generations::new(MOST_SITES),
            recent: VecDeque::with_capacity(RECENT),
            sum: 0,
        }
    }

    /// Sets the number of signatures kept from now on.
    pub(crate) fn keep_at_most(&mut self, sites: usize) {
        self.sites.keep_at_most(sites);
        self.awaited.keep_at_most(sites);
    }

    /// The number of signatures kept.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn kept(&self) -> usize {
        self.sites.len()
    }

    /// Observes the next communication of the stream, and appends changed forecasts to `updates`. They are of this
    /// signature, if its buffer is wanted, and maybe of others.
    pub fn observe(&mut self, seen: &Observation, updates: &mut Vec<Update>) {
        self.sum = self.sum.wrapping_add(mix(seen.signature.0));
        if seen.wanted {
            let forecast = self.learn(seen);
            updates.push(Update {
                signature: seen.signature,
                forecast,
            });
        }
        self.forecast_awaited(seen.at, updates);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(Passed {
            at: seen.at,
            heard: seen.heard,
            sum: self.sum,
        });
    }

    /// Handles a use: learns the path to it, and forecasts the next.
    fn learn(&mut self, seen: &Observation) -> Option<Forecast> {
        let Self {
            sites,
            awaited,
            recent,
            sum,
        } = self;
        let mut is_new = false;
        let site = sites.get_or_insert_with(seen.signature, || {
            is_new = true;
            SiteHistory::new(seen.at)
        });
        for target in site.targets.drain(..) {
            if let Some(waiting) = awaited.get_mut(&target) {
                waiting.retain(|it| *it != seen.signature);
                if waiting.is_empty() {
                    awaited.remove(&target);
                }
            }
        }
        // If the clock was set back, the difference means nothing.
        if !is_new && seen.at >= site.last {
            let period_ns = seen.at.since(site.last);
            site.learn(seen, period_ns, sum.wrapping_sub(site.last_sum), recent);
        }
        site.last = seen.at;
        site.last_sum = *sum;
        let certain = site.next_turn().filter(|turn| turn.times >= CERTAIN);
        site.certain = certain.map(|turn| turn.taken);
        for landmark in site.paths.iter().filter_map(|path| path.landmark) {
            let target = sum.wrapping_add(landmark);
            site.targets.push(target);
            awaited
                .get_or_insert_with(target, Vec::new)
                .push(seen.signature);
        }
        site.forecast()
    }

    /// Forecasts anew the uses whose landmark this communication is.
    fn forecast_awaited(&mut self, at: Time, updates: &mut Vec<Update>) {
        let Some(waiting) = self.awaited.remove(&self.sum) else {
            return;
        };
        for signature in waiting {
            let Some(site) = self.sites.get_mut(&signature) else {
                continue;
            };
            let since = self.sum.wrapping_sub(site.last_sum);
            let means = |path: &&ProgramPath| {
                path.landmark == Some(since) && site.certain.is_none_or(|it| it == path.taken)
            };
            let path = site.paths.iter().find(means);
            if let Some(forecast) = path.and_then(|path| path.expected_at(at)) {
                updates.push(Update {
                    signature,
                    forecast: Some(forecast),
                });
            }
        }
    }
}

impl Default for Landmarks {
    fn default() -> Self {
        Self::new()
    }
}

/// The history of a signature.
#[derive(Debug)]
pub(super) struct SiteHistory {
    last: Time,
    last_sum: Sum,
    /// The periods over all paths.
    periods: History,
    /// The paths, most recently taken first.
    paths: Vec<ProgramPath>,
    /// The number of times that the last path was taken in a row.
    run: u32,
    /// The ends of runs, the newest last.
    turns: VecDeque<RunEnd>,
    /// The path that is certain to come next, if any. Landmarks of other paths then mean nothing, because paths begin
    /// alike.
    certain: Option<Sum>,
    /// The sums at which landmarks are reached.
    targets: Vec<Sum>,
}

impl SiteHistory {
    fn new(at: Time) -> Self {
        Self {
            last: at,
            last_sum: 0,
            periods: History::default(),
            paths: Vec::new(),
            run: 0,
            turns: VecDeque::new(),
            certain: None,
            targets: Vec::new(),
        }
    }

    fn learn(&mut self, seen: &Observation, period_ns: u64, taken: Sum, recent: &VecDeque<Passed>) {
        self.turn(taken);
        self.periods.push(period_ns);
        let mut path = match self.paths.iter().position(|path| path.taken == taken) {
            Some(at) => self.paths.remove(at),
            None => ProgramPath::new(taken),
        };
        path.periods.push(period_ns);
        path.learn_landmark(seen, self.last_sum, recent);
        self.paths.truncate(MOST_PATHS - 1);
        self.paths.insert(0, path);
    }

    /// The bytes of this history.
    #[cfg(all(test, not(loom)))]
    pub(super) fn bytes(&self) -> usize {
        let paths: usize = self.paths.iter().map(ProgramPath::bytes).sum();
        size_of::<Self>()
            + self.periods.bytes()
            + self.paths.capacity() * size_of::<ProgramPath>()
            + paths
            + self.turns.capacity() * size_of::<RunEnd>()
            + self.targets.capacity() * size_of::<Sum>()
    }

    /// Remembers the path that follows a run, and the run's length.
    fn turn(&mut self, taken: Sum) {
        let Some(last) = self.paths.first().map(|path| path.taken) else {
            self.run = 1;
            return;
        };
        let known = self.turns.iter().position(|it| it.is_after(last, self.run));
        let before = known.and_then(|at| self.turns.remove(at));
        // A run that continues needs no entry, because that is the default.
        if taken != last {
            if self.turns.len() == MOST_TURNS {
                self.turns.pop_front();
            }
            let times = before
                .filter(|it| it.taken == taken)
                .map_or(0, |it| it.times);
            self.turns.push_back(RunEnd {
                last,
                run: self.run,
                taken,
                times: times.saturating_add(1),
            });
        }
        self.run = if taken == last {
            self.run.saturating_add(1)
        } else {
            1
        };
    }

    /// The path that follows a run of the current length, if known.
    fn turned(&self) -> Option<&ProgramPath> {
        let taken = self.next_turn()?.taken;
        self.paths.iter().find(|path| path.taken == taken)
    }

    /// The known end of a run of the current length.
    fn next_turn(&self) -> Option<&RunEnd> {
        let last = self.paths.first()?.taken;
        self.turns.iter().find(|it| it.is_after(last, self.run))
    }

    fn forecast(&self) -> Option<Forecast> {
        let turned = self.turned();
        let path = turned.or_else(|| self.paths.first())?;
        let (period_ns, earliest_ns) = if turned.is_none() && path.periods.is_sparse() {
            // Almost every use takes a new path, so this use is irregular (§3.1, "Discussion").
            let shortest = self.periods.shortest()?;
            (shortest, shortest)
        } else {
            (
                path.periods.densest(path.periods.newest()?)?,
                path.periods.shortest()?,
            )
        };
        Some(Forecast {
            expected: self.last.after(period_ns),
            earliest: self.last.after(earliest_ns.min(period_ns)),
            period_ns,
            awaits: path.is_trusted(),
        })
    }
}

/// The path that followed after another was taken `run` times in a row.
#[derive(Debug)]
struct RunEnd {
    last: Sum,
    run: u32,
    taken: Sum,
    /// The number of times in a row that this was so.
    times: u32,
}

impl RunEnd {
    fn is_after(&self, last: Sum, run: u32) -> bool {
        (self.last, self.run) == (last, run)
    }
}
