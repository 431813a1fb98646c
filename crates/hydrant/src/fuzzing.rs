//! What the fuzzer calls: the code that takes what peers sent, as it ships.

use hydrant_conduit::{Delivery, Error, Message, ReplyPort, Sink};

use crate::{Job, Rank, progress::kind, two_sided};

/// How a message comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// As a request.
    Request,
    /// As the reply to one.
    Reply,
}

/// Hands a message to the job as its conduit would.
pub fn deliver(
    job: &Job,
    arrival: Arrival,
    from: Rank,
    kind: u8,
    tag: u16,
    args: &[u64],
    payload: &[u8],
) {
    let mut arrivals = job.progress().arrivals();
    let delivery = Delivery {
        from,
        kind,
        tag,
        args,
        payload,
    };
    match arrival {
        Arrival::Request => arrivals.request(delivery, &mut Nowhere),
        Arrival::Reply => arrivals.reply(delivery),
    }
}

/// Hands what a peer says of two-sided messages to the job as its conduit would. What can be read is said the
/// same again.
///
/// # Panics
/// If it is not.
pub fn deliver_two_sided(job: &Job, from: Rank, tag: u16, args: &[u64], payload: &[u8]) {
    two_sided::check_message(tag, args, payload);
    let kind = kind::TWO_SIDED;
    deliver(job, Arrival::Request, from, kind, tag, args, payload);
}

/// Takes replies and forgets them.
struct Nowhere;

impl ReplyPort for Nowhere {
    fn reply(&mut self, _: &Message<'_>) -> Result<(), Error> {
        Ok(())
    }
}
