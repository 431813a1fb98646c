//! Each decision of the plan by itself.

mod events;
mod work;

use super::*;
use crate::communication::{CommunicationKind, FRAMES, Region};
use crate::costs::{Costs, LinearCost};
use crate::sharing::Sharing;

const PAGE: u64 = 4096;

/// Registering a page takes 10, deregistering one 5, a comparison 100, and everything else nothing.
const COSTS: Costs = Costs {
    register: LinearCost {
        per_page_ns: 10.0,
        per_operation_ns: 0.0,
    },
    deregister: LinearCost {
        per_page_ns: 5.0,
        per_operation_ns: 0.0,
    },
    hash_ns: 100,
    comparison_ns: 0,
};

const CONFIG: PlanConfig = PlanConfig {
    window: 0,
    costs: COSTS,
    page_bytes: PAGE,
    ..PlanConfig::DEFAULT
};

/// A plan with one thread.
struct OneThread {
    plan: Plan,
    thread: ThreadId,
}

impl OneThread {
    fn new(config: PlanConfig) -> Self {
        let mut plan = Plan::new(config).unwrap();
        let thread = plan.add_thread();
        Self { plan, thread }
    }

    /// Uses page `page` from call site `site`; the record is read at once.
    fn used(
        &mut self,
        site: u64,
        page: u64,
        at: u64,
        outcome: RegistrationOutcome,
    ) -> Option<Action> {
        self.used_pages(site, page, 1, at, outcome)
    }

    fn used_pages(
        &mut self,
        site: u64,
        page: u64,
        pages: u64,
        at: u64,
        outcome: RegistrationOutcome,
    ) -> Option<Action> {
        let mut stack = [0; FRAMES];
        stack[0] = site;
        let communication = Communication {
            begun: Time(at),
            kind: CommunicationKind(1),
            outcome,
            addr: page * PAGE + 8,
            bytes: pages * PAGE - 8,
            region: Region {
                addr: page * PAGE,
                bytes: pages * PAGE,
            },
            stack,
        };
        self.plan.used(self.thread, &communication, Time(at))
    }

    /// Like `used`; carries out the deregistration that follows.
    fn used_and_gone(
        &mut self,
        site: u64,
        page: u64,
        at: u64,
        outcome: RegistrationOutcome,
    ) -> RegionId {
        let Some(Action::Deregister { id: region, .. }) = self.used(site, page, at, outcome) else {
            panic!("not deregistered");
        };
        self.plan.deregistered(region);
        region
    }

    /// The first moment at which a look registers a region.
    fn registers_at(&mut self, from: u64, to: u64) -> (u64, RegionId) {
        for now in from..=to {
            if let Some(Action::Register { id: region, .. }) = self.plan.next_action(Time(now)) {
                return (now, region);
            }
        }
        panic!("nothing is registered until {to}");
    }
}

#[test]
fn a_first_use_is_always_deregistered() {
    let mut one = OneThread::new(CONFIG);
    let action = one.used(1, 7, 1000, RegistrationOutcome::OnDemand).unwrap();
    let Action::Deregister {
        id: region,
        region: memory,
    } = action
    else {
        panic!("{action:?}");
    };
    assert_eq!((memory.addr, memory.bytes), (7 * PAGE, PAGE));
    assert_eq!(one.plan.registered_bytes(), PAGE);
    assert!(!one.plan.deregistered(region), "nothing is expected");
    assert_eq!((one.plan.registered_bytes(), one.plan.wake()), (0, None));
}

#[test]
fn the_deregistration_condition_is_that_it_can_be_registered_again_in_time() {
    // Deregistering and registering a page takes 15: the period decides.
    for (period, deregisters) in [(10, false), (14, false), (15, true), (1000, true)] {
        let mut one = OneThread::new(CONFIG);
        let Some(Action::Deregister { id: region, .. }) =
            one.used(1, 7, 1000, RegistrationOutcome::OnDemand)
        else {
            panic!("kept");
        };
        one.plan.still_used(region);
        // The period excludes the 10 of the registration before.
        let again = one.used(1, 7, 1010 + period, RegistrationOutcome::Found);
        assert_eq!(again.is_some(), deregisters, "{period}");
    }
}

