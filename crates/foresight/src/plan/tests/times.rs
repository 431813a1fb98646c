//! The times of registrations and deregistrations.

use super::*;

#[test]
fn a_first_use_is_always_deregistered() {
    let mut one = OneThread::new(CONFIG);
    let action = one.used(1, 7, 1000, RegistrationOutcome::OnDemand).unwrap();
    let HelperTask::Deregister {
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
        let Some(HelperTask::Deregister { id: region, .. }) =
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
    let Some(HelperTask::Deregister { id: region, .. }) =
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
        matches!(action, Some(HelperTask::Deregister { .. })),
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
    let Some(HelperTask::Deregister { id: region, .. }) =
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
        let is_given_up = matches!(action, Some(HelperTask::Deregister { id, .. }) if id == region);
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
fn the_next_region_waits_for_the_last_if_no_two_were_in_use() {
    let mut one = OneThread::new(CONFIG);
    for round in 0..2 {
        one.used_and_gone(1, 10, round * 10_000, RegistrationOutcome::OnDemand);
        one.used_and_gone(2, 20, round * 10_000 + 1000, RegistrationOutcome::OnDemand);
    }
    let (_, first) = one.registers_at(12_000, 20_000);
    one.plan.registered(first);
    let action = one.used(1, 10, 20_000, RegistrationOutcome::Found);
    assert!(matches!(action, Some(HelperTask::Deregister { id, .. }) if id == first));
    // The second is due.
    assert_eq!(one.plan.next_action(Time(20_995)), None);
    assert!(one.plan.wake().is_none_or(|at| at > Time(20_995)));
    one.plan.deregistered(first);
    let action = one.plan.next_action(Time(20_995));
    assert!(matches!(action, Some(HelperTask::Register { id, .. }) if id != first));
}

#[test]
fn a_landmark_is_waited_for() {
    let mut one = OneThread::new(CONFIG);
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
        if let Some(HelperTask::Deregister { id: region, .. }) = action {
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
