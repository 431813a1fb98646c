//! A call gives what its function takes.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let double = job.function(|_, word: u64| 2 * word)?;
        job.call_nb(job.right(), &double, &"two".to_owned())?.wait().map(drop)
    })
}
