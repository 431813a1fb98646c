//! A rank of a host and its helper on a core that it may share, in virtual time (Li et al. 2011,
//! §5).
//!
//! The plan is the shipped one. The rank follows a trace and waits for no other rank, because the
//! model is about the helper's schedule and its effect on the rank. Helpers of one core run in
//! turns, each for a whole time slice, as in the paper's condition (2).

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use hydrant_foresight::plan::{HelperTask, Plan, PlanConfig, RegionId, Stats, ThreadId};
use hydrant_foresight::sharing::Sharing;
use hydrant_foresight::{Communication, Costs, PageRun, RegistrationOutcome, Time};

/// Bytes of a page.
const PAGE: u64 = 4096;
/// The largest message that is copied (§2).
pub(super) const THRESHOLD: u64 = 16 << 10;

/// The turns of a helper.
#[derive(Clone, Copy, Debug)]
pub(super) struct HelperTurns {
    /// All helpers of the core, and the time slice of each.
    pub(super) sharing: Sharing,
    /// The index of this helper.
    pub(super) own: u32,
}

impl HelperTurns {
    /// The start and the end of the first turn, and the time from one turn to the next.
    fn first(&self) -> (u64, u64, u64) {
        let Sharing {
            helpers,
            time_slice_ns,
            context_switch_ns,
        } = self.sharing;
        if helpers <= 1 {
            return (0, u64::MAX, u64::MAX);
        }
        let turn = time_slice_ns.max(1) + context_switch_ns;
        let start = u64::from(self.own) * turn;
        (
            start,
            start + time_slice_ns.max(1),
            u64::from(helpers) * turn,
        )
    }

    /// The first moment from `at` on at which the helper runs, and the rest of its turn.
    fn ready(&self, at: u64) -> (u64, u64) {
        let (start, end, all) = self.first();
        let within = at % all;
        match within {
            early if early < start => (at + (start - early), end - start),
            now if now < end => (at, end - now),
            late => (at + (all - late) + start, end - start),
        }
    }

    /// The end of work that takes `takes_ns` and begins at `at`.
    fn after(&self, at: u64, mut takes_ns: u64) -> u64 {
        let (mut now, mut left) = self.ready(at);
        while takes_ns > left {
            takes_ns -= left;
            (now, left) = self.ready(now + left);
        }
        now + takes_ns
    }
}

/// The results of a rank.
#[derive(Clone, Debug, Default)]
pub(super) struct RankHistory {
    /// Registered bytes, with the time of each change.
    pub(super) series: Vec<(Duration, u64)>,
    /// The time from its first communication to its last.
    pub(super) took: Duration,
    /// The time spent on registering, or on waiting for the helper to register.
    pub(super) stalled: Duration,
    /// The counters of the helper's plan.
    pub(super) stats: Stats,
}

/// Plays a rank's communications. The helper begins after the given number of uses of registered
/// buffers, or there is none.
pub(super) fn play_rank(
    communications: &[Communication],
    costs: Costs,
    helper: Option<(HelperTurns, usize)>,
) -> RankHistory {
    let mut rank = ModelRank::new(communications, costs);
    let mut helper = helper.and_then(|(turns, from)| ModelHelper::new(costs, turns, from));
    while let Some(at) = rank.next {
        match &mut helper {
            Some(helper) if helper.next().is_some_and(|it| it <= at) => helper.step(&mut rank.nic),
            helper => rank.step(at, helper.as_mut()),
        }
    }
    RankHistory {
        series: rank.nic.series,
        took: Duration::from_nanos(rank.last),
        stalled: Duration::from_nanos(rank.stalled_ns),
        stats: helper.map_or_else(Stats::default, |it| it.plan.stats()),
    }
}

/// The state of a region; an unknown region is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostRegionState {
    Registered,
    /// The helper registers or deregisters it until this time.
    Busy(u64),
}

/// The registered regions.
#[derive(Debug, Default)]
struct RegisteredRegions {
    regions: HashMap<(u64, u64), HostRegionState>,
    in_use: Option<(u64, u64)>,
    bytes: u64,
    series: Vec<(Duration, u64)>,
}

impl RegisteredRegions {
    fn count(&mut self, at: u64, bytes: u64) {
        self.bytes = bytes;
        self.series.push((Duration::from_nanos(at), bytes));
    }
}

fn key(region: PageRun) -> (u64, u64) {
    (region.addr, region.bytes)
}