#[test]
fn the_registration_condition_puts_off_as_long_as_it_can() {
    let mut one = OneThread::new(CONFIG);
    let region = one.used_and_gone(1, 7, 1000, RegistrationOutcome::OnDemand);
    assert_eq!(
        one.used_and_gone(1, 7, 2010, RegistrationOutcome::OnDemand),
        region
    );
    // Expected at 3020: one item of the other queue takes 105, the registration 10.
    assert_eq!(one.plan.wake(), Some(Time(3020 - 115 + 1)));
    assert_eq!(one.registers_at(2010, 4000), (3020 - 115 + 1, region));
    assert_eq!(one.plan.registered_bytes(), PAGE);
    one.plan.registered(region);
    assert_eq!(one.plan.next_action(Time(3010)), None);
    // It is found registered, and deregistered again.
    one.used_and_gone(1, 7, 3020, RegistrationOutcome::Found);
    let stats = one.plan.stats();
    assert_eq!(
        (stats.found, stats.ahead, stats.on_demand, stats.late),
        (1, 1, 2, 0)
    );
}

#[test]
fn a_use_on_demand_that_was_expected_is_late() {
    let mut one = OneThread::new(CONFIG);
    one.used_and_gone(1, 7, 1000, RegistrationOutcome::OnDemand);
    one.used_and_gone(1, 7, 2010, RegistrationOutcome::OnDemand);
    let _ = one.used(1, 7, 2500, RegistrationOutcome::OnDemand);
    assert_eq!(one.plan.stats().late, 1);
}

#[test]
fn a_use_while_its_registration_is_under_way_is_late() {
    let mut one = OneThread::new(CONFIG);
    one.used_and_gone(1, 7, 1000, RegistrationOutcome::OnDemand);
    one.used_and_gone(1, 7, 2010, RegistrationOutcome::OnDemand);
    let (now, region) = one.registers_at(2010, 4000);
    let _ = one.used(1, 7, now + 1, RegistrationOutcome::OnDemand);
    one.plan.registered(region);
    let stats = one.plan.stats();
    assert_eq!((stats.late, stats.on_demand, stats.ahead), (1, 3, 0));
}

#[test]
fn condition_2_adds_the_turns_of_the_others() {
    let sharing = Sharing {
        helpers: 2,
        time_slice_ns: 400,
        context_switch_ns: 50,
    };
    let mut one = OneThread::new(PlanConfig { sharing, ..CONFIG });
    one.used_and_gone(1, 7, 1000, RegistrationOutcome::OnDemand);
    one.used_and_gone(1, 7, 3010, RegistrationOutcome::OnDemand);
    assert_eq!(one.plan.wake(), Some(Time(5020 - 115 - 900 + 1)));
    // With more of them there is no time left to register it again.
    let (_, region) = one.registers_at(3010, 5000);
    one.plan.registered(region);
    one.plan.share(Sharing {
        helpers: 5,
        ..sharing
    });
    assert_eq!(one.used(1, 7, 5020, RegistrationOutcome::Found), None);
    one.plan.share(Sharing::NONE);
    assert!(one.used(1, 7, 7020, RegistrationOutcome::Found).is_some());
}

#[test]
fn a_region_of_several_call_sites_is_kept_for_the_earliest() {
    let mut one = OneThread::new(CONFIG);
    // Site 2 uses it 12 after site 1, both every 1000.
    one.used_and_gone(1, 7, 1000, RegistrationOutcome::OnDemand);
    one.used_and_gone(2, 7, 1022, RegistrationOutcome::OnDemand);
    one.used_and_gone(1, 7, 2020, RegistrationOutcome::OnDemand);
    // Site 2 is not expected yet for the second time, but site 1 is.
    one.used_and_gone(2, 7, 2042, RegistrationOutcome::OnDemand);
    let (at, region) = one.registers_at(2042, 4000);
    assert!(at < 3040, "{at}");
    one.plan.registered(region);
    // Site 2 comes too soon after site 1 for a deregistration between.
    assert_eq!(one.used(1, 7, 3040, RegistrationOutcome::Found), None);
    let Some(Action::Deregister { id: region, .. }) =
        one.used(2, 7, 3052, RegistrationOutcome::Found)
    else {
        panic!("kept");
    };
    assert!(one.plan.deregistered(region));
    assert_eq!(one.plan.stats().found, 2);
}

