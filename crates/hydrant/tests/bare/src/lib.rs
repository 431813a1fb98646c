//! Nothing: see `tests/bare.rs`.
