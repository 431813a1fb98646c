//! The contract every network keeps, and its conformance tests.
