//! What aggregate handles gather, until it is sent as a vector, in few messages. Where memory is mapped
//! there is nothing to gather.
//!
//! Any thread may send what is in the way of what it does, or all before a fence. Until that is done, it is
//! to be seen by the others, and whoever waits for the handle, or does something about the same bytes,
//! waits for who sends.

#![allow(unsafe_code)] // memory is named by its address

use std::{ops::Range, sync::Arc};

use hydrant::IoVector;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{
    Direction, Handle,
    missed::{Asker, Whose},
    outstanding::{each, touch, turn},
};
use crate::{Armci, Error, Result, memory::Memory};

/// A put or a get that was not begun.
pub(crate) struct Gathered {
    pub(super) proc: usize,
    pub(super) direction: Direction,
    /// Where it goes to or comes from, in the process's arena.
    pub(super) offset: usize,
    pub(super) bytes: usize,
    pub(super) local: Local,
    pub(super) whose: Whose,
}

impl Gathered {
    fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes
    }
}

/// The other side of it.
pub(crate) enum Local {
    /// Memory of the caller's.
    There(*mut u8),
    /// A value.
    Value(Box<[u8]>),
}

// SAFETY: the caller's memory is left alone until the handle was waited for, in whichever thread.
unsafe impl Send for Local {}

/// What handles gather, by their numbers.
#[derive(Default)]
pub(crate) struct Lists(Mutex<FxHashMap<i32, List>>);

#[derive(Default)]
struct List {
    waiting: Vec<Gathered>,
    /// What is being sent: to which process, and which bytes of its arena.
    leaving: Vec<(usize, Range<usize>)>,
    /// Whoever sends has the lock.
    turn: Arc<Mutex<()>>,
}

impl List {
    /// Of what processes and bytes it is.
    fn places(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let waiting = self.waiting.iter().map(|it| (it.proc, it.range()));
        waiting.chain(self.leaving.iter().cloned())
    }
}

impl Lists {
    pub(super) fn add(&self, number: i32, gathered: Gathered) {
        let mut lists = self.0.lock();
        lists.entry(number).or_default().waiting.push(gathered);
    }

    /// The numbers of the handles that have gathered something that is as wanted.
    fn of(&self, is_wanted: impl Fn(i32, usize, &Range<usize>) -> bool) -> Vec<i32> {
        let lists = self.0.lock();
        let wanted = lists.iter().filter(|(number, list)| {
            list.places()
                .any(|(proc, bytes)| is_wanted(**number, proc, &bytes))
        });
        wanted.map(|(number, _)| *number).collect()
    }

    /// Whose turn it is to send what a handle gathered; none if that is nothing.
    fn turn(&self, number: i32) -> Option<Arc<Mutex<()>>> {
        Some(Arc::clone(&self.0.lock().get(&number)?.turn))
    }

    /// Takes out what is to be sent, for who has the turn. None if all was sent that was there when that
    /// one asked for it.
    fn take(&self, number: i32, turn: &Arc<Mutex<()>>) -> Option<Vec<Gathered>> {
        let mut lists = self.0.lock();
        let list = (lists.get_mut(&number)).filter(|list| Arc::ptr_eq(&list.turn, turn))?;
        let all = std::mem::take(&mut list.waiting);
        list.leaving = all.iter().map(|it| (it.proc, it.range())).collect();
        Some(all)
    }

    /// All of that was sent but this.
    fn give_back(&self, number: i32, mut rest: Vec<Gathered>) {
        let mut lists = self.0.lock();
        if let Some(list) = lists.get_mut(&number) {
            list.leaving.clear();
            rest.append(&mut list.waiting);
            list.waiting = rest;
            if list.waiting.is_empty() {
                lists.remove(&number);
            }
        }
    }
}

impl Armci {
    /// Sends what handles other than one gathered, of those that gathered something about these bytes.
    pub(super) fn send_touching(
        &self,
        proc: usize,
        bytes: &Range<usize>,
        other_than: Option<i32>,
    ) -> Result<()> {
        self.send_those(|number, of, its| {
            Some(number) != other_than && of == proc && touch(its, bytes)
        })
    }

    /// Sends what all handles gathered for a process, or for all.
    pub(crate) fn send_all_gathered(&self, proc: Option<usize>) -> Result<()> {
        self.send_those(|_, of, _| proc.is_none_or(|proc| of == proc))
    }

