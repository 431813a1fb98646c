//! The network may write to the buffer until the scope ends.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let memory = job.alloc::<u64>(8)?;
        let mut halo = [0; 4];
        job.scope(|s| {
            s.get(&memory, job.right(), 0, &mut halo)?;
            assert_eq!(halo[0], 0);
            Ok(())
        })
    })
}
