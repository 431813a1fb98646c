//! Pairwise exchange: in step s each member sends to the one s places after it and receives
//! from the one s places before it. No member is a bottleneck, and every byte travels once.

use std::pin::Pin;

use super::{
    channel::{Inbound, Outbound, shift},
    team::Team,
};
use crate::Result;

impl Team {
    /// Sends `block(m)` to each member m and receives from m into `into[m]`, whose length the
    /// two know to be the same.
    pub(super) fn exchange<'a>(
        &self,
        block: impl Fn(usize) -> &'a [u8],
        into: &mut [&mut [u8]],
    ) -> Pin<Box<impl Future<Output = Result<()>>>> {
        Box::pin(async move {
            let (size, me) = (self.members.len(), self.me);
            let epoch = self.epochs(size);
            into[me].copy_from_slice(block(me));
            let before = |step| (me + size - step) % size;
            // Steps take turns on two channels, so that the next sender need not wait to be let in.
            let channel = |step: usize| (step - 1) % 2;
            let open = |step: usize| {
                (step < size)
                    .then(|| Inbound::open(self, channel(step), before(step), epoch + step as u64))
                    .transpose()
            };
            let mut next = open(1)?;
            for step in 1..size {
                let Some(inbound) = std::mem::replace(&mut next, open(step + 1)?) else {
                    break;
                };
                let to = (me + step) % size;
                let outbound = Outbound::new(self, channel(step), to, epoch + step as u64);
                shift(outbound, block(to), inbound, into[before(step)]).await?;
            }
            Ok(())
        })
    }
}
