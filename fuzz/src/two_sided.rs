//! A rank with waiting receives handles arbitrary two-sided messages. Every decoded message encodes
//! to the same bytes, and a message that breaks a rule harms no other rank.

#![no_main]

use hydrant::fuzzing::deliver_two_sided;
use hydrant::settings::ConduitKind;
use hydrant::{AnySource, AnyTag, Job, JobBuilder, Rank, Result, Settings};
use libfuzzer_sys::fuzz_target;

/// The maximum number of arguments tried: one more than any of these messages has.
const ARGUMENTS: usize = 5;
/// The maximum number of waiting receives.
const RECEIVES: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let builder = JobBuilder::with(Settings::new())
        .conduit(ConduitKind::Pinned)
        .heap(1 << 16)
        .service(false);
    // A job in which a peer broke a rule may end in any way.
    drop(builder.run_local(1, |job| play(job, bytes)));
});

/// Posts receives, each with a length of 64 bytes times an input byte, and delivers messages to
/// them.
fn play(job: &Job, bytes: &[u8]) -> Result<()> {
    let Some((count, rest)) = bytes.split_first() else {
        return Ok(());
    };
    let count = (usize::from(*count) % (RECEIVES + 1)).min(rest.len());
    let (lengths, mut rest) = rest.split_at(count);
    let mut receives = Vec::new();
    for (number, len) in lengths.iter().enumerate() {
        let buffer = vec![0_u8; 64 * usize::from(*len)];
        receives.push(match number % 2 {
            0 => job.receive_nb(AnySource, AnyTag, buffer)?,
            _ => job.receive_nb(Rank(0), number as u64, buffer)?,
        });
    }
    while let Some(left) = arrive(job, rest) {
        rest = left;
    }
    // The probe polls, so that the rank handles its replies to itself.
    drop(job.try_probe(AnySource, AnyTag));
    Ok(())
}

/// Delivers the first message in the bytes: a tag, the number of arguments, the length of the
/// payload, the arguments and the payload.
fn arrive<'a>(job: &Job, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (&[tag, count, len], rest) = bytes.split_first_chunk::<3>()?;
    let count = (usize::from(count) % (ARGUMENTS + 1)).min(rest.len() / 8);
    let (words, rest) = rest.split_at(8 * count);
    let words = words.as_chunks::<8>().0.iter();
    let args: Vec<u64> = words.map(|it| u64::from_le_bytes(*it)).collect();
    let (payload, rest) = rest.split_at(usize::from(len).min(rest.len()));
    deliver_two_sided(job, Rank(0), u16::from(tag), &args, payload);
    Some(rest)
}
