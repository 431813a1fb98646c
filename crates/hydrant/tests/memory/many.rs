//! Thousands of exposed buffers, taken back in any order.

use hydrant::{Error, Exposed, GlobalPtr, Rank};

use crate::support::{builder, good};

const BUFFERS: usize = 1500;
const ELEMENTS: usize = 70;
const ROUNDS: usize = 3;

/// Every number once, in an order that depends on the round.
fn shuffled(round: usize) -> impl Iterator<Item = usize> {
    (0..BUFFERS).map(move |number| (number * 1009 + round * 77) % BUFFERS)
}

/// What the buffer in a place holds.
fn contents(place: usize, round: usize) -> u64 {
    (place * 10 + round) as u64
}

/// Rank 0 takes back every other buffer in each round and exposes new ones; rank 1 finds those
/// that stay and those that are new, and no others.
#[test_on(real)]
fn each_pointer_reaches_its_own_buffer_or_none() {
    good(builder().run_local(2, |job| {
        let board = job.alloc::<GlobalPtr<u64>>(BUFFERS)?;
        let mut lent: Vec<Option<Exposed<'static, u64>>> = Vec::new();
        lent.resize_with(BUFFERS, || None);
        // In which round each was exposed.
        let mut since = vec![0; BUFFERS];
        let mut stale: Vec<GlobalPtr<u64>> = Vec::new();
        for round in 0..ROUNDS {
            let goes = |place: usize| round == 0 || (place + round).is_multiple_of(2);
            for place in shuffled(round).filter(|place| goes(*place)) {
                if job.rank() == Rank(0) {
                    let before = lent[place].take().map(Exposed::take_back);
                    if let Some(before) = before {
                        let last = contents(place, since[place]);
                        assert!(before.iter().all(|element| *element == last));
                    }
                    let new = job.expose(vec![contents(place, round); ELEMENTS])?;
                    board.put_value(Rank(1), place, new.pointer(0)?)?;
                    lent[place] = Some(new);
                }
                since[place] = round;
            }
            job.barrier()?;
            if job.rank() == Rank(1) {
                let pointers = board.local()?.to_vec();
                for place in shuffled(round + 1) {
                    let mut got = [0; ELEMENTS];
                    job.get_from(pointers[place], &mut got)?;
                    assert_eq!(got, [contents(place, since[place]); ELEMENTS], "{place}");
                }
                for pointer in &stale {
                    let gone = job.get_from(*pointer, &mut [0]);
                    assert!(
                        matches!(gone, Err(Error::Revoked { rank: Rank(0) })),
                        "{gone:?}"
                    );
                }
                let going = |place: &usize| (place + round + 1).is_multiple_of(2);
                stale.extend((0..BUFFERS).filter(going).map(|place| pointers[place]));
            }
            job.barrier()?;
        }
        for place in shuffled(ROUNDS) {
            drop(lent[place].take());
        }
        job.barrier()
    }));
}
