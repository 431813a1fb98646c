//! Peers write to a buffer that is lent.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let memory = job.alloc::<u64>(8)?;
        let mut buffer = [0_u64; 4];
        job.scope(|s| {
            let _lent = s.expose(&mut buffer)?;
            memory.put(job.right(), 0, &buffer)
        })
    })
}
