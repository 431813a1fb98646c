//! The conformance suite on pinned memory: with the default options, and with little of everything.

use std::{process::ExitCode, sync::Arc};

use hydrant_conduit::{Conduit, conformance::Fixture};
use hydrant_pin::attach;
use hydrant_smp::SmpOptions;
use hydrant_testing::ranks;

struct PinnedFixture(SmpOptions);

impl Fixture for PinnedFixture {
    fn start(&self, ranks: u32) -> Vec<Arc<dyn Conduit>> {
        let joined = ranks::joined(ranks, |mut bootstrap| {
            attach(&mut bootstrap, &self.0).expect("ranks of one host")
        });
        joined.into_iter().map(|rank| Arc::new(rank) as _).collect()
    }

    fn arrives_at_once(&self) -> bool {
        true
    }
}

fn main() -> ExitCode {
    let plain = SmpOptions {
        segment: 64 << 20,
        ..SmpOptions::default()
    };
    let little = SmpOptions {
        slots: 8,
        payload: Some(1 << 10),
        extents: 512,
        segment: 8 << 20,
        ..plain.clone()
    };
    hydrant_conduit::conformance::main(vec![
        ("plain", Box::new(PinnedFixture(plain))),
        ("little", Box::new(PinnedFixture(little))),
    ])
}
