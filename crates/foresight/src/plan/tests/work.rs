//! The helper's work for one use, by the number of regions.

use super::*;
use crate::plan::tree::steps;

/// The number of regions and tree nodes visited for one use, its registration and its deregistration. The program
/// uses `regions` regions of `pages` pages in turn, `apart` pages from each other.
fn steps_a_use(regions: u64, pages: u64, apart: u64, limit_pages: u64) -> u64 {
    let config = PlanConfig {
        limit_bytes: limit_pages * PAGE,
        ..CONFIG
    };
    steps_with(config, regions, pages, apart)
}

/// As [`steps_a_use`], with another configuration.
fn steps_with(config: PlanConfig, regions: u64, pages: u64, apart: u64) -> u64 {
    let limit_pages = config.limit_bytes / PAGE;
    // Each region has the same time, so that all work is done in time.
    const EACH: u64 = 1000;
    const ROUNDS: u64 = 8;
    let mut one = OneThread::new(config);
    let mut steps_of_last = 0;
    let mut ahead = 0;
    for round in 0..ROUNDS {
        steps::take();
        for number in 0..regions {
            let now = 10_000 + (round * regions + number) * EACH;
            // Do the work that is due by then, and all that follows from it.
            while let Some(at) = one.plan.wake().filter(|at| at.0 <= now) {
                if let Some(action) = one.plan.next_action(at) {
                    one.carry_out(action);
                }
            }
            let (site, page) = (number + 1, 7 + number * apart);
            let memory = PageRun {
                addr: page * PAGE,
                bytes: pages * PAGE,
            };
            let is_registered = (one.plan.find(memory))
                .is_some_and(|id| one.plan.regions.at(id).state == RegionState::Registered);
            let outcome = if is_registered {
                RegistrationOutcome::Found
            } else {
                RegistrationOutcome::OnDemand
            };
            ahead += u64::from(is_registered);
            if let Some(action) = one.used_pages(site, page, pages, now, outcome) {
                one.carry_out(action);
            }
        }
        steps_of_last = steps::take() / regions;
    }
    assert!(
        regions < 10 || limit_pages < u64::MAX >> 12 || config.lost_part > 0 || ahead > regions,
        "{ahead} found"
    );
    steps_of_last
}

impl OneThread {
    fn carry_out(&mut self, action: HelperTask) {
        match action {
            HelperTask::Register { id, .. } => self.plan.registered(id),
            HelperTask::Deregister { id, .. } => {
                self.plan.deregistered(id);
                for (id, _) in self.plan.neighbours(id) {
                    if let Some(HelperTask::Register { id, .. }) = self.plan.torn(id, Time(0)) {
                        self.plan.registered(id);
                    }
                }
            }
        }
    }
}

/// The deepest tree of a thousand is about thirty nodes deep, and a use changes several of them.
const MOST: u64 = 500;

#[test]
fn the_work_of_a_use_does_not_grow_with_the_regions() {
    let steps = [1, 64, 250, 1000].map(|it| steps_a_use(it, 1, 2, u64::MAX >> 12));
    assert!(steps.iter().all(|it| *it < MOST), "{steps:?}");
}

#[test]
fn only_overlapping_regions_add_work() {
    let steps = [64, 250, 1000].map(|it| steps_a_use(it, 4, 1, u64::MAX >> 12));
    assert!(steps.iter().all(|it| *it < MOST), "{steps:?}");
}

/// With a bounded loss: a use is charged for the neighbours that it tears.
const STEPS_BACK: PlanConfig = PlanConfig {
    limit_bytes: (u64::MAX >> 12) * PAGE,
    lost_part: 100,
    ..CONFIG
};

#[test]
fn a_bounded_loss_adds_bounded_work() {
    let steps = [64, 250, 1000].map(|it| steps_with(STEPS_BACK, it, 4, 1));
    assert!(steps.iter().all(|it| *it < MOST), "{steps:?}");
}

#[test]
fn a_bounded_number_of_overlapping_neighbours_is_visited() {
    // Deregistering is never worth its cost here, so all stay registered. A page of each region lies in all others.
    let mut one = OneThread::new(PlanConfig {
        lost_part: u64::MAX,
        ..STEPS_BACK
    });
    for page in 0..1000 {
        let action = one.used_pages(
            page + 1,
            page,
            1000,
            1000 + page,
            RegistrationOutcome::OnDemand,
        );
        assert_eq!(action, None);
    }
    let Some(HelperTask::Deregister { id, .. }) = one.plan.deregister_last() else {
        panic!("all are registered");
    };
    one.plan.deregistered(id);
    steps::take();
    let neighbours = one.plan.neighbours(id).len();
    let steps = steps::take();
    assert!(neighbours == 16 && steps < MOST, "{neighbours}, {steps}");
}

