//! A conduit around another one, which it hands on to whatever it does not do itself.

#![allow(unsafe_code)] // implements the contract's unsafe methods, by handing them on

use std::time::Duration;

use crate::{
    Access, Caps, Conduit, Door, Error, Key, Message, Permission, Posted, Rank, Sent, Sink,
    Sleeper, Standing, Window,
};

/// Takes the safe methods of [`Conduit`] and makes two things of them: [`Forward`], where each
/// hands its call on to the inner conduit, and a conduit of everything that is a [`Forward`].
macro_rules! forward {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) $(-> $answer:ty)?;)*) => {
        /// A conduit around another: what is not written out is handed on to [`inner`](Self::inner).
        ///
        /// # Safety
        /// An implementor promises what that of a [`Conduit`] does. Methods that hand every call
        /// on keep what the inner conduit promises.
        #[allow(missing_docs, reason = "each method is that of the conduit")]
        #[allow(clippy::missing_errors_doc, clippy::missing_safety_doc, reason = "as above")]
        pub unsafe trait Forward: Send + Sync {
            /// The conduit within.
            fn inner(&self) -> &dyn Conduit;

            $(
                #[inline]
                fn $name(&self $(, $argument: $type)*) $(-> $answer)? {
                    self.inner().$name($($argument),*)
                }
            )*

            unsafe fn register(
                &self,
                addr: *mut u8,
                len: usize,
                permission: Permission,
            ) -> Result<Key, Error> {
                // SAFETY: the same contract.
                unsafe { self.inner().register(addr, len, permission) }
            }

            unsafe fn post(&self, access: &Access) -> Result<Posted, Error> {
                // SAFETY: the same contract.
                unsafe { self.inner().post(access) }
            }
        }

        // SAFETY: who implements `Forward` promises what a conduit does.
        unsafe impl<T: Forward> Conduit for T {
            $(
                #[inline]
                fn $name(&self $(, $argument: $type)*) $(-> $answer)? {
                    Forward::$name(self $(, $argument)*)
                }
            )*

            unsafe fn register(
                &self,
                addr: *mut u8,
                len: usize,
                permission: Permission,
            ) -> Result<Key, Error> {
                // SAFETY: the same contract.
                unsafe { Forward::register(self, addr, len, permission) }
            }

            unsafe fn post(&self, access: &Access) -> Result<Posted, Error> {
                // SAFETY: the same contract.
                unsafe { Forward::post(self, access) }
            }
        }
    };
}

forward! {
    fn rank(&self) -> Rank;
    fn size(&self) -> u32;
    fn caps(&self) -> &Caps;
    fn window(&self, peer: Rank) -> Option<&Window>;
    fn door(&self, peer: Rank) -> Option<&Door>;
    fn commit(&self, offset: usize, len: usize) -> Result<(), Error>;
    fn commit_huge(&self, offset: usize, len: usize) -> Result<usize, Error>;
    fn decommit(&self, offset: usize, len: usize);
    fn deregister(&self, key: Key) -> Result<(), Error>;
    fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error>;
    fn handled(&self, peer: Rank) -> (u64, u64);
    fn poll(&self, sink: &mut dyn Sink) -> usize;
    fn drain(&self, sink: &mut dyn Sink) -> usize;
    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool);
    fn ring(&self, peer: Rank);
    fn wake(&self, peer: Rank);
    fn standing(&self, peer: Rank) -> Standing;
    fn first_lost(&self) -> Option<Rank>;
    fn changes(&self) -> u64;
    fn leave(&self, orderly: bool);
    fn expel(&self, peer: Rank);
    fn now(&self) -> Duration;
    fn compute(&self, operations: u64, sink: &mut dyn Sink);
    fn glance(&self);
    fn copied(&self, bytes: usize);
}
