//! Returns an error from `main`, as the first program of the README does when something is wrong.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let field = job.alloc::<f64>(8)?;
        field.put(job.rank(), 6, &[1.0, 2.0, 3.0])
    })
}
