//! The conformance suite in virtual time: without costs, on NICs with and without reads, and with
//! lost and late packets.

use std::{process::ExitCode, sync::Arc, time::Duration};

use hydrant_conduit::{Conduit, Rank, conformance::Fixture};
use hydrant_sim::{Faults, Profile, SimOptions, World};

struct SimNetwork {
    profile: &'static str,
    faults: Faults,
}

impl Fixture for SimNetwork {
    fn start(&self, ranks: u32) -> Vec<Arc<dyn Conduit>> {
        let profile = Profile::named(self.profile).expect("a shipped profile");
        let options = SimOptions {
            segment: 16 << 20,
            faults: self.faults.clone(),
            ..SimOptions::default()
        };
        let world = World::new(profile, ranks, options).expect("memory for a test");
        (0..ranks)
            .map(|rank| Arc::new(world.conduit(Rank(rank))) as _)
            .collect()
    }

    fn takes_turns(&self) -> bool {
        true
    }
}

fn main() -> ExitCode {
    let fixture = |profile, faults| Box::new(SimNetwork { profile, faults }) as Box<dyn Fixture>;
    let faults = Faults {
        loss: 0.02,
        delay: Duration::from_micros(20),
        ..Faults::default()
    };
    hydrant_conduit::conformance::main(vec![
        ("ideal", fixture("ideal", Faults::default())),
        ("myrinet_gm", fixture("myrinet-gm", Faults::default())),
        ("connectx", fixture("connectx", Faults::default())),
        ("lossy", fixture("myrinet-gm", faults)),
    ])
}
