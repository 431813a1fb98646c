//! A job whose ranks are threads of one process: a shared map and a barrier.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{Bootstrap, Error, check_key, check_rank, check_value};

/// Returns the bootstraps of a job of `n` ranks that are threads of this process.
///
/// When a bootstrap is dropped or aborts, the current and later fences of the others return an
/// error. Such a fence can never be complete.
pub fn local(n: u32) -> Vec<LocalBootstrap> {
    let shared = Arc::new(LocalJob {
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    (0..n)
        .map(|rank| LocalBootstrap {
            rank,
            size: n,
            shared: Arc::clone(&shared),
        })
        .collect()
}

/// One rank's part of a job made by [`local()`].
#[derive(Debug)]
pub struct LocalBootstrap {
    rank: u32,
    size: u32,
    shared: Arc<LocalJob>,
}

#[derive(Debug)]
struct LocalJob {
    state: Mutex<LocalState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LocalState {
    values: HashMap<(u32, String), Vec<u8>>,
    /// The number of complete fences.
    fences: u64,
    /// The number of ranks in the current fence.
    arrived: u32,
    /// The first rank that left, and its reason.
    left: Option<Departure>,
}

#[derive(Clone, Debug)]
enum Departure {
    Ended(u32),
    Aborted { rank: u32, status: i32, why: String },
}

impl Departure {
    fn to_error(&self) -> Error {
        match self.clone() {
            Departure::Ended(rank) => Error::RankEnded { rank },
            Departure::Aborted { rank, status, why } => Error::Aborted { rank, status, why },
        }
    }
}

impl LocalBootstrap {
    fn state(&self) -> MutexGuard<'_, LocalState> {
        self.shared.state.lock()
    }

    fn leave(&self, how: Departure) {
        self.state().left.get_or_insert(how);
        self.shared.changed.notify_all();
    }
}

impl Bootstrap for LocalBootstrap {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn name(&self) -> &'static str {
        "local"
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        check_key(key)?;
        check_value(key, value)?;
        let slot = (self.rank, key.to_owned());
        let mut state = self.state();
        if state.values.contains_key(&slot) {
            return Err(Error::KeyTaken { key: key.into() });
        }
        state.values.insert(slot, value.into());
        Ok(())
    }

    fn fence(&mut self) -> Result<(), Error> {
        let mut state = self.state();
        if let Some(left) = &state.left {
            return Err(left.to_error());
        }
        let mine = state.fences;
        state.arrived += 1;
        if state.arrived == self.size {
            state.arrived = 0;
            state.fences += 1;
            self.shared.changed.notify_all();
            return Ok(());
        }
        // Completion is checked first: a rank may leave right after the fence.
        while state.fences == mine {
            if let Some(left) = &state.left {
                return Err(left.to_error());
            }
            self.shared.changed.wait(&mut state);
        }
        Ok(())
    }

    fn get(&mut self, from: u32, key: &str) -> Result<Vec<u8>, Error> {
        check_rank(from, self.size)?;
        let found = self.state().values.get(&(from, key.to_owned())).cloned();
        found.ok_or_else(|| Error::NoSuchKey {
            from,
            key: key.into(),
        })
    }

    fn abort(&mut self, status: i32, why: &str) {
        self.leave(Departure::Aborted {
            rank: self.rank,
            status,
            why: why.into(),
        });
    }

    fn finalize(&mut self) -> Result<(), Error> {
        self.leave(Departure::Ended(self.rank));
        Ok(())
    }
}

impl Drop for LocalBootstrap {
    fn drop(&mut self) {
        self.leave(Departure::Ended(self.rank));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn every_rank_reads_the_values_of_all_over_several_fences() {
        for n in [1, 2, 7] {
            thread::scope(|s| {
                for mut me in local(n) {
                    s.spawn(move || {
                        for round in 0..3u8 {
                            let value = vec![me.rank() as u8, round];
                            me.put(&format!("k{round}"), &value).unwrap();
                            me.fence().unwrap();
                            for from in 0..n {
                                for earlier in 0..=round {
                                    let got = me.get(from, &format!("k{earlier}")).unwrap();
                                    assert_eq!(got, [from as u8, earlier]);
                                }
                            }
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn all_agree_on_the_secret() {
        let secrets: Vec<_> = thread::scope(|s| {
            let threads: Vec<_> = local(4)
                .into_iter()
                .map(|mut me| {
                    s.spawn(move || {
                        let secret = me.secret().unwrap();
                        me.fence().unwrap();
                        secret
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(secrets.iter().all(|s| *s == secrets[0]));
        assert_ne!(secrets[0], [0; 16]);
    }

    #[test]
    fn a_rank_that_is_dropped_fails_the_fence_of_the_others() {
        let mut ranks = local(3);
        let leaver = ranks.pop().unwrap();
        thread::scope(|s| {
            for mut me in ranks {
                s.spawn(move || {
                    assert!(matches!(me.fence(), Err(Error::RankEnded { .. })));
                });
            }
            drop(leaver);
        });
    }

    #[test]
    fn an_abort_fails_the_fence_of_the_others() {
        let mut ranks = local(2);
        let mut other = ranks.pop().unwrap();
        ranks[0].abort(7, "out of cheese");
        let error = other.fence().unwrap_err();
        assert_eq!(
            error.to_string(),
            "rank 0 ended the job with status 7: out of cheese"
        );
    }

    #[test]
    fn a_rank_that_leaves_after_a_fence_does_not_fail_it() {
        for _ in 0..200 {
            thread::scope(|s| {
                for mut me in local(2) {
                    s.spawn(move || me.fence().unwrap());
                }
            });
        }
    }

    #[test]
    fn misuse_is_refused() {
        let mut me = local(1).pop().unwrap();
        me.put("k", b"v").unwrap();
        assert!(matches!(me.put("k", b"w"), Err(Error::KeyTaken { .. })));
        assert!(matches!(
            me.get(0, "x"),
            Err(Error::NoSuchKey { from: 0, .. })
        ));
        assert!(matches!(
            me.get(1, "k"),
            Err(Error::RankOutOfRange { rank: 1, size: 1 })
        ));
        assert_eq!(me.get(0, "k").unwrap(), b"v");
    }
}
