//! A waiter for a word of memory is told that nothing can change it, also where the network tells late that a request
//! was handled.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use hydrant::{Error, Job, Rank};
use hydrant_conduit::{Conduit, Forward, Message, Sent, Sleeper};
use parking_lot::Mutex;

use crate::support::good;

/// The time after a request in which the network does not count it as handled. The waiter looks many times meanwhile.
const LATE: Duration = Duration::from_millis(5);

struct Late {
    below: Box<dyn Conduit>,
    /// The time of the last request to each rank.
    sent: Mutex<HashMap<u32, Instant>>,
}

// SAFETY: every call is handed on to a conduit that keeps the contract. A request counts as handled later, and a wait
// may end early.
unsafe impl Forward for Late {
    fn inner(&self) -> &dyn Conduit {
        &*self.below
    }

    fn send(&self, to: Rank, message: &Message<'_>) -> Result<Sent, hydrant_conduit::Error> {
        let sent = self.below.send(to, message);
        if let Ok(Sent::Yes) = sent {
            self.sent.lock().insert(to.0, Instant::now());
        }
        sent
    }

    fn handled(&self, peer: Rank) -> (u64, u64) {
        let (handled, sent) = self.below.handled(peer);
        let last = self.sent.lock().get(&peer.0).copied();
        match last.is_some_and(|last| last.elapsed() < LATE) {
            true => (handled.min(sent.saturating_sub(1)), sent),
            false => (handled, sent),
        }
    }

    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        let soon = timeout.map_or(LATE, |timeout| timeout.min(LATE));
        self.below.wait(sleeper, Some(soon), ready);
    }
}

#[test_on(shared)]
fn who_waits_for_a_word_is_told_however_late_requests_count() {
    let builder = Job::builder().expect("the settings are valid");
    let builder = builder.heap(1 << 20).through(|below| {
        Box::new(Late {
            below,
            sent: Mutex::default(),
        })
    });
    good(builder.run_local(2, |job| {
        let memory = job.alloc::<u64>(1)?;
        job.barrier()?;
        if job.rank() == Rank(0) {
            let told = job.wait_until(&memory, 0, |word| word == 1);
            assert!(matches!(told, Err(Error::OthersEnded { .. })), "{told:?}");
        }
        Ok(())
    }));
}
