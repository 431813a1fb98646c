//! The conformance suite on a real RDMA device. Without a device its tests are ignored.
//!
//! It runs twice: with plenty of room, and with the smallest queues. Where the device pages on demand, it runs once more
//! with memory that is not pinned.

use std::{process::ExitCode, sync::Arc};

use hydrant_conduit::{
    Conduit, Rank,
    conformance::{self, Fixture},
};
use hydrant_testing::ranks;
use hydrant_verbs::{VerbsOptions, attach, on_demand_paging, ports};

struct VerbsFixture(VerbsOptions);

impl Fixture for VerbsFixture {
    fn start(&self, ranks: u32) -> Vec<Arc<dyn Conduit>> {
        let joined = ranks::joined(ranks, |mut bootstrap| {
            attach(&mut bootstrap, &self.0).expect("an RDMA device")
        });
        joined.into_iter().map(|rank| Arc::new(rank) as _).collect()
    }

    /// All ranks share two cores with a device made by software.
    fn most_ranks(&self) -> u32 {
        12
    }

    fn slowness(&self) -> u32 {
        10
    }

    fn misses_own_memory(&self) -> bool {
        self.0.on_demand
    }

    fn misbehave(&self, from: &dyn Conduit, to: Rank) -> bool {
        conformance::send_unknown_kinds(from, to)
    }
}

fn main() -> ExitCode {
    if let Err(why) = ports("", None) {
        return conformance::ignored(&["plain", "tiny"], &why);
    }
    let plain = VerbsOptions {
        segment: 16 << 20,
        extents: 4096,
        ..VerbsOptions::default()
    };
    let tiny = VerbsOptions {
        payload: 64,
        window: 2,
        sends: 4,
        extents: 1024,
        segment: 8 << 20,
        ..plain.clone()
    };
    let fixture = |options| Box::new(VerbsFixture(options)) as Box<dyn Fixture>;
    let mut fixtures = vec![("plain", fixture(plain.clone())), ("tiny", fixture(tiny))];
    match on_demand_paging(&plain) {
        Ok(port) => {
            eprintln!("{port} pages on demand");
            let paged = VerbsOptions {
                on_demand: true,
                ..plain
            };
            fixtures.push(("paged", fixture(paged)));
        }
        Err(why) => eprintln!("without the part `paged`: {why}"),
    }
    conformance::main(fixtures)
}
