//! The conduit of a job on several hosts. One conduit, the *intra-node* one, joins ranks of the
//! same host. Another, the *inter-node* one, joins ranks of different hosts.
//!
//! | service | conduit |
//! |---|---|
//! | segments, their windows and wake words | intra-node. The inter-node conduit registers segments as ordinary memory |
//! | messages, wakes and notifications | intra-node to ranks of this host, inter-node to the others |
//! | `post`, `register`, `deregister` | inter-node, through its loopback to ranks of this host |
//! | local memory under `Key::ANY` | inter-node, where the processor copies |
//! | polls | both, the intra-node one first |
//! | sleep | intra-node. A thread sleeps in the inter-node one and passes its wakes on (`relay`) |
//! | ends of ranks | both, reported once (`standings`) |
//!
//! [`window`](hydrant_conduit::Segments::window) tells which peers' memory is mapped. The layers
//! above store there directly, and send messages to other peers. Only processors of its owner's
//! host therefore change an atomic word. They belong to ranks that map the word, or to its owner on
//! behalf of others.
//!
//! A NIC, which may not be coherent with the processors, never changes such a word. The inter-node
//! conduit registers segments as ordinary memory, and serves exposed buffers of the same host
//! through its loopback.

mod limits;
mod mates;
mod mixed;
mod relay;
mod standings;

pub use mixed::Mixed;
