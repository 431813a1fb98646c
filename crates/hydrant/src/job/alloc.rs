//! Allocating and freeing symmetric memory.

use std::sync::Arc;

use bytemuck::Pod;

use super::{Core, Job};
use crate::{
    AllocOptions, Error, HugePages, Rank, Result, Symmetric,
    collective::{CollectiveKind, JobCollective},
    counters::Count,
    memory::{Block, Heap},
    progress,
    segment::SYSTEM,
};

/// The huge page that allocations are rounded to.
const HUGE: usize = 2 << 20;

/// What each rank tells the others of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Ticket {
    bytes: u64,
    align: u64,
    huge: u64,
    /// Whether addresses alone are reserved.
    reserve: u64,
    number: u64,
    /// How it went here: one of `outcome`.
    outcome: u64,
    /// Bytes that were available, if they did not suffice.
    available: u64,
}

mod outcome {
    pub(super) const DONE: u64 = 0;
    /// The heap's address space is used up.
    pub(super) const HEAP_FULL: u64 = 1;
    /// The system has no such memory.
    pub(super) const NO_MEMORY: u64 = 2;
    /// The system has no such huge pages.
    pub(super) const NO_HUGE: u64 = 3;
    /// The system failed otherwise.
    pub(super) const FAILED: u64 = 4;
}

impl Job {
    /// Allocates symmetric memory: every rank owns `n` elements, all zero. Collective.
    ///
    /// # Errors
    /// [`Error::ZeroSized`] for types without a size, [`Error::CollectiveMismatch`] if ranks
    /// ask for different amounts, [`Error::OutOfMemory`] if some rank has not so much,
    /// [`Error::Registration`] if memory is registered when it is allocated and some rank may
    /// not register so much. Every rank then gets an error and nothing is kept.
    pub fn alloc<T: Pod>(&self, n: usize) -> Result<Symmetric<T>> {
        self.alloc_with(n, AllocOptions::default())
    }

    /// As [`alloc`](Self::alloc), aligned and in huge pages as `options` say. Collective.
    ///
    /// # Errors
    /// As there; [`Error::Misaligned`] if the alignment is not a power of two.
    pub fn alloc_with<T: Pod>(&self, n: usize, options: AllocOptions) -> Result<Symmetric<T>> {
        progress::may_wait("alloc")?;
        let what = std::any::type_name::<T>();
        if size_of::<T>() == 0 {
            return Err(Error::ZeroSized { what });
        }
        let align = options.align.max(align_of::<T>());
        if !align.is_power_of_two() {
            return Err(Error::Misaligned {
                offset: align as u64,
                align: align.next_power_of_two(),
                what: "an alignment that is a power of two",
            });
        }
        let wanted = n.checked_mul(size_of::<T>());
        let huge = options.huge != HugePages::No;
        let align = if huge { align.max(HUGE) } else { align };
        let core = self.core();
        // No bucket is in two allocations: one's end takes nothing of the other's registration.
        let align = align.max(core.transfer.bucket());
        let affair = self.world().begin_collective(CollectiveKind::Alloc)?;
        let number = core.memory.next_number();
        let mut ticket = Ticket {
            bytes: wanted.map_or(u64::MAX, |bytes| bytes as u64),
            align: align as u64,
            huge: options.huge as u64,
            reserve: u64::from(options.reserve),
            number,
            outcome: outcome::HEAP_FULL,
            available: core.memory.heap().largest_gap() as u64,
        };
        let place = wanted
            .and_then(|bytes| Heap::footprint(bytes.max(1), align))
            .and_then(|len| Some((core.memory.heap().take(len, align)?, len)));
        if let Some((offset, len)) = place {
            commit(core, SYSTEM + offset, len, options, &mut ticket);
        }
        let verdict = agree(&affair, self.rank(), &ticket);
        match (verdict, place) {
            (Ok(()), Some((offset, footprint))) => {
                let bytes = n * size_of::<T>();
                if let Err(cause) = register(core, &affair, SYSTEM + offset, bytes) {
                    // All or none: what this rank registered is given up like the memory.
                    core.transfer.unregister_block(SYSTEM + offset, bytes)?;
                    core.progress.conduit().decommit(SYSTEM + offset, footprint);
                    core.memory.heap().give(offset, footprint);
                    return Err(cause);
                }
                let block = Block::new(&core.reach(), number, SYSTEM + offset, bytes, footprint)?;
                let block = Arc::new(block);
                core.memory.insert(&block);
                count(core);
                Ok(Symmetric::new(block, n))
            }
            (verdict, place) => {
                if let Some((offset, len)) = place {
                    core.progress.conduit().decommit(SYSTEM + offset, len);
                    core.memory.heap().give(offset, len);
                }
                Err(verdict.err().unwrap_or(Error::Freed))
            }
        }
    }

