//! The limit of registered bytes, and evictions.

use super::*;

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
        let Some(HelperTask::Deregister { id: region, .. }) =
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
            Some(HelperTask::Deregister {
                id: region,
                region: memory,
            }) if gives_up => {
                assert_eq!(memory.addr, PAGE);
                one.plan.deregistered(region);
                let next = one.plan.next_action(Time(1032));
                assert!(
                    matches!(next, Some(HelperTask::Register { region, .. }) if region.addr == 2 * PAGE)
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
    let Some(HelperTask::Deregister { id: region, .. }) =
        one.used(1, 1, 3000, RegistrationOutcome::Found)
    else {
        panic!("kept");
    };
    one.plan.deregistered(region);
    let action = one.plan.next_action(Time(3000));
    assert!(
        matches!(action, Some(HelperTask::Register { .. })),
        "{action:?}"
    );
}

#[test]
fn a_region_evicted_by_operations_is_registered_again_when_due() {
    let mut one = OneThread::new(CONFIG);
    for round in 1..3 {
        let id = one.used_and_gone(1, 7, round * 10_000, RegistrationOutcome::OnDemand);
        assert_eq!(one.plan.find(pages(7, 1)), Some(id));
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
        Some(HelperTask::Register { .. })
    ));
}

#[test]
fn a_helper_that_rests_keeps_nothing_but_what_is_in_use() {
    let mut one = OneThread::new(CONFIG);
    // Pages 7 and 8 are needed too soon to be deregistered; page 9 is in use.
    for (page, at) in [(7, 1000), (8, 1010), (9, 1020)] {
        let Some(HelperTask::Deregister { id, .. }) =
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
    while let Some(action) = one.plan.deregister_last() {
        let HelperTask::Deregister { id, region } = action else {
            panic!("{action:?}");
        };
        assert!(one.plan.deregistered(id), "it is expected all the same");
        given_up.push(region.addr / PAGE);
    }
    given_up.sort_unstable();
    assert_eq!(given_up, [7, 8]);
    assert_eq!(one.plan.registered_bytes(), PAGE);
}
