//! The end: all ranks check everything once more, and no rank leaves before all survivors are done.

use std::{thread, time::Duration};

use hydrant::{Rank, Symmetric};

use super::{die::RankPhase, field::Field, log::RankLog, messages::HammerMessages};

/// The pause between two checks whether the others are done.
const PAUSE: Duration = Duration::from_millis(5);

/// Checks all that this rank wrote and sent, on surviving ranks.
pub(crate) fn check_all(log: &mut RankLog, field: &mut Field, messages: &HammerMessages) {
    field.check_all(log);
    messages.check_all(log);
}

/// Tells all others that this rank is done, and waits until each of them is done or lost.
pub(crate) fn take_leave(log: &mut RankLog, done: &Symmetric<u64>) {
    let own = log.rank();
    let others: Vec<Rank> = log.others().collect();
    for rank in others {
        let _ = log.attempt(RankPhase::Request, |_| done.put_value(rank, own.index(), 1));
    }
    let is_done = |rank: Rank| {
        let word = done.local().and_then(|words| words.load(rank.index()));
        word.is_ok_and(|word| word == 1)
    };
    loop {
        let waiting: Vec<Rank> = log.others().filter(|rank| !is_done(*rank)).collect();
        if waiting.is_empty() {
            return;
        }
        for rank in waiting {
            let ask = || done.get_value(rank, own.index());
            // The peer may have finished and left after the check.
            log.ping(rank, ask, || is_done(rank));
        }
        thread::sleep(PAUSE);
    }
}
