//! When a buffer will be needed again: registration ahead of need by a helper thread that predicts, after
//! *Scalable Memory Registration for High Performance Networks Using Helper Threads* (Li, Cameron,
//! Nikolopoulos, de Supinski and Schulz 2011).
//!
//! Programs use the same buffers over and over, with computing between. A helper thread on an idle core
//! deregisters a buffer after its use and registers it again just before the next, so that little memory is
//! registered at a time and the critical path still finds what it needs. Here is all of that which needs no
//! thread, clock or network: state machines, and two structures without locks that the application's threads share with
//! the helper. Whoever drives them brings the threads, the clock and the NIC.
//!
//! # The parts, and where the paper has them
//!
//! | part | of the paper |
//! |---|---|
//! | [`Signature`], [`Context`] | context-aware signatures: call stack, buffer, and the communications before in a sliding window (§3.1, §4.2, Figure 4) |
//! | [`predictor`] | the period of a signature, shortest observed (§4.2); irregular uses (§3.1, *Discussion*); the periodicity predictor it is compared with (§3.1); a better one |
//! | [`Costs`] | the components of t_p and `a × pages + b` by regression (§3.2, *Time Control and Estimation*) |
//! | [`queue`] | the deregistration queue, circular and lock-less (§4.1, Figure 7) |
//! | [`cache`] | the registration cache and its compare-and-swap lock (§3.2, §4.1) |
//! | [`plan`] | the helper: call site table, registration queue, both conditions (1), deadlines and their spacing (§3.2) |
//! | [`sharing`] | distribution over idle cores, conservative or aggressive; condition (2) (§5) |
//! | [`trace`] | communication traces of real programs, read strictly |
//! | [`evaluation`] | how well uses are predicted on them (Figures 5 and 6) |
//!
//! # The critical path
//!
//! What a thread of the application does for each communication (§4.3) is a look at the cache, which is
//! one compare-and-swap in the usual case, and a raw record afterwards, which is a dozen stores:
//!
//! ```
//! use hydrant_foresight::cache::{Acquired, Cache};
//! use hydrant_foresight::plan::{Action, Config, Plan};
//! use hydrant_foresight::{Communication, FRAMES, Kind, Region, Time, Way, queue};
//!
//! let cache = Cache::new(64, 1 << 30); // shared
//! let (mut writer, mut reader) = queue::queue(queue::DEFAULT_RECORDS);
//! let mut plan = Plan::new(Config::DEFAULT)?; // the helper's
//! let thread = plan.add_thread();
//!
//! // The application sends 1 MiB, and has to register it, as this is the first time.
//! let (addr, bytes, begun) = (0x7000_0000, 1 << 20, Time(1000));
//! let region = Region::of_pages(4096, addr, bytes);
//! assert_eq!(cache.acquire(addr, bytes), Acquired::Unknown);
//! let entry = cache.insert(region.addr, region.bytes)?;
//! let held = cache.publish_held(entry, 5); // 5 is what the NIC calls it
//! // … it is sent …
//! let stack = [7; FRAMES];
//! let (kind, way) = (Kind(1), Way::OnDemand);
//! let region = held.region;
//! cache.release(held);
//! writer.write(&Communication { begun, kind, way, addr, bytes, region, stack });
//!
//! // The helper reads that, and is told to deregister what nobody is known to need again.
//! let communication = reader.read().unwrap();
//! let action = plan.used(thread, &communication, Time(2000));
//! let Some(Action::Deregister { id, region }) = action else {
//!     panic!("{action:?}");
//! };
//! let entry = cache.find(region).unwrap();
//! cache.begin_deregistering(entry);
//! // … the NIC deregisters it …
//! cache.deregistered(entry);
//! plan.deregistered(id);
//! assert_eq!(cache.registered_bytes(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is not the paper's
//!
//! - The predictor [`Landmarks`](predictor::Landmarks): on the NAS traces of class A, on which it was not tuned, what
//!   it says when the helper has to act is within 5 % of the period for 90 to 100 % of the uses of CG, LU,
//!   BT and SP, and within 0.5 % for 54 to 97 %. What bounds it is the noise of the longest computation before
//!   a use within which nothing is communicated: the example `accuracy` prints it beside what the best constants
//!   in hindsight could have done.
//! - A limit on the registered bytes, kept by the cache whoever registers, and planned for by the plan.
//! - Each region of the cache has a lock of its own, so that nobody waits for the registration of another buffer.
//! - Records that are overwritten while they are read are noticed.
//! - What was registered ahead and not used is given up; a clock that jumps spoils one period and no more; without
//!   a helper everything is registered on demand and stays.
//!
//! # Regions
//!
//! Call sites use parts of one buffer. So a record names the region that served it, and the plan and the cache know
//! regions by their exact bounds. Loom checks the queue and the cache.

pub mod cache;
mod communication;
mod costs;
pub mod evaluation;
#[cfg(all(test, loom))]
mod model;
pub mod plan;
pub mod predictor;
pub mod queue;
pub mod sharing;
mod signature;
mod sync;
mod time;
pub mod trace;

pub use communication::{Communication, FRAMES, Kind, Region, Way};
pub use costs::{Backlog, Costs, LinearCost};
pub use signature::{Context, DEFAULT_WINDOW, MAX_WINDOW, Signature};
pub use time::Time;
