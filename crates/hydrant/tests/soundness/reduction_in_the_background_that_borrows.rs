//! A collective in the background outlives the call that begins it, with what reduces.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let most = 7_u64;
        let begun = job.all_reduce_with_nb(vec![1_u64], |a, b| (a + b).min(most))?;
        begun.wait().map(drop)
    })
}