/// The application.
struct ModelRank<'a> {
    left: std::slice::Iter<'a, Communication>,
    current: Option<&'a Communication>,
    costs: Costs,
    /// The time of its next step, until it is over.
    next: Option<u64>,
    last: u64,
    begun: u64,
    /// The registration of the buffer in use, while the communication is in flight.
    under_way: Option<RegistrationOutcome>,
    /// The start of the current wait.
    stalled_ns: u64,
    uses: usize,
    nic: RegisteredRegions,
}

impl<'a> ModelRank<'a> {
    fn new(communications: &'a [Communication], costs: Costs) -> Self {
        let mut rank = Self {
            left: communications.iter(),
            current: None,
            costs,
            next: Some(0),
            last: 0,
            begun: 0,
            under_way: None,
            stalled_ns: 0,
            uses: 0,
            nic: RegisteredRegions::default(),
        };
        rank.compute(0, communications.first().map_or(Time(0), |it| it.begun));
        rank
    }

    /// Computes until the next communication; `before` is the time of the last one in the trace.
    fn compute(&mut self, now: u64, before: Time) {
        self.last = now;
        self.current = self.left.next();
        self.next = self.current.map(|it| now + it.begun.since(before));
        self.begun = self.next.unwrap_or(now);
    }

    fn step(&mut self, at: u64, helper: Option<&mut ModelHelper>) {
        let Some(current) = self.current else {
            self.next = None;
            return;
        };
        let region = PageRun::of_pages(PAGE, current.addr, current.bytes);
        if let Some(way) = self.under_way.take() {
            self.nic.in_use = None;
            if let Some(helper) = helper {
                helper.hear_use(
                    self.uses,
                    at,
                    &Communication {
                        begun: Time(self.begun),
                        outcome: way,
                        region,
                        ..*current
                    },
                );
            }
            return self.compute(at, current.begun);
        }
        // A message takes 2 µs plus its bytes at 3.4 bytes a nanosecond, the machine's bandwidth.
        let transfer_ns = 2000 + current.bytes * 10 / 34;
        if current.bytes <= THRESHOLD {
            self.under_way = Some(RegistrationOutcome::Copied);
            self.next = Some(at + transfer_ns);
            return;
        }
        match self.nic.regions.get(&key(region)) {
            Some(HostRegionState::Busy(until)) => {
                self.stalled_ns += until.saturating_sub(at);
                self.next = Some((*until).max(at));
                return;
            }
            Some(HostRegionState::Registered) => {
                self.under_way = Some(RegistrationOutcome::Found);
                self.next = Some(at + transfer_ns);
            }
            None => {
                let takes_ns = self.costs.register.of(region.bytes / PAGE);
                self.stalled_ns += takes_ns;
                self.nic
                    .regions
                    .insert(key(region), HostRegionState::Registered);
                self.nic.count(at, self.nic.bytes + region.bytes);
                self.under_way = Some(RegistrationOutcome::OnDemand);
                self.next = Some(at + takes_ns + transfer_ns);
            }
        }
        self.uses += 1;
        self.nic.in_use = Some(key(region));
    }
}

/// The helper.
struct ModelHelper {
    plan: Plan,
    thread: ThreadId,
    costs: Costs,
    turns: HelperTurns,
    /// The use from which on the helper hears of uses.
    from: usize,
    told: VecDeque<(u64, Communication)>,
    now: u64,
    /// The work in progress, with its end.
    under: Option<(RegionId, PageRun, bool, u64)>,
    /// True if this turn looks at the registration queue.
    looks: bool,
}

impl ModelHelper {
    fn new(costs: Costs, turns: HelperTurns, from: usize) -> Option<Self> {
        let config = PlanConfig {
            costs,
            sharing: turns.sharing,
            ..PlanConfig::DEFAULT
        };
        let mut plan = Plan::new(config).ok()?;
        let thread = plan.add_thread();
        Some(Self {
            plan,
            thread,
            costs,
            turns,
            from,
            told: VecDeque::new(),
            now: 0,
            under: None,
            looks: false,
        })
    }

    fn hear_use(&mut self, uses: usize, at: u64, communication: &Communication) {
        if uses >= self.from {
            self.told.push_back((at, *communication));
        }
    }

    /// The time of its next step, unless it waits for the application.
    fn next(&self) -> Option<u64> {
        if let Some((.., until)) = self.under {
            return Some(until);
        }
        let told = self.told.front().map(|it| it.0);
        let wakes = self.plan.wake().map(|it| it.0);
        let at = told.into_iter().chain(wakes).min()?;
        Some(self.turns.ready(at.max(self.now)).0)
    }

