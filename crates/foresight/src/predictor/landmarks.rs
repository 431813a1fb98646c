//! Our predictor: which way the program goes, how long that takes, and what comes just before.
//!
//! Three things make it better than a period for each signature.
//!
//! **Ways.** Between two uses of a signature the program makes other communications. Which these
//! were is the *way* it took. A call site in a nested loop (Figure 4) takes one way 24 times and then
//! another, far longer one; a period for both fits neither. Each way has its own history, and
//! which comes next is predicted by how often the last was taken in a row, which is the loop's
//! trip count.
//!
//! **The densest time.** Of a way's last times, the one around which most are, not
//! the shortest nor the median ([`History::densest`]).
//!
//! **Landmarks.** Each way has a *landmark*: the last communication before the use that comes
//! early enough for the buffer to be registered after it. When it comes, the use is expected anew, by the
//! time from the landmark to the use, which is a small part of the period and so has a small part of
//! its noise. And as the use never comes before its landmark, nothing needs to be done until that.
//!
//! A landmark is recognized by what happened since the use: the communications between, as a sum of
//! hashes that grows with the stream. So all that is waited for is found by one look into a
//! table, however many uses wait. What bounds all this is the noise of the longest computation without any
//! communication that ends with a use: nobody hears anything from within it.

use std::collections::VecDeque;

use super::generations::Generations;
use super::history::History;
use super::shortest::MOST_SITES;
use super::way::{Passed, Sum, Way};
use super::{Forecast, Observation, Predictor, Update, period};
use crate::signature::{Signature, mix};
use crate::time::Time;

/// How many of the last communications may be landmarks.
const RECENT: usize = 128;

/// The most ways of one signature; the one not taken for longest is forgotten.
const MOST_WAYS: usize = 8;

/// The most ends of runs that one signature remembers.
const MOST_TURNS: usize = 64;

/// How often a run must have ended alike for the way after it to be taken for certain.
const CERTAIN: u32 = 2;

/// The predictor.
#[derive(Debug)]
pub struct Landmarks {
    pub(super) sites: Generations<Signature, Site>,
    /// What is waited for: the uses whose landmark is reached when the sum is that.
    pub(super) awaited: Generations<Sum, Vec<Signature>>,
    /// The last communications, newest last.
    recent: VecDeque<Passed>,
    sum: Sum,
}

impl Landmarks {
    /// A predictor that knows nothing yet.
    pub fn new() -> Self {
        Self {
            sites: Generations::new(MOST_SITES),
            awaited: Generations::new(MOST_SITES),
            recent: VecDeque::with_capacity(RECENT),
            sum: 0,
        }
    }

    /// A use: learns the way to it, and says when the next one comes.
    fn used(&mut self, seen: &Observation) -> Option<Forecast> {
        let Self {
            sites,
            awaited,
            recent,
            sum,
        } = self;
        let mut is_new = false;
        let site = sites.get_or_insert_with(seen.signature, || {
            is_new = true;
            Site::new(seen.at)
        });
        for target in site.targets.drain(..) {
            if let Some(waiting) = awaited.get_mut(&target) {
                waiting.retain(|it| *it != seen.signature);
                if waiting.is_empty() {
                    awaited.remove(&target);
                }
            }
        }
        if !is_new && let Some(period_ns) = period(site.last, seen.at) {
            site.learn(seen, period_ns, sum.wrapping_sub(site.last_sum), recent);
        }
        site.last = seen.at;
        site.last_sum = *sum;
        let certain = site.next_turn().filter(|turn| turn.times >= CERTAIN);
        site.certain = certain.map(|turn| turn.taken);
        for landmark in site.ways.iter().filter_map(|way| way.landmark) {
            let target = sum.wrapping_add(landmark);
            site.targets.push(target);
            awaited
                .get_or_insert_with(target, Vec::new)
                .push(seen.signature);
        }
        site.forecast()
    }

