//! A pointer to a buffer that was taken back, and the next buffer at its address.

use std::{thread, time::Duration};

use hydrant::{Error, GlobalPtr, Job, Rank, Result, Strategy, Symmetric};

/// Ways in which an access gets to memory that must be registered.
pub(crate) const STRATEGIES: [Strategy; 8] = [
    Strategy::Firehose,
    Strategy::Bounce,
    Strategy::PinEverything,
    Strategy::Rendezvous { unpin: true },
    Strategy::Rendezvous { unpin: false },
    Strategy::OnDemand { leave_pinned: true },
    Strategy::Pipeline {
        leave_pinned: false,
    },
    Strategy::PinDown,
];

const ELEMENTS: usize = 5000;

/// Puts to what `board` names until its owner says to stop; how often it was refused.
fn hammer(job: &Job, board: &Symmetric<GlobalPtr<u64>>, stop: &Symmetric<u64>) -> Result<u64> {
    let mut refused = 0;
    let data = vec![u64::MAX; ELEMENTS];
    while stop.local()?.load(0)? == 0 {
        let pointer = board.local()?.load(0)?;
        // Short ones are piggybacked on messages, long ones are moved or copied.
        for len in [1, 40, ELEMENTS] {
            match job.put_to(pointer, &data[..len]) {
                Ok(()) => {}
                Err(Error::Revoked { rank: Rank(0) }) => refused += 1,
                Err(other) => return Err(other),
            }
        }
    }
    Ok(refused)
}

/// Rank 0 lends a buffer, takes it back and lends it again, telling nobody: its peers, who never
/// stop to put through the pointer they have, do not reach it.
pub(crate) fn lend_again(job: &Job, rounds: u64) -> Result<u64> {
    let board = job.alloc::<GlobalPtr<u64>>(1)?;
    let stop = job.alloc::<u64>(1)?;
    let tell = |pointer| (1..3).try_for_each(|r| board.put_value(Rank(r), 0, pointer));
    let mut buffer = vec![0_u64; ELEMENTS];
    if job.rank() == Rank(0) {
        let first = job.expose(buffer)?;
        tell(first.pointer(0)?)?;
        buffer = first.take_back().into_vec();
    }
    job.barrier()?;
    let mut refused = 0;
    if job.rank() == Rank(0) {
        for _ in 0..rounds {
            let lent = job.expose(buffer)?;
            tell(lent.pointer(0)?)?;
            pause(job);
            let mut back = lent.take_back();
            back.fill(3);
            let address = back.as_ptr().addr();
            let again = job.expose(back.into_vec())?;
            assert_eq!(again.view().as_ptr().addr(), address, "other memory");
            pause(job);
            buffer = again.take_back().into_vec();
            let now = std::hint::black_box(&buffer);
            assert!(now.iter().all(|element| *element == 3), "reached by chance");
        }
        (1..3).try_for_each(|rank| stop.put_value(Rank(rank), 0, 1))?;
    } else {
        refused = hammer(job, &board, &stop)?;
    }
    job.barrier()?;
    Ok(refused)
}

/// As long as a peer needs to put.
fn pause(job: &Job) {
    match job.settings().conduit.is_virtual() {
        false => thread::sleep(Duration::from_micros(300)),
        true => (0..10).for_each(|_| {
            job.compute(100_000);
            job.poll();
        }),
    }
}
