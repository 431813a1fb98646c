//! Data that goes in at one end of a member and out at the other, unit by unit.

use super::{
    channel::{Inbound, Outbound},
    direct::{IncomingData, OutgoingData},
};
use crate::Result;

/// Sends `data` and fills `into` at once, unit by unit, as members of a ring must. The next member has
/// destinations of the same lengths.
///
/// No ring can deadlock. Consider the member at the lowest unit. Its receiver has taken every earlier unit,
/// has returned credit for all but the last few, and has cleared its buffer for this unit. Its sender has
/// sent this unit.
pub(in crate::collective) async fn shift(
    mut outbound: Outbound<'_>,
    data: &[&[u8]],
    mut inbound: Inbound<'_>,
    into: impl IntoIterator<Item = &mut [u8]>,
) -> Result<()> {
    let mut sinks = (into.into_iter()).filter(|into| !into.is_empty());
    let mut sink = sinks.next().map(IncomingData::new);
    let mut sources = (data.iter()).filter(|data| !data.is_empty());
    let mut source = sources.next().map(|data| OutgoingData::new(data));
    while source.is_some() || sink.is_some() {
        if let Some(sink) = &mut sink {
            sink.clear(&inbound)?;
        }
        if let Some(sending) = &mut source {
            sending.send_one(&mut outbound).await?;
            if sending.is_over() {
                source = sources.next().map(|data| OutgoingData::new(data));
            }
        }
        if let Some(receiving) = &mut sink {
            receiving.receive_one(&mut inbound).await?;
            if receiving.is_over() {
                sink = sinks.next().map(IncomingData::new);
            }
        }
    }
    Ok(())
}
