//! The ways to hear of changes of own memory.

/// The way in which a rank hears that its memory is unmapped, moved or emptied. Only then can memory from any
/// allocator stay registered after its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MonitorKind {
    /// The kernel's userfaultfd where it is permitted, otherwise none.
    #[default]
    Auto,
    /// The kernel's userfaultfd. It is an error if that is not permitted.
    Userfaultfd,
    /// None. Memory that Hydrant has not allocated, and that was not lent, is registered for one operation or copied.
    Off,
}

super::forms::words!(MonitorKind {
    Auto => "auto",
    Userfaultfd => "userfaultfd",
    Off => "off",
});
