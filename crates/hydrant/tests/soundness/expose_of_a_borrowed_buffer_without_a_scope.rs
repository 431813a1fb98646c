//! A guard that is leaked would leave peers a buffer that its owner uses again.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let memory = job.alloc::<u64>(8)?;
        let mut buffer = [0_u64; 4];
        let lent = job.expose(&mut buffer[..])?;
        memory.put(job.right(), 0, &[lent.len() as u64])
    })
}
