//! Each decision of the plan by itself.

mod events;
mod limit;
mod regions;
mod times;
mod work;

use super::*;
use crate::communication::{CommunicationKind, FRAMES, PageRun};
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
    ) -> Option<HelperTask> {
        self.used_pages(site, page, 1, at, outcome)
    }

    fn used_pages(
        &mut self,
        site: u64,
        page: u64,
        pages: u64,
        at: u64,
        outcome: RegistrationOutcome,
    ) -> Option<HelperTask> {
        let mut stack = [0; FRAMES];
        stack[0] = site;
        let communication = Communication {
            begun: Time(at),
            kind: CommunicationKind(1),
            outcome,
            addr: page * PAGE + 8,
            bytes: pages * PAGE - 8,
            region: PageRun {
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
        let Some(HelperTask::Deregister { id: region, .. }) = self.used(site, page, at, outcome)
        else {
            panic!("not deregistered");
        };
        self.plan.deregistered(region);
        region
    }

    /// The first moment at which a look registers a region.
    fn registers_at(&mut self, from: u64, to: u64) -> (u64, RegionId) {
        for now in from..=to {
            if let Some(HelperTask::Register { id: region, .. }) = self.plan.next_action(Time(now))
            {
                return (now, region);
            }
        }
        panic!("nothing is registered until {to}");
    }
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

fn pages(first: u64, count: u64) -> PageRun {
    PageRun {
        addr: first * PAGE,
        bytes: count * PAGE,
    }
}
