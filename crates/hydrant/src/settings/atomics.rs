//! The executors of atomic operations.

/// The executor that changes words of 64 bits of symmetric memory atomically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AtomicsKind {
    /// NICs if they can, otherwise processors.
    #[default]
    Auto,
    /// The NIC of the word's owner, for every rank, the owner included. It is an error if the
    /// network cannot do that.
    Native,
    /// A processor of the owner's host: that of the caller if the word is mapped there, otherwise
    /// that of the owner, at the request of a message.
    Messages,
}

super::forms::words!(AtomicsKind {
    Auto => "auto",
    Native => "native",
    Messages => "messages",
});
