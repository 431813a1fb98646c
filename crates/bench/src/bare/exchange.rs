//! The least that two processes need to signal each other: a cache line that changes owners.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::window::{ACK, PING, PONG, SLOTS, STREAM, SharedWindow};

/// The number of lines that the reader of a stream takes before it acknowledges them.
const TAKEN: u64 = 64;

/// The way that a bare loop waits for the other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BareWait {
    /// Each process has a core: spin.
    Spin,
    /// The processes share a core: yield it.
    Yield,
}

impl BareWait {
    #[inline(always)]
    fn until(self, ready: impl Fn() -> bool) {
        while !ready() {
            match self {
                BareWait::Spin => spin_loop(),
                BareWait::Yield => rustix::thread::sched_yield(),
            }
        }
    }
}

/// The leading end of the two-word ping-pong; `turn` is carried from call to call on both ends.
pub(crate) fn ping(window: &SharedWindow, turn: &mut u64, count: u64, wait: BareWait) -> Duration {
    let (ping, pong) = (window.word(PING), window.word(PONG));
    let first = *turn;
    // The first round trip is untimed, so that the other end is ready when the clock starts.
    let mut start = Instant::now();
    for i in 0..=count {
        if i == 1 {
            start = Instant::now();
        }
        let now = first + i + 1;
        ping.store(now, Ordering::Release);
        wait.until(|| pong.load(Ordering::Acquire) == now);
    }
    *turn = first + count + 1;
    start.elapsed()
}

/// The answering end of [`ping`].
pub(crate) fn pong(window: &SharedWindow, turn: &mut u64, count: u64, wait: BareWait) {
    let (ping, pong) = (window.word(PING), window.word(PONG));
    for _ in 0..=count {
        *turn += 1;
        wait.until(|| ping.load(Ordering::Acquire) == *turn);
        pong.store(*turn, Ordering::Release);
    }
}

/// The writing end of a stream of lines through a ring, the least that a one-way message can cost.
/// Returns the time until the reader has acknowledged all lines.
pub(crate) fn send_lines(
    window: &SharedWindow,
    turn: &mut u64,
    count: u64,
    wait: BareWait,
) -> Duration {
    let ack = window.word(ACK);
    let (first, last) = (*turn, *turn + count);
    let start = Instant::now();
    for now in first..last {
        if now >= SLOTS {
            wait.until(|| ack.load(Ordering::Acquire) + SLOTS > now);
        }
        let line = STREAM + (now % SLOTS) as usize;
        window
            .word_at(line, 1)
            .store(black_box(now), Ordering::Relaxed);
        window.word(line).store(now + 1, Ordering::Release);
    }
    wait.until(|| ack.load(Ordering::Acquire) == last);
    *turn = last;
    start.elapsed()
}

/// The reading end of [`send_lines`].
pub(crate) fn take_lines(window: &SharedWindow, turn: &mut u64, count: u64, wait: BareWait) {
    let ack = window.word(ACK);
    let last = *turn + count;
    while *turn < last {
        let line = STREAM + (*turn % SLOTS) as usize;
        wait.until(|| window.word(line).load(Ordering::Acquire) == *turn + 1);
        black_box(window.word_at(line, 1).load(Ordering::Relaxed));
        *turn += 1;
        if turn.is_multiple_of(TAKEN) || *turn == last {
            ack.store(*turn, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::WINDOW;
    use super::*;

    #[test]
    fn ping_pong_keeps_step_from_batch_to_batch() {
        let here = SharedWindow::create(WINDOW).unwrap();
        let [process, descriptor] = here.address();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let there = SharedWindow::open(process, descriptor, WINDOW).unwrap();
                let mut turn = 0;
                for count in [1, 5, 1000] {
                    pong(&there, &mut turn, count, BareWait::Yield);
                }
            });
            let mut turn = 0;
            for count in [1, 5, 1000] {
                assert!(ping(&here, &mut turn, count, BareWait::Yield) > Duration::ZERO);
            }
            assert_eq!(turn, 1009, "every batch has one untimed round trip");
        });
    }

    #[test]
    fn stream_delivers_every_line_both_ways_round_the_ring() {
        let here = SharedWindow::create(WINDOW).unwrap();
        let [process, descriptor] = here.address();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let there = SharedWindow::open(process, descriptor, WINDOW).unwrap();
                let mut turn = 0;
                take_lines(&there, &mut turn, 1000, BareWait::Yield);
                send_lines(&there, &mut turn, 77, BareWait::Yield);
                assert_eq!(turn, 1077);
            });
            let mut turn = 0;
            send_lines(&here, &mut turn, 1000, BareWait::Yield);
            take_lines(&here, &mut turn, 77, BareWait::Yield);
            assert_eq!(turn, 1077);
        });
    }
}