#[test]
fn a_region_not_used_in_time_is_deregistered() {
    let mut one = OneThread::new(CONFIG);
    one.used_and_gone(1, 7, 1000, RegistrationOutcome::OnDemand);
    one.used_and_gone(1, 7, 2010, RegistrationOutcome::OnDemand);
    let (_, region) = one.registers_at(2010, 4000);
    one.plan.registered(region);
    // A period after its expected time.
    assert_eq!(one.plan.wake(), Some(Time(4020)));
    assert_eq!(one.plan.next_action(Time(4019)), None);
    let action = one.plan.next_action(Time(4020));
    assert!(
        matches!(action, Some(Action::Deregister { .. })),
        "{action:?}"
    );
    assert!(!one.plan.deregistered(region));
    assert_eq!(one.plan.stats().unused, 1);
    assert_eq!(
        (one.plan.next_action(Time(1 << 40)), one.plan.wake()),
        (None, None)
    );
}

#[test]
fn a_region_in_use_is_not_deregistered() {
    let mut one = OneThread::new(CONFIG);
    let Some(Action::Deregister { id: region, .. }) =
        one.used(1, 7, 1000, RegistrationOutcome::OnDemand)
    else {
        panic!("kept");
    };
    one.plan.still_used(region);
    assert_eq!(one.plan.next_action(Time(1 << 40)), None);
    assert_eq!(one.plan.registered_bytes(), PAGE);
    // The record of that use decides anew.
    assert!(one.used(2, 7, 2000, RegistrationOutcome::Found).is_some());
}

#[test]
fn a_region_used_during_its_registration_is_deregistered_after_it() {
    for (next, gives_up) in [(1000, true), (12, false)] {
        let mut one = OneThread::new(CONFIG);
        one.used_and_gone(1, 7, 1000, RegistrationOutcome::OnDemand);
        one.used_and_gone(1, 7, 2010, RegistrationOutcome::OnDemand);
        let (_, region) = one.registers_at(2010, 4000);
        assert_eq!(
            one.used(1, 7, 2010 + next, RegistrationOutcome::Found),
            None
        );
        let action = one.plan.registered_late(region, Time(2010 + next));
        let is_given_up = matches!(action, Some(Action::Deregister { id, .. }) if id == region);
        assert_eq!(is_given_up, gives_up, "{next}: {action:?}");
        assert_eq!(one.plan.stats().unused, 0);
    }
}

#[test]
fn a_registration_that_fails_is_not_tried_again_before_the_next_use() {
    let mut one = OneThread::new(CONFIG);
    one.used_and_gone(1, 7, 1000, RegistrationOutcome::OnDemand);
    one.used_and_gone(1, 7, 2010, RegistrationOutcome::OnDemand);
    let (_, region) = one.registers_at(2010, 4000);
    one.plan.not_registered(region);
    assert_eq!(
        (
            one.plan.next_action(Time(1 << 40)),
            one.plan.registered_bytes()
        ),
        (None, 0)
    );
    assert_eq!(one.plan.stats().failed, 1);
}

#[test]
fn the_limit_evicts_the_region_needed_last() {
    // Page 1 is registered and needed at 1040, page 2 is not and is needed before or after.
    for (needed, gives_up) in [(1035, true), (1045, false)] {
        let mut one = OneThread::new(PlanConfig {
            limit_bytes: PAGE,
            ..CONFIG
        });
        let _ = one.used(2, 2, needed - 1000, RegistrationOutcome::Refused);
        let _ = one.used(2, 2, needed - 500, RegistrationOutcome::Refused);
        let Some(Action::Deregister { id: region, .. }) =
            one.used(1, 1, 1000, RegistrationOutcome::OnDemand)
        else {
            panic!("kept");
        };
        one.plan.still_used(region);
        let _ = one.used(1, 1, 1020, RegistrationOutcome::Found);
        assert_eq!(
            one.used(1, 1, 1030, RegistrationOutcome::Found),
            None,
            "too soon to be deregistered"
        );
        match one.plan.next_action(Time(1031)) {
            Some(Action::Deregister {
                id: region,
                region: memory,
            }) if gives_up => {
                assert_eq!(memory.addr, PAGE);
                one.plan.deregistered(region);
                let next = one.plan.next_action(Time(1032));
                assert!(
                    matches!(next, Some(Action::Register { region, .. }) if region.addr == 2 * PAGE)
                );
                assert_eq!(one.plan.registered_bytes(), PAGE);
            }
            None if !gives_up => assert_eq!(one.plan.stats().postponed, 1),
            action => panic!("{needed}: {action:?}"),
        }
    }
}

