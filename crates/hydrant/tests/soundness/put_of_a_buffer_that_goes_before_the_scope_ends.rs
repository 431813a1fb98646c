//! The network may read the buffer until the scope ends.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let memory = job.alloc::<u64>(8)?;
        job.scope(|s| {
            let data = vec![1, 2, 3];
            s.put(&memory, job.right(), 0, &data)?;
            Ok(())
        })
    })
}
