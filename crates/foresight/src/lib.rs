//! Predicts the next use of a buffer, so that a helper thread registers it ahead of need. After *Scalable Memory
//! Registration for High Performance Networks Using Helper Threads* (Li, Cameron, Nikolopoulos, de Supinski and
//! Schulz 2011).
//!
//! Programs use the same buffers over and over, with computing between. A helper thread on an idle core deregisters a
//! buffer after its use, and registers it again just before the next. So little memory is registered at a time, and
//! the critical path still finds its buffers registered.
//!
//! This crate holds the part that needs no thread, clock or network: state machines, and a lock-free queue from the
//! application's threads to the helper. The driver brings the threads, the clock, the NIC and its registrations.
//!
//! # The parts, and their place in the paper
//!
//! | part | of the paper |
//! |---|---|
//! | [`Signature`], [`SignatureContext`] | context-aware signatures: call stack, buffer, and the communications before in a sliding window (§3.1, §4.2, Figure 4) |
//! | [`predictor`] | a better predictor than the shortest period of a signature (§4.2) |
//! | [`Costs`] | the components of t_p and `a × pages + b` by regression (§3.2, *Time Control and Estimation*) |
//! | [`queue`] | the deregistration queue, circular and lock-less (§4.1, Figure 7) |
//! | [`plan`] | the helper: call site table, registration queue, both conditions (1), deadlines and their spacing (§3.2) |
//! | [`sharing`] | distribution over idle cores, conservative or aggressive; condition (2) (§5) |
//!
//! # The critical path
//!
//! After each communication (§4.3), a thread of the application writes a raw record, which is a dozen
//! stores. The helper reads the record and asks the plan for an action:
//!
//! ```
//! use hydrant_foresight::plan::{HelperTask, PlanConfig, Plan};
//! use hydrant_foresight::{Communication, CommunicationKind, FRAMES, PageRun, RegistrationOutcome, Time, queue};
//!
//! let (mut writer, mut reader) = queue::queue(queue::DEFAULT_RECORDS);
//! let mut plan = Plan::new(PlanConfig::DEFAULT)?; // the helper's
//! let thread = plan.add_thread();
//!
//! // The application registers 1 MiB on its first use, and sends it.
//! let (addr, bytes, begun) = (0x7000_0000, 1 << 20, Time(1000));
//! let region = PageRun::of_pages(4096, addr, bytes);
//! let (kind, outcome) = (CommunicationKind(1), RegistrationOutcome::OnDemand);
//! let stack = [7; FRAMES];
//! writer.write(&Communication { begun, kind, outcome, addr, bytes, region, stack });
//!
//! // No second use is foreseen yet, so the plan asks the helper to deregister the region.
//! let communication = reader.read().unwrap();
//! let action = plan.used(thread, &communication, Time(2000));
//! let Some(HelperTask::Deregister { id, region: given_up }) = action else {
//!     panic!("{action:?}");
//! };
//! assert_eq!(given_up, region);
//! // … the NIC deregisters it …
//! plan.deregistered(id);
//! assert_eq!(plan.registered_bytes(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Beyond the paper
//!
//! - The predictor [`Landmarks`](predictor::Landmarks). The NAS traces of class A, on which it was not tuned, judge the
//!   forecast in force when the helper has to act. For CG, LU, BT and SP it is within 5 % of the period for 90 to 100 %
//!   of the uses, and within 0.5 % for 54 to 97 %. The limit is the noise of the longest computation without
//!   communication before a use (`docs/foresight.md`).
//! - The plan keeps a limit on the registered bytes.
//! - The reader of the queue notices records that are overwritten while it reads them.
//! - Regions registered ahead and not used are deregistered. A clock that jumps spoils one period and no more.
//!   Without a helper, everything is registered on demand and stays registered.
//!
//! # Regions
//!
//! Call sites use parts of one buffer. A record therefore names the region that served it, and the plan knows regions
//! by their exact bounds. Loom checks the queue.

mod communication;
mod costs;
#[cfg(all(test, loom))]
mod model;
pub mod plan;
pub mod predictor;
pub mod queue;
pub mod sharing;
mod signature;
mod sync;
mod time;

pub use communication::{Communication, CommunicationKind, FRAMES, PageRun, RegistrationOutcome};
pub use costs::{Costs, LinearCost, RegistrationBacklog};
pub use signature::{DEFAULT_WINDOW, MAX_WINDOW, Signature, SignatureContext};
pub use time::Time;
