//! The network may read the buffer until the scope ends.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let memory = job.alloc::<u64>(8)?;
        let mut row = [0; 4];
        job.scope(|s| {
            s.put(&memory, job.right(), 0, &row)?;
            row[0] = 1;
            Ok(())
        })
    })
}
