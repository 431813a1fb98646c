//! Puts and gets that aggregate handles gather. They are sent later as a vector, in few messages.
//! Operations on mapped memory are not gathered.
//!
//! Any thread may send the gathered operations that overlap its own operation, or all of them
//! before a fence. They stay visible to other threads until they are done. A thread waits for the
//! sender if it waits for the handle, or if its operation touches the same bytes.

#![allow(unsafe_code)] // memory is named by its address

use std::{ops::Range, sync::Arc};

use hydrant::IoVector;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{
    PutOrGet,
    missed::{Asker, OperationOwner},
    outstanding::{first_error, lock_or_refuse, overlap},
};
use crate::{Armci, Error, Result, memory::Memory};

/// A gathered put or get, not begun yet.
pub(crate) struct Gathered {
    pub(super) proc: usize,
    pub(super) direction: PutOrGet,
    /// The offset in the process's arena.
    pub(super) offset: usize,
    pub(super) bytes: usize,
    pub(super) local: GatherBuffer,
    pub(super) whose: OperationOwner,
}

impl Gathered {
    fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes
    }
}

/// This process's side of an operation.
pub(crate) enum GatherBuffer {
    /// Memory of the caller.
    Memory(*mut u8),
    /// A value that the operation owns.
    Value(Box<[u8]>),
}

// SAFETY: no other code uses the memory until the handle was waited for, in any thread, by the
// conditions 1 and 2 of `begin_far`.
unsafe impl Send for GatherBuffer {}

/// The gathered operations, by handle number.
#[derive(Default)]
pub(crate) struct GatherLists(Mutex<FxHashMap<i32, GatherList>>);

#[derive(Default)]
struct GatherList {
    waiting: Vec<Gathered>,
    /// The operations that are being sent: the process, and the bytes in its arena.
    leaving: Vec<(usize, Range<usize>)>,
    /// The sender holds this lock.
    sending: Arc<Mutex<()>>,
}

impl GatherList {
    /// The process and bytes of each operation.
    fn targets(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let waiting = self.waiting.iter().map(|it| (it.proc, it.range()));
        waiting.chain(self.leaving.iter().cloned())
    }
}

impl GatherLists {
    pub(super) fn add(&self, number: i32, gathered: Gathered) {
        let mut lists = self.0.lock();
        lists.entry(number).or_default().waiting.push(gathered);
    }

    /// The numbers of the handles that have gathered a wanted operation.
    fn find_handles(&self, is_wanted: impl Fn(i32, usize, &Range<usize>) -> bool) -> Vec<i32> {
        let lists = self.0.lock();
        let wanted = lists.iter().filter(|(number, list)| {
            list.targets()
                .any(|(proc, bytes)| is_wanted(**number, proc, &bytes))
        });
        wanted.map(|(number, _)| *number).collect()
    }

    /// The lock of a handle's sender, if the handle has gathered anything.
    fn sender_lock(&self, number: i32) -> Option<Arc<Mutex<()>>> {
        Some(Arc::clone(&self.0.lock().get(&number)?.sending))
    }

    /// Takes out the operations to send, for the thread that holds the sender lock. Returns `None` if all
    /// operations of that time were sent meanwhile.
    fn take(&self, number: i32, sending: &Arc<Mutex<()>>) -> Option<Vec<Gathered>> {
        let mut lists = self.0.lock();
        let list = (lists.get_mut(&number)).filter(|list| Arc::ptr_eq(&list.sending, sending))?;
        let all = std::mem::take(&mut list.waiting);
        list.leaving = all.iter().map(|it| (it.proc, it.range())).collect();
        Some(all)
    }

    /// Puts back the operations that were not sent.
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
    /// Sends the operations of other handles than `other_than`, for each handle that gathered an
    /// operation on these bytes.
    pub(super) fn send_touching(
        &self,
        proc: usize,
        bytes: &Range<usize>,
        other_than: Option<i32>,
    ) -> Result<()> {
        self.send_handles(|number, of, its| {
            Some(number) != other_than && of == proc && overlap(its, bytes)
        })
    }

