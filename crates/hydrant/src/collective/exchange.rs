//! Exchanges between all members: by [boards](super::board) where they are mapped, else pairwise. In step s each member sends to the one s places after it and receives
//! from the one s places before it. No member is a bottleneck, and every byte travels once.

use std::pin::Pin;

use super::{
    board::DataPhase,
    channel::{Inbound, Outbound, shift},
    team::Team,
};
use crate::Result;

impl Team {
    /// Sends `mine` to all and receives from each member m into `into[m]`, whose length the two know to be
    /// the same. The own goes to its place, too, if there is one.
    pub(super) fn share(
        &self,
        phase: DataPhase,
        mine: &[u8],
        mut into: Vec<&mut [u8]>,
    ) -> Pin<Box<impl Future<Output = Result<()>>>> {
        Box::pin(async move {
            match &self.board {
                Some(board) => {
                    self.share_streams(board, self.agreed_on(phase), mine, into)?
                        .run()
                        .await
                }
                None => {
                    if !into[self.me].is_empty() {
                        into[self.me].copy_from_slice(mine);
                    }
                    self.exchange_pairwise(|_| mine, &mut into).await
                }
            }
        })
    }

    /// Sends `block(m)` to each member m and receives from m into `into[m]`, whose length the
    /// two know to be the same. The own block is copied.
    pub(super) fn exchange<'a>(
        &self,
        phase: DataPhase,
        block: impl Fn(usize) -> &'a [u8],
        mut into: Vec<&mut [u8]>,
    ) -> Pin<Box<impl Future<Output = Result<()>>>> {
        Box::pin(async move {
            if let Some(board) = &self.board {
                return self
                    .exchange_streams(board, self.agreed_on(phase), block, into)?
                    .run()
                    .await;
            }
            into[self.me].copy_from_slice(block(self.me));
            self.exchange_pairwise(block, &mut into).await
        })
    }

    /// The exchange with the other members, by channels.
    fn exchange_pairwise<'a>(
        &self,
        block: impl Fn(usize) -> &'a [u8],
        into: &mut [&mut [u8]],
    ) -> Pin<Box<impl Future<Output = Result<()>>>> {
        Box::pin(async move {
            let (size, me) = (self.members.len(), self.me);
            let epoch = self.epochs(size);
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
                let place = [&mut *into[before(step)]];
                shift(outbound, &[block(to)], inbound, place).await?;
            }
            Ok(())
        })
    }
}
