//! Any bytes that a race leaves must be a value.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let memory = job.alloc::<u64>(8)?;
        let names = job.alloc::<String>(8)?;
        drop(names);
        job.free(memory)
    })
}
