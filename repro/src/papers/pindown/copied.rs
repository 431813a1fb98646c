//! Messages that are copied on both sides, as PM's were: in parts of up to 8 KB, each sent whole.

use std::time::Duration;

use hydrant::{Job, MessageProtocol, Result, Strategy};

use super::puts::{setup, sizes};
use crate::papers::job::{FIRST, MB, SECOND, SPARE, aligned, timed};
use crate::papers::{ExperimentInputs, PaperResult};

/// Bytes of PM's message buffers (§2).
const BUFFER: usize = 8 << 10;
const DATA: u64 = 0;
const REPLY: u64 = 1;

/// The order of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MessageOrder {
    /// Without pauses; all are received at the end.
    Flood,
    /// Each after the answer to the one before.
    Answered,
}

/// The mean time of a message, by size.
pub(super) fn copied(
    inputs: &ExperimentInputs<'_>,
    order: MessageOrder,
) -> PaperResult<Vec<(f64, Duration)>> {
    let sizes = sizes(inputs);
    let total = inputs.pick(2 << 20, 256 << 10);
    let mut setup = setup(inputs, Strategy::Bounce)?;
    setup.messages = MessageProtocol::Eager;
    setup.run(|job| {
        let mut memory = vec![1_u8; MB as usize + SPARE];
        let from = aligned(&memory);
        let memory = &mut memory[from..];
        let mut rows = Vec::new();
        for &size in &sizes {
            let count = (total / size).clamp(4, 400);
            let buffer = &mut memory[..size];
            if job.rank() == FIRST {
                let time = timed(job, || send_all(job, buffer, count, order))?;
                rows.push((size as f64, time / count as u32));
            } else {
                receive_all(job, buffer, count, order)?;
            }
            job.barrier()?;
        }
        Ok(rows)
    })
}

fn send_all(job: &Job, message: &[u8], count: usize, order: MessageOrder) -> Result<()> {
    for at in 0..count {
        for part in message.chunks(BUFFER) {
            job.send(SECOND, DATA, part)?;
        }
        if order == MessageOrder::Answered || at + 1 == count {
            job.receive::<u8>(SECOND, REPLY, &mut [])?;
        }
    }
    Ok(())
}

fn receive_all(job: &Job, buffer: &mut [u8], count: usize, order: MessageOrder) -> Result<()> {
    for at in 0..count {
        for part in buffer.chunks_mut(BUFFER) {
            job.receive(FIRST, DATA, part)?;
        }
        if order == MessageOrder::Answered || at + 1 == count {
            job.send::<u8>(FIRST, REPLY, &[])?;
        }
    }
    Ok(())
}
