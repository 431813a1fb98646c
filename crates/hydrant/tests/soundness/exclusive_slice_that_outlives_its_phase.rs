//! A slice of exclusive memory goes before the memory is shared again.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let memory = job.alloc::<u64>(8)?;
        let mut mine = job.exclusive(memory)?;
        let slice = &mut mine[..];
        let memory = job.share(mine)?;
        slice[0] = 1;
        job.free(memory)
    })
}
