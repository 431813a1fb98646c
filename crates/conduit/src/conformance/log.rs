//! A sink that writes down what it is handed.

use crate::{Delivery, Error, Message, Rank, ReplyPort, Sink, Ticket};

/// A message that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Got {
    pub(super) from: Rank,
    pub(super) kind: u8,
    pub(super) tag: u16,
    pub(super) args: Vec<u64>,
    pub(super) payload: Vec<u8>,
}

impl Got {
    /// What must arrive when `from` sends `message`.
    pub(super) fn expected(from: Rank, message: &Message<'_>) -> Self {
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

/// What a request's handler does beside being written down.
pub(super) type Handler<'a> = Box<dyn FnMut(&Delivery<'_>, &mut dyn ReplyPort) + 'a>;

/// What a rank was handed, in order.
#[derive(Default)]
pub(super) struct Log<'a> {
    pub(super) requests: Vec<Got>,
    pub(super) replies: Vec<Got>,
    pub(super) local: Vec<Ticket>,
    pub(super) ended: Vec<(Ticket, Result<(), Error>)>,
    pub(super) malformed: Vec<Error>,
    handler: Option<Handler<'a>>,
}

impl<'a> Log<'a> {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn handling(handler: impl FnMut(&Delivery<'_>, &mut dyn ReplyPort) + 'a) -> Self {
        Self {
            handler: Some(Box::new(handler)),
            ..Self::default()
        }
    }

    /// A log whose handlers reply with the request itself.
    pub(super) fn echoing() -> Self {
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

    /// How a pending operation ended, if it did.
    pub(super) fn outcome(&self, ticket: Ticket) -> Option<Result<(), Error>> {
        let (_, outcome) = self.ended.iter().find(|(ended, _)| *ended == ticket)?;
        Some(outcome.clone())
    }

    /// Requests that `from` sent.
    pub(super) fn requests_of(&self, from: Rank) -> Vec<&Got> {
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
