//! Allocates and frees symmetric memory.

use std::sync::Arc;

use bytemuck::Pod;

use super::{Core, Job};
use crate::{
    AllocOptions, BulkRegistration, Error, HugePages, Rank, Result, Symmetric,
    collective::{CollectiveKind, JobCollective},
    counters::Count,
    memory::{Block, SymmetricHeap},
    progress,
    segment::SYSTEM,
};

/// The huge page to which allocations are rounded.
const HUGE: usize = 2 << 20;

/// The request of each rank for an allocation, which all ranks compare.
#[derive(Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct AllocRequest {
    bytes: u64,
    align: u64,
    huge: u64,
    /// 1 if only addresses are reserved.
    reserve: u64,
    number: u64,
    /// The outcome at this rank, one of `outcome`.
    outcome: u64,
    /// The bytes that were available, if they did not suffice.
    available: u64,
}

mod outcome {
    pub(super) const DONE: u64 = 0;
    /// The heap's address space is used up.
    pub(super) const HEAP_FULL: u64 = 1;
    /// The system has no memory left.
    pub(super) const NO_MEMORY: u64 = 2;
    /// The system has no such huge pages.
    pub(super) const NO_HUGE: u64 = 3;
    /// The system failed in another way.
    pub(super) const FAILED: u64 = 4;
}

impl Job {
    /// Allocates symmetric memory: every rank owns `n` elements, all zero. Collective.
    ///
    /// # Errors
    /// - [`Error::ZeroSized`] for zero-sized types.
    /// - [`Error::CollectiveMismatch`] if ranks ask for different amounts.
    /// - [`Error::OutOfMemory`] if a rank has not so much memory.
    /// - [`Error::Registration`] if memory is registered at its allocation and a rank may not
    ///   register so much.
    ///
    /// Every rank then gets an error, and nothing is allocated.
    pub fn alloc<T: Pod>(&self, n: usize) -> Result<Symmetric<T>> {
        self.alloc_with(n, AllocOptions::default())
    }

