//! Memory of a peer that is set to one value, of any length.

#![allow(unsafe_code)] // implements the contract, to see which memory a job sends

use std::sync::{Arc, Mutex};

use hydrant::Rank;
use hydrant_conduit::{Access, AccessKind, Conduit, Error, Forward, Posted, WakeWord, Window};

use crate::{
    network::shared,
    support::{good, local},
};

/// More than the repeated pattern, of elements that do not divide it.
const LEN: usize = 700_001;

#[test_on(every)]
fn a_fill_sets_its_range_and_nothing_else() {
    local(2, |job| {
        let field = job.alloc::<[u8; 3]>(LEN)?;
        let value = [job.rank().0 as u8 + 1, 7, 9];
        field.fill(job.right(), 2..LEN - 5, value)?;
        field.fill(job.right(), 1..1, [5; 3])?;
        job.barrier()?;
        let theirs = [job.left().0 as u8 + 1, 7, 9];
        for (index, element) in field.local()?.to_vec().into_iter().enumerate() {
            let is_filled = (2..LEN - 5).contains(&index);
            assert_eq!(element, if is_filled { theirs } else { [0; 3] }, "{index}");
        }
        field
            .fill(job.right(), LEN - 1..LEN + 1, value)
            .unwrap_err();
        job.barrier()
    });
}

/// A network that maps no memory of peers, and records the addresses of the memory that it is given.
struct Watched(Box<dyn Conduit>, Arc<Mutex<Vec<(usize, usize)>>>);

// SAFETY: every call is forwarded to a conduit that keeps the contract, which may map less.
unsafe impl Forward for Watched {
    fn inner(&self) -> &dyn Conduit {
        &*self.0
    }

    fn window(&self, peer: Rank) -> Option<&Window> {
        (self.0.window(peer)).filter(|_| peer == self.0.rank())
    }

    fn wake_word(&self, peer: Rank) -> Option<&WakeWord> {
        (self.0.wake_word(peer)).filter(|_| peer == self.0.rank())
    }

    unsafe fn post(&self, access: &Access) -> Result<Posted, Error> {
        if access.kind == AccessKind::Put && access.len > 4096 {
            let start = access.local.addr.addr();
            self.1.lock().unwrap().push((start, start + access.len));
        }
        // SAFETY: the same contract.
        unsafe { self.0.post(access) }
    }
}

#[test]
fn a_fill_takes_no_memory_how_much_it_may_set() {
    const BYTES: usize = 24 << 20;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&seen);
    let builder = shared::builder().heap(32 << 20);
    let builder = builder.through(move |conduit| Box::new(Watched(conduit, Arc::clone(&into))));
    good(builder.run_local(2, |job| {
        let field = job.alloc::<u64>(BYTES / 8)?;
        if job.rank() == Rank(0) {
            field.fill(Rank(1), 0..BYTES / 8, 3)?;
        }
        job.barrier()?;
        let expected = if job.rank() == Rank(0) { 0 } else { 3 };
        assert!(field.local()?.to_vec().iter().all(|it| *it == expected));
        Ok(())
    }));
    let seen = seen.lock().unwrap();
    let sent: usize = seen.iter().map(|(start, end)| end - start).sum();
    assert_eq!(sent, BYTES);
    let start = seen.iter().map(|it| it.0).min().expect("something is sent");
    let end = seen.iter().map(|it| it.1).max().expect("something is sent");
    assert!(
        end - start <= 1 << 20,
        "{} bytes are sent from",
        end - start
    );
}
