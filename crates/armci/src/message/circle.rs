//! Collectives over a list of processes, by messages along trees. So the number of steps is the
//! logarithm of the number of processes.

use super::MessagePassing;
use crate::{Error, Result};

/// The members of a collective, as one of them sees them.
pub(crate) struct Circle<'a> {
    pub(crate) messages: &'a MessagePassing,
    /// The context of the members' messages.
    pub(crate) context: u64,
    pub(crate) members: &'a [usize],
    /// The index of this process in `members`.
    pub(crate) own: usize,
}

impl Circle<'_> {
    /// The index of a process in `members`.
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

    /// Waits until all members have arrived. In each step a member learns of twice as many others
    /// (dissemination).
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

    /// Broadcasts the bytes of member `root` to all members.
    pub(crate) fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()> {
        let count = self.members.len();
        // Members are counted from the root. A member receives from the member whose number lacks
        // its lowest bit.
        let relative = (self.own + count - root) % count;
        let lowest = match relative {
            0 => count.next_power_of_two(),
            relative => relative & relative.wrapping_neg(),
        };
        if relative > 0 {
            let got = self.receive(0, (relative - lowest + root) % count)?;
            fill(bytes, &got)?;
        }
        let mut step = lowest / 2;
        while step > 0 {
            if relative + step < count {
                self.send(0, bytes, (relative + step + root) % count)?;
            }
            step /= 2;
        }
        Ok(())
    }

    /// Combines the bytes of all members at the first member, in the order of the members.
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
                    return Err(different_lengths());
                }
                combine(bytes, &more);
            }
            step *= 2;
        }
        Ok(())
    }

    /// The two words of each member, in the order of the members.
    pub(crate) fn all_gather(&self, mine: [u64; 2]) -> Result<Vec<[u64; 2]>> {
        let mut all = vec![0_u8; self.members.len() * 16];
        let own = &mut all[self.own * 16..][..16];
        own.copy_from_slice(hydrant::bytemuck::cast_slice(&mine));
        // Each byte belongs to one member, and is zero at all others.
        self.reduce(&mut all, |all, more| {
            all.iter_mut().zip(more).for_each(|(a, b)| *a |= b);
        })?;
        self.broadcast(0, &mut all)?;
        Ok(hydrant::bytemuck::pod_collect_to_vec(&all))
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
        return Err(different_lengths());
    }
    into.copy_from_slice(bytes);
    Ok(())
}

fn different_lengths() -> Error {
    hydrant::Error::other("processes gave different numbers of bytes to what they do together")
        .into()
}
