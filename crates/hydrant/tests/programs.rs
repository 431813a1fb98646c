//! The example programs, small, on every kind of network that one process can play. Each checks its
//! own answer.

#[path = "../examples/cannon.rs"]
mod cannon;
#[path = "../examples/halo.rs"]
mod halo;
#[path = "../examples/hash_table.rs"]
mod hash_table;
#[path = "../examples/integer_sort.rs"]
mod integer_sort;
#[path = "../examples/page_server.rs"]
mod page_server;
#[path = "../examples/summa.rs"]
mod summa;

use hydrant::{ConduitKind, Job, Result};

/// Runs a program of one rank, of an awkward number and of some.
fn everywhere(program: impl Fn(&Job) -> Result<()> + Sync) {
    on(&[1, 5, 6], program);
}

/// Runs a program of so many ranks in shared memory, and of four on other networks.
fn on(in_shared_memory: &[u32], program: impl Fn(&Job) -> Result<()> + Sync) {
    let in_shared_memory = in_shared_memory.iter().map(|ranks| ("smp", *ranks));
    let others = [("smp+pin", 4), ("sim:myrinet-gm", 4)];
    for (network, ranks) in in_shared_memory.chain(others) {
        let conduit: ConduitKind = network.parse().expect("there is such a conduit");
        let builder = Job::builder().expect("the settings are valid");
        let ends = builder
            .conduit(conduit)
            .heap(4 << 20)
            .run_local(ranks, &program);
        for end in ends {
            end.unwrap_or_else(|cause| panic!("{ranks} ranks on {network}: {cause}"));
        }
    }
}

#[test]
fn heat_spreads_as_on_one_rank() {
    everywhere(|job| halo::halo(job, 33, 12).map(drop));
}

#[test]
fn keys_are_counted_as_by_one_rank() {
    everywhere(|job| {
        let (different, _) = hash_table::hash_table(job, 150)?;
        assert!(different > 10);
        Ok(())
    });
}

#[test]
fn keys_come_out_in_order() {
    everywhere(|job| integer_sort::integer_sort(job, 3000).map(drop));
}

#[test]
fn pages_come_and_go() {
    everywhere(|job| {
        let (gone, _) = page_server::page_server(job, 2000)?;
        assert!(job.size() == 1 || gone > 0, "every page stayed");
        Ok(())
    });
}

#[test]
fn products_are_those_of_one_rank() {
    everywhere(|job| summa::summa(job, 20).map(drop));
}

#[test]
fn products_of_square_meshes_are_those_of_one_rank() {
    on(&[1, 4, 9], |job| cannon::cannon(job, 20).map(drop));
}

#[test]
fn a_mesh_that_is_no_square_is_refused() {
    let refused = Job::builder().map(|builder| builder.run_local(2, |job| cannon::cannon(job, 20)));
    for end in refused.expect("the settings are valid") {
        let cause = end.expect_err("two ranks are no square mesh");
        assert!(cause.to_string().contains("no square"), "{cause}");
    }
}
