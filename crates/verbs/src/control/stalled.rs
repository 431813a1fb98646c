//! Seeing that a connection stands still although its NIC says nothing.
//!
//! A NIC that gets no answer sends again, and tells at last that a request failed. Soft-RoCE does
//! not always: if a request cannot be sent at all, for the interface is down, while one before it
//! waits for its answer, its requester is in error from then on, its completer waits for a timer
//! that nobody sets again, and neither says so (Linux 6.1). So who stands still for much longer
//! than a NIC needs to give up is treated as if it had: the connection is broken, and made anew.

use std::time::{Duration, Instant};

use hydrant_conduit::{Rank, Standing};
use rustc_hash::FxHashMap;

use super::Control;
use crate::connection::ConnectionProgress;

/// How often a packet is sent before its request fails.
const SENT: u32 = 7;
/// The specification lets a NIC wait up to four times as long as it was set.
const SLACK: u32 = 4;
/// However short a NIC waits: processes may be kept from running.
const LEAST: Duration = Duration::from_secs(2);
/// Looks in the time that a connection may stand still.
const LOOKS: u32 = 4;
/// Bytes a second that a connection brings forward at least, as long as it is not stalled.
const SLOWEST: u64 = 1 << 20;
/// How often that time is doubled at most. So what was only slow gets through in the end.
const DOUBLED: u32 = 6;

/// How far each connection is, as it was last looked at.
pub(super) struct Stalls {
    /// How long a connection with nothing to carry may stand still.
    bound: Duration,
    /// By rank.
    connections: FxHashMap<u32, LastProgress>,
    /// When connections were last looked at.
    last_check: Instant,
}

struct LastProgress {
    /// How far it was when last looked at.
    progress: ConnectionProgress,
    /// Since when it has not moved.
    since: Instant,
    /// How often in a row it was broken, with nothing done between.
    broken: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum StallVerdict {
    Fine,
    /// No completion will come: all that is posted is unsignaled.
    Unsignaled,
    Stalled,
}

impl Stalls {
    /// `ack_timeout`: what the NIC is set to, 4.096 µs × 2 to this power.
    pub(super) fn new(ack_timeout: u8, now: Instant) -> Self {
        let wait = Duration::from_nanos(4096 << ack_timeout.min(31));
        Self {
            bound: LEAST.max(wait * SENT * SLACK),
            connections: FxHashMap::default(),
            last_check: now,
        }
    }

    pub(super) fn next(&self) -> Instant {
        self.last_check + self.bound / LOOKS
    }

