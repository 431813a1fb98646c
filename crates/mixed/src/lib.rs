//! The conduit of a job on several hosts: ranks of one host are joined by one conduit, the
//! *intra-node* one, ranks of different hosts by another, the *inter-node* one.
//!
//! | what | which conduit |
//! |---|---|
//! | segments, their windows and wake words | intra-node: the inter-node one registers segments like any other memory |
//! | messages, wakes and notifications | intra-node to ranks of this host, inter-node to the others |
//! | `post`, `register`, `deregister` | inter-node, to ranks of this host through its loopback |
//! | own memory under `Key::ANY` | inter-node, which lets the processor copy |
//! | polls | both, the intra-node one first |
//! | sleep | intra-node; a thread sleeps in the inter-node one meanwhile and passes on what wakes it (`relay`) |
//! | ends of ranks | both, told once (`standings`) |
//!
//! [`window`](hydrant_conduit::Segments::window) says which peers' memory is mapped: the layers
//! above store there directly, and send messages to other peers. So an atomic word is only changed
//! by processors of its owner's host: by ranks there, which map it, or by its owner on behalf of
//! others.
//!
//! A NIC, which may not be coherent with the processors, never changes such a word. The inter-node conduit
//! registers segments like any other memory, and serves exposed buffers of the same host through its loopback.

mod limits;
mod mates;
mod mixed;
mod relay;
mod standings;

pub use mixed::Mixed;
