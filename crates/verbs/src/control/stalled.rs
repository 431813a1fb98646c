//! Detecting that a connection stalls although its NIC reports nothing.
//!
//! A NIC without an acknowledgement retries, and reports at last that the request failed. Soft-RoCE
//! does not always (Linux 6.1). If the interface is down, a request cannot be sent while an earlier
//! one awaits its acknowledgement. Then the requester is in error, the completer waits for a timer
//! that nobody sets again, and neither reports it.
//!
//! So a connection that stalls for much longer than a NIC retries is treated as broken, and made
//! again.

use std::time::{Duration, Instant};

use hydrant_conduit::{Rank, Standing};
use rustc_hash::FxHashMap;

use super::Control;
use crate::connection::ConnectionProgress;

/// How often a packet is sent before its request fails.
const SENT: u32 = 7;
/// The specification lets a NIC wait up to four times as long as its timeout.
const SLACK: u32 = 4;
/// The least bound, however short the NIC's timeout: the scheduler may hold processes back.
const LEAST: Duration = Duration::from_secs(2);
/// Checks within the time that a connection may stall.
const CHECKS: u32 = 4;
/// Least bytes per second of a connection that does not stall.
const SLOWEST: u64 = 1 << 20;
/// How often the bound may be doubled, so that a slow transfer succeeds in the end.
const DOUBLED: u32 = 6;

/// The progress of each connection at the last check.
pub(super) struct Stalls {
    /// How long a connection may stall on a request without data.
    bound: Duration,
    /// The last progress of each connection, by rank.
    connections: FxHashMap<u32, LastProgress>,
    /// When the connections were last checked.
    last_check: Instant,
}

struct LastProgress {
    progress: ConnectionProgress,
    /// When the connection last made progress.
    since: Instant,
    /// How often in a row the connection was broken, without a completed request between.
    broken: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum StallVerdict {
    Fine,
    /// No completion will come: all posted requests are unsignaled.
    Unsignaled,
    Stalled,
}

impl Stalls {
    /// `ack_timeout`: the NIC's setting, 4.096 µs × 2 to this power.
    pub(super) fn new(ack_timeout: u8, now: Instant) -> Self {
        let wait = Duration::from_nanos(4096 << ack_timeout.min(31));
        Self {
            bound: LEAST.max(wait * SENT * SLACK),
            connections: FxHashMap::default(),
            last_check: now,
        }
    }

    pub(super) fn next(&self) -> Instant {
        self.last_check + self.bound / CHECKS
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
    /// Breaks connections that stall.
    pub(super) fn check_stalls(&mut self, now: Instant) {
        if now < self.stalls.next() {
            return;
        }
        self.stalls.last_check = now;
        // An operation whose completion nobody took, because the application computes, is no stall.
        if self.shared.completions.poll_all_sent(&self.shared.peers) {
            self.shared.completions.sleepers().wake_listening();
        }
        for rank in 0..self.shared.endpoint.size() {
            let is_present = self.shared.peers.standings().of(Rank(rank)) == Standing::Present;
            let Some(peer) = self.shared.peers.existing(rank).filter(|_| is_present) else {
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
                    tracing::info!(%rank, "a connection stalls");
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

    /// Judges one connection at each due check. Returns after how long it counts as stalled.
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
    fn a_connection_that_moves_or_is_idle_never_stalls() {
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
    fn the_bound_doubles_with_each_stall_until_the_connection_moves() {
        let mut stalls = Stalls::new(ACK_TIMEOUT, Instant::now());
        let (bound, long) = (stalls.bound, Duration::from_secs(1000));
        let look = bound / CHECKS;
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
    fn a_long_transfer_has_a_longer_bound() {
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
    fn unsignaled_requests_are_not_a_stall() {
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
