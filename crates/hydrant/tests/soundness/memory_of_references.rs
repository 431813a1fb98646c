//! An address means nothing to another rank.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let memory = job.alloc::<u64>(8)?;
        let places = job.alloc::<&'static u64>(8)?;
        drop(places);
        job.free(memory)
    })
}
