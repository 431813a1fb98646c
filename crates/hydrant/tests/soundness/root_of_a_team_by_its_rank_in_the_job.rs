//! The rank of a process in its team is mostly another than in the job.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let half = job.world().split(Some(job.rank().0 % 2), 0)?;
        let half = half.expect("every rank gives a color");
        half.broadcast(job.rank(), &mut [1_u64])
    })
}
