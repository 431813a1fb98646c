//! Elements that files may hold.

use std::{fmt::Display, str::FromStr};

/// A number of 8 bytes.
pub trait FileNumber: Copy + Display + FromStr {
    /// The name of such elements in errors.
    const WHAT: &'static str;

    /// From little-endian bytes.
    fn from_bytes(bytes: [u8; 8]) -> Self;

    /// Into little-endian bytes.
    fn to_bytes(self) -> [u8; 8];

    /// True for a number that can be computed with.
    fn is_usable(&self) -> bool;
}

impl FileNumber for i64 {
    const WHAT: &'static str = "64-bit integers";

    fn from_bytes(bytes: [u8; 8]) -> Self {
        Self::from_le_bytes(bytes)
    }

    fn to_bytes(self) -> [u8; 8] {
        self.to_le_bytes()
    }

    fn is_usable(&self) -> bool {
        true
    }
}

impl FileNumber for f64 {
    const WHAT: &'static str = "finite numbers";

    fn from_bytes(bytes: [u8; 8]) -> Self {
        Self::from_le_bytes(bytes)
    }

    fn to_bytes(self) -> [u8; 8] {
        self.to_le_bytes()
    }

    fn is_usable(&self) -> bool {
        self.is_finite()
    }
}