#[test]
fn regions_do_not_evict_each_other_in_turn() {
    let mut one = OneThread::new(PlanConfig {
        limit_bytes: PAGE,
        ..CONFIG
    });
    // Three are needed at nearly the same time, so that the second is to be registered long before that.
    for (page, needed) in [(1, 3000), (2, 3010), (3, 3012)] {
        let _ = one.used(page, page, needed - 2000, RegistrationOutcome::Refused);
        let _ = one.used(page, page, needed - 1000, RegistrationOutcome::Refused);
    }
    let (_, first) = one.registers_at(2012, 3000);
    one.plan.registered(first);
    for now in 2012..3000 {
        assert_eq!(one.plan.next_action(Time(now)), None, "at {now}");
    }
    assert_eq!(one.plan.stats().postponed, 2);
}

#[test]
fn a_postponed_region_is_tried_again_when_there_is_room() {
    let mut one = OneThread::new(PlanConfig {
        limit_bytes: PAGE,
        ..CONFIG
    });
    for page in [1, 2] {
        let _ = one.used(page, page, 1000, RegistrationOutcome::Refused);
        let _ = one.used(page, page, 2000, RegistrationOutcome::Refused);
    }
    let (_, first) = one.registers_at(2000, 4000);
    one.plan.registered(first);
    // The other region is needed at the same time: no later need can make room.
    assert_eq!(one.plan.next_action(Time(2990)), None);
    assert_eq!(one.plan.stats().postponed, 1);
    let Some(Action::Deregister { id: region, .. }) =
        one.used(1, 1, 3000, RegistrationOutcome::Found)
    else {
        panic!("kept");
    };
    one.plan.deregistered(region);
    let action = one.plan.next_action(Time(3000));
    assert!(
        matches!(action, Some(Action::Register { .. })),
        "{action:?}"
    );
}

#[test]
fn the_next_region_waits_for_the_last_if_no_two_were_in_use() {
    let mut one = OneThread::new(CONFIG);
    for round in 0..2 {
        one.used_and_gone(1, 10, round * 10_000, RegistrationOutcome::OnDemand);
        one.used_and_gone(2, 20, round * 10_000 + 1000, RegistrationOutcome::OnDemand);
    }
    let (_, first) = one.registers_at(12_000, 20_000);
    one.plan.registered(first);
    let action = one.used(1, 10, 20_000, RegistrationOutcome::Found);
    assert!(matches!(action, Some(Action::Deregister { id, .. }) if id == first));
    // The second is due.
    assert_eq!(one.plan.next_action(Time(20_995)), None);
    assert!(one.plan.wake().is_none_or(|at| at > Time(20_995)));
    one.plan.deregistered(first);
    let action = one.plan.next_action(Time(20_995));
    assert!(matches!(action, Some(Action::Register { id, .. }) if id != first));
}

#[test]
fn a_neighbour_torn_by_a_deregistration_is_registered_again() {
    let mut one = OneThread::new(CONFIG);
    // Pages 10 to 12 and 12 to 14 are used every 10,000. Page 14 is expected by nobody.
    for round in 0..2 {
        for (site, page) in [(1, 10), (2, 12)] {
            let at = round * 10_000 + site;
            let Some(Action::Deregister { id, .. }) =
                one.used_pages(site, page, 3, at, RegistrationOutcome::OnDemand)
            else {
                panic!("not deregistered");
            };
            one.plan.deregistered(id);
        }
    }
    one.used_and_gone(3, 14, 15_000, RegistrationOutcome::OnDemand);
    one.plan.crowded_out(&[], 0, 7 * PAGE, Time(15_000));
    for _ in 0..2 {
        let id = one.registers_at(15_000, 20_000).1;
        one.plan.registered(id);
    }
    let action = one.used_pages(1, 10, 3, 20_001, RegistrationOutcome::Found);
    let Some(Action::Deregister { id: first, .. }) = action else {
        panic!("{action:?}");
    };
    one.plan.deregistered(first);
    let bytes = one.plan.registered_bytes();
    let neighbours = one.plan.neighbours(first);
    let [(second, memory)] = neighbours[..] else {
        panic!("{neighbours:?}");
    };
    assert_eq!((memory.addr, memory.bytes), (12 * PAGE, 3 * PAGE));
    let action = one.plan.torn(second, Time(20_002));
    assert!(matches!(action, Some(Action::Register { id, .. }) if id == second));
    assert_eq!(one.plan.neighbours(first), []);
    one.plan.registered(second);
    assert_eq!(one.plan.registered_bytes(), bytes);
    assert_eq!(one.plan.stats().late, 0);
}