    /// The landmarks that this communication is: what they precede is expected anew.
    fn reached(&mut self, at: Time, updates: &mut Vec<Update>) {
        let Some(waiting) = self.awaited.remove(&self.sum) else {
            return;
        };
        for signature in waiting {
            let Some(site) = self.sites.get_mut(&signature) else {
                continue;
            };
            let since = self.sum.wrapping_sub(site.last_sum);
            let means = |way: &&Way| {
                way.landmark == Some(since) && site.certain.is_none_or(|it| it == way.taken)
            };
            let way = site.ways.iter().find(means);
            if let Some(forecast) = way.and_then(|way| way.expected_at(at)) {
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

impl Predictor for Landmarks {
    fn observe(&mut self, seen: &Observation, updates: &mut Vec<Update>) {
        self.sum = self.sum.wrapping_add(mix(seen.signature.0));
        if seen.wanted {
            let forecast = self.used(seen);
            updates.push(Update {
                signature: seen.signature,
                forecast,
            });
        }
        self.reached(seen.at, updates);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(Passed {
            at: seen.at,
            heard: seen.heard,
            sum: self.sum,
        });
    }
}

/// What is known of a signature.
#[derive(Debug)]
pub(super) struct Site {
    last: Time,
    last_sum: Sum,
    /// The periods, whichever the way.
    periods: History,
    /// Those taken lately, the last one first.
    ways: Vec<Way>,
    /// How often the last was taken in a row.
    run: u32,
    /// Where runs ended, the newest last.
    turns: VecDeque<Turn>,
    /// The way that is certain to come next, if one is: the landmarks of others mean nothing then, for
    /// ways begin alike.
    certain: Option<Sum>,
    /// The sums at which landmarks are reached.
    targets: Vec<Sum>,
}

impl Site {
    fn new(at: Time) -> Self {
        Self {
            last: at,
            last_sum: 0,
            periods: History::default(),
            ways: Vec::new(),
            run: 0,
            turns: VecDeque::new(),
            certain: None,
            targets: Vec::new(),
        }
    }

    fn learn(&mut self, seen: &Observation, period_ns: u64, taken: Sum, recent: &VecDeque<Passed>) {
        self.turn(taken);
        self.periods.push(period_ns);
        let mut way = match self.ways.iter().position(|way| way.taken == taken) {
            Some(at) => self.ways.remove(at),
            None => Way::new(taken),
        };
        way.periods.push(period_ns);
        way.learn_landmark(seen, self.last_sum, recent);
        self.ways.truncate(MOST_WAYS - 1);
        self.ways.insert(0, way);
    }

    /// Remembers after how many in a row which way follows.
    fn turn(&mut self, taken: Sum) {
        let Some(last) = self.ways.first().map(|way| way.taken) else {
            self.run = 1;
            return;
        };
        let known = self.turns.iter().position(|it| it.is_after(last, self.run));
        let before = known.and_then(|at| self.turns.remove(at));
        // That a run goes on needs no entry: it is what is expected where nothing is known.
        if taken != last {
            if self.turns.len() == MOST_TURNS {
                self.turns.pop_front();
            }
            let times = before
                .filter(|it| it.taken == taken)
                .map_or(0, |it| it.times);
            self.turns.push_back(Turn {
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

    /// The way that follows the run that ends now, if it is known to.
    fn turned(&self) -> Option<&Way> {
        let taken = self.next_turn()?.taken;
        self.ways.iter().find(|way| way.taken == taken)
    }

    /// Where the run ends now, if it is known to.
    fn next_turn(&self) -> Option<&Turn> {
        let last = self.ways.first()?.taken;
        self.turns.iter().find(|it| it.is_after(last, self.run))
    }

    fn forecast(&self) -> Option<Forecast> {
        let turned = self.turned();
        let way = turned.or_else(|| self.ways.first())?;
        let (period_ns, earliest_ns) = if turned.is_none() && way.periods.is_sparse() {
            // A new way almost every time: this use is irregular (§3.1, "Discussion").
            let shortest = self.periods.shortest()?;
            (shortest, shortest)
        } else {
            (
                way.periods.densest(way.periods.newest()?)?,
                way.periods.shortest()?,
            )
        };
        Some(Forecast {
            expected: self.last.after(period_ns),
            earliest: self.last.after(earliest_ns.min(period_ns)),
            period_ns,
            awaits: way.is_trusted(),
        })
    }
}

/// Another way follows after one was taken so often in a row.
#[derive(Debug)]
struct Turn {
    last: Sum,
    run: u32,
    taken: Sum,
    /// How often it was so, the last times.
    times: u32,
}

impl Turn {
    fn is_after(&self, last: Sum, run: u32) -> bool {
        (self.last, self.run) == (last, run)
    }
}
