//! A function may be called as long as the job lasts.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let offset = 5_u64;
        let add = job.function(|_, word: u64| word + offset)?;
        job.call(job.right(), &add, &1).map(drop)
    })
}
