//! Utilities shared by the tests of several crates.
//!
//! A test here is a program that starts itself again: as the ranks of a job, as their launcher, or
//! as strangers that want the job to fail. There are two ways to start ranks:
//!
//! - [`launcher`]: the users' launcher, in a process of its own. A rank is a [role](roles) of the
//!   test, and reports in [lines that the test reads](running).
//! - [`family`]: the test itself is the launcher. It hears every line of a rank and answers it, and
//!   so controls the order of events.
//!
//! [`layout`] compares bindings with a C compiler. [`ranks`] are threads. [`forked`] makes children that are not ranks.
//! [`left_behind`] looks for remains of a job on the host. [`locked`] lowers the limit on locked memory. [`left_out`]
//! reports a test that a machine cannot run. [`two_hosts`] are network namespaces.
//!
//! Only tests import this crate. It is on no floor, and imports only `launch`.

pub mod family;
pub mod forked;
pub mod launcher;
pub mod layout;
pub mod left_behind;
mod left_out;
pub mod locked;
pub mod ranks;
mod role;
pub mod roles;
pub mod running;
pub mod strangers;
pub mod two_hosts;

pub use left_out::left_out;

use std::time::Duration;

/// Longer than anything in a test takes on a busy machine, so that only a hang reaches it.
pub const HANG: Duration = Duration::from_secs(60);
