//! A refused transfer of memory or of a buffer: the cause, with the memory or buffer.

use std::{error, fmt};

use crate::Error;

/// The reason why memory or a buffer was not taken, together with the memory or buffer, for further use. `?` converts
/// it into the [`Error`] alone. It prints as the error does.
///
/// ```
/// # fn main() -> hydrant::Result<()> {
/// # hydrant::Job::builder()?.run_local(2, |job| {
/// use hydrant::{Error, Refused};
/// let field = job.alloc::<u8>(8)?;
/// let Err(Refused { memory: Some(buffer), cause }) = field.put_nb(job.right(), 5, vec![1; 4]) else {
///     panic!("four elements from 5 on end past 8");
/// };
/// assert!(matches!(cause, Error::OutOfBounds { .. }));
/// field.put_nb(job.right(), 4, buffer)?.wait()?;
/// # job.barrier()
/// # }).into_iter().collect()
/// # }
/// ```
pub struct Refused<M> {
    /// The handle or buffer that was not taken, unchanged. `None` if a rank was lost when other
    /// ranks may already have their part: then this rank no longer has the memory. A buffer is
    /// always given back.
    pub memory: Option<M>,
    /// The reason.
    pub cause: Error,
}

impl<M> Refused<M> {
    /// Gives a buffer back.
    pub(crate) fn buffer(memory: M, cause: Error) -> Self {
        Self {
            memory: Some(memory),
            cause,
        }
    }
}

impl<M> From<Refused<M>> for Error {
    fn from(refused: Refused<M>) -> Self {
        refused.cause
    }
}

impl<M> fmt::Debug for Refused<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.cause, f)
    }
}

impl<M> fmt::Display for Refused<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.cause, f)
    }
}

impl<M> error::Error for Refused<M> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        error::Error::source(&self.cause)
    }
}
