//! A sink that records its deliveries.

use std::time::{Duration, Instant};

use crate::{Conduit, Delivery, Error, Message, Posted, Rank, ReplyPort, Sink, Sleeper, Ticket};

use super::GUARD;

/// The length of each sleep of a waiter.
const NAP: Duration = Duration::from_millis(1);

/// A message that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Got {
    /// The sender.
    pub from: Rank,
    /// As in [`Message::kind`].
    pub kind: u8,
    /// As in [`Message::tag`].
    pub tag: u16,
    /// As in [`Message::args`].
    pub args: Vec<u64>,
    /// As in [`Message::payload`].
    pub payload: Vec<u8>,
}

impl Got {
    /// Returns the message that must arrive when `from` sends `message`.
    pub fn expected(from: Rank, message: &Message<'_>) -> Self {
        Self {
            from,
            kind: message.kind,
            tag: message.tag,
            args: message.args.to_vec(),
            payload: message.payload.to_vec(),
        }
    }
}

impl From<&Delivery<'_>> for Got {
    fn from(delivery: &Delivery<'_>) -> Self {
        Self {
            from: delivery.from,
            kind: delivery.kind,
            tag: delivery.tag,
            args: delivery.args.to_vec(),
            payload: delivery.payload.to_vec(),
        }
    }
}

/// An additional action for each request.
type RequestHandler<'a> = Box<dyn FnMut(&Delivery<'_>, &mut dyn ReplyPort) + 'a>;

/// The deliveries to a rank, in order.
#[derive(Default)]
pub struct Log<'a> {
    /// Requests that arrived.
    pub requests: Vec<Got>,
    /// Replies that arrived.
    pub replies: Vec<Got>,
    /// Writes with local completion.
    pub local: Vec<Ticket>,
    /// The outcomes of operations, until they are [taken](Self::take).
    pub ended: Vec<(Ticket, Result<(), Error>)>,
    /// Messages that broke a rule.
    pub malformed: Vec<Error>,
    /// An additional action for each request.
    handler: Option<RequestHandler<'a>>,
}

impl<'a> Log<'a> {
    /// Makes a log that does not reply.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a log that calls `handler` for each request.
    pub fn handling(handler: impl FnMut(&Delivery<'_>, &mut dyn ReplyPort) + 'a) -> Self {
        Self {
            handler: Some(Box::new(handler)),
            ..Self::default()
        }
    }

    /// Makes a log that replies with the request itself.
    ///
    /// # Panics
    /// In a handler, if the conduit refuses the reply.
    pub fn echoing() -> Self {
        Self::handling(|delivery, port| {
            let message = Message {
                kind: delivery.kind,
                tag: delivery.tag,
                args: delivery.args,
                payload: delivery.payload,
            };
            port.reply(&message).expect("a reply within the limits");
        })
    }

    /// Returns the outcome of a pending operation, if it has ended.
    pub fn outcome(&self, ticket: Ticket) -> Option<Result<(), Error>> {
        let (_, outcome) = self.ended.iter().find(|(ended, _)| *ended == ticket)?;
        Some(outcome.clone())
    }

    /// Like [`outcome`](Self::outcome), and removes the outcome.
    pub fn take(&mut self, ticket: Ticket) -> Option<Result<(), Error>> {
        let at = self.ended.iter().position(|(ended, _)| *ended == ticket)?;
        Some(self.ended.swap_remove(at).1)
    }

    /// Polls until `done`, asleep most of the time.
    ///
    /// # Panics
    /// If that takes longer than any operation here.
    pub fn until(&mut self, conduit: &dyn Conduit, mut done: impl FnMut(&mut Self) -> bool) {
        let since = Instant::now();
        while !done(self) {
            let hangs = since.elapsed() > GUARD;
            assert!(!hangs, "rank {} hangs", conduit.rank());
            if conduit.poll(self) == 0 {
                conduit.wait(Sleeper::Application, Some(NAP), &mut || false);
            }
        }
    }

    /// Waits for the end of a posted operation and returns its outcome.
    ///
    /// # Errors
    /// The error with which the operation was refused, or ended.
    ///
    /// # Panics
    /// If the operation does not end.
    pub fn end(
        &mut self,
        conduit: &dyn Conduit,
        posted: Result<Posted, Error>,
    ) -> Result<(), Error> {
        let Posted::Pending(ticket) = posted? else {
            return Ok(());
        };
        let mut outcome = None;
        self.until(conduit, |log| {
            outcome = log.take(ticket);
            outcome.is_some()
        });
        outcome.unwrap_or(Ok(()))
    }

    /// Returns the requests of `from`.
    pub fn requests_of(&self, from: Rank) -> Vec<&Got> {
        self.requests
            .iter()
            .filter(|got| got.from == from)
            .collect()
    }
}

impl Sink for Log<'_> {
    fn request(&mut self, delivery: Delivery<'_>, port: &mut dyn ReplyPort) {
        self.requests.push(Got::from(&delivery));
        if let Some(handler) = &mut self.handler {
            handler(&delivery, port);
        }
    }

    fn reply(&mut self, delivery: Delivery<'_>) {
        self.replies.push(Got::from(&delivery));
    }

    fn local(&mut self, ticket: Ticket) {
        self.local.push(ticket);
    }

    fn complete(&mut self, ticket: Ticket, result: Result<(), Error>) {
        self.ended.push((ticket, result));
    }

    fn malformed(&mut self, error: Error) {
        self.malformed.push(error);
    }
}
