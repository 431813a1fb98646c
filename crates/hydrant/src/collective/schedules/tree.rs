//! Data from one member to all, and from all to one: on [boards](crate::collective::streams) in flat teams, along
//! binomial trees in others. Blocks move along a tree chunk by chunk.
//!
//! Members count from the root. The parent of member v is v with its lowest bit cleared. So the subtree of
//! v is the range of members that begins with v, as long as that bit. Blocks in the order of members need
//! no sorting.

use std::ops::Range;

use std::pin::Pin;

use crate::{
    Result,
    collective::{
        streams::{DataPhase, Inbound, Outbound},
        team::Team,
    },
};

/// The tree as member `me` sees it.
struct BinomialTree {
    size: usize,
    root: usize,
    /// This member, counted from the root.
    me: usize,
}

/// A neighbour in the tree.
struct TreeNeighbour {
    /// Rank in the team.
    member: usize,
    /// The channel between the two members.
    channel: usize,
    /// The members of its subtree, counted from the root.
    below: Range<usize>,
}

impl BinomialTree {
    fn new(team: &Team, root: usize) -> Self {
        let size = team.members.len();
        Self {
            size,
            root,
            me: (team.me + size - root) % size,
        }
    }

    /// The rank in the team of a member counted from the root.
    fn member(&self, from_root: usize) -> usize {
        (from_root + self.root) % self.size
    }

    fn parent(&self) -> Option<TreeNeighbour> {
        (self.me != 0).then(|| TreeNeighbour {
            member: self.member(self.me & (self.me - 1)),
            channel: self.me.trailing_zeros() as usize,
            below: 0..self.size,
        })
    }

    /// The children, the smallest subtree first.
    fn children(&self) -> impl DoubleEndedIterator<Item = TreeNeighbour> + '_ {
        let channels = match self.me {
            0 => self.size.next_power_of_two().trailing_zeros(),
            me => me.trailing_zeros(),
        } as usize;
        (0..channels)
            .map(|channel| (channel, self.me + (1 << channel)))
            .filter(|(_, child)| *child < self.size)
            .map(|(channel, child)| TreeNeighbour {
                member: self.member(child),
                channel,
                below: child..self.size.min(child + (1 << channel)),
            })
    }
}

impl Team {
    /// Sends the root's data to all.
    pub(super) fn broadcast_by_tree(
        &self,
        root: usize,
        data: &mut [u8],
    ) -> Pin<Box<impl Future<Output = Result<()>>>> {
        Box::pin(async move {
            let (tree, epoch) = (BinomialTree::new(self, root), self.epochs(1));
            let mut parent = (tree.parent())
                .map(|parent| Inbound::open(self, parent.channel, parent.member, epoch))
                .transpose()?;
            // The child with the largest subtree first.
            let mut children: Vec<_> = (tree.children().rev())
                .map(|child| Outbound::new(self, child.channel, child.member, epoch))
                .collect();
            for piece in data.chunks_mut(self.piece()) {
                if let Some(parent) = &mut parent {
                    parent.receive(piece).await?;
                }
                for child in &mut children {
                    child.send(piece).await?;
                }
            }
            Ok(())
        })
    }

    /// Sends every member's block, of `len(member)` bytes, to the root, into `blocks` by member.
    pub(super) fn gather_long(
        &self,
        phase: DataPhase,
        root: usize,
        mine: &[u8],
        len: impl Fn(usize) -> usize,
        mut blocks: Vec<&mut [u8]>,
    ) -> Pin<Box<impl Future<Output = Result<()>>>> {
        Box::pin(async move {
            if let Some(board) = &self.board {
                let at = self.agreed_on(phase);
                return self
                    .gather_streams(board, at, root, mine, blocks)?
                    .run()
                    .await;
            }
            let (tree, epoch) = (BinomialTree::new(self, root), self.epochs(1));
            let children = (tree.children())
                .map(|child| {
                    Ok((
                        Inbound::open(self, child.channel, child.member, epoch)?,
                        child.below,
                    ))
                })
                .collect::<Result<Vec<_>>>()?;
            let Some(parent) = tree.parent() else {
                blocks[root].copy_from_slice(mine);
                for (mut child, below) in children {
                    for v in below {
                        self.receive_pieces(&mut child, blocks[tree.member(v)])
                            .await?;
                    }
                }
                return Ok(());
            };
            let mut parent = Outbound::new(self, parent.channel, parent.member, epoch);
            self.send_pieces(&mut parent, mine).await?;
            for (mut child, below) in children {
                for v in below {
                    self.pass(&mut child, &mut parent, len(tree.member(v)))
                        .await?;
                }
            }
            Ok(())
        })
    }

    /// Sends each member its block, of `len(member)` bytes, from the root.
    pub(super) fn scatter_long<'a>(
        &self,
        root: usize,
        block: impl Fn(usize) -> &'a [u8],
        len: impl Fn(usize) -> usize,
        mine: &mut [u8],
    ) -> Pin<Box<impl Future<Output = Result<()>>>> {
        Box::pin(async move {
            if let Some(board) = &self.board {
                let at = self.agreed_on(DataPhase::Only);
                return self
                    .scatter_streams(board, at, root, block, mine)?
                    .run()
                    .await;
            }
            let (tree, epoch) = (BinomialTree::new(self, root), self.epochs(1));
            let parent = (tree.parent())
                .map(|parent| Inbound::open(self, parent.channel, parent.member, epoch))
                .transpose()?;
            let children: Vec<_> = (tree.children())
                .map(|child| {
                    let outbound = Outbound::new(self, child.channel, child.member, epoch);
                    (outbound, child.below)
                })
                .collect();
            let Some(mut parent) = parent else {
                mine.copy_from_slice(block(root));
                for (mut child, below) in children {
                    for v in below {
                        self.send_pieces(&mut child, block(tree.member(v))).await?;
                    }
                }
                return Ok(());
            };
            self.receive_pieces(&mut parent, mine).await?;
            for (mut child, below) in children {
                for v in below {
                    self.pass(&mut parent, &mut child, len(tree.member(v)))
                        .await?;
                }
            }
            Ok(())
        })
    }

    async fn send_pieces(&self, to: &mut Outbound<'_>, data: &[u8]) -> Result<()> {
        for piece in data.chunks(self.piece()) {
            to.send(piece).await?;
        }
        Ok(())
    }

    async fn receive_pieces(&self, from: &mut Inbound<'_>, into: &mut [u8]) -> Result<()> {
        for piece in into.chunks_mut(self.piece()) {
            from.receive(piece).await?;
        }
        Ok(())
    }

    /// Forwards a block.
    async fn pass(&self, from: &mut Inbound<'_>, to: &mut Outbound<'_>, len: usize) -> Result<()> {
        let most = self.piece();
        let mut buffer = vec![0; len.min(most)];
        let mut left = len;
        while left > 0 {
            let piece = &mut buffer[..left.min(most)];
            from.receive(piece).await?;
            to.send(piece).await?;
            left -= piece.len();
        }
        Ok(())
    }
}
