//! The conduit of a job on several hosts: ranks of one host are joined by one conduit, the
//! *near* one, ranks of different hosts by another, the *far* one.
//!
//! | what | which conduit |
//! |---|---|
//! | segments, their windows and doors | near: the far one registers near memory like any other |
//! | messages, wakes and rings | near to ranks of this host, far to the others |
//! | `write`, `read`, `register`, `deregister` | far, to ranks of this host through its loopback |
//! | own memory under `Key::ANY` | far, which lets the processor copy |
//! | polls | both, the near one first |
//! | sleep | near; a thread sleeps in the far one meanwhile and passes on what wakes it (`relay`) |
//! | ends of ranks | both, told once (`standings`) |
//!
//! [`window`](hydrant_conduit::Segments::window) says which peers' memory is mapped: the layers above
//! store there directly, and send messages to other peers. So an atomic word is only changed by
//! processors of its owner's host: by ranks there, which map it, or by its owner on behalf of others.

mod limits;
mod mates;
mod mixed;
mod relay;
mod standings;

pub use mixed::Mixed;
