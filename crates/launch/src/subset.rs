//! A group of a job's ranks as a job of its own.

use crate::{Bootstrap, Error, check_rank};

/// The ranks of a job in one group, renumbered from 0 in their order.
///
/// Values are visible only within the group. Fences are of the whole job: every rank of every group
/// calls the same number of them.
#[derive(Debug)]
pub struct Subset<'a, B: ?Sized> {
    job: &'a mut B,
    /// The ranks of the group, in order.
    members: Vec<u32>,
    /// This rank's number among them.
    rank: u32,
    /// A prefix for each key, which keeps the group's keys apart from all other keys.
    prefix: &'static str,
}

impl<'a, B: Bootstrap + ?Sized> Subset<'a, B> {
    /// Makes a job of the ranks `members`, which must include this rank.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`] if this rank is no member, or a member is not in the job.
    pub fn new(
        job: &'a mut B,
        mut members: Vec<u32>,
        prefix: &'static str,
    ) -> Result<Subset<'a, B>, Error> {
        members.sort_unstable();
        members.dedup();
        let size = job.size();
        if let Some(&rank) = members.iter().find(|rank| **rank >= size) {
            return Err(Error::RankOutOfRange { rank, size });
        }
        let me = job.rank();
        let rank = members.iter().position(|member| *member == me);
        let rank = rank.ok_or(Error::RankOutOfRange {
            rank: me,
            size: members.len() as u32,
        })? as u32;
        Ok(Subset {
            job,
            members,
            rank,
            prefix,
        })
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }
}

impl<B: Bootstrap + ?Sized> Bootstrap for Subset<'_, B> {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.members.len() as u32
    }

    fn name(&self) -> &'static str {
        self.job.name()
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        let key = self.key(key);
        self.job.put(&key, value)
    }

    fn fence(&mut self) -> Result<(), Error> {
        self.job.fence()
    }

    fn get(&mut self, from: u32, key: &str) -> Result<Vec<u8>, Error> {
        check_rank(from, self.size())?;
        let key = self.key(key);
        self.job.get(self.members[from as usize], &key)
    }

    fn abort(&mut self, status: i32, why: &str) {
        self.job.abort(status, why);
    }

    fn finalize(&mut self) -> Result<(), Error> {
        self.job.finalize()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::local;

    #[test]
    fn each_group_reads_its_own_values() {
        thread::scope(|scope| {
            for mut job in local(5) {
                scope.spawn(move || {
                    let me = job.rank();
                    job.put("k", b"of the job").unwrap();
                    let group: Vec<u32> = (0..5).filter(|rank| rank % 2 == me % 2).collect();
                    let mut part = Subset::new(&mut job, group.clone(), "intra.").unwrap();
                    assert_eq!((part.rank(), part.size()), (me / 2, group.len() as u32));
                    part.put("k", &[me as u8]).unwrap();
                    part.fence().unwrap();
                    for (number, member) in (0..).zip(&group) {
                        assert_eq!(part.get(number, "k").unwrap(), [*member as u8]);
                    }
                    assert!(part.get(group.len() as u32, "k").is_err());
                    let secret = part.secret().unwrap();
                    assert_eq!(job.get(me % 2, "intra.secret").unwrap(), secret);
                    assert_eq!(job.get(4 - me, "k").unwrap(), b"of the job");
                });
            }
        });
    }

    #[test]
    fn a_rank_outside_the_group_is_refused() {
        let mut job = local(2).remove(0);
        assert!(Subset::new(&mut job, vec![1], "x.").is_err());
        assert!(Subset::new(&mut job, vec![0, 2], "x.").is_err());
    }
}
