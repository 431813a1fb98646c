//! The limits of a message: the tighter limit of the two conduits, whichever of them carries it.

use hydrant_conduit::{Caps, Delivery, Error, Message, ReplyPort, Sink, Ticket};

/// Passes on a conduit's deliveries, with a reply port that checks the limits.
pub(crate) struct Limited<'a> {
    pub(crate) caps: &'a Caps,
    pub(crate) sink: &'a mut dyn Sink,
}

impl Sink for Limited<'_> {
    fn request(&mut self, delivery: Delivery<'_>, port: &mut dyn ReplyPort) {
        let caps = self.caps;
        self.sink.request(delivery, &mut LimitedPort { caps, port });
    }

    fn reply(&mut self, delivery: Delivery<'_>) {
        self.sink.reply(delivery);
    }

    fn local(&mut self, ticket: Ticket) {
        self.sink.local(ticket);
    }

    fn complete(&mut self, ticket: Ticket, result: Result<(), Error>) {
        self.sink.complete(ticket, result);
    }

    fn malformed(&mut self, error: Error) {
        self.sink.malformed(error);
    }
}

struct LimitedPort<'a> {
    caps: &'a Caps,
    port: &'a mut dyn ReplyPort,
}

impl ReplyPort for LimitedPort<'_> {
    fn reply(&mut self, message: &Message<'_>) -> Result<(), Error> {
        self.caps.check(message)?;
        self.port.reply(message)
    }
}
