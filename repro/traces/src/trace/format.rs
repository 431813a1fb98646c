//! The constants of the format.

/// "PMT2".
pub const MAGIC: u64 = 0x3254_4d50;

/// The bytes of a file's header.
pub const HEADER_BYTES: usize = 64;

/// The bytes of a record.
pub const RECORD_BYTES: usize = 72;

/// The most ranks a traced job may have.
pub const MAX_RANKS: u32 = 1 << 16;
