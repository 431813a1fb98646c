//! Collectives over a list of processes, by messages: trees, so that each takes as many steps as the
//! logarithm of their number.

use super::Messages;
use crate::{Error, Result};

/// Processes that do something together, as one of them sees it.
pub(crate) struct Circle<'a> {
    pub(crate) messages: &'a Messages,
    /// Whose messages theirs are.
    pub(crate) context: u64,
    pub(crate) members: &'a [usize],
    /// Which of them this is.
    pub(crate) own: usize,
}

impl Circle<'_> {
    /// The position of a process among them.
    ///
    /// # Errors
    /// [`Error::NoMember`].
    pub(crate) fn index_of(&self, proc: usize) -> Result<usize> {
        let at = self.members.iter().position(|member| *member == proc);
        at.ok_or(Error::NoMember {
            proc: proc as i32,
            members: self.members.len(),
        })
    }

    /// Waits until all have come: in each step, one hears of twice as many (dissemination).
    pub(crate) fn barrier(&self) -> Result<()> {
        let count = self.members.len();
        let mut step = 1;
        while step < count {
            self.send(step, &[], (self.own + step) % count)?;
            self.receive(step, (self.own + count - step) % count)?;
            step *= 2;
        }
        Ok(())
    }

    /// Brings the bytes of a member to all.
    pub(crate) fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()> {
        let count = self.members.len();
        // Counted from the root, a member hears from the one whose number lacks its lowest bit.
        let place = (self.own + count - root) % count;
        let lowest = match place {
            0 => count.next_power_of_two(),
            place => place & place.wrapping_neg(),
        };
        if place > 0 {
            let got = self.receive(0, (place - lowest + root) % count)?;
            fill(bytes, &got)?;
        }
        let mut step = lowest / 2;
        while step > 0 {
            if place + step < count {
                self.send(0, bytes, (place + step + root) % count)?;
            }
            step /= 2;
        }
        Ok(())
    }

    /// Combines the bytes of all at the first one, in the order of the members.
    pub(crate) fn reduce(
        &self,
        bytes: &mut [u8],
        mut combine: impl FnMut(&mut [u8], &[u8]),
    ) -> Result<()> {
        let count = self.members.len();
        let mut step = 1;
        while step < count {
            if self.own & step != 0 {
                return self.send(0, bytes, self.own - step);
            }
            if self.own + step < count {
                let more = self.receive(0, self.own + step)?;
                if more.len() != bytes.len() {
                    return Err(unlike());
                }
                combine(bytes, &more);
            }
            step *= 2;
        }
        Ok(())
    }

    /// What every member gave, by member.
    pub(crate) fn all_gather(&self, mine: [u64; 2]) -> Result<Vec<[u64; 2]>> {
        let mut all = vec![0_u8; self.members.len() * 16];
        let own = &mut all[self.own * 16..][..16];
        own[..8].copy_from_slice(&mine[0].to_ne_bytes());
        own[8..].copy_from_slice(&mine[1].to_ne_bytes());
        // Each byte is one member's, and zero at all others.
        self.reduce(&mut all, |all, more| {
            all.iter_mut().zip(more).for_each(|(a, b)| *a |= b);
        })?;
        self.broadcast(0, &mut all)?;
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        Ok((all.chunks_exact(16))
            .map(|pair| [word(&pair[..8]), word(&pair[8..])])
            .collect())
    }

    fn send(&self, step: usize, bytes: &[u8], to: usize) -> Result<()> {
        (self.messages).send(self.context, step as i64, bytes, self.members[to])
    }

    fn receive(&self, step: usize, from: usize) -> Result<Vec<u8>> {
        let from = Some(self.members[from]);
        let (_, bytes) = (self.messages).receive(self.context, step as i64, from)?;
        Ok(bytes)
    }
}

fn fill(into: &mut [u8], bytes: &[u8]) -> Result<()> {
    if into.len() != bytes.len() {
        return Err(unlike());
    }
    into.copy_from_slice(bytes);
    Ok(())
}

fn unlike() -> Error {
    hydrant::Error::other("processes gave different numbers of bytes to what they do together")
        .into()
}
