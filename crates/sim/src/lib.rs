//! A network in virtual time, with the hardware of the papers.
//!
//! A [`World`] is the machine of one job: NICs, links and hosts with the figures of a [`Profile`],
//! one clock, one seed. Each rank is a [`Sim`], a [`Conduit`](hydrant_conduit::Conduit) like any
//! other. One or several threads of this process drive it, so a program runs on it unchanged. The
//! same program with the same seed has the same result, to the byte and to the picosecond.
//!
//! # Turns
//!
//! The threads take turns: only the thread whose clock is earliest runs. It keeps the turn, inside
//! the conduit and outside, until it looks at the work of others. The calls that look are `poll`,
//! `wait`, `handled`, `deregister`, and a `send` that finds no room. Everything earlier in virtual
//! time happens before such a call returns. `send`, `write`, `read` and `register` only advance the
//! caller's clock.
//!
//! Real time has no meaning: a thread that has the turn may compute for hours. A thread may also
//! *wait* outside the conduit for another thread (join it, or want its lock). Once no thread of the
//! process runs, the watchdog takes the turn away until the thread calls again. Such a program may
//! behave differently from run to run.
//!
//! A thread that spins on memory must do so through the conduit, or call
//! [`poll_memory`](hydrant_conduit::Clock::poll_memory), because the writer has no turn meanwhile.
//! The job begins when every rank has called once and waits for its turn, however late a rank
//! starts.
//!
//! The addresses of heap and stack buffers come from the real machine. Registration costs follow
//! the touched pages and buckets, and a buffer may touch one more in another run. Segments, and so
//! symmetric memory, begin at a boundary of 2 MiB. A program that aligns its heap buffers likewise
//! has the same figures in every run and on every machine. Hydrant's own programs and experiments
//! do so.
//!
//! # Deadlocks
//!
//! If every thread waits without a timeout and nothing is in flight, nothing can happen any more.
//! Each wait then panics with a text that says which rank waits for what.
//!
//! # What is modelled
//!
//! [`Profile`] has the figures. In short: a message or a write costs its sender time to post. The
//! NIC takes it up packet by packet, in the order of time. Each packet passes DMA, the sender's
//! link, the receiver's link and DMA again, and each stage holds one packet at a time. A lost
//! packet is sent again with all packets behind it. Keys are checked when the data arrives. There
//! is no service thread: `poll`, `drain` and [`compute`](hydrant_conduit::Clock::compute) handle
//! messages.
//!
//! Hydrant handles messages in its calls; reading own memory or the clock is such a call. While the
//! application computes, the host model decides: messages interrupt, and so do completions of
//! operations that other threads wait for ([`is_awaited`](hydrant_conduit::Sink::is_awaited)).
//! Every figure of a machine is in `profiles/*.toml`, with its source.
//!
//! # The end of a rank
//!
//! Requests that a rank posted before it ended still arrive, and the news of its end comes after
//! them. Real processes behave the same when they die with messages in the ring. The rank's memory
//! is out of reach at once. Operations that others began on it end with the news.

mod call;
mod compose;
mod conduit;
mod deliver;
mod event;
mod message;
mod nic;
mod onesided;
mod options;
mod paging;
mod pair;
mod profile;
mod registry;
mod seats;
mod sleep;
mod state;
mod time;
mod transfer;
mod turns;
mod watchdog;
mod world;

use hydrant_conduit::memory;

pub use conduit::Sim;
pub use options::{Died, Faults, SimOptions, Statistics};
pub use profile::{
    Attentiveness, HostProfile, LinkProfile, MessageProfile, NicProfile, Profile, ProfileError,
    RegistrationProfile,
};
pub use time::{Picos, Rate};
pub use world::World;
