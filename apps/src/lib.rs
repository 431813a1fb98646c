//! The programs of the papers, on the public API.
