//! Two-sided messages between rank 0 and its partner, by the protocol in force: half of a round
//! trip, and the bandwidth of a stream.

use std::time::Duration;

use crate::ensemble::Ensemble;
use crate::network::PARTNER;

/// The longest message.
pub(crate) const MAX_BYTES: u64 = 4 << 20;
/// Messages of a stream in flight at once. A stream is measured in whole windows, so that compared
/// streams go through the same amount of memory at any speed.
const WINDOW: usize = 16;
const THERE: u64 = 1;
const BACK: u64 = 2;

/// Measures rank 0 and its partner.
pub(crate) fn run(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let protocol = e.job.settings().messages;
    let takes_part = e.rank() == 0 || e.rank() == PARTNER.0;
    for bytes in e.sizes(8, MAX_BYTES) {
        let case = format!("ping-pong, {protocol}");
        // The same memory for all batches, as in the MPI programs.
        let window = if takes_part { WINDOW } else { 0 };
        let (mut one, mut buffers) = (buffer(bytes), vec![buffer(bytes); window]);
        // Each side runs by itself, as in the MPI programs, so that no side inherits the other's
        // caches.
        let what = format!("{case}, {bytes} bytes");
        let there_and_back =
            e.together_timings(&what, [&mut |count| ping_pong(e, &mut one, count)])?;
        if let Some([there_and_back]) = there_and_back {
            let half = there_and_back.map(|nanos| nanos / 2.0);
            e.row(e.timed_row("messages", case, &half).bytes(bytes))?;
        }
        let case = format!("stream, {protocol}");
        let what = format!("{case}, {bytes} bytes");
        let window =
            e.together_timings(&what, [&mut |windows| stream(e, &mut buffers, windows)])?;
        if let Some([window]) = window {
            let rate = window.map(|nanos| (WINDOW as u64 * bytes) as f64 / (nanos / 1e9) / 1e6);
            e.row(e.row_of("messages", case, "MB/s", &rate).bytes(bytes))?;
        }
    }
    Ok(())
}

fn buffer(bytes: u64) -> Vec<u8> {
    vec![1; bytes as usize]
}

/// This rank's part in round trips.
fn ping_pong(e: &Ensemble<'_>, buffer: &mut [u8], count: u64) -> hydrant::Result<Duration> {
    let (job, zero) = (e.job, hydrant::Rank(0));
    job.barrier()?;
    match e.rank() {
        0 => e.timed_singly(count, |_| {
            job.send(PARTNER, THERE, buffer)?;
            job.receive(PARTNER, BACK, buffer).map(drop)
        }),
        rank if rank == PARTNER.0 => e.timed(count, |_| {
            job.receive(zero, THERE, buffer)?;
            job.send(zero, BACK, buffer)
        }),
        _ => Ok(Duration::ZERO),
    }
}

/// This rank's part in `windows` windows. They end when the last message was received.
fn stream(e: &Ensemble<'_>, buffers: &mut [Vec<u8>], windows: u64) -> hydrant::Result<Duration> {
    let (job, zero) = (e.job, hydrant::Rank(0));
    let takes_part = !buffers.is_empty();
    job.barrier()?;
    let watch = e.watch();
    for _ in 0..if takes_part { windows } else { 0 } {
        job.scope(|scope| {
            for buffer in &mut *buffers {
                match e.rank() {
                    0 => scope.send(PARTNER, THERE, buffer).map(drop)?,
                    _ => scope.receive(zero, THERE, buffer).map(drop)?,
                }
            }
            Ok(())
        })?;
    }
    Ok(watch.elapsed())
}