#[test]
fn regions_in_use_are_found_without_visiting_others() {
    let mut one = OneThread::new(CONFIG);
    let place = |page: u64| PageRun {
        addr: page * PAGE,
        bytes: PAGE,
    };
    for page in (0..1000).map(|it| 2 * it) {
        let Some(HelperTask::Deregister { id, .. }) =
            one.used(page + 1, page, 1000 + page, RegistrationOutcome::OnDemand)
        else {
            panic!("a first use is given up");
        };
        one.plan.still_used(id);
    }
    steps::take();
    let all = one.plan.in_use_within(place(500));
    assert_eq!(all, Vec::from_iter(one.plan.find(place(500))));
    assert_eq!(one.plan.in_use_within(place(501)), []);
    let overdue = steps::take();
    assert!(overdue < MOST, "{overdue}");
    // A region deregistered since is not among them.
    for id in all {
        let action = one.plan.try_again(id, Time(9000));
        assert!(
            matches!(action, Some(HelperTask::Deregister { .. })),
            "{action:?}"
        );
        one.plan.deregistered(id);
    }
    assert_eq!(one.plan.in_use_within(place(500)), []);
}

/// The steps of one use in a burst that comes every 10 ms. All regions are due before it, and there is room for one.
fn steps_in_a_burst(config: PlanConfig, regions: u64) -> u64 {
    const PERIOD: u64 = 10_000_000;
    let mut one = OneThread::new(config);
    let mut steps_of_last = 0;
    for round in 1..=8 {
        let mut now = PERIOD * round;
        while let Some(at) = one.plan.wake().filter(|at| at.0 < now) {
            if let Some(action) = one.plan.next_action(at) {
                one.carry_out(action);
            }
        }
        if round > 2 {
            let postponed = one.plan.regions.postponed().count() as u64;
            assert_eq!(postponed, regions - 1);
        }
        steps::take();
        for number in 0..regions {
            now += 10;
            let (site, page) = (number + 1, 7 + 2 * number);
            let state = |id| one.plan.regions.at(id).state;
            let outcome = match one.plan.find(pages(page, 1)).map(state) {
                Some(RegionState::Registered) => RegistrationOutcome::Found,
                _ => RegistrationOutcome::OnDemand,
            };
            if let Some(action) = one.used(site, page, now, outcome) {
                one.carry_out(action);
            }
            while let Some(action) = one.plan.next_action(Time(now)) {
                one.carry_out(action);
            }
        }
        steps_of_last = steps::take() / regions;
    }
    steps_of_last
}

/// A use changes a few trees, and looks at four postponed regions. A move of these through the queue would take twice
/// as many steps.
const MOST_IN_A_BURST: u64 = 120;

#[test]
fn regions_without_room_are_not_moved_through_the_queue() {
    let limit = PlanConfig {
        limit_bytes: PAGE,
        ..CONFIG
    };
    for config in [CONFIG, limit] {
        let steps = [64, 250, 1000].map(|it| steps_in_a_burst(config, it));
        assert!(steps.iter().all(|it| *it < MOST_IN_A_BURST), "{steps:?}");
    }
}

#[test]
fn a_region_that_stays_in_use_changes_no_index() {
    let mut one = OneThread::new(CONFIG);
    let mut last = None;
    for page in (0..1000).map(|it| 2 * it) {
        let action = one.used(page + 1, page, 1000 + page, RegistrationOutcome::OnDemand);
        let Some(HelperTask::Deregister { id, .. }) = action else {
            panic!("{action:?}");
        };
        one.plan.still_used(id);
        last = Some(id);
    }
    let id = last.expect("there are some");
    steps::take();
    for now in 0..100 {
        let action = one.plan.try_again(id, Time(10_000 + now));
        assert!(matches!(action, Some(HelperTask::Deregister { .. })));
        one.plan.still_used(id);
    }
    let each = steps::take() / 100;
    assert!(each < 20, "{each}");
    assert!(one.plan.is_in_use(id));
    let bytes = one.plan.registered_bytes();
    // It is free at last.
    let _ = one.plan.try_again(id, Time(20_000));
    one.plan.deregistered(id);
    assert!(!one.plan.is_in_use(id));
    assert_eq!(one.plan.registered_bytes(), bytes - PAGE);
    assert_eq!(one.plan.in_use_within(pages(1998, 1)), []);
}

#[test]
fn the_uses_of_a_region_are_looked_at_when_forecasts_change() {
    const SITES: u64 = 64;
    let mut one = OneThread::new(CONFIG);
    let mut each = 0;
    for round in 0..8 {
        steps::take();
        for site in 0..SITES {
            let now = 10_000 * (round * SITES + site);
            let is_registered = one.plan.registered_bytes() > 0;
            let outcome = if is_registered {
                RegistrationOutcome::Found
            } else {
                RegistrationOutcome::OnDemand
            };
            if let Some(action) = one.used(site + 1, 7, now, outcome) {
                one.carry_out(action);
            }
        }
        each = steps::take() / SITES;
    }
    assert!((SITES..3 * SITES).contains(&each), "{each}");
}
