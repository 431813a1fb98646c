//! The conformance suite on pinned memory: as it comes, and with little of everything.

use std::{process::ExitCode, sync::Arc, thread};

use hydrant_conduit::{Conduit, conformance::Fixture};
use hydrant_pin::attach;
use hydrant_smp::Options;

struct Pinned(Options);

impl Fixture for Pinned {
    fn start(&self, ranks: u32) -> Vec<Arc<dyn Conduit>> {
        thread::scope(|scope| {
            let ranks: Vec<_> = hydrant_launch::local(ranks)
                .into_iter()
                .map(|mut bootstrap| {
                    scope.spawn(move || attach(&mut bootstrap, &self.0).expect("ranks of one host"))
                })
                .collect();
            (ranks.into_iter())
                .map(|rank| Arc::new(rank.join().expect("a rank that joins")) as _)
                .collect()
        })
    }

    fn arrives_at_once(&self) -> bool {
        true
    }
}

fn main() -> ExitCode {
    let plain = Options {
        segment: 64 << 20,
        ..Options::default()
    };
    let little = Options {
        slots: 8,
        payload: 1 << 10,
        extents: 512,
        segment: 8 << 20,
        ..plain.clone()
    };
    hydrant_conduit::conformance::main(vec![
        ("plain", Box::new(Pinned(plain))),
        ("little", Box::new(Pinned(little))),
    ])
}
