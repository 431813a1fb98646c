//! A borrowed buffer is taken back when the scope ends.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let memory = job.alloc::<u64>(8)?;
        let mut buffer = [0_u64; 4];
        let lent = job.scope(|s| s.expose(&mut buffer))?;
        memory.put(job.right(), 0, &[lent.len() as u64])
    })
}
