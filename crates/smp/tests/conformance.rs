//! The conformance suite on shared memory, three times: with copies of foreign memory by the
//! kernel, with copies by messages, and with the smallest rings.

use std::{process::ExitCode, sync::Arc};

use hydrant_conduit::{
    Conduit, Rank,
    conformance::{self, Fixture},
};
use hydrant_smp::{Foreign, SmpOptions, attach};
use hydrant_testing::ranks;

struct Smp(SmpOptions);

impl Fixture for Smp {
    fn start(&self, ranks: u32) -> Vec<Arc<dyn Conduit>> {
        let joined = ranks::joined(ranks, |mut bootstrap| {
            attach(&mut bootstrap, &self.0).expect("ranks of one host")
        });
        joined.into_iter().map(|rank| Arc::new(rank) as _).collect()
    }

    fn arrives_at_once(&self) -> bool {
        true
    }

    fn misbehave(&self, from: &dyn Conduit, to: Rank) -> bool {
        conformance::send_unknown_kinds(from, to)
    }
}

fn main() -> ExitCode {
    let kernel = SmpOptions {
        segment: 64 << 20,
        foreign: Foreign::ProcessVm,
        ..SmpOptions::default()
    };
    let messages = SmpOptions {
        foreign: Foreign::Messages,
        ..kernel.clone()
    };
    let tiny = SmpOptions {
        slots: 8,
        payload: Some(1 << 10),
        extents: 16,
        segment: 8 << 20,
        ..messages.clone()
    };
    conformance::main(vec![
        ("process_vm", Box::new(Smp(kernel))),
        ("messages", Box::new(Smp(messages))),
        ("tiny_rings", Box::new(Smp(tiny))),
    ])
}
