//! The conformance suite over libfabric. Without the library its tests are ignored.
//!
//! It runs twice: with plenty of room, and with the smallest queues.

use std::{process::ExitCode, sync::Arc};

use hydrant_conduit::{
    Conduit, Rank,
    conformance::{self, Fixture},
};
use hydrant_ofi::{OfiOptions, attach, endpoints};
use hydrant_testing::ranks;

struct OfiFixture(OfiOptions);

impl Fixture for OfiFixture {
    fn start(&self, ranks: u32) -> Vec<Arc<dyn Conduit>> {
        let joined = ranks::joined(ranks, |mut bootstrap| {
            attach(&mut bootstrap, &self.0).expect("a provider of libfabric")
        });
        joined.into_iter().map(|rank| Arc::new(rank) as _).collect()
    }

    /// All ranks share two cores, and each endpoint costs 20 MiB or more.
    fn most_ranks(&self) -> u32 {
        8
    }

    fn slowness(&self) -> u32 {
        10
    }

    fn misbehave(&self, from: &dyn Conduit, to: Rank) -> bool {
        conformance::send_unknown_kinds(from, to)
    }
}

fn main() -> ExitCode {
    let plain = OfiOptions {
        segment: 16 << 20,
        extents: 4096,
        ..OfiOptions::default()
    };
    if let Err(why) = endpoints(&plain) {
        return conformance::ignored(&["plain", "tiny"], &why);
    }
    let tiny = OfiOptions {
        payload: 64,
        window: 2,
        extents: 1024,
        segment: 8 << 20,
        ..plain.clone()
    };
    let fixture = |options| Box::new(OfiFixture(options)) as Box<dyn Fixture>;
    conformance::main(vec![("plain", fixture(plain)), ("tiny", fixture(tiny))])
}