#[test]
fn a_landmark_is_waited_for() {
    let mut one = OneThread::new(PlanConfig { ..CONFIG });
    // A small message 300 before each use, and noise before it.
    let mut now = 1000;
    for noise in [0, 400, 90, 700, 50] {
        let action = one.used(
            1,
            7,
            now,
            if now == 1000 {
                RegistrationOutcome::OnDemand
            } else {
                RegistrationOutcome::Refused
            },
        );
        if let Some(Action::Deregister { id: region, .. }) = action {
            one.plan.deregistered(region);
        }
        now += 10_000 + noise;
        let _ = one.used(9, 99, now, RegistrationOutcome::Copied);
        now += 300;
    }
    let region = {
        let _ = one.used(1, 7, now, RegistrationOutcome::Refused);
        now
    };
    // It is long overdue, but not registered: the landmark has not come.
    assert_eq!(one.plan.next_action(Time(region + 12_000)), None);
    let late = region + 15_000;
    let _ = one.used(9, 99, late, RegistrationOutcome::Copied);
    let (at, _) = one.registers_at(late, late + 1000);
    assert!(
        at > late + 100 && at + 10 <= late + 300,
        "{at} after {late}"
    );
}

#[test]
fn short_buffers_are_of_no_region() {
    let mut one = OneThread::new(CONFIG);
    assert_eq!(one.used(1, 7, 1000, RegistrationOutcome::Copied), None);
    assert_eq!(one.plan.regions.len(), 0);
}

#[test]
fn a_refused_use_is_of_the_largest_region_that_is_known() {
    let mut one = OneThread::new(CONFIG);
    let Some(Action::Deregister { id: whole, .. }) =
        one.used_pages(1, 8, 4, 1000, RegistrationOutcome::OnDemand)
    else {
        panic!("kept");
    };
    one.plan.deregistered(whole);
    let _ = one.used(2, 9, 1500, RegistrationOutcome::Refused);
    let _ = one.used(2, 9, 2500, RegistrationOutcome::Refused);
    let (_, region) = one.registers_at(2500, 4000);
    assert_eq!(region, whole);
}

#[test]
fn a_use_that_another_region_served_is_of_that_one() {
    let mut one = OneThread::new(CONFIG);
    let small = one.used_and_gone(1, 8, 1000, RegistrationOutcome::OnDemand);
    assert_eq!(
        one.used_and_gone(1, 8, 2010, RegistrationOutcome::OnDemand),
        small
    );
    // Another call site registered more.
    let large = one.used_pages(1, 8, 4, 3000, RegistrationOutcome::Found);
    // The record of that registration may be lost; finding the region registered is as good.
    let Some(Action::Deregister { id: large, .. }) = large else {
        panic!("{large:?}");
    };
    assert_ne!(large, small);
    one.plan.deregistered(large);
    let (_, region) = one.registers_at(3000, 5000);
    assert_ne!(region, small);
    assert_eq!(one.plan.regions.len(), 2);
}

#[test]
fn regions_that_are_never_used_again_are_forgotten() {
    let mut one = OneThread::new(PlanConfig {
        regions: 10,
        ..CONFIG
    });
    for number in 0..1000 {
        one.used_and_gone(number, number, 1000 * number, RegistrationOutcome::OnDemand);
    }
    assert!(one.plan.regions.len() <= 10, "{}", one.plan.regions.len());
}

