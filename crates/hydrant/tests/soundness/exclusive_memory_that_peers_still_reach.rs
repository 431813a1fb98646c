//! What is this rank's alone is reached by no handle of before.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let memory = job.alloc::<u64>(8)?;
        let mut mine = job.exclusive(memory)?;
        mine[0] = 1;
        memory.put(job.right(), 0, &[2])
    })
}