    fn judge(&mut self, rank: u32, progress: ConnectionProgress, now: Instant) -> StallVerdict {
        let seen = self.connections.entry(rank).or_insert(LastProgress {
            progress: ConnectionProgress::None,
            since: now,
            broken: 0,
        });
        let before = std::mem::replace(&mut seen.progress, progress);
        let ConnectionProgress::At {
            epoch,
            number,
            bytes,
            unsignaled,
        } = progress
        else {
            if progress == ConnectionProgress::None {
                seen.broken = 0;
            }
            return StallVerdict::Fine;
        };
        match before {
            ConnectionProgress::At {
                epoch: e,
                number: n,
                ..
            } if (e, n) == (epoch, number) => {}
            _ => {
                if matches!(before, ConnectionProgress::At { epoch: e, .. } if e == epoch) {
                    seen.broken = 0;
                }
                seen.since = now;
                return StallVerdict::Fine;
            }
        }
        if unsignaled {
            seen.since = now;
            return StallVerdict::Unsignaled;
        }
        let bound = self.bound + Duration::from_secs(bytes / SLOWEST);
        if now.saturating_duration_since(seen.since) < bound * (1 << seen.broken.min(DOUBLED)) {
            return StallVerdict::Fine;
        }
        seen.broken += 1;
        StallVerdict::Stalled
    }
}

impl Control {
    /// Breaks connections that stand still.
    pub(super) fn check_stalls(&mut self, now: Instant) {
        if now < self.stalls.next() {
            return;
        }
        self.stalls.last_check = now;
        // What has ended and nobody took, for the application computes, is no standing still.
        if self.shared.completions.poll_all_sent(&self.shared.peers) {
            self.shared.completions.sleepers().wake_listening();
        }
        for rank in 0..self.shared.endpoint.size() {
            let here = self.shared.peers.standings().of(Rank(rank)) == Standing::Present;
            let Some(peer) = self.shared.peers.known(rank).filter(|_| here) else {
                continue;
            };
            let mut connection = peer.connection().lock();
            match self.stalls.judge(rank, connection.progress(), now) {
                StallVerdict::Fine => {}
                StallVerdict::Unsignaled => {
                    self.shared
                        .peers
                        .post_empty_write(Rank(rank), &mut connection);
                }
                StallVerdict::Stalled => {
                    connection.mark_unclear(self.shared.peers.pool());
                    drop(connection);
                    tracing::info!(%rank, "a connection stands still");
                    self.query_psn(Rank(rank));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACK_TIMEOUT: u8 = 14;

    fn at(epoch: u32, number: u32) -> ConnectionProgress {
        ConnectionProgress::At {
            epoch,
            number,
            bytes: 0,
            unsignaled: false,
        }
    }

    /// Looks at one connection as often as they are due: after how long it is found to be stalled.
    fn stalls_after(
        stalls: &mut Stalls,
        progress: ConnectionProgress,
        within: Duration,
    ) -> Option<Duration> {
        let start = stalls.last_check;
        while stalls.last_check - start <= within {
            stalls.last_check = stalls.next();
            if stalls.judge(1, progress, stalls.last_check) == StallVerdict::Stalled {
                return Some(stalls.last_check - start);
            }
        }
        None
    }

    #[test]
    fn who_moves_or_has_nothing_to_do_never_stalls() {
        let mut stalls = Stalls::new(ACK_TIMEOUT, Instant::now());
        for step in 0..100 {
            stalls.last_check = stalls.next();
            let now = stalls.last_check;
            assert_eq!(stalls.judge(1, at(0, step), now), StallVerdict::Fine);
            assert_eq!(
                stalls.judge(2, ConnectionProgress::None, now),
                StallVerdict::Fine
            );
            assert_eq!(
                stalls.judge(3, ConnectionProgress::Broken, now),
                StallVerdict::Fine
            );
        }
    }

    #[test]
    fn who_stands_still_stalls_later_each_time_until_it_moves() {
        let mut stalls = Stalls::new(ACK_TIMEOUT, Instant::now());
        let (bound, long) = (stalls.bound, Duration::from_secs(1000));
        let look = bound / LOOKS;
        let first = stalls_after(&mut stalls, at(0, 5), long).unwrap();
        assert!(first >= bound && first <= bound + 2 * look, "{first:?}");
        let now = stalls.last_check;
        stalls.judge(1, ConnectionProgress::Broken, now);
        let second = stalls_after(&mut stalls, at(1, 0), long).unwrap();
        assert!(second >= 2 * bound, "{second:?}");
        stalls.judge(1, ConnectionProgress::Broken, now);
        stalls.judge(1, at(2, 0), now);
        let third = stalls_after(&mut stalls, at(2, 1), long).unwrap();
        assert!(third <= bound + 2 * look, "{third:?}");
    }

    #[test]
    fn who_carries_much_is_given_time_for_it() {
        let mut stalls = Stalls::new(ACK_TIMEOUT, Instant::now());
        let much = ConnectionProgress::At {
            epoch: 0,
            number: 0,
            bytes: 100 * SLOWEST,
            unsignaled: false,
        };
        let hundred = Duration::from_secs(100);
        assert_eq!(stalls_after(&mut stalls, much, hundred), None);
        assert!(stalls_after(&mut stalls, much, hundred).is_some());
    }

    #[test]
    fn who_is_silent_is_asked_first() {
        let mut stalls = Stalls::new(ACK_TIMEOUT, Instant::now());
        let unsignaled = ConnectionProgress::At {
            epoch: 0,
            number: 7,
            bytes: 0,
            unsignaled: true,
        };
        let now = stalls.last_check;
        assert_eq!(stalls.judge(1, unsignaled, now), StallVerdict::Fine);
        let later = now + 10 * stalls.bound;
        assert_eq!(stalls.judge(1, unsignaled, later), StallVerdict::Unsignaled);
        assert_eq!(stalls.judge(1, at(0, 7), later), StallVerdict::Fine);
        let later = later + 2 * stalls.bound;
        assert_eq!(stalls.judge(1, at(0, 7), later), StallVerdict::Stalled);
    }
}
