//! A rank handles arbitrary messages that its conduit delivers.

#![no_main]

use hydrant::fuzzing::{Arrival, deliver};
use hydrant::settings::ConduitKind;
use hydrant::{Job, JobBuilder, Rank, Settings};
use libfuzzer_sys::fuzz_target;

/// The maximum number of arguments of a message.
const ARGUMENTS: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    let builder = JobBuilder::with(Settings::new())
        .conduit(ConduitKind::Pinned)
        .heap(1 << 16)
        .service(false);
    let results = builder.run_local(1, |job| {
        // The first allocation, which messages name by the number one.
        let _memory = job.alloc::<u8>(1 << 10)?;
        let mut rest = bytes;
        while let Some(left) = arrive(job, rest) {
            rest = left;
        }
        Ok(())
    });
    // A job in which a peer broke a rule may end in any way.
    drop(results);
});

/// Delivers the first message in the bytes. It has a byte of head, a tag, the number of
/// arguments, the length of the payload, the arguments and the payload.
fn arrive<'a>(job: &Job, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (&[head, tag, count, len], rest) = bytes.split_first_chunk::<4>()?;
    let count = (usize::from(count) % (ARGUMENTS + 1)).min(rest.len() / 8);
    let (words, rest) = rest.split_at(8 * count);
    let words = words.as_chunks::<8>().0.iter();
    let args: Vec<u64> = words.map(|it| u64::from_le_bytes(*it)).collect();
    let (payload, rest) = rest.split_at(usize::from(len).min(rest.len()));
    let arrival = if head & 0x80 == 0 {
        Arrival::Request
    } else {
        Arrival::Reply
    };
    deliver(
        job,
        arrival,
        Rank(0),
        head & 0x0f,
        u16::from(tag),
        &args,
        payload,
    );
    Some(rest)
}
