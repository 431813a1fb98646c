//! A network in virtual time, with the hardware of the papers.
//!
//! A [`World`] is the machine of one job: NICs, links and hosts with the figures of a
//! [`Profile`], one clock, one seed. Each rank is a [`Sim`] of it, a
//! [`Conduit`](hydrant_conduit::Conduit) like any other, driven by one thread or several of this
//! process, so that a program runs on it unchanged. The same program with the same seed has the
//! same result, to the byte and to the picosecond.
//!
//! # Turns
//!
//! The threads take turns; only one runs at a time, the one whose clock is earliest. It keeps
//! the turn, inside the conduit and outside, until it looks at what others did: `poll`, `wait`,
//! `handled`, `deregister`, a `send` that finds no room. Everything earlier then happens first.
//! `send`, `write`, `read` and `register` only advance the caller's clock. Real time has no
//! meaning: a thread that has the turn may compute for hours. One that *waits* outside the
//! conduit for another thread (joins it, wants its lock) loses the turn, once no thread of the
//! process runs, until it calls again; what such a program does may differ from run to run. A thread
//! that looks at memory until another changes it must look by way of the conduit, or call
//! [`poll_memory`](hydrant_conduit::Clock::poll_memory): the other has no turn meanwhile. The job begins
//! when every rank has called once and waits for its turn, however late one starts.
//!
//! One thing is the real machine's: where buffers from the heap and the stack lie. What they cost
//! to register follows from the pages, and the buckets, that they touch, which may be one more in
//! another run. Segments, and so symmetric memory, begin at a boundary of 2 MiB. A program whose
//! buffers from the heap do so, too, has the same figures in every run and on every machine:
//! Hydrant's own programs and experiments take care of that.
//!
//! # Deadlocks
//!
//! If every thread waits without a timeout and nothing is under way, nothing can happen any more.
//! Each of the waits then panics, with a text that says which rank waits for what.
//!
//! # What is modelled
//!
//! See [`Profile`] for the figures. In short: a message or a write costs its sender time to post
//! it; the NIC takes it up, packet by packet, in the order of time; each packet passes DMA,
//! the sender's link, the receiver's link and DMA again, one packet at a time in each. Lost
//! packets are sent again with all behind them. Keys are checked when the data arrives. There
//! is no service thread: messages are handled in `poll`, `drain` and
//! [`compute`](hydrant_conduit::Clock::compute).
//!
//! Hydrant handles messages in its calls, a look at own memory or at the clock among them. While the application
//! computes, it does so as the host model says: messages interrupt, and so do the ends of operations that others
//! wait for ([`is_awaited`](hydrant_conduit::Sink::is_awaited)). Every figure of a machine is in `profiles/*.toml`,
//! with its source.
//!
//! # The end of a rank
//!
//! Requests that a rank had posted when it ended still arrive, and the news of its end comes after them. So it is
//! where a process is seen to be dead while its messages are in the ring. Its memory is out of reach at once.
//! Operations that others began there end with the news.

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
mod rng;
pub mod scale;
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
pub use options::{Died, Faults, Options, Statistics};
pub use profile::{Attentiveness, Host, Link, Messages, Nic, Profile, ProfileError, Registering};
pub use time::{Picos, Rate};
pub use world::World;
