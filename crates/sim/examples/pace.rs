//! Real time of a simulated blocking put: `cargo run --release -p hydrant-sim --example pace`.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use hydrant_conduit::{Clock, Permission, Rank, Window, conformance::Log};
use hydrant_sim::Faults;
use support::{each, world};

fn main() {
    const PUTS: u32 = 50_000;
    for profile in ["ideal", "myrinet-gm"] {
        for ranks in [1, 2, 4, 8] {
            let world = world(profile, ranks, 1, Faults::default());
            let since = Instant::now();
            let virtually = each(&world, |me| {
                let window = Window::private(4096);
                let places = me.publish(&window, Permission::ReadWrite, 0);
                let right = Rank((me.rank().0 + 1) % ranks);
                let mine = places[me.rank().index()].key;
                let log = &mut Log::new();
                let since = me.conduit.now();
                for _ in 0..PUTS {
                    let to = places[right.index()];
                    me.put(log, right, to, &window, 8, mine).unwrap();
                }
                let took = me.conduit.now() - since;
                me.meet();
                took
            });
            println!(
                "{profile:12} {ranks} ranks: {:5.2} us of real time a blocking 8-byte put, {:5.2} us of virtual time",
                since.elapsed().as_secs_f64() * 1e6 / f64::from(PUTS * ranks),
                virtually[0].as_secs_f64() * 1e6 / f64::from(PUTS),
            );
        }
    }
}
