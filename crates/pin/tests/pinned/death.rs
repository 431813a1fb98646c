//! Tests of ranks that are killed while data moves.

use hydrant_conduit::{Conduit, Error, Permission, Posted, Rank, Standing, conformance::Log};
use hydrant_testing::family::Child;

use super::{MappedPages, format_remote, parse_remote, pinned_pages, post_get, post_put, put};

/// Pages of a transfer: several pieces, and more than a pipe holds.
const PAGES: usize = 256;
const VICTIM: Rank = Rank(2);

/// Rank 2 is killed while the others write to it and read from it, many operations at once. Each
/// operation ends once, and the others continue to reach each other.
pub(crate) fn kill_the_target(conduit: &dyn Conduit, child: &mut Child) {
    let log = &mut Log::new();
    let (memory, buffer) = (MappedPages::new(PAGES), MappedPages::new(PAGES));
    let key = memory
        .register(conduit, Permission::ReadWrite)
        .expect("room");
    let local = buffer
        .register(conduit, Permission::ReadWrite)
        .expect("room");
    let places = child.exchange(&format_remote(memory.remote(key)));
    if conduit.rank() == VICTIM {
        // The victim's application does nothing.
        loop {
            std::thread::park();
        }
    }
    let there = parse_remote(&places[VICTIM.index()]);
    put(log, conduit, VICTIM, there, buffer, local).expect("alive");
    child.say("waiting");
    let mut lost = 0;
    while lost == 0 {
        let mut posted = 0;
        for number in 0..12 {
            let one = if number % 3 == 0 {
                post_get(conduit, VICTIM, there, buffer, local)
            } else {
                post_put(conduit, VICTIM, there, buffer, local)
            };
            match one {
                Ok(Posted::Pending(_)) => posted += 1,
                Err(Error::PeerLost(VICTIM)) => lost += 1,
                other => panic!("{other:?}"),
            }
        }
        log.until(conduit, |log| log.ended.len() == posted);
        for (_, end) in log.ended.drain(..) {
            match end {
                Ok(()) => {}
                Err(Error::PeerLost(VICTIM)) => lost += 1,
                Err(other) => panic!("{other}"),
            }
        }
    }
    log.until(conduit, |_| conduit.standing(VICTIM) == Standing::Lost);
    let other = Rank(1 - conduit.rank().0);
    let there = parse_remote(&places[other.index()]);
    buffer.fill(5);
    let done = put(log, conduit, other, there, buffer, local);
    done.expect("the other lives");
    log.until(conduit, |_| memory.all_bytes_are(5));
    note_survival(child);
    assert_eq!(pinned_pages(), 2 * PAGES);
    conduit.deregister(key).expect("in force");
    conduit.deregister(local).expect("in force");
    assert_eq!(pinned_pages(), 0, "something is left pinned");
}

/// Reports survival, and waits for the other survivor.
fn note_survival(child: &Child) {
    child.say("survived");
    child.read_line();
}

/// Rank 2 is killed while it writes to and reads from the others, which then deregister their
/// memory. No piece lands in part, and none lands later.
pub(crate) fn kill_the_initiator(conduit: &dyn Conduit, child: &mut Child) {
    let log = &mut Log::new();
    let memory = MappedPages::new(PAGES);
    let key = memory
        .register(conduit, Permission::ReadWrite)
        .expect("room");
    let places = child.exchange(&format_remote(memory.remote(key)));
    if conduit.rank() == VICTIM {
        let buffer = MappedPages::new(PAGES);
        buffer.fill(1);
        let local = buffer
            .register(conduit, Permission::ReadWrite)
            .expect("room");
        loop {
            let mut posted = 0;
            for place in places.iter().take(2).enumerate() {
                let (peer, there) = (Rank(place.0 as u32), parse_remote(place.1));
                for _ in 0..4 {
                    for one in [post_put, post_get] {
                        let one = one(conduit, peer, there, buffer, local);
                        assert!(matches!(one, Ok(Posted::Pending(_))), "{one:?}");
                    }
                    posted += 2;
                }
            }
            log.until(conduit, |log| log.ended.len() == posted);
            log.ended.clear();
        }
    }
    log.until(conduit, |_| memory.all_bytes_are(1));
    child.say("waiting");
    log.until(conduit, |_| conduit.standing(VICTIM) == Standing::Lost);
    conduit.deregister(key).expect("in force");
    assert_eq!(pinned_pages(), 0, "something is left pinned");
    memory.fill(0);
    for _ in 0..100 {
        conduit.poll(log);
        assert!(memory.all_bytes_are(0), "a dead peer wrote");
    }
    note_survival(child);
}
