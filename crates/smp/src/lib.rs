//! The conduit between ranks of one host: shared memory.
