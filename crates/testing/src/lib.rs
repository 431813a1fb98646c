//! What the tests of several crates share.
//!
//! A test here is a program that starts itself again: as the ranks of a job, as their launcher, as
//! strangers that want the job to fail. There are two ways to start ranks:
//!
//! - [`launcher`]: the launcher that users have, in a process of its own; a rank is a [role](roles) of
//!   the test, and says what it sees in [lines that the test reads](running).
//! - [`family`]: the test is the launcher itself, hears every word of a rank and answers it, and so
//!   decides when what happens.
//!
//! [`ranks`] are threads. [`forked`] makes children that are no ranks. [`left_behind`] looks for remains of a job on
//! the host, and [`executor`] waits for futures.
//!
//! Only tests import this crate; it is on no floor, and imports but `launch`.

pub mod executor;
pub mod family;
pub mod forked;
pub mod launcher;
pub mod left_behind;
pub mod ranks;
pub mod roles;
pub mod running;
pub mod strangers;

use std::time::Duration;

/// Longer than anything in a test takes on a busy machine: only a hang reaches it.
pub const HANG: Duration = Duration::from_secs(60);
