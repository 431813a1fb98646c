//! An operation is over when its scope is.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let memory = job.alloc::<u64>(8)?;
        let row = [0; 4];
        let operation = job.scope(|s| s.put(&memory, job.right(), 0, &row))?;
        operation.wait_local()
    })
}
