//! The regions that uses belong to, and the pages that regions share.

use super::*;

#[test]
fn short_buffers_are_of_no_region() {
    let mut one = OneThread::new(CONFIG);
    assert_eq!(one.used(1, 7, 1000, RegistrationOutcome::Copied), None);
    assert_eq!(one.plan.regions.len(), 0);
}

#[test]
fn a_refused_use_is_of_the_largest_region_that_is_known() {
    let mut one = OneThread::new(CONFIG);
    let Some(HelperTask::Deregister { id: whole, .. }) =
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
    let Some(HelperTask::Deregister { id: large, .. }) = large else {
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
fn the_threads_of_a_plan_share_the_memory_for_histories() {
    let mut plan = Plan::new(CONFIG).unwrap();
    let mut threads = vec![plan.add_thread()];
    for number in 0..60_000 {
        // The other threads come late, when the first has filled its memory.
        if number > 20_000 && threads.len() < 4 {
            threads.push(plan.add_thread());
        }
        let thread = threads[number as usize % threads.len()];
        let communication = Communication {
            begun: Time(1000 * number),
            kind: CommunicationKind(1),
            outcome: RegistrationOutcome::OnDemand,
            addr: number * PAGE,
            bytes: PAGE,
            region: pages(number, 1),
            stack: [1; FRAMES],
        };
        match plan.used(thread, &communication, Time(1000 * number)) {
            Some(HelperTask::Deregister { id, .. }) => _ = plan.deregistered(id),
            other => panic!("{other:?}"),
        }
    }
    let kept: usize = plan.threads.iter().map(|it| it.predictor.kept()).sum();
    assert!(kept <= MOST_SITES && kept > MOST_SITES / 4, "{kept}");
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
    let page = |page| PageRun {
        addr: page * PAGE,
        bytes: PAGE,
    };
    let remembered = [7, 8, 9].map(|it| one.plan.find(page(it)).is_some());
    assert_eq!((remembered, one.plan.regions()), ([false, true, true], 2));
}

#[test]
fn a_neighbour_torn_by_a_deregistration_is_registered_again() {
    let mut one = OneThread::new(CONFIG);
    // Pages 10 to 12 and 12 to 14 are used every 10,000. Page 14 is expected by nobody.
    for round in 0..2 {
        for (site, page) in [(1, 10), (2, 12)] {
            let at = round * 10_000 + site;
            let Some(HelperTask::Deregister { id, .. }) =
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
    let Some(HelperTask::Deregister { id: first, .. }) = action else {
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
    assert!(matches!(action, Some(HelperTask::Register { id, .. }) if id == second));
    assert_eq!(one.plan.neighbours(first), []);
    one.plan.registered(second);
    assert_eq!(one.plan.registered_bytes(), bytes);
    assert_eq!(one.plan.stats().late, 0);
}

#[test]
fn pages_shared_by_large_regions_are_kept_apart_unless_inside_another() {
    let mut one = OneThread::new(CONFIG);
    let mut uses = |first, count| {
        let action = one.used_pages(first, first, count, first, RegistrationOutcome::OnDemand);
        if let Some(HelperTask::Deregister { id, .. }) = action {
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
        let Some(HelperTask::Deregister { id, .. }) =
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
        if let Some(HelperTask::Deregister { id, .. }) = action {
            one.plan.deregistered(id);
        }
        changes.extend(one.plan.take_shared());
    }
    let changes: Vec<_> = (changes.iter().map(|it| (it.page / PAGE, it.change))).collect();
    use Change::{Apart, Idle, Joined};
    assert_eq!(changes, [(104, Apart), (104, Idle), (104, Joined)]);
}
