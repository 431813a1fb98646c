//! One-sided remote memory for the processes of one parallel job.
//!
//! The ranks of a job read and write each other's memory directly, call functions on each other and
//! compute together. [`run`] joins the job that the process was launched in:
//!
//! ```
//! fn main() -> hydrant::Result<()> {
//!     hydrant::run(|job| {
//!         let field = job.alloc::<f64>(1 << 10)?; // every rank owns that many elements
//!         let right = job.right();
//!         field.put(right, 0, &[1.0, 2.0])?; // blocking: remotely complete
//!         job.barrier()?;
//!         assert_eq!(field.local()?.load(1)?, 2.0);
//!         job.barrier()
//!     })
//! }
//! ```
//!
//! | to | see |
//! |---|---|
//! | join, leave, abort | [`run`], [`join`], [`run_spmd`], [`Job`], [`JobBuilder`] |
//! | own memory that peers can access | [`Symmetric`], [`Exposed`], [`GlobalPtr`] |
//! | compute on own memory | [`Symmetric::local`], [`Job::exclusive`] |
//! | put and get | [`Symmetric::put`], [`Job::scope`], [`Symmetric::put_nb`], [`Symmetric::by_team`], [`Job::put_to`] |
//! | await operations | [`PutHandle`], [`GetHandle`], [`Operation`], [`when_all`], [`when_any`], [`Job::wait_for`] |
//! | choose what memory holds | [`Pod`], [`Zeroable`] |
//! | change words atomically | [`Symmetric::fetch_add`] and the methods beside it |
//! | add to elements of others | [`Symmetric::accumulate`] |
//! | exclude each other | [`Job::mutexes`] |
//! | wait for a put | [`Symmetric::put_signal`], [`Job::wait_until`] |
//! | run code on another rank | [`Job::request_short`], [`Job::call`], [`Job::call_nb`], [`Job::call_one_way`], [`Job::async_function`] |
//! | send and receive | [`Job::send`], [`Job::receive`], [`Job::send_receive`], [`Scope::send`], [`Job::send_nb`], [`Job::probe_matched`] |
//! | compute together | [`Job::barrier`], [`Team`] |
//! | register much memory before its use | [`Job::register_in_background`], [`Exposed::register_in_background`] |
//! | set and count | [`Settings`], [`Counters`] |
//! | serve peers that come and go, without a job | [`endpoint`] |
//! | see the log | `log_to_stderr` (feature `log`) |
//!
//! # Networks
//!
//! Ranks of one host share memory (`smp`). Ranks of different hosts use RDMA (`verbs`), which was
//! tried on soft-RoCE only, never on a hardware NIC. `smp+pin` joins ranks of one host by NICs that
//! threads play. Hosts without RDMA use a provider of libfabric (`ofi`), such as TCP. There is no access to
//! GPU memory, and no way to join a job after its start. It runs on Linux.
//!
//! # Features
//!
//! | feature | by default | for |
//! |---|---|---|
//! | `verbs` | yes | RDMA NICs; libibverbs is opened at run time, and need not be there |
//! | `ofi` | yes | any network with a provider of libfabric, such as TCP; it is opened at run time, and need not be there |
//! | `pin` | yes | `smp+pin`: registration as on RDMA, on one host without RDMA |
//! | `log` | yes | `log_to_stderr`, for programs without a `tracing` subscriber of their own |
//! | `half`, `num-complex` | yes | reductions of 16-bit floats and of complex numbers |
//! | `sim` | no | `sim:PROFILE`: the machines of the papers in virtual time, for experiments and tests |
//! | `foresight` | no | the strategy that predicts uses of memory, for experiments |
//!
//! Without any, ranks of one host share memory. An error names the feature of a network that is not
//! built in.
//!
//! # Registered memory
//!
//! If the network needs registered memory, Hydrant registers it by a [`Strategy`]. The strategies
//! are the Firehose algorithm (Bell and Bonachea 2003), the pin-down cache (Tezuka and others
//! 1998), and those to which they and ARMCI (Nieplocha and others 2002) were compared. One of them
//! is registration by a helper thread that predicts uses (Li and others 2011). ARMCI's own
//! interface is the crate `hydrant-armci`.

mod atomics;
mod collective;
mod counters;
mod error;
mod foresight;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod job;
#[cfg(feature = "log")]
mod log;
mod memory;
mod message;
mod mutex;
mod plain;
mod progress;
mod refused;
mod registration;
mod rma;
mod segment;
pub mod settings;
mod stripe;
mod team_rank;
pub mod top;
mod transfer;
mod two_sided;
mod uses;

pub use atomics::{AtomicFloat, AtomicInteger, GlobalAtomic};
/// The crate whose traits describe the content of memory, in the version that Hydrant uses.
pub use bytemuck;
pub use collective::{Blocks, ByTeam, Located, Op, Reducible, Team};
pub use counters::Counters;
pub use error::{Error, Result};
#[cfg(feature = "foresight")]
pub use foresight::Foresight;
/// The crate whose 16-bit floats can be reduced, in the version that Hydrant uses.
#[cfg(feature = "half")]
pub use half;
pub use hydrant_conduit::{
    Caps, Footprint, Rank,
    memory::{Column, Factor, Number, Runs},
};
/// Peers that come and go: processes without a job that read and write each other's memory.
pub use hydrant_endpoint as endpoint;
pub use hydrant_launch::BootstrapKind as Bootstrap;
pub use hydrant_monitor::ReportingAllocator;
pub use hydrant_pinning::{Stats as RegistrationStats, Strategy};
pub use hydrant_smp::Foreign;
pub use job::{Job, JobBuilder, WeakJob, join, run, run_spmd};
#[cfg(feature = "log")]
pub use log::log_to_stderr;
pub use memory::{
    AllocOptions, Exclusive, Exposed, GlobalPtr, HugePages, PackedPtr, Symmetric, View,
};
pub use message::{CallHandle, Function, Handler, HandlerContext, Limits, encoded_len};
pub use mutex::{MutexGuard, Mutexes};
/// The crate whose complex numbers can be reduced, in the version that Hydrant uses.
#[cfg(feature = "num-complex")]
pub use num_complex;
pub use plain::{Pod, Zeroable};
pub use progress::{BackgroundHandle, may_wait};
pub use refused::Refused;
pub use registration::BulkRegistration;
pub use rma::{
    Accumulate, AnywhereLoan, Context, GetHandle, IoVector, Level, Operation, PutHandle,
    RawOperation, Scope, Section, Signal, Stride, WhenAll, WhenAny, when_all, when_any,
};
#[cfg(feature = "verbs")]
pub use settings::PagingKind;
pub use settings::{
    AtomicsKind, ConduitKind, InterNodeKind, MessageProtocol, MonitorKind, Settings,
};
#[cfg(feature = "foresight")]
pub use settings::{ForesightPolicy, IdleCores};
pub use team_rank::TeamRank;
pub use two_sided::{
    AnySource, AnyTag, MAX_TAG, MatchedMessage, PersistentReceive, PersistentSend, RawMessage,
    ReceiveHandle, SendHandle, Source, Status, Tag, Transit,
};
pub use uses::at_site;
