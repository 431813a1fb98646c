//! The job ends with its body.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let memory = job.alloc::<u64>(8)?;
        drop(memory);
        Ok(job)
    })
    .map(|job| drop(job.rank()))
}
