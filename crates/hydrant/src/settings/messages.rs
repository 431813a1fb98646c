//! The protocols of two-sided messages.

/// The protocol of two-sided messages, for any size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MessageProtocol {
    /// Short messages are sent eagerly and long ones by rendezvous, by the costs of copies and
    /// registrations. If the network needs no registration, all messages are copied.
    #[default]
    Auto,
    /// Messages are copied through the network's own buffers. Long ones are sent in parts, once
    /// they are asked for.
    Eager,
    /// Messages are written into the receiver's buffer. It is registered whole, as is the source.
    Rendezvous,
    /// As `Rendezvous`, in chunks. Each chunk is registered while those before it are in flight
    /// (Woodall; Li §6).
    Pipeline,
}

super::forms::words!(MessageProtocol {
    Auto => "auto",
    Eager => "eager",
    Rendezvous => "rendezvous",
    Pipeline => "pipeline",
});
