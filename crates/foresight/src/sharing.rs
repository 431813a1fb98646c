//! Helper threads and idle cores (§5).
//!
//! Helper threads use cores that neither compute nor communicate. With as many idle cores as ranks, each helper has
//! its own, and condition (1) holds as it is. With fewer, there are two policies. The *aggressive* policy lets
//! helpers share cores, and each allows for the turns of the others: condition (2). The *conservative* policy runs a
//! helper only on a core of its own, for the ranks that register most.
//!
//! All this is state and arithmetic; the caller posts the registered bytes and stops helpers.

use hydrant_base::mix;

/// The distribution of helpers if idle cores are fewer than ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// A helper for each rank; helpers on one core take turns.
    Aggressive,
    /// One helper for each idle core, for the ranks that register most. The paper favours it, because a helper that
    /// knows when it runs keeps its deadlines.
    Conservative,
}

/// A helper's allowance for the others on its core: the last term of condition (2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharing {
    /// n: the helpers on the core, this one included.
    pub helpers: u32,
    /// t_slice: the length of a helper's turn.
    pub time_slice_ns: u64,
    /// t_cs: the duration of a switch to the next helper.
    pub context_switch_ns: u64,
}

impl Sharing {
    /// A core without other helpers.
    pub const NONE: Sharing = Sharing {
        helpers: 1,
        time_slice_ns: 0,
        context_switch_ns: 0,
    };

    /// n (t_slice + t_cs): the longest time until the helper's next turn, because a helper does not know when its
    /// turn ends. Zero on a core of its own.
    pub fn delay_ns(&self) -> u64 {
        if self.helpers <= 1 {
            return 0;
        }
        let turn_ns = self.time_slice_ns.saturating_add(self.context_switch_ns);
        turn_ns.saturating_mul(self.helpers.into())
    }
}

/// The place where a rank's helper runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Nowhere: the rank registers on demand.
    Stopped,
    /// On an idle core.
    On {
        /// The number of the idle core.
        core: u32,
        /// The helpers on that core, this one included.
        helpers: u32,
    },
}

/// The last report of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RankReport {
    /// The rank has not posted yet.
    Nothing,
    /// The rank has this many bytes registered.
    Posted(u64),
    /// The rank has left and needs no helper.
    Left,
}

/// The ranks of a host, and the registered bytes that each posted.
#[derive(Clone, Debug)]
pub struct HelperHost {
    /// By rank of the host.
    ranks: Vec<RankReport>,
    idle_cores: u32,
    policy: Policy,
    /// Breaks ties; equal on all ranks, so that they decide alike.
    seed: u64,
}

impl HelperHost {
    /// A host with this many ranks and idle cores. All ranks pass the same seed.
    pub fn new(ranks: u32, idle_cores: u32, policy: Policy, seed: u64) -> Self {
        Self {
            ranks: vec![RankReport::Nothing; ranks as usize],
            idle_cores,
            policy,
            seed,
        }
    }

    /// Notes the bytes that a rank has registered; each rank posts after a fixed number of communications. Unknown
    /// ranks are ignored.
    pub fn post(&mut self, rank: u32, registered_bytes: u64) {
        if let Some(known) = self.ranks.get_mut(rank as usize) {
            *known = RankReport::Posted(registered_bytes);
        }
    }

    /// Notes that a rank has left and needs no helper.
    pub fn leave(&mut self, rank: u32) {
        if let Some(known) = self.ranks.get_mut(rank as usize) {
            *known = RankReport::Left;
        }
    }

    /// The place of each rank's helper, by the posted bytes so far.
    ///
    /// Under the conservative policy a rank has no helper before its first post, because it registers nothing yet
    /// that would be worth one. Ranks that left have no helper. Without an idle core no rank has one.
    pub fn placements(&self) -> Vec<Placement> {
        let running = match self.policy {
            Policy::Aggressive => self.present().map(|it| it.0).collect(),
            Policy::Conservative => self.most_registering(),
        };
        let mut placements = vec![Placement::Stopped; self.ranks.len()];
        if self.idle_cores == 0 {
            return placements;
        }
        let (count, cores) = (running.len() as u32, self.idle_cores);
        for (turn, rank) in (0..).zip(running) {
            let core = turn % cores;
            // If the division leaves a rest, the first cores have one helper more.
            let helpers = count / cores + u32::from(core < count % cores);
            if let Some(placement) = placements.get_mut(rank as usize) {
                *placement = Placement::On { core, helpers };
            }
        }
        placements
    }

    /// The ranks that have not left, and the bytes that each posted.
    fn present(&self) -> impl Iterator<Item = (u32, Option<u64>)> {
        (0..)
            .zip(&self.ranks)
            .filter_map(|(rank, known)| match known {
                RankReport::Nothing => Some((rank, None)),
                RankReport::Posted(bytes) => Some((rank, Some(*bytes))),
                RankReport::Left => None,
            })
    }

