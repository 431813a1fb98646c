//! Memory of peers that is mapped here.

use crate::support::local;

#[test_on(shared)]
fn seen_directly_by_ranks_of_the_host() {
    local(3, |job| {
        let memory = job.alloc::<[u16; 3]>(5)?;
        assert_eq!(job.host_ranks().count(), 3);
        let theirs = memory.on(job.right())?.expect("it is on this host");
        theirs.store(4, [1, 2, job.rank().0 as u16])?;
        theirs.fill(0..2, [9; 3])?;
        job.barrier()?;
        let mine = memory.local()?;
        assert_eq!(mine.load(4)?, [1, 2, job.left().0 as u16]);
        assert_eq!(mine.to_vec()[..3], [[9; 3], [9; 3], [0; 3]]);
        assert_eq!(mine.len(), 5);
        job.barrier()
    });
}