#[test]
fn values_out_of_range_are_refused() {
    let refused = |config| Plan::new(config).err();
    assert_eq!(
        refused(PlanConfig {
            page_bytes: 1000,
            ..CONFIG
        }),
        Some(Invalid::Page { bytes: 1000 })
    );
    assert_eq!(
        refused(PlanConfig {
            page_bytes: 0,
            ..CONFIG
        }),
        Some(Invalid::Page { bytes: 0 })
    );
    assert_eq!(
        refused(PlanConfig {
            window: 65,
            ..CONFIG
        }),
        Some(Invalid::Window { window: 65 })
    );
    assert_eq!(
        refused(PlanConfig {
            grain_bits: 64,
            ..CONFIG
        }),
        Some(Invalid::Grain { bits: 64 })
    );
}

#[test]
fn a_helper_that_rests_keeps_nothing_but_what_is_in_use() {
    let mut one = OneThread::new(CONFIG);
    // Pages 7 and 8 are needed too soon to be deregistered; page 9 is in use.
    for (page, at) in [(7, 1000), (8, 1010), (9, 1020)] {
        let Some(Action::Deregister { id, .. }) =
            one.used(page, page, at, RegistrationOutcome::OnDemand)
        else {
            panic!("page {page} is kept");
        };
        one.plan.still_used(id);
    }
    for page in [7, 8] {
        assert_eq!(one.used(page, page, 1040, RegistrationOutcome::Found), None);
    }
    let mut given_up = Vec::new();
    while let Some(action) = one.plan.rest() {
        let Action::Deregister { id, region } = action else {
            panic!("{action:?}");
        };
        assert!(one.plan.deregistered(id), "it is expected all the same");
        given_up.push(region.addr / PAGE);
    }
    given_up.sort_unstable();
    assert_eq!(given_up, [7, 8]);
    assert_eq!(one.plan.registered_bytes(), PAGE);
}

#[test]
fn regions_without_a_forecast_are_forgotten() {
    let mut one = OneThread::new(PlanConfig {
        regions: 2,
        ..CONFIG
    });
    for page in [7, 8, 9] {
        one.used_and_gone(page, page, 1000 * page, RegistrationOutcome::OnDemand);
    }
    let page = |page| Region {
        addr: page * PAGE,
        bytes: PAGE,
    };
    let remembered = [7, 8, 9].map(|it| one.plan.known(page(it)).is_some());
    assert_eq!((remembered, one.plan.regions()), ([false, true, true], 2));
}

fn pages(first: u64, count: u64) -> Region {
    Region {
        addr: first * PAGE,
        bytes: count * PAGE,
    }
}

#[test]
fn a_region_evicted_by_operations_is_registered_again_when_due() {
    let mut one = OneThread::new(CONFIG);
    for round in 1..3 {
        let id = one.used_and_gone(1, 7, round * 10_000, RegistrationOutcome::OnDemand);
        assert_eq!(one.plan.known(pages(7, 1)), Some(id));
    }
    let (_, id) = one.registers_at(20_000, 30_000);
    one.plan.registered(id);
    assert_eq!(one.plan.registered_bytes(), PAGE);
    // Evicting unregistered regions is no loss.
    one.plan
        .crowded_out(&[pages(7, 1), pages(6, 2)], 0, 0, Time(29_991));
    assert_eq!(one.plan.registered_bytes(), 0);
    let (at, again) = one.registers_at(29_991, 30_000);
    assert_eq!((at, again), (29_991, id));
    // A region whose registration is in progress cannot be lost.
    one.plan.lost(pages(7, 1));
    assert_eq!(one.plan.registered_bytes(), PAGE);
    one.plan.registered(id);
}

#[test]
fn evictions_that_cost_time_raise_the_bound() {
    let mut one = OneThread::new(CONFIG);
    one.used_and_gone(1, 7, 0, RegistrationOutcome::OnDemand);
    let room = |one: &OneThread| one.plan.room_bytes() / PAGE;
    assert_eq!(room(&one), 1);
    // A loss of 5 in 1,500 is bearable; 5 in 1,499 is not.
    one.plan
        .crowded_out(&[pages(9, 1)], 3 * PAGE, 0, Time(1500));
    assert_eq!(room(&one), 1);
    one.plan
        .crowded_out(&[pages(9, 1)], 3 * PAGE, 0, Time(1501));
    assert_eq!(room(&one), 4);
    // Bytes that were in use at once have room already.
    one.plan
        .crowded_out(&[pages(9, 1)], 3 * PAGE, 3 * PAGE, Time(1502));
    assert_eq!(room(&one), 7);
}