    /// The ranks with the most registered bytes, one for each idle core, in order of rank.
    fn most_registering(&self) -> Vec<u32> {
        let mut ranks: Vec<(u64, u64, u32)> = (self.present())
            .filter_map(|(rank, posted)| {
                posted.map(|bytes| (bytes, mix(self.seed ^ u64::from(rank)), rank))
            })
            .collect();
        ranks.sort_unstable_by(|a, b| b.cmp(a));
        ranks.truncate(self.idle_cores as usize);
        let mut ranks: Vec<u32> = ranks.into_iter().map(|it| it.2).collect();
        ranks.sort_unstable();
        ranks
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn condition_2_adds_the_turns_of_all() {
        let sharing = Sharing {
            helpers: 3,
            time_slice_ns: 4000,
            context_switch_ns: 5,
        };
        assert_eq!(sharing.delay_ns(), 12_015);
        assert_eq!(
            Sharing {
                helpers: 1,
                ..sharing
            }
            .delay_ns(),
            0
        );
        assert_eq!(
            Sharing {
                time_slice_ns: u64::MAX,
                ..sharing
            }
            .delay_ns(),
            u64::MAX
        );
    }

    #[test]
    fn the_paper_s_six_tasks_and_two_idle_cores() {
        let mut host = HelperHost::new(6, 2, Policy::Aggressive, 1);
        let three = |core| Placement::On { core, helpers: 3 };
        assert_eq!(host.placements(), [0, 1, 0, 1, 0, 1].map(three));
        host.policy = Policy::Conservative;
        assert_eq!(host.placements(), [Placement::Stopped; 6]);
        for (rank, bytes) in [(0, 10), (1, 70), (2, 30), (3, 70), (4, 20), (5, 5)] {
            host.post(rank, bytes);
        }
        let alone = |core| Placement::On { core, helpers: 1 };
        let placed = host.placements();
        assert_eq!((placed[1], placed[3]), (alone(0), alone(1)));
        assert_eq!(
            placed
                .iter()
                .filter(|it| **it == Placement::Stopped)
                .count(),
            4
        );
        host.leave(1);
        assert_eq!(host.placements()[2], alone(0));
    }

    #[test]
    fn ties_are_broken_by_chance_and_alike_for_all() {
        let winners = |seed| {
            let mut host = HelperHost::new(8, 1, Policy::Conservative, seed);
            (0..8).for_each(|rank| host.post(rank, 100));
            host.placements()
                .iter()
                .position(|it| *it != Placement::Stopped)
        };
        assert_eq!(winners(3), winners(3));
        assert!((0..50).any(|seed| winners(seed) != winners(0)));
    }

    #[test]
    fn an_unknown_rank_is_ignored() {
        let mut host = HelperHost::new(1, 1, Policy::Conservative, 0);
        host.post(1, 5);
        host.leave(7);
        assert_eq!(host.placements(), [Placement::Stopped]);
    }

    #[test]
    fn a_rank_that_left_takes_no_turn_on_a_core() {
        let mut host = HelperHost::new(4, 1, Policy::Aggressive, 0);
        host.post(1, 10);
        host.leave(3);
        host.leave(1);
        let both = Placement::On {
            core: 0,
            helpers: 2,
        };
        let none = Placement::Stopped;
        assert_eq!(host.placements(), [both, none, both, none]);
    }

    proptest! {
        #[test]
        fn cores_are_shared_evenly_or_not_at_all(
            posted in prop::collection::vec(prop::option::of(0u64..5), 0..20),
            cores in 0u32..8,
            conservative in any::<bool>(),
        ) {
            let policy = if conservative { Policy::Conservative } else { Policy::Aggressive };
            let mut host = HelperHost::new(posted.len() as u32, cores, policy, 9);
            for (rank, bytes) in (0..).zip(&posted) {
                bytes.iter().for_each(|&bytes| host.post(rank, bytes));
            }
            let placements = host.placements();
            let mut on = vec![0; cores as usize];
            for it in &placements {
                if let Placement::On { core, .. } = it {
                    on[*core as usize] += 1;
                }
            }
            for it in &placements {
                if let Placement::On { core, helpers } = *it {
                    prop_assert_eq!(on[core as usize], helpers);
                }
            }
            let (most, least) = (on.iter().max().unwrap_or(&0), on.iter().min().unwrap_or(&0));
            prop_assert!(most - least <= 1);
            if conservative {
                prop_assert!(*most <= 1);
                let running = |rank: usize| placements[rank] != Placement::Stopped;
                for (rank, bytes) in posted.iter().enumerate().filter(|it| running(it.0)) {
                    let passed_over = (0..posted.len()).filter(|&other| !running(other));
                    prop_assert!(passed_over.into_iter().all(|other| posted[other] <= *bytes), "{}", rank);
                }
            } else {
                let all = on.iter().sum::<u32>() as usize;
                prop_assert_eq!(all, if cores == 0 { 0 } else { posted.len() });
            }
        }
    }
}