    fn send_those(&self, which: impl Fn(i32, usize, &Range<usize>) -> bool) -> Result<()> {
        let numbers = self.handles.gathered.of(which);
        each((numbers.into_iter()).map(|number| self.send_gathered(number, Asker::OfAll)))
    }

    /// Sends what a handle gathered: all of that is done when this returns, whoever sends it. What befell
    /// what is not for who asks is kept for whom it is for, too.
    pub(super) fn send_gathered(&self, number: i32, asker: Asker) -> Result<()> {
        let lists = &self.handles.gathered;
        let Some(whose) = lists.turn(number) else {
            return Ok(());
        };
        let _mine = turn(&whose, "sending what was gathered")?;
        let Some(mut list) = lists.take(number, &whose) else {
            return Ok(());
        };
        let alike = |a: &Gathered, b: &Gathered| (a.proc, a.direction) == (b.proc, b.direction);
        let mut outcome = Ok(());
        let mut sent = 0;
        for some in list.chunk_by(alike) {
            let one = self.send_alike(some);
            if is_too_early(&one) {
                outcome = outcome.and(one);
                break;
            }
            if let Err(cause) = &one {
                let others = some.iter().filter(|it| !it.whose.is(asker));
                for owners in others
                    .collect::<Vec<_>>()
                    .chunk_by(|a, b| a.whose == b.whose)
                {
                    let whose = owners[0].whose;
                    self.outstanding.keep(some[0].proc, whose, cause);
                }
            }
            outcome = outcome.and(one);
            self.outstanding.gathered(some[0].proc, some.len());
            sent += some.len();
        }
        lists.give_back(number, list.split_off(sent));
        outcome
    }

    /// Forgets what a handle gathered and was not sent: whose memory that is has it again.
    pub(super) fn forget_gathered(&self, handle: &Handle) -> Result<()> {
        let lists = &self.handles.gathered;
        let Some(whose) = lists.turn(handle.number) else {
            return Ok(());
        };
        let _mine = turn(&whose, "forgetting what was gathered")?;
        if let Some(list) = lists.take(handle.number, &whose) {
            (list.iter()).for_each(|it| self.outstanding.gathered(it.proc, 1));
            lists.give_back(handle.number, Vec::new());
        }
        Ok(())
    }

    /// Puts or gets to one process, all one way, through a buffer in between.
    fn send_alike(&self, some: &[Gathered]) -> Result<()> {
        let Some(Gathered {
            proc, direction, ..
        }) = some.first()
        else {
            return Ok(());
        };
        let (proc, rank) = (*proc, Memory::rank(*proc));
        some.iter()
            .try_for_each(|it| self.outstanding.settle(proc, &it.range()))?;
        let mut between = vec![0_u8; some.iter().map(|it| it.bytes).sum()];
        let mut ends = 0;
        let places: Vec<_> = (some.iter())
            .map(|it| {
                let start = ends;
                ends += it.bytes;
                (it, [it.offset], [start])
            })
            .collect();
        let vectors: Vec<_> = (places.iter())
            .map(|(it, remote, local)| IoVector {
                remote,
                local,
                run: it.bytes,
            })
            .collect();
        if *direction == Direction::Put {
            for (it, _, [start]) in &places {
                let into = &mut between[*start..*start + it.bytes];
                match &it.local {
                    Local::Value(value) => into.copy_from_slice(value),
                    // SAFETY: `begin_far`'s caller left it readable until it waits.
                    Local::There(at) => unsafe {
                        std::ptr::copy_nonoverlapping(*at, into.as_mut_ptr(), it.bytes);
                    },
                }
            }
            return Ok(self.memory.arena.put_vector(rank, &vectors, &between)?);
        }
        self.memory.arena.get_vector(rank, &vectors, &mut between)?;
        for (it, _, [start]) in &places {
            if let Local::There(at) = &it.local {
                // SAFETY: `begin_far`'s caller left it writable until it waits.
                unsafe {
                    std::ptr::copy_nonoverlapping(between[*start..].as_ptr(), *at, it.bytes);
                }
            }
        }
        Ok(())
    }
}

/// Whether nobody can wait here, as in a handler: nothing was done.
pub(crate) fn is_too_early(outcome: &Result<()>) -> bool {
    matches!(
        outcome,
        Err(Error::Hydrant(hydrant::Error::InHandler { .. }))
    )
}
