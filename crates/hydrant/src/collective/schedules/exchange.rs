//! Exchanges between all members: on [boards](crate::collective::streams) in flat teams, pairwise in others. In step s of
//! a pairwise exchange, each member sends to the member s after it and receives from the member s before
//! it. No member is a bottleneck, and every byte travels once.

use std::pin::Pin;

use crate::{
    Result,
    collective::{
        streams::{DataPhase, Inbound, Outbound, shift},
        team::Team,
    },
};

impl Team {
    /// Sends `mine` to all and receives from each member m into `into[m]`. Both members know the length.
    /// This member's own data goes to its place if the place is not empty.
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

    /// Sends `block(m)` to each member m and receives from m into `into[m]`. Both members know the length.
    /// The own block is copied.
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

    /// Exchanges with all other members over channels.
    fn exchange_pairwise<'a>(
        &self,
        block: impl Fn(usize) -> &'a [u8],
        into: &mut [&mut [u8]],
    ) -> Pin<Box<impl Future<Output = Result<()>>>> {
        Box::pin(async move {
            let (size, me) = (self.members.len(), self.me);
            let epoch = self.epochs(size);
            let before = |step| (me + size - step) % size;
            // Steps alternate between two channels, so that the next sender has credit early.
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
