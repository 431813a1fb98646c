//! Elements that one member of two sends and the other folds as they arrive, over a channel. They arrive in
//! chunks or, where the receiver clears its buffer, by [direct writes](super::direct).

use std::ops::Range;

use super::{
    channel::{Inbound, Outbound},
    direct::{IncomingData, OutgoingData},
};
use crate::{
    Pod, Result,
    collective::{
        elements::{bytes, bytes_mut},
        layout::{CHUNK, DIRECT},
    },
};

/// Most bytes that one receive buffer holds before they are all folded.
const BUFFER: usize = 1 << 20;
/// Bytes of a direct write: the receiver folds them while the next ones are written.
const UNIT: usize = DIRECT;

/// Elements of a chunk.
pub(in crate::collective) fn in_chunk<T>() -> usize {
    (CHUNK / size_of::<T>()).max(1)
}

/// Elements of a receive buffer.
pub(in crate::collective) fn in_buffer<T>() -> usize {
    (BUFFER / size_of::<T>()).max(1)
}

impl Outbound<'_> {
    /// Sends elements that the receiver [folds](Inbound::receive_to_fold).
    pub(in crate::collective) async fn send_to_fold<T: Pod>(&mut self, data: &[T]) -> Result<()> {
        for data in data.chunks(in_buffer::<T>()) {
            if self.team.clears(self.to, size_of_val(data)) {
                let mut source = OutgoingData::in_units(bytes(data), UNIT);
                while !source.is_over() {
                    source.send_one(self).await?;
                }
                continue;
            }
            for chunk in data.chunks(in_chunk::<T>()) {
                self.send(bytes(chunk)).await?;
            }
        }
        Ok(())
    }
}

impl Inbound<'_> {
    /// Receives elements that the sender [sends](Outbound::send_to_fold). `came` gets them as they arrive,
    /// with their range among all elements.
    pub(in crate::collective) async fn receive_to_fold<T: Pod>(
        &mut self,
        into: &mut [T],
        mut came: impl FnMut(Range<usize>, &mut [T]),
    ) -> Result<()> {
        let mut before = 0;
        for into in into.chunks_mut(in_buffer::<T>()) {
            let len = into.len();
            if self.team.clears(self.from, size_of_val(into)) {
                let mut sink = IncomingData::looked_at(bytes_mut(into));
                let mut seen = 0;
                while !sink.is_over() {
                    sink.receive_one(self).await?;
                    let here = sink.received() / size_of::<T>();
                    let new = sink.part(seen * size_of::<T>()..here * size_of::<T>());
                    came(before + seen..before + here, bytemuck::cast_slice_mut(new));
                    seen = here;
                }
            } else {
                let mut at = before;
                for chunk in into.chunks_mut(in_chunk::<T>()) {
                    self.receive(bytes_mut(chunk)).await?;
                    came(at..at + chunk.len(), chunk);
                    at += chunk.len();
                }
            }
            before += len;
        }
        Ok(())
    }
}
