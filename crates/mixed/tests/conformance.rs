//! The conformance suite on two conduits at once. The ranks are threads of this process that
//! pretend to be on several hosts.

use std::{process::ExitCode, sync::Arc};

use hydrant_conduit::{
    Conduit, Rank,
    conformance::{self, Fixture},
};
use hydrant_launch::{Bootstrap, Subset};
use hydrant_mixed::Mixed;
use hydrant_smp::{SmpOptions, attach};
use hydrant_testing::ranks;

/// Returns the host on which a rank pretends to be.
type Host = fn(u32) -> u32;

/// Shared memory within hosts, and the conduit that `inter` makes between them.
struct Hosts {
    host: Host,
    intra: SmpOptions,
    inter: fn(&mut dyn Bootstrap) -> Box<dyn Conduit>,
    /// True if the network is one of a device.
    device: bool,
}

impl Hosts {
    fn join(&self, mut bootstrap: impl Bootstrap) -> Mixed {
        let ranks = 0..bootstrap.size();
        let hosts: Vec<u32> = ranks.clone().map(self.host).collect();
        let here = hosts[bootstrap.rank() as usize];
        let mates = ranks.filter(|rank| hosts[*rank as usize] == here).collect();
        let mut group = Subset::new(&mut bootstrap, mates, "intra.").expect("a member");
        let intra = attach(&mut group, &self.intra).expect("ranks of one host");
        let inter = (self.inter)(&mut bootstrap);
        Mixed::join(&mut bootstrap, &hosts, "mixed", Box::new(intra), inter)
            .expect("the same ranks")
    }
}

impl Fixture for Hosts {
    fn start(&self, ranks: u32) -> Vec<Arc<dyn Conduit>> {
        let joined = ranks::joined(ranks, |bootstrap| self.join(bootstrap));
        joined.into_iter().map(|rank| Arc::new(rank) as _).collect()
    }

    fn arrives_at_once(&self) -> bool {
        !self.device
    }

    /// A device made by software shares two cores with all of them.
    fn most_ranks(&self) -> u32 {
        if self.device { 12 } else { 70 }
    }

    fn slowness(&self) -> u32 {
        if self.device { 10 } else { 1 }
    }

    fn misbehave(&self, from: &dyn Conduit, to: Rank) -> bool {
        conformance::send_unknown_kinds(from, to)
    }
}

/// Shared memory that poses as a network without registration.
fn plain(bootstrap: &mut dyn Bootstrap) -> Box<dyn Conduit> {
    let options = SmpOptions {
        segment: 4096,
        ..SmpOptions::default()
    };
    Box::new(attach(bootstrap, &options).expect("ranks of one host"))
}

/// Ranks of one host, joined as if by a NIC that needs registration.
fn pinned(bootstrap: &mut dyn Bootstrap) -> Box<dyn Conduit> {
    let options = SmpOptions {
        segment: 4096,
        ..SmpOptions::default()
    };
    Box::new(hydrant_pin::attach(bootstrap, &options).expect("ranks of one host"))
}

/// RDMA NICs.
fn verbs(bootstrap: &mut dyn Bootstrap) -> Box<dyn Conduit> {
    let options = hydrant_verbs::VerbsOptions {
        segment: 4096,
        extents: 4096,
        ..hydrant_verbs::VerbsOptions::default()
    };
    Box::new(hydrant_verbs::attach(bootstrap, &options).expect("an RDMA device"))
}

fn main() -> ExitCode {
    let on = |host: Host, inter| -> Box<dyn Fixture> {
        let intra = SmpOptions {
            segment: 64 << 20,
            ..SmpOptions::default()
        };
        let device = false;
        Box::new(Hosts {
            host,
            intra,
            inter,
            device,
        })
    };
    let by_device = |host: Host| -> Box<dyn Fixture> {
        let intra = SmpOptions {
            segment: 16 << 20,
            ..SmpOptions::default()
        };
        Box::new(Hosts {
            host,
            intra,
            inter: verbs,
            device: true,
        })
    };
    let mut fixtures = vec![
        ("every_rank_alone", on(|rank| rank, plain)),
        ("even_and_odd", on(|rank| rank % 2, plain)),
        ("pinned_alone", on(|rank| rank, pinned)),
        ("pinned_pairs", on(|rank| rank / 2, pinned)),
        ("pinned_even_and_odd", on(|rank| rank % 2, pinned)),
        ("pinned_one_host", on(|_| 0, pinned)),
    ];
    if hydrant_verbs::ports("", None).is_ok() {
        fixtures.push(("verbs_pairs", by_device(|rank| rank / 2)));
        fixtures.push(("verbs_even_and_odd", by_device(|rank| rank % 2)));
    }
    conformance::main(fixtures)
}
