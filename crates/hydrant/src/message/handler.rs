//! Names of handlers.

use std::{fmt, panic::Location};

/// Names a handler on every rank. Made by [`Job::handler`](crate::Job::handler).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handler {
    pub(crate) number: u16,
    pub(crate) job: u64,
}

impl Handler {
    /// Returns the handler's number. Handlers are counted from zero, alike on every rank.
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// The Rust name of a handler or a function, and where it was registered.
#[derive(Clone, Copy)]
pub(crate) struct HandlerName {
    pub(crate) called: &'static str,
    pub(crate) site: &'static Location<'static>,
}

impl fmt::Display for HandlerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line) = (self.site.file(), self.site.line());
        write!(f, "`{}` of {file}:{line}", self.called)
    }
}
