//! Tells a rank that its own memory is unmapped, moved or emptied.
//!
//! Memory that is kept registered must be taken back when the pages under it change. Nobody patches the
//! C library for that: the kernel tells, by a `userfaultfd` in write-protect mode with events. Nothing is
//! write-protected, so nothing faults. Memory is [watched](Monitor::watch) before it is registered.
//!
//! # Order
//!
//! The thread that changes memory is held by the kernel until the monitor has read the event. Each
//! [`ChangeListener`] is told [before](ChangeListener::begins) the monitor reads, so that it knows of the change when
//! `munmap` or `madvise` returns. Two things are otherwise than one expects (Linux 6.1 to 7.2):
//!
//! - The event of removed pages (`MADV_DONTNEED`) comes *before* the pages go. A registration made after
//!   that event may still pin the old pages.
//! - Another thread can map the address of unmapped memory before the event can be read.
//!   [`Monitor::is_quiet`] tells, because the kernel counts changes from before they take effect.
//!
//! A [`ReportingAllocator`] tells of its blocks before they go back, without the kernel, and leaves none of these gaps.
//!
//! Some changes are silent: guard pages (`MADV_GUARD_INSTALL`), punched holes and truncation of a mapped
//! file, `remap_file_pages`, and the end of [System V shared memory](MappedRange::is_system_v) by `shmdt`, or what is
//! attached over other memory by `SHM_REMAP`.
//!
//! # The thread
//!
//! One thread of the process reads the events of all subscribers, and never ends: memory that is still
//! watched would otherwise never be unmapped. It allocates nothing, frees nothing, and takes no lock that
//! is held while memory is freed. Signals are blocked there. A forked child has no monitor.
//!
//! ```no_run
//! use std::sync::Arc;
//! use hydrant_monitor::{MemoryChange, ChangeListener, Monitor};
//!
//! struct Ignore;
//! impl ChangeListener for Ignore {
//!     fn begins(&self) {}
//!     fn cancelled(&self) {}
//! }
//!
//! let monitor = Monitor::of_process()?;
//! let changes = monitor.subscribe(Arc::new(Ignore))?;
//! let page = 0x7000_0000_0000; // of a mapping
//! monitor.watch(page, 4096)?;
//! // After `munmap`:
//! assert_eq!(changes.take(), Some(MemoryChange::Unmapped { start: page, len: 4096 }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod allocator;
mod blocks;
mod change;
mod error;
mod ffi;
mod mapped;
mod monitor;
mod userfault;

pub use allocator::ReportingAllocator;
pub use change::MemoryChange;
pub use error::{MonitorAbsent, SystemCause, Unwatched};
pub use mapped::{MappedRange, mapped_ranges};
pub use monitor::{ChangeListener, MemoryChanges, Monitor};
pub use userfault::MonitorSource;
