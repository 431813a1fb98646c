//! The plan under arbitrary events.

use proptest::prelude::*;

use super::*;

/// An event of a plan.
#[derive(Clone, Debug)]
enum PlanEvent {
    Used {
        thread: u32,
        communication: Communication,
        now: u64,
    },
    Look {
        now: u64,
    },
    /// The helper's answer to its last action.
    Answer {
        succeeds: bool,
    },
}

fn time() -> impl Strategy<Value = u64> {
    // Clocks jump, even to the ends of time.
    prop_oneof![8 => 0u64..20_000, 1 => any::<u64>()]
}

fn event() -> impl Strategy<Value = PlanEvent> {
    let outcome = prop_oneof![
        Just(RegistrationOutcome::Copied),
        Just(RegistrationOutcome::Found),
        Just(RegistrationOutcome::OnDemand),
        Just(RegistrationOutcome::Refused)
    ];
    let memory = prop_oneof![6 => (0u64..8, 1u64..4), 1 => (any::<u64>(), any::<u64>())];
    let used = (0u32..2, outcome, memory, time(), time(), 0u64..3).prop_map(
        |(thread, outcome, (page, pages), begun, now, site)| {
            let (addr, bytes) = (page.wrapping_mul(PAGE), pages.wrapping_mul(PAGE));
            let region = PageRun { addr, bytes };
            let communication = Communication {
                begun: Time(begun),
                kind: CommunicationKind(1),
                outcome,
                addr,
                bytes,
                region,
                stack: [site; FRAMES],
            };
            PlanEvent::Used {
                thread,
                communication,
                now,
            }
        },
    );
    prop_oneof![
        3 => used,
        2 => time().prop_map(|now| PlanEvent::Look { now }),
        3 => any::<bool>().prop_map(|succeeds| PlanEvent::Answer { succeeds }),
    ]
}

proptest! {
    /// Any records, read at any time, and any answers to actions: nothing panics, no region has two actions at once,
    /// and the registered bytes are those of the registered regions.
    #[test]
    fn any_sequence_of_events_keeps_the_plan_consistent(
        events in prop::collection::vec(event(), 1..200),
        limit_bytes in prop_oneof![Just(u64::MAX), Just(5 * PAGE)],
        regions in 1usize..20,
    ) {
        let mut plan = Plan::new(PlanConfig { limit_bytes, regions, ..CONFIG }).unwrap();
        let threads = [plan.add_thread(), plan.add_thread()];
        let mut asked: Vec<HelperTask> = Vec::new();
        // More bytes than 64 bits can count.
        let mut is_absurd = false;
        for event in events {
            let action = match event {
                PlanEvent::Used { thread, communication, now } => {
                    is_absurd |= communication.region.bytes > 1 << 40;
                    plan.used(threads[thread as usize], &communication, Time(now))
                }
                PlanEvent::Look { now } => {
                    let action = plan.next_action(Time(now));
                    prop_assert!(is_absurd || action.is_some() || plan.wake().is_none_or(|at| at.0 > now));
                    action
                }
                PlanEvent::Answer { succeeds } => {
                    match (asked.pop(), succeeds) {
                        (Some(HelperTask::Register { id, .. }), true) => plan.registered(id),
                        (Some(HelperTask::Register { id, .. }), false) => plan.not_registered(id),
                        (Some(HelperTask::Deregister { id, .. }), true) => drop(plan.deregistered(id)),
                        (Some(HelperTask::Deregister { id, .. }), false) => plan.still_used(id),
                        (None, _) => {}
                    }
                    None
                }
            };
            if let Some(action) = action {
                let id = |it: &HelperTask| match it {
                    HelperTask::Register { id, .. } | HelperTask::Deregister { id, .. } => *id,
                };
                prop_assert!(asked.iter().all(|it| id(it) != id(&action)), "asked for twice");
                asked.push(action);
            }
            let registered = plan.regions.iter().filter(|it| it.1.state != RegionState::Absent);
            let bytes = registered.map(|it| it.1.bytes()).fold(0, u64::saturating_add);
            prop_assert!(is_absurd || plan.registered_bytes() == bytes);
        }
    }
}
