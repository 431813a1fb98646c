//! The ways to hear of changes of own memory.

/// The way in which a rank hears that its memory is unmapped, moved or emptied. Only then can memory from any
/// allocator stay registered after its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MonitorKind {
    /// The program's [`ReportingAllocator`](crate::ReportingAllocator) and the kernel's userfaultfd, as far as they are
    /// there.
    #[default]
    Auto,
    /// The kernel's userfaultfd, and the program's allocator where it reports. It is an error if the kernel refuses.
    Userfaultfd,
    /// The program's [`ReportingAllocator`](crate::ReportingAllocator) alone. It is an error if the program has none.
    Allocator,
    /// None. Memory that Hydrant has not allocated, and that was not lent, is registered for one operation or copied.
    Off,
}

super::forms::words!(MonitorKind {
    Auto => "auto",
    Userfaultfd => "userfaultfd",
    Allocator => "allocator",
    Off => "off",
});
