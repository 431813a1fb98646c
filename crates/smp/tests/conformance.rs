//! The conformance suite on shared memory, three times: where the kernel copies to and from
//! foreign memory, where messages do, and with the smallest rings there are.

use std::{process::ExitCode, sync::Arc, thread};

use hydrant_conduit::{Conduit, Message, Rank, Sent, conformance::Fixture};
use hydrant_smp::{Foreign, Options, attach};

struct Smp(Options);

impl Fixture for Smp {
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

    /// Kinds from [`Message::KINDS`] on are the conduit's own, with arguments of their own.
    fn misbehave(&self, from: &dyn Conduit, to: Rank) -> bool {
        let kinds = Message::KINDS..16;
        kinds.into_iter().all(|kind| {
            let message = Message {
                kind,
                tag: 7,
                args: &[1, 2],
                payload: &[3],
            };
            from.send(to, &message).expect("within the limits") == Sent::Yes
        })
    }
}

fn main() -> ExitCode {
    let kernel = Options {
        segment: 64 << 20,
        foreign: Foreign::ProcessVm,
        ..Options::default()
    };
    let messages = Options {
        foreign: Foreign::Messages,
        ..kernel.clone()
    };
    let tiny = Options {
        slots: 8,
        payload: 1 << 10,
        extents: 16,
        segment: 8 << 20,
        ..messages.clone()
    };
    hydrant_conduit::conformance::main(vec![
        ("process_vm", Box::new(Smp(kernel))),
        ("messages", Box::new(Smp(messages))),
        ("tiny_rings", Box::new(Smp(tiny))),
    ])
}
