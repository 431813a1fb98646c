//! The one suite that every conduit passes.