    fn step(&mut self, nic: &mut RegisteredRegions) {
        let Some(at) = self.next() else {
            return;
        };
        self.now = at;
        if let Some((id, region, registers, _)) = self.under.take() {
            if registers {
                nic.regions.insert(key(region), HostRegionState::Registered);
                self.plan.registered(id);
            } else {
                nic.regions.remove(&key(region));
                nic.count(at, nic.bytes.saturating_sub(region.bytes));
                self.plan.deregistered(id);
            }
            return;
        }
        // Both queues take turns.
        self.looks = !self.looks;
        let action = if self.looks {
            self.plan.next_action(Time(at)).or_else(|| self.used())
        } else {
            self.used().or_else(|| self.plan.next_action(Time(at)))
        };
        match action {
            Some(action) => self.begin(action, nic),
            // A wake-up without work.
            None => self.now = self.now.max(at + 1),
        }
    }

    fn used(&mut self) -> Option<HelperTask> {
        let (told, communication) = self.told.pop_front()?;
        self.now = self.turns.after(self.now.max(told), self.costs.hash_ns);
        self.plan.used(self.thread, &communication, Time(self.now))
    }

    fn begin(&mut self, action: HelperTask, nic: &mut RegisteredRegions) {
        let pages = |region: PageRun| region.bytes / PAGE;
        match action {
            HelperTask::Register { id, region } => {
                if nic.regions.contains_key(&key(region)) {
                    return self.plan.registered(id);
                }
                let until = (self.turns).after(self.now, self.costs.register.of(pages(region)));
                nic.regions
                    .insert(key(region), HostRegionState::Busy(until));
                nic.count(self.now, nic.bytes + region.bytes);
                self.under = Some((id, region, true, until));
            }
            HelperTask::Deregister { id, region } => {
                if nic.in_use == Some(key(region)) {
                    return self.plan.still_used(id);
                }
                if !nic.regions.contains_key(&key(region)) {
                    self.plan.deregistered(id);
                    return;
                }
                let until = (self.turns).after(self.now, self.costs.deregister.of(pages(region)));
                nic.regions
                    .insert(key(region), HostRegionState::Busy(until));
                self.under = Some((id, region, false, until));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hydrant_foresight::{CommunicationKind, FRAMES};

    const SECOND: u64 = 1_000_000_000;

    /// Three buffers of a megabyte in turn, a second apart.
    fn figure_1(rounds: u64) -> Vec<Communication> {
        let use_of = |at: u64| Communication {
            begun: Time(at * SECOND),
            kind: CommunicationKind(1),
            outcome: RegistrationOutcome::Found,
            addr: (1 << 32) + (at % 3) * (8 << 20),
            bytes: 1 << 20,
            region: PageRun::default(),
            stack: [at % 3; FRAMES],
        };
        (0..3 * rounds).map(use_of).collect()
    }

    fn turns(helpers: u32, time_slice_ns: u64, own: u32) -> HelperTurns {
        HelperTurns {
            sharing: Sharing {
                helpers,
                time_slice_ns,
                context_switch_ns: 1000,
            },
            own,
        }
    }

    fn peak(of: &RankHistory) -> u64 {
        of.series.iter().map(|it| it.1).max().unwrap_or(0)
    }

    #[test]
    fn helpers_take_turns() {
        let second = turns(2, 9000, 1);
        assert_eq!(second.ready(0), (10_000, 9000));
        assert_eq!(second.ready(12_000), (12_000, 7000));
        assert_eq!(second.ready(19_500), (30_000, 9000));
        // Seven now, nine in the next turn, one in the turn after that.
        assert_eq!(second.after(12_000, 17_000), 51_000);
        assert_eq!(turns(1, 9000, 0).after(5, 1_000_000), 1_000_005);
    }

    #[test]
    fn a_helper_saves_as_much_as_its_turns_allow() {
        let uses = figure_1(12);
        let without = play_rank(&uses, Costs::TYPICAL, None);
        assert_eq!(peak(&without), 3 << 20);
        assert_eq!(without.stats, Stats::default());
        let alone = play_rank(&uses, Costs::TYPICAL, Some((turns(1, 0, 0), 0)));
        assert_eq!(peak(&alone), 1 << 20);
        assert_eq!(alone.stats.late, 0);
        // The turns of the others are short compared with a second, and long compared with nothing.
        let shared = play_rank(&uses, Costs::TYPICAL, Some((turns(3, 4_000_000, 1), 0)));
        assert_eq!((peak(&shared), shared.stats.late), (1 << 20, 0));
        let starved = play_rank(&uses, Costs::TYPICAL, Some((turns(3, 4 * SECOND, 1), 0)));
        assert_eq!((peak(&starved), starved.stats.ahead), (3 << 20, 0));
    }
}
