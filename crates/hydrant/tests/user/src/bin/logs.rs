//! Logs by the subscriber that its argument names: `own`, `hydrant`, `both` or `none`.

use tracing_subscriber::filter::LevelFilter;

fn main() -> hydrant::Result<()> {
    let subscriber = std::env::args().nth(1).unwrap_or_default();
    if ["own", "both"].contains(&subscriber.as_str()) {
        tracing_subscriber::fmt()
            .with_max_level(LevelFilter::DEBUG)
            .with_writer(std::io::stderr)
            .init();
    }
    if ["hydrant", "both"].contains(&subscriber.as_str()) {
        hydrant::log_to_stderr()?;
    }
    hydrant::run(|job| {
        tracing::debug!("a word of the program's own");
        job.barrier()
    })
}
