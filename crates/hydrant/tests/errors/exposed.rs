//! Exposed buffers, where each takes a place in the network's table.

use hydrant::Error;

use crate::{
    errors::fixture::Fixture,
    support::{builder, good},
};

#[test_on(shared, veiled)]
fn more_buffers_than_may_be_exposed() {
    good(builder().extents(2).run_local(2, |job| {
        let f = Fixture::new(job)?;
        let first = job.expose(vec![1_u8])?;
        let second = job.expose(vec![2_u8])?;
        refused!(
            job.expose(vec![3_u8]),
            Error::Conduit(_),
            "limit is 2",
            "HYDRANT_EXTENTS"
        );
        let mut fourth = [4_u8];
        refused!(
            job.scope(|s| s.expose(&mut fourth).map(drop)),
            Error::Conduit(_),
            "HYDRANT_EXTENTS"
        );
        drop(first);
        let third = job.expose(vec![3_u8])?;
        drop((second, third));
        f.check(job)
    }));
}
