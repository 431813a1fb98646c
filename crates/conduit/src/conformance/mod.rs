//! The one suite that every conduit passes.
//!
//! A [`ContractCheck`] tests one promise of the [contract](crate::Conduit). A [`Fixture`] starts
//! connected conduits as ranks of this process, and a thread drives each rank. Each side computes
//! the expected data itself. The `main` of a test target without harness in the conduit's crate is
//! one call of [`main`]:
//!
//! ```no_run
//! use std::{process::ExitCode, sync::Arc};
//!
//! use hydrant_conduit::{Conduit, conformance::{self, Fixture}};
//!
//! struct Plain;
//!
//! impl Fixture for Plain {
//!     fn start(&self, ranks: u32) -> Vec<Arc<dyn Conduit>> {
//!         connected(ranks)
//!     }
//! }
//! # fn connected(_: u32) -> Vec<Arc<dyn Conduit>> { Vec::new() }
//!
//! fn main() -> ExitCode {
//!     conformance::main(vec![("plain", Box::new(Plain))])
//! }
//! ```
//!
//! Ranks wait only by calls of their conduit, so that an implementation may let them take turns. No
//! check asserts a time. A guard of many seconds ends a check that hangs.

#![allow(unsafe_code)] // registers, writes and reads memory, only in `memory`

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

use std::{process::ExitCode, sync::Arc, time::Duration};

use libtest_mimic::{Arguments, Trial};

use crate::{Caps, Conduit, Message, Rank, Sent};

/// The time after which a check counts as hanging.
const GUARD: Duration = Duration::from_secs(40);

/// A conduit under test.
pub trait Fixture: Send + Sync {
    /// Returns the connected conduits of a new job of this many ranks, in the order of ranks.
    fn start(&self, ranks: u32) -> Vec<Arc<dyn Conduit>>;

    /// The most ranks that it can start.
    fn most_ranks(&self) -> u32 {
        70
    }

    /// Returns true if a message has arrived when [`Conduit::send`] returns, so that the peer's
    /// next [`Conduit::drain`] must deliver it.
    fn arrives_at_once(&self) -> bool {
        false
    }

    /// Returns true if the ranks take turns. A rank that waits for another must then call the
    /// conduit, because the other does nothing meanwhile.
    fn takes_turns(&self) -> bool {
        false
    }

    /// The divisor of the rounds of repeated operations, for slow, emulated networks.
    fn slowness(&self) -> u32 {
        1
    }

    /// Returns true if an access with own memory that is not mapped any more is an error. Elsewhere the caller must not
    /// make one.
    fn misses_own_memory(&self) -> bool {
        false
    }

    /// Makes `from` send a malformed message to `to`. Returns `false` if it cannot.
    fn misbehave(&self, from: &dyn Conduit, to: Rank) -> bool {
        let _ = (from, to);
        false
    }
}

/// A test of one promise of the contract.
#[derive(Clone, Copy)]
pub struct ContractCheck {
    /// The name of the test.
    pub name: &'static str,
    /// The promise.
    pub description: &'static str,
    /// Returns true if the check applies to a conduit with these capabilities.
    pub applies: fn(&Caps) -> bool,
    /// Tests the promise, and panics if it is broken.
    pub run: fn(&dyn Fixture),
}

impl ContractCheck {
    const fn new(name: &'static str, description: &'static str, run: fn(&dyn Fixture)) -> Self {
        Self {
            name,
            description,
            applies: |_| true,
            run,
        }
    }

    /// Restricts the check to conduits whose segments need no registration.
    const fn segment(mut self) -> Self {
        self.applies = |caps| caps.registration.is_none();
        self
    }

    /// Restricts the check to conduits whose NIC needs registered memory.
    const fn registering(mut self) -> Self {
        self.applies = |caps| caps.registration.is_some();
        self
    }

    /// Restricts the check to conduits whose registrations follow the mapping.
    const fn following(mut self) -> Self {
        self.applies = |caps| (caps.registration.as_ref()).is_some_and(|it| it.follows_mapping);
        self
    }

    /// Restricts the check to conduits whose NIC sends small writes inline.
    const fn inline(mut self) -> Self {
        self.applies = |caps| (caps.registration.as_ref()).is_some_and(|it| it.inline > 0);
        self
    }

    /// Restricts the check to networks with atomic operations.
    const fn atomic(mut self) -> Self {
        self.applies = |caps| caps.atomics.is_some();
        self
    }

    /// Restricts the check to conduits that reach any address.
    const fn any_address(mut self) -> Self {
        self.applies = |caps| caps.any_address;
        self
    }
}

/// Implements [`Fixture::misbehave`] for a conduit with kinds of its own, from [`Message::KINDS`]
/// on. Sends one message of each, with arguments that none of them has.
///
/// # Panics
/// If the conduit refuses the messages.
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

/// Returns all checks.
pub fn checks() -> Vec<ContractCheck> {
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

/// Lists every check of fixtures that are unavailable here as ignored, and prints the reason.
pub fn ignored(fixtures: &[&str], why: &str) -> ExitCode {
    eprintln!("ignored: {why}");
    let trials = (fixtures.iter())
        .flat_map(|fixture| checks().into_iter().map(move |check| (fixture, check)))
        .map(|(fixture, check)| {
            Trial::test(format!("{fixture}::{}", check.name), || Ok(())).with_ignored_flag(true)
        });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// Runs every check on every fixture, as tests named `fixture::check`, with the arguments of a test
/// binary. A check that does not apply to a fixture is listed as ignored.
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