    /// As [`alloc`](Self::alloc), with the alignment and huge pages of `options`. Collective.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc); [`Error::Misaligned`] if the alignment is not a power of two.
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
        // No bucket is in two allocations, so the end of one revokes no registration of the other.
        let align = align.max(core.transfer.bucket());
        let collective = self.world().begin_collective(CollectiveKind::Alloc)?;
        let number = core.memory.next_number();
        let mut request = AllocRequest {
            bytes: wanted.map_or(u64::MAX, |bytes| bytes as u64),
            align: align as u64,
            huge: options.huge as u64,
            reserve: u64::from(options.reserve),
            number,
            outcome: outcome::HEAP_FULL,
            available: core.memory.heap().largest_gap() as u64,
        };
        let range = wanted
            .and_then(|bytes| SymmetricHeap::footprint(bytes.max(1), align))
            .and_then(|len| Some((core.memory.heap().take(len, align)?, len)));
        if let Some((offset, len)) = range {
            commit(core, SYSTEM + offset, len, options, &mut request);
        }
        let verdict = agree(&collective, self.rank(), &request);
        match (verdict, range) {
            (Ok(()), Some((offset, footprint))) => {
                let bytes = n * size_of::<T>();
                if let Err(cause) = register(core, &collective, SYSTEM + offset, bytes) {
                    // All or none: what this rank registered is deregistered with the memory.
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
            (verdict, range) => {
                if let Some((offset, len)) = range {
                    core.progress.conduit().decommit(SYSTEM + offset, len);
                    core.memory.heap().give(offset, len);
                }
                Err(verdict.err().unwrap_or(Error::Freed))
            }
        }
    }

    /// Frees symmetric memory. Collective: the memory is given back when every rank has called
    /// this.
    ///
    /// Clones of the handle, and pointers into the memory, are useless from then on. This waits for
    /// operations of this rank in flight, as [`fence`](Self::fence) does, because they would reach
    /// the next allocation there. Another thread of this rank may still access the memory in the
    /// same way: the program must rule that out. As long as a rank has a clone, the next allocation
    /// there cannot become [exclusive](Self::exclusive).
    ///
    /// # Errors
    /// [`Error::Freed`] if the memory was freed before, [`Error::ForeignHandle`] for memory of
    /// another job, [`Error::CollectiveMismatch`] if ranks free different allocations.
    pub fn free<T: Pod>(&self, memory: Symmetric<T>) -> Result<()> {
        progress::may_wait("free")?;
        let core = self.core();
        let block = memory.block();
        block.check_job(core.progress.id)?;
        block.check()?;
        let collective = self.world().begin_collective(CollectiveKind::Free)?;
        core.transfer.finish_all()?;
        let numbers = collective.all_gather(&block.number)?;
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
        // No rank puts to the memory any more: all are here, and their operations are complete.
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
        // From here on the range may be allocated again and written by a peer.
        collective.barrier()
    }
}

impl Job {
    /// Commits memory to elements of this rank's part of an allocation that was
    /// [reserved](AllocOptions::reserve). The elements keep their values. Not collective.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the system has not so much, [`Error::OutOfBounds`],
    /// [`Error::Freed`], [`Error::ForeignHandle`], [`Error::JobOver`].
    pub fn commit<T: Pod>(&self, memory: &Symmetric<T>, index: usize, count: usize) -> Result<()> {
        let core = self.active()?;
        let block = memory.block();
        block.check_job(core.progress.id)?;
        block.check()?;
        let (start, len) = (memory.offset(index, count)?, count * size_of::<T>());
        let committed = core.transfer.commit(block.offset + start, len);
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

impl Job {
    /// Registers this rank's part of an allocation in the background, before it is used. Not collective.
    ///
    /// The first accesses of peers then need not wait for a registration, nor for pages. Threads of this rank make one chunk
    /// after the other resident and register it (`HYDRANT_REGISTER_CHUNK`, `HYDRANT_REGISTER_THREADS`). Meanwhile the memory
    /// may be used: memory that is not registered yet is registered or copied as without this call. The registration stops
    /// where M is reached, where the system refuses more, and at the end of `HYDRANT_REGISTER_TIMEOUT`. None of these is an
    /// error. Registered memory that nobody uses may be evicted for other memory.
    ///
    /// Nothing is done where memory is not registered, or is not kept registered by the strategy.
    ///
    /// # Errors
    /// [`Error::Freed`], [`Error::ForeignHandle`], [`Error::JobOver`].
    pub fn register_in_background<T: Pod>(
        &self,
        memory: &Symmetric<T>,
    ) -> Result<BulkRegistration> {
        let core = self.active()?;
        let block = memory.block();
        block.check_job(core.progress.id)?;
        block.check()?;
        core.transfer
            .register_block_in_background(block.offset, block.len)
    }
}

/// Registers the own part and learns the keys of the others, if memory is registered at its
/// allocation.
fn register(
    core: &Core,
    collective: &JobCollective<'_>,
    offset: usize,
    bytes: usize,
) -> Result<()> {
    let mut exchange = |record: &_| collective.all_gather(record);
    (core.transfer).register_block(&mut exchange, offset, bytes)
}

/// Checks that every rank asked for the same and got it.
fn agree(collective: &JobCollective<'_>, own: Rank, mine: &AllocRequest) -> Result<()> {
    let requests = collective.all_gather(mine)?;
    for (rank, request) in requests.iter().enumerate() {
        let asks = |request: &AllocRequest| {
            let AllocRequest {
                bytes,
                align,
                huge,
                reserve,
                number,
                ..
            } = *request;
            (bytes, align, huge, reserve, number)
        };
        if asks(request) != asks(mine) {
            let wants = |t: &AllocRequest| {
                format!(
                    "wants {} bytes aligned to {} as allocation {}",
                    t.bytes, t.align, t.number
                )
            };
            return Err(Error::CollectiveMismatch {
                operation: "alloc",
                rank: Rank(rank as u32),
                theirs: wants(request),
                own,
                ours: wants(mine),
            });
        }
    }
    for (rank, request) in requests.iter().enumerate() {
        let remedy = match request.outcome {
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
            wanted: request.bytes,
            available: request.available,
            remedy,
        });
    }
    Ok(())
}

/// Commits memory to the range, unless that is reserved for later. Notes the outcome on the
/// request.
fn commit(
    core: &Core,
    offset: usize,
    len: usize,
    options: AllocOptions,
    request: &mut AllocRequest,
) {
    let committed = match options.huge {
        HugePages::No if options.reserve => Ok(len),
        HugePages::No => core.transfer.commit(offset, len).map(|()| len),
        HugePages::Try => core
            .progress
            .conduit()
            .commit_huge(offset, len)
            .map(|_| len),
        HugePages::Require => core.progress.conduit().commit_huge(offset, len),
    };
    match committed {
        Ok(there) if there < len => {
            request.outcome = outcome::NO_HUGE;
            request.available = there as u64;
        }
        Ok(_) => request.outcome = outcome::DONE,
        Err(hydrant_conduit::Error::OutOfMemory { available, .. }) => {
            request.outcome = outcome::NO_MEMORY;
            request.available = available;
        }
        Err(cause) => {
            tracing::error!(%cause, "memory could not be committed");
            request.outcome = outcome::FAILED;
            request.available = 0;
        }
    }
}

/// Updates the counters of memory.
fn count(core: &Core) {
    let (used, peak) = core.memory.heap().usage();
    core.progress.tally.set(Count::HeapBytes, used as u64);
    core.progress.tally.set(Count::HeapPeak, peak as u64);
}