    /// Frees symmetric memory. Collective: the memory is given back when every rank called.
    ///
    /// Clones of the handle, and pointers into the memory, are useless from then on. What this rank
    /// has under way is waited for, as in [`fence`](Self::fence): it would reach what is allocated
    /// there next. So may what another thread of this rank does with the memory meanwhile: that is
    /// for the program to rule out. What is allocated there next is nobody's [own](Self::exclusive) as
    /// long as a rank has a clone.
    ///
    /// # Errors
    /// [`Error::Freed`] if it was freed before, [`Error::ForeignHandle`] if it is another
    /// job's, [`Error::CollectiveMismatch`] if ranks free different allocations.
    pub fn free<T: Pod>(&self, memory: Symmetric<T>) -> Result<()> {
        progress::may_wait("free")?;
        let core = self.core();
        let block = memory.block();
        block.check_job(core.progress.id)?;
        block.check()?;
        let affair = self.world().begin_collective(CollectiveKind::Free)?;
        core.transfer.finish_all()?;
        let numbers = affair.all_gather(&block.number)?;
        for (rank, number) in numbers.iter().enumerate() {
            if *number != block.number {
                return Err(Error::CollectiveMismatch {
                    operation: "free",
                    rank: Rank(rank as u32),
                    theirs: format!("frees allocation {number}"),
                    own: self.rank(),
                    ours: format!("frees allocation {}", block.number),
                });
            }
        }
        // Nobody puts into it any more: all are here, and what they had under way is over.
        block.free()?;
        core.memory.remove(memory.shared_block());
        core.transfer.unregister_block(block.offset, block.len)?;
        core.progress
            .conduit()
            .decommit(block.offset, block.footprint);
        core.memory
            .heap()
            .give(block.offset - SYSTEM, block.footprint);
        count(core);
        // Only now may the place be allocated anew and be written to by a peer.
        affair.barrier()
    }
}

impl Job {
    /// Gets real memory under elements of this rank's part of what was
    /// [reserved](AllocOptions::reserve), which keep what they hold. Not collective.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the system has not so much, [`Error::OutOfBounds`], [`Error::Freed`],
    /// [`Error::ForeignHandle`], [`Error::JobOver`].
    pub fn commit<T: Pod>(&self, memory: &Symmetric<T>, index: usize, count: usize) -> Result<()> {
        let core = self.active()?;
        let block = memory.block();
        block.check_job(core.progress.id)?;
        block.check()?;
        let (start, len) = (memory.offset(index, count)?, count * size_of::<T>());
        let committed = core.progress.conduit().commit(block.offset + start, len);
        committed.map_err(|cause| match cause {
            hydrant_conduit::Error::OutOfMemory { wanted, available } => Error::OutOfMemory {
                rank: self.rank(),
                wanted,
                available,
                remedy: "the system has no more",
            },
            cause => cause.into(),
        })
    }
}

/// Registers the own part, and learns of the others', where memory is registered at allocation.
fn register(core: &Core, affair: &JobCollective<'_>, offset: usize, bytes: usize) -> Result<()> {
    let mut exchange = |record: &_| affair.all_gather(record);
    (core.transfer).register_block(&mut exchange, offset, bytes)
}

/// Whether every rank asked for the same and got it.
fn agree(affair: &JobCollective<'_>, own: Rank, mine: &Ticket) -> Result<()> {
    let tickets = affair.all_gather(mine)?;
    for (rank, ticket) in tickets.iter().enumerate() {
        let asks = |ticket: &Ticket| {
            let Ticket {
                bytes,
                align,
                huge,
                reserve,
                number,
                ..
            } = *ticket;
            (bytes, align, huge, reserve, number)
        };
        if asks(ticket) != asks(mine) {
            let wants = |t: &Ticket| {
                format!(
                    "wants {} bytes aligned to {} as allocation {}",
                    t.bytes, t.align, t.number
                )
            };
            return Err(Error::CollectiveMismatch {
                operation: "alloc",
                rank: Rank(rank as u32),
                theirs: wants(ticket),
                own,
                ours: wants(mine),
            });
        }
    }
    for (rank, ticket) in tickets.iter().enumerate() {
        let remedy = match ticket.outcome {
            outcome::DONE => continue,
            outcome::HEAP_FULL => "raise HYDRANT_HEAP",
            outcome::NO_MEMORY => "the system has no more",
            outcome::NO_HUGE => {
                "in huge pages; see /sys/kernel/mm/transparent_hugepage/shmem_enabled"
            }
            _ => "the system refused; see the log",
        };
        return Err(Error::OutOfMemory {
            rank: Rank(rank as u32),
            wanted: ticket.bytes,
            available: ticket.available,
            remedy,
        });
    }
    Ok(())
}

/// Gets real memory under the place, unless it comes later, and notes on the ticket how that went.
fn commit(core: &Core, offset: usize, len: usize, options: AllocOptions, ticket: &mut Ticket) {
    let committed = match options.huge {
        HugePages::No if options.reserve => Ok(len),
        HugePages::No => core.progress.conduit().commit(offset, len).map(|()| len),
        HugePages::Try => core
            .progress
            .conduit()
            .commit_huge(offset, len)
            .map(|_| len),
        HugePages::Require => core.progress.conduit().commit_huge(offset, len),
    };
    match committed {
        Ok(there) if there < len => {
            ticket.outcome = outcome::NO_HUGE;
            ticket.available = there as u64;
        }
        Ok(_) => ticket.outcome = outcome::DONE,
        Err(hydrant_conduit::Error::OutOfMemory { available, .. }) => {
            ticket.outcome = outcome::NO_MEMORY;
            ticket.available = available;
        }
        Err(cause) => {
            tracing::error!(%cause, "memory could not be committed");
            ticket.outcome = outcome::FAILED;
            ticket.available = 0;
        }
    }
}

/// Brings the counters of memory up to date.
fn count(core: &Core) {
    let (used, peak) = core.memory.heap().usage();
    core.progress.tally.set(Count::HeapBytes, used as u64);
    core.progress.tally.set(Count::HeapPeak, peak as u64);
}
