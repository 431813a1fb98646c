//! Every order in which a few ranks may lock and unlock a mutex, step by step as the code does: never
//! do two have it, they get it in the order in which they came, and none is left waiting.

use std::collections::HashSet;

const RANKS: usize = 3;
/// How often each locks the mutex.
const TIMES: u8 = 2;
const PASSED: u8 = u8::MAX;

/// Where the program of a rank is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    /// About to lock, once its last unlock is over.
    Settle,
    Swap,
    /// It found this one before it.
    Announce(u8),
    AwaitGrant,
    Held,
    /// It saw that nobody is next.
    Ask,
    Over,
}

/// Where the release is that a rank's unlock has begun.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Task {
    None,
    /// The tail is to be compared and swapped.
    CompareSwap,
    /// Somebody is in the queue.
    SwapNext,
    Grant(u8),
    /// It is over, and who comes will find the mutex.
    ToWhoComes,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    tail: u8,
    next: [u8; RANKS],
    granted: [bool; RANKS],
    at: [At; RANKS],
    task: [Task; RANKS],
    left: [u8; RANKS],
    /// Who swapped itself in and has not got the mutex yet, in that order.
    came: Vec<u8>,
}

impl World {
    fn name(rank: usize) -> u8 {
        rank as u8 + 1
    }

    fn has(&mut self, rank: usize) {
        assert!(
            !self.at.contains(&At::Held) && !self.at.contains(&At::Ask),
            "two have it: {self:?}"
        );
        assert_eq!(
            self.came.remove(0),
            Self::name(rank),
            "out of order: {self:?}"
        );
        self.at[rank] = At::Held;
    }

    /// An unlock has returned.
    fn unlocked(&mut self, rank: usize) {
        self.left[rank] -= 1;
        self.at[rank] = match self.left[rank] {
            0 => At::Over,
            _ => At::Settle,
        };
    }

    /// The next step of a rank's program, if it can go on.
    fn program(&mut self, rank: usize) -> bool {
        match self.at[rank] {
            At::Settle => match self.task[rank] {
                Task::None => self.at[rank] = At::Swap,
                Task::ToWhoComes if self.next[rank] != PASSED => {
                    self.next[rank] = 0;
                    self.task[rank] = Task::None;
                }
                _ => return false,
            },
            At::Swap => {
                let before = std::mem::replace(&mut self.tail, Self::name(rank));
                self.came.push(Self::name(rank));
                match before {
                    0 => self.has(rank),
                    last => self.at[rank] = At::Announce(last),
                }
            }
            At::Announce(last) => {
                let next = &mut self.next[usize::from(last) - 1];
                match std::mem::replace(next, Self::name(rank)) {
                    PASSED => self.has(rank),
                    _ => self.at[rank] = At::AwaitGrant,
                }
            }
            At::AwaitGrant if self.granted[rank] => {
                self.granted[rank] = false;
                self.has(rank);
            }
            At::AwaitGrant | At::Over => return false,
            At::Held => match std::mem::take(&mut self.next[rank]) {
                0 => self.at[rank] = At::Ask,
                next => {
                    self.task[rank] = Task::Grant(next);
                    self.unlocked(rank);
                }
            },
            At::Ask => {
                self.task[rank] = Task::CompareSwap;
                self.unlocked(rank);
            }
        }
        true
    }

    /// The next step of a rank's release.
    fn release(&mut self, rank: usize) -> bool {
        self.task[rank] = match self.task[rank] {
            Task::None | Task::ToWhoComes => return false,
            Task::CompareSwap if self.tail == Self::name(rank) => {
                self.tail = 0;
                Task::None
            }
            Task::CompareSwap => Task::SwapNext,
            Task::SwapNext => match std::mem::replace(&mut self.next[rank], PASSED) {
                0 => Task::ToWhoComes,
                next => {
                    self.next[rank] = 0;
                    Task::Grant(next)
                }
            },
            Task::Grant(next) => {
                self.granted[usize::from(next) - 1] = true;
                Task::None
            }
        };
        true
    }
}

#[test]
fn every_order_of_steps_is_right() {
    let start = World {
        tail: 0,
        next: [0; RANKS],
        granted: [false; RANKS],
        at: [At::Settle; RANKS],
        task: [Task::None; RANKS],
        left: [TIMES; RANKS],
        came: Vec::new(),
    };
    let mut seen = HashSet::from([start.clone()]);
    let mut open = vec![start];
    while let Some(world) = open.pop() {
        let mut goes_on = false;
        for rank in 0..RANKS {
            for step in [World::program, World::release] {
                let mut after = world.clone();
                if step(&mut after, rank) {
                    goes_on = true;
                    if seen.insert(after.clone()) {
                        open.push(after);
                    }
                }
            }
        }
        let is_over = world.at == [At::Over; RANKS];
        assert!(goes_on || is_over, "nobody can go on: {world:?}");
        if !goes_on {
            assert_eq!(world.tail, 0, "it is free at the end: {world:?}");
        }
    }
    assert!(seen.len() > 1000, "{} states", seen.len());
}
