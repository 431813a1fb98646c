//! Options for allocations of symmetric memory.

/// The use of huge pages in an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HugePages {
    /// Leaves it to the system.
    #[default]
    No,
    /// Uses them if the system has them (`/sys/kernel/mm/transparent_hugepage/shmem_enabled` is
    /// `advise`, `within_size` or `always`).
    Try,
    /// Fails if the system has none.
    Require,
}

/// Options for an allocation.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllocOptions {
    /// The alignment of the first byte's offset: a power of two, at least a page.
    pub align: usize,
    /// The use of huge pages.
    pub huge: HugePages,
    /// If true, only addresses are reserved, and each rank names the pages that it is going to use,
    /// by [`Job::commit`](crate::Job::commit). Pages used without that also exist if the system has
    /// memory. If it has none left, the process that uses the page is killed. Not together with
    /// huge pages.
    pub reserve: bool,
}
