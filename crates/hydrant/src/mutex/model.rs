//! A model of the mutex: every order in which a few ranks may lock and unlock it, step by step as in the
//! code. Two ranks never have it, ranks get it in the order in which they came, and no rank waits for ever.

use std::collections::HashSet;

const RANKS: usize = 3;
/// Locks of each rank.
const TIMES: u8 = 2;
const PASSED: u8 = u8::MAX;

/// The step at which the program of a rank is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum ProgramState {
    /// About to lock, once its last release has ended.
    Settle,
    Swap,
    /// It found this name in the tail.
    Announce(u8),
    AwaitGrant,
    Held,
    /// It found no successor.
    Ask,
    Over,
}

/// The step of the release that a rank's unlock has begun.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum ReleaseState {
    None,
    /// About to compare and swap the tail.
    CompareSwap,
    /// Another rank is in the queue.
    SwapNext,
    Grant(u8),
    /// The release has ended, and the successor will find the sentinel.
    AwaitsSuccessor,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct ModelState {
    tail: u8,
    next: [u8; RANKS],
    granted: [bool; RANKS],
    at: [ProgramState; RANKS],
    task: [ReleaseState; RANKS],
    locks_left: [u8; RANKS],
    /// Names of the ranks in the queue that do not have the mutex yet, in order.
    waiting: Vec<u8>,
}

impl ModelState {
    fn name(rank: usize) -> u8 {
        rank as u8 + 1
    }

    fn note_held(&mut self, rank: usize) {
        assert!(
            !self.at.contains(&ProgramState::Held) && !self.at.contains(&ProgramState::Ask),
            "two have it: {self:?}"
        );
        assert_eq!(
            self.waiting.remove(0),
            Self::name(rank),
            "out of order: {self:?}"
        );
        self.at[rank] = ProgramState::Held;
    }

    /// An unlock has returned.
    fn note_unlocked(&mut self, rank: usize) {
        self.locks_left[rank] -= 1;
        self.at[rank] = match self.locks_left[rank] {
            0 => ProgramState::Over,
            _ => ProgramState::Settle,
        };
    }

    /// Takes the next step of a rank's program. Returns whether it can.
    fn program(&mut self, rank: usize) -> bool {
        match self.at[rank] {
            ProgramState::Settle => match self.task[rank] {
                ReleaseState::None => self.at[rank] = ProgramState::Swap,
                ReleaseState::AwaitsSuccessor if self.next[rank] != PASSED => {
                    self.next[rank] = 0;
                    self.task[rank] = ReleaseState::None;
                }
                _ => return false,
            },
            ProgramState::Swap => {
                let before = std::mem::replace(&mut self.tail, Self::name(rank));
                self.waiting.push(Self::name(rank));
                match before {
                    0 => self.note_held(rank),
                    last => self.at[rank] = ProgramState::Announce(last),
                }
            }
            ProgramState::Announce(last) => {
                let next = &mut self.next[usize::from(last) - 1];
                match std::mem::replace(next, Self::name(rank)) {
                    PASSED => self.note_held(rank),
                    _ => self.at[rank] = ProgramState::AwaitGrant,
                }
            }
            ProgramState::AwaitGrant if self.granted[rank] => {
                self.granted[rank] = false;
                self.note_held(rank);
            }
            ProgramState::AwaitGrant | ProgramState::Over => return false,
            ProgramState::Held => match std::mem::take(&mut self.next[rank]) {
                0 => self.at[rank] = ProgramState::Ask,
                next => {
                    self.task[rank] = ReleaseState::Grant(next);
                    self.note_unlocked(rank);
                }
            },
            ProgramState::Ask => {
                self.task[rank] = ReleaseState::CompareSwap;
                self.note_unlocked(rank);
            }
        }
        true
    }

    /// Takes the next step of a rank's release. Returns whether it can.
    fn release(&mut self, rank: usize) -> bool {
        self.task[rank] = match self.task[rank] {
            ReleaseState::None | ReleaseState::AwaitsSuccessor => return false,
            ReleaseState::CompareSwap if self.tail == Self::name(rank) => {
                self.tail = 0;
                ReleaseState::None
            }
            ReleaseState::CompareSwap => ReleaseState::SwapNext,
            ReleaseState::SwapNext => match std::mem::replace(&mut self.next[rank], PASSED) {
                0 => ReleaseState::AwaitsSuccessor,
                next => {
                    self.next[rank] = 0;
                    ReleaseState::Grant(next)
                }
            },
            ReleaseState::Grant(next) => {
                self.granted[usize::from(next) - 1] = true;
                ReleaseState::None
            }
        };
        true
    }
}

#[test]
fn every_order_of_steps_is_right() {
    let start = ModelState {
        tail: 0,
        next: [0; RANKS],
        granted: [false; RANKS],
        at: [ProgramState::Settle; RANKS],
        task: [ReleaseState::None; RANKS],
        locks_left: [TIMES; RANKS],
        waiting: Vec::new(),
    };
    let mut seen = HashSet::from([start.clone()]);
    let mut open = vec![start];
    while let Some(world) = open.pop() {
        let mut can_step = false;
        for rank in 0..RANKS {
            for step in [ModelState::program, ModelState::release] {
                let mut after = world.clone();
                if step(&mut after, rank) {
                    can_step = true;
                    if seen.insert(after.clone()) {
                        open.push(after);
                    }
                }
            }
        }
        let is_over = world.at == [ProgramState::Over; RANKS];
        assert!(can_step || is_over, "nobody can go on: {world:?}");
        if !can_step {
            assert_eq!(world.tail, 0, "it is free at the end: {world:?}");
        }
    }
    assert!(seen.len() > 1000, "{} states", seen.len());
}
