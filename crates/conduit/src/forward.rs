//! A wrapper around a conduit that forwards every method it does not define.

#![allow(unsafe_code)] // implements the contract's unsafe methods, by handing them on

use std::time::Duration;

use crate::{
    Access, Caps, Clock, Conduit, Delivery, Error, Footprint, Key, Membership, Message, Permission,
    Posted, Rank, Segments, Sent, Sink, Sleep, Sleeper, Standing, WakeWord, Window,
};

/// Takes the safe methods of a conduit, trait by trait, and makes two things of them. The first is
/// [`Forward`], whose methods forward to the inner conduit. The second is an implementation of
/// these traits for every [`Forward`].
macro_rules! forward {
    ($($trait:ident {
        $(fn $name:ident(&self $(, $argument:ident: $type:ty)*) $(-> $answer:ty)?;)*
    })*) => {
        /// A wrapper around another conduit. A method that is not defined forwards to
        /// [`inner`](Self::inner).
        ///
        /// # Safety
        /// An implementor makes the promises of a [`Conduit`]. Methods that forward every call keep
        /// the promises of the inner conduit.
        #[allow(missing_docs, reason = "each method is that of the conduit")]
        #[allow(clippy::missing_errors_doc, clippy::missing_safety_doc, reason = "as above")]
        pub unsafe trait Forward: Send + Sync {
            /// Returns the inner conduit.
            fn inner(&self) -> &dyn Conduit;

            $($(
                #[inline]
                fn $name(&self $(, $argument: $type)*) $(-> $answer)? {
                    self.inner().$name($($argument),*)
                }
            )*)*

            unsafe fn register(
                &self,
                addr: *mut u8,
                len: usize,
                permission: Permission,
            ) -> Result<Key, Error> {
                // SAFETY: 1. and 2. the method has the conditions of `Conduit::register`.
                unsafe { self.inner().register(addr, len, permission) }
            }

            unsafe fn deregister_unused(&self, key: Key) -> Result<(), Error> {
                // SAFETY: the method has the condition of `Conduit::deregister_unused`.
                unsafe { self.inner().deregister_unused(key) }
            }

            unsafe fn post(&self, access: &Access) -> Result<Posted, Error> {
                // SAFETY: 1. and 2. the method has the conditions of `Conduit::post`.
                unsafe { self.inner().post(access) }
            }
        }

        $(forward!(@ $trait {
            $(
                #[inline]
                fn $name(&self $(, $argument: $type)*) $(-> $answer)? {
                    Forward::$name(self $(, $argument)*)
                }
            )*
        });)*
    };
    (@ Conduit { $($methods:item)* }) => {
        // SAFETY: 1. to 4. an implementor of `Forward` makes these promises of a `Conduit`.
        unsafe impl<T: Forward> Conduit for T {
            $($methods)*

            unsafe fn register(
                &self,
                addr: *mut u8,
                len: usize,
                permission: Permission,
            ) -> Result<Key, Error> {
                // SAFETY: 1. and 2. the methods have the same conditions.
                unsafe { Forward::register(self, addr, len, permission) }
            }

            unsafe fn deregister_unused(&self, key: Key) -> Result<(), Error> {
                // SAFETY: the methods have the same condition.
                unsafe { Forward::deregister_unused(self, key) }
            }

            unsafe fn post(&self, access: &Access) -> Result<Posted, Error> {
                // SAFETY: 1. and 2. the methods have the same conditions.
                unsafe { Forward::post(self, access) }
            }
        }
    };
    (@ $trait:ident { $($methods:item)* }) => {
        impl<T: Forward> $trait for T {
            $($methods)*
        }
    };
}

forward! {
    Conduit {
        fn rank(&self) -> Rank;
        fn size(&self) -> u32;
        fn caps(&self) -> &Caps;
        fn footprint(&self) -> Footprint;
        fn port(&self) -> String;
        fn deregister(&self, key: Key) -> Result<(), Error>;
        fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error>;
        fn handled(&self, peer: Rank) -> (u64, u64);
        fn poll(&self, sink: &mut dyn Sink) -> usize;
        fn poll_past(&self, kind: u8, of: Option<Rank>, sink: &mut dyn Sink) -> usize;
        fn drain(&self, sink: &mut dyn Sink) -> usize;
        fn take(&self, kind: u8, take: &mut dyn FnMut(&Delivery<'_>) -> bool) -> bool;
    }
    Segments {
        fn window(&self, peer: Rank) -> Option<&Window>;
        fn commit(&self, offset: usize, len: usize) -> Result<(), Error>;
        fn commit_huge(&self, offset: usize, len: usize) -> Result<usize, Error>;
        fn decommit(&self, offset: usize, len: usize);
        fn attaches(&self, peer: Rank) -> bool;
        fn read_attached(&self, peer: Rank, addr: u64, into: &mut [u8]) -> Result<(), Error>;
    }
    Membership {
        fn standing(&self, peer: Rank) -> Standing;
        fn first_lost(&self) -> Option<Rank>;
        fn changes(&self) -> u64;
        fn publish(&self, number: u64);
        fn published(&self, peer: Rank) -> Option<u64>;
        fn come_to_end(&self, come: bool);
        fn has_come_to_end(&self, peer: Rank) -> bool;
        fn endings(&self) -> u64;
        fn leave(&self, orderly: bool);
        fn expel(&self, peer: Rank);
    }
    Sleep {
        fn wake_word(&self, peer: Rank) -> Option<&WakeWord>;
        fn wait(
            &self,
            sleeper: Sleeper,
            timeout: Option<Duration>,
            ready: &mut dyn FnMut() -> bool
        );
        fn notify(&self, peer: Rank);
        fn wake(&self, peer: Rank);
    }
    Clock {
        fn now(&self) -> Duration;
        fn compute(&self, operations: u64, sink: &mut dyn Sink);
        fn poll_memory(&self);
        fn take_part(&self);
        fn copied(&self, bytes: usize);
    }
}