    /// Sends all gathered operations to a process, or to all processes.
    pub(crate) fn send_all_gathered(&self, proc: Option<usize>) -> Result<()> {
        self.send_handles(|_, of, _| proc.is_none_or(|proc| of == proc))
    }

    fn send_handles(&self, which: impl Fn(i32, usize, &Range<usize>) -> bool) -> Result<()> {
        let numbers = self.handles.gathered.find_handles(which);
        first_error((numbers.into_iter()).map(|number| self.send_gathered(number, Asker::OfAll)))
    }

    /// Sends the operations that a handle gathered. On return all of them are done, even if another
    /// thread sent some. An error of an operation that does not belong to the asker is also kept
    /// for its owner.
    pub(super) fn send_gathered(&self, number: i32, asker: Asker) -> Result<()> {
        let lists = &self.handles.gathered;
        let Some(sending) = lists.sender_lock(number) else {
            return Ok(());
        };
        let _sending = lock_or_refuse(&sending, "sending what was gathered")?;
        let Some(mut list) = lists.take(number, &sending) else {
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
                let others = some.iter().filter(|it| !it.whose.is_reported_to(asker));
                for owners in others
                    .collect::<Vec<_>>()
                    .chunk_by(|a, b| a.whose == b.whose)
                {
                    let whose = owners[0].whose;
                    self.outstanding.keep(some[0].proc, whose, cause);
                }
            }
            outcome = outcome.and(one);
            self.outstanding.uncount_gathered(some[0].proc, some.len());
            sent += some.len();
        }
        lists.give_back(number, list.split_off(sent));
        outcome
    }

    /// Sends operations of one direction to one process, through an intermediate buffer.
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
        if *direction == PutOrGet::Put {
            for (it, _, [start]) in &places {
                let into = &mut between[*start..*start + it.bytes];
                match &it.local {
                    GatherBuffer::Value(value) => into.copy_from_slice(value),
                    // SAFETY: the memory is readable until the handle was waited for, by condition
                    // 1 of `begin_far`. The buffer is another allocation.
                    GatherBuffer::Memory(at) => unsafe {
                        std::ptr::copy_nonoverlapping(*at, into.as_mut_ptr(), it.bytes);
                    },
                }
            }
            return Ok(self.memory.arena.put_vector(rank, &vectors, &between)?);
        }
        self.memory.arena.get_vector(rank, &vectors, &mut between)?;
        for (it, _, [start]) in &places {
            if let GatherBuffer::Memory(at) = &it.local {
                // SAFETY: the memory is writable and used by nobody else until the handle was waited
                // for, by the conditions 1 and 2 of `begin_far`. The buffer is another allocation.
                unsafe {
                    std::ptr::copy_nonoverlapping(between[*start..].as_ptr(), *at, it.bytes);
                }
            }
        }
        Ok(())
    }

    /// Forgets the operations that a handle gathered and did not send. Their memory belongs to the
    /// caller again.
    pub(super) fn forget_gathered(&self, number: i32) -> Result<()> {
        let lists = &self.handles.gathered;
        let Some(sending) = lists.sender_lock(number) else {
            return Ok(());
        };
        let _sending = lock_or_refuse(&sending, "forgetting what was gathered")?;
        if let Some(list) = lists.take(number, &sending) {
            (list.iter()).for_each(|it| self.outstanding.uncount_gathered(it.proc, 1));
            lists.give_back(number, Vec::new());
        }
        Ok(())
    }
}

/// Returns true if the call was refused because it may not wait here, as in a handler. Nothing was
/// done then.
pub(crate) fn is_too_early(outcome: &Result<()>) -> bool {
    matches!(
        outcome,
        Err(Error::Hydrant(hydrant::Error::InHandler { .. }))
    )
}
