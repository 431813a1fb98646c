//! A part of a view goes before the buffer that it looks at.

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let exposed = job.expose(vec![0_u64; 64])?;
        let row = exposed.view().part(8..16)?;
        drop(exposed);
        row.store(0, 1)
    })
}
