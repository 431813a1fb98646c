//! The one suite that every conduit passes.
//!
//! A [`Check`] is one promise of the [contract](crate::Conduit), tried on connected conduits
//! that a [`Fixture`] starts as ranks of this process, each driven by a thread of its own.
//! What arrives is compared with what the other side computed by itself. A conduit's crate
//! has a test target without harness whose `main` is one call of [`main`]:
//!
//! ```ignore
//! fn main() -> std::process::ExitCode {
//!     hydrant_conduit::conformance::main(vec![("plain", Box::new(Plain)), …])
//! }
//! ```
//!
//! Ranks wait only by calling the conduit they drive, so that an implementation may let them
//! take turns. No check asserts how long anything takes; a guard of many seconds ends what hangs.

#![allow(unsafe_code)] // registers, writes and reads memory: in `memory` alone

mod access;
mod atomics;
mod basics;
mod endings;
mod extents;
mod flow;
mod log;
mod malformed;
mod memory;
mod messages;
mod pattern;
mod pending;
mod registration;
mod segment;
mod sleep;
mod taking;
mod team;
mod threads;
mod wake;

pub use log::{Got, Log};

use std::{process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Trial};

use crate::{Caps, Conduit, Message, Rank, Sent};

/// A conduit under test.
pub trait Fixture: Send + Sync {
    /// Conduits of a fresh job of so many ranks, connected, in the order of their ranks.
    fn start(&self, ranks: u32) -> Vec<Arc<dyn Conduit>>;

    /// Most ranks it can start.
    fn most_ranks(&self) -> u32 {
        70
    }

    /// Whether a message that was taken by [`Conduit::send`] has arrived when that returns,
    /// so that the peer's next [`Conduit::drain`] must deliver it.
    fn arrives_at_once(&self) -> bool {
        false
    }

    /// Whether the ranks take turns: who waits for another must call the conduit then, for the
    /// other does nothing meanwhile.
    fn takes_turns(&self) -> bool {
        false
    }

    /// By what the rounds of what is tried many times are divided: a network that is emulated
    /// takes its time.
    fn slowness(&self) -> u32 {
        1
    }

    /// Makes `from` send `to` something that follows no rule; `false` if it has no way to.
    fn misbehave(&self, from: &dyn Conduit, to: Rank) -> bool {
        let _ = (from, to);
        false
    }
}

/// One promise of the contract.
#[derive(Clone, Copy)]
pub struct Check {
    /// What a test of it is called.
    pub name: &'static str,
    /// The promise.
    pub description: &'static str,
    /// Whether it applies to a conduit of such capabilities.
    pub applies: fn(&Caps) -> bool,
    /// Tries it; panics if it is not kept.
    pub run: fn(&dyn Fixture),
}

impl Check {
    const fn new(name: &'static str, description: &'static str, run: fn(&dyn Fixture)) -> Self {
        Self {
            name,
            description,
            applies: |_| true,
            run,
        }
    }

    /// Only for conduits whose segments are reached without registration.
    const fn segment(mut self) -> Self {
        self.applies = |caps| caps.registration.is_none();
        self
    }

    /// Only for conduits whose NIC wants memory registered.
    const fn registering(mut self) -> Self {
        self.applies = |caps| caps.registration.is_some();
        self
    }

    /// Only for conduits whose NIC takes the data of small writes along.
    const fn inline(mut self) -> Self {
        self.applies = |caps| (caps.registration.as_ref()).is_some_and(|it| it.inline > 0);
        self
    }

    /// Only for networks that have atomic operations.
    const fn atomic(mut self) -> Self {
        self.applies = |caps| caps.atomics.is_some();
        self
    }

    /// Only for conduits that reach any address.
    const fn any_address(mut self) -> Self {
        self.applies = |caps| caps.any_address;
        self
    }
}

/// What a [fixture](Fixture::misbehave) of a conduit can do that has kinds of its own, from
/// [`Message::KINDS`] on: sends one of each, with arguments that none of them has.
///
/// # Panics
/// If the conduit refuses them.
pub fn send_unknown_kinds(from: &dyn Conduit, to: Rank) -> bool {
    (Message::KINDS..16).all(|kind| {
        let message = Message {
            kind,
            tag: 7,
            args: &[1, 2],
            payload: &[3],
        };
        from.send(to, &message).expect("within the limits") == Sent::Yes
    })
}

/// Every check there is.
pub fn checks() -> Vec<Check> {
    [
        basics::CHECKS,
        segment::CHECKS,
        access::CHECKS,
        extents::CHECKS,
        registration::CHECKS,
        atomics::CHECKS,
        pending::CHECKS,
        messages::CHECKS,
        taking::CHECKS,
        flow::CHECKS,
        threads::CHECKS,
        sleep::CHECKS,
        wake::CHECKS,
        endings::CHECKS,
        malformed::CHECKS,
    ]
    .concat()
}

/// Shows every check of fixtures that cannot be had here as ignored, and says why.
pub fn ignored(fixtures: &[&str], why: &str) -> ExitCode {
    eprintln!("ignored: {why}");
    let trials = (fixtures.iter())
        .flat_map(|fixture| checks().into_iter().map(move |check| (fixture, check)))
        .map(|(fixture, check)| {
            Trial::test(format!("{fixture}::{}", check.name), || Ok(())).with_ignored_flag(true)
        });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// Runs every check on every fixture, as tests named `fixture::check`, with the arguments of
/// a test binary. A check that does not apply to a fixture is shown as ignored.
pub fn main(fixtures: Vec<(&'static str, Box<dyn Fixture>)>) -> ExitCode {
    let mut trials = Vec::new();
    for (fixture_name, fixture) in fixtures {
        let fixture: Arc<dyn Fixture> = fixture.into();
        let caps = fixture.start(1)[0].caps().clone();
        for check in checks() {
            let fixture = Arc::clone(&fixture);
            let trial = Trial::test(format!("{fixture_name}::{}", check.name), move || {
                eprintln!("{}: {}", check.name, check.description);
                (check.run)(&*fixture);
                Ok(())
            });
            trials.push(trial.with_ignored_flag(!(check.applies)(&caps)));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
