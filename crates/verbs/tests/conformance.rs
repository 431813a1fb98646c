//! The conformance suite on a real RDMA device, if there is one: else its tests are ignored.
//!
//! Twice: with room for everything, and with the smallest rings there are.

use std::{process::ExitCode, sync::Arc, thread};

use hydrant_conduit::{Conduit, Message, Rank, Sent, conformance::Fixture};
use hydrant_verbs::{Options, attach, ports};

struct Verbs(Options);

impl Fixture for Verbs {
    fn start(&self, ranks: u32) -> Vec<Arc<dyn Conduit>> {
        thread::scope(|scope| {
            let ranks: Vec<_> = hydrant_launch::local(ranks)
                .into_iter()
                .map(|mut bootstrap| {
                    scope.spawn(move || attach(&mut bootstrap, &self.0).expect("an RDMA device"))
                })
                .collect();
            (ranks.into_iter())
                .map(|rank| Arc::new(rank.join().expect("a rank that joins")) as _)
                .collect()
        })
    }

    /// A device made by software shares two cores with all of them.
    fn most_ranks(&self) -> u32 {
        12
    }

    fn slowness(&self) -> u32 {
        10
    }

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
    if let Err(why) = ports("", None) {
        return hydrant_conduit::conformance::ignored(&["plain", "tiny"], &why);
    }
    let plain = Options {
        segment: 16 << 20,
        extents: 4096,
        ..Options::default()
    };
    let tiny = Options {
        payload: 64,
        window: 2,
        sends: 4,
        extents: 1024,
        segment: 8 << 20,
        ..plain.clone()
    };
    let fixture = |options| Box::new(Verbs(options)) as Box<dyn Fixture>;
    hydrant_conduit::conformance::main(vec![("plain", fixture(plain)), ("tiny", fixture(tiny))])
}