#[test]
fn registered_bytes_count_before_the_plan_hears_of_them() {
    let mut one = OneThread::new(CONFIG);
    for round in 1..3 {
        one.used_and_gone(1, 7, round * 10_000, RegistrationOutcome::OnDemand);
    }
    one.plan.set_registered_bytes(PAGE);
    assert_eq!(one.plan.next_action(Time(29_995)), None);
    // The registration was postponed until something is deregistered.
    one.plan.set_registered_bytes(0);
    assert_eq!(one.plan.next_action(Time(29_995)), None);
    one.used_and_gone(2, 20, 29_996, RegistrationOutcome::OnDemand);
    assert!(matches!(
        one.plan.next_action(Time(29_997)),
        Some(Action::Register { .. })
    ));
}

#[test]
fn pages_shared_by_large_regions_are_kept_apart_unless_inside_another() {
    let mut one = OneThread::new(CONFIG);
    let mut uses = |first, count| {
        let action = one.used_pages(first, first, count, first, RegistrationOutcome::OnDemand);
        if let Some(Action::Deregister { id, .. }) = action {
            one.plan.deregistered(id);
        }
        let shared = one.plan.take_shared();
        (shared.iter().map(|it| (it.page / PAGE, it.change))).collect::<Vec<_>>()
    };
    use Change::{Apart, Idle, Joined};
    assert_eq!(uses(100, 5), []);
    // No next use is expected after a first use.
    assert_eq!(uses(104, 5), [(104, Apart), (104, Idle)]);
    // One region shares more, and one is too small.
    assert_eq!(uses(107, 5), []);
    assert_eq!(uses(96, 4), []);
    // One region has the page inside, and another comes after that.
    assert_eq!(uses(101, 10), [(104, Joined)]);
    assert_eq!(uses(111, 6), [(111, Apart), (111, Idle)]);
    assert_eq!(uses(95, 10), []);
}

#[test]
fn a_page_that_is_apart_is_idle_when_none_of_its_buffers_is_expected() {
    let mut one = OneThread::new(CONFIG);
    let use_and_leave = |one: &mut OneThread, site, first, at| {
        let Some(Action::Deregister { id, .. }) =
            one.used_pages(site, first, 5, at, RegistrationOutcome::OnDemand)
        else {
            panic!("not deregistered");
        };
        let is_expected = one.plan.deregistered(id);
        let shared = one.plan.take_shared();
        let idle = shared.iter().filter(|it| it.change == Change::Idle);
        (
            is_expected,
            idle.map(|it| it.page / PAGE).collect::<Vec<_>>(),
        )
    };
    assert_eq!(use_and_leave(&mut one, 1, 100, 0), (false, vec![]));
    assert_eq!(use_and_leave(&mut one, 2, 104, 50_000), (false, vec![104]));
    // The first buffer is used again, and expected from then on.
    assert_eq!(use_and_leave(&mut one, 1, 100, 100_000), (true, vec![]));
    assert_eq!(use_and_leave(&mut one, 3, 104, 100_001), (false, vec![]));
    // It does not come again.
    while one.plan.next_action(Time(90_000_000)).is_some() {}
    let shared = one.plan.take_shared();
    assert!(
        matches!(shared[..], [SharedPage { page, change: Change::Idle }] if page == 104 * PAGE)
    );
}

#[test]
fn a_page_that_is_apart_is_joined_when_a_buffer_of_two_is_forgotten() {
    let mut one = OneThread::new(PlanConfig {
        regions: 2,
        ..CONFIG
    });
    let mut changes = Vec::new();
    for (site, first) in [(1, 100), (2, 104), (3, 200)] {
        let action = one.used_pages(site, first, 5, 1000 * site, RegistrationOutcome::OnDemand);
        if let Some(Action::Deregister { id, .. }) = action {
            one.plan.deregistered(id);
        }
        changes.extend(one.plan.take_shared());
    }
    let changes: Vec<_> = (changes.iter().map(|it| (it.page / PAGE, it.change))).collect();
    use Change::{Apart, Idle, Joined};
    assert_eq!(changes, [(104, Apart), (104, Idle), (104, Joined)]);
}
