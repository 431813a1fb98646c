//! How symmetric memory is to be allocated.

/// Whether an allocation lies in huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HugePages {
    /// As the system likes.
    #[default]
    No,
    /// If the system has them (`/sys/kernel/mm/transparent_hugepage/shmem_enabled` is
    /// `advise`, `within_size` or `always`).
    Try,
    /// Or not at all.
    Require,
}

/// How an allocation is to be.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllocOptions {
    /// The first byte's offset is a multiple of this power of two; at least a page.
    pub align: usize,
    /// Whether it lies in huge pages.
    pub huge: HugePages,
    /// Whether addresses alone are reserved, and each rank says which pages it is going to use, by
    /// [`Job::commit`](crate::Job::commit). A page that is used without that is there, too, if the system
    /// has one: if it has none left, the process that uses it is killed. Not together with huge pages.
    pub reserve: bool,
}
