//! Typed remote calls.

use std::marker::PhantomData;

use serde::{Serialize, de::DeserializeOwned};

use super::Handler;
use crate::{Error, Result};

/// How much a message carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Limits {
    /// 64-bit arguments of a short or medium message.
    pub max_args: usize,
    /// 64-bit arguments of a long message.
    pub max_args_long: usize,
    /// Bytes of payload of a medium message. An encoded argument or result of a call that is longer
    /// is got by a rendezvous.
    pub max_medium: usize,
    /// Bytes of data of a long message: the size of the symmetric memory.
    pub max_long: usize,
}

/// A function that every rank can call on every other. Made by
/// [`Job::function`](crate::Job::function).
pub struct Function<A, R> {
    handler: Handler,
    _types: PhantomData<fn(A) -> R>,
}

impl<A, R> Function<A, R> {
    /// Returns the function that `handler` runs. Every rank has registered that handler.
    pub(crate) fn of(handler: Handler) -> Self {
        Self {
            handler,
            _types: PhantomData,
        }
    }

    pub(crate) fn handler(&self) -> Handler {
        self.handler
    }
}

impl<A, R> Clone for Function<A, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, R> Copy for Function<A, R> {}

impl<A, R> std::fmt::Debug for Function<A, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.handler.number)
    }
}

/// Returns the bytes that a value takes as an argument or a result of a [call](crate::Job::call).
///
/// Values are encoded by [`postcard`](https://docs.rs/postcard): integers by seven bits a byte,
/// sequences after their length, structures field by field without names. A slice of bytes is
/// encoded and decoded byte by byte. To save that cost, put the data, and send its address.
///
/// # Errors
/// [`Error::Codec`].
pub fn encoded_len<A: Serialize + ?Sized>(value: &A) -> Result<usize> {
    postcard::experimental::serialized_size(value).map_err(|cause| Error::Codec {
        what: "argument",
        cause: cause.to_string(),
    })
}

/// Encodes an argument.
pub(crate) fn encoded<A: Serialize>(argument: &A) -> Result<Vec<u8>> {
    postcard::to_stdvec(argument).map_err(|cause| Error::Codec {
        what: "argument",
        cause: cause.to_string(),
    })
}

/// Decodes a result.
pub(crate) fn result_of<R: DeserializeOwned>(answer: &[u8]) -> Result<R> {
    postcard::from_bytes(answer).map_err(|cause| Error::Codec {
        what: "result",
        cause: cause.to_string(),
    })
}
