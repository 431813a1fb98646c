//! Messages between processes, and collectives over any list of processes. ARMCI programs use them
//! beside MPI, or instead of it.
//!
//! A message is copied when it is sent. Its receiver keeps it until the program asks for it.

mod circle;
mod reduction;
mod scopes;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use hydrant::{Handler, Job, Symmetric};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

pub(crate) use circle::Circle;
pub use reduction::{Element, Reduction};
pub use scopes::{MessageScope, Tree};

use crate::{Armci, Error, Result, memory::Memory};

/// The context of the program's own messages.
const PROGRAM: u64 = 0;
/// The context of the processes of a node.
pub(crate) const NODE: u64 = 1;
/// The context of the nodes' masters.
pub(crate) const MASTERS: u64 = 2;
/// The context of processes that make a group.
pub(crate) const GROUPS: u64 = 3;
/// The context of all processes.
pub(crate) const ALL: u64 = 4;

/// Sends and receives messages.
pub(crate) struct MessagePassing {
    job: hydrant::WeakJob,
    handler: Handler,
    inbox: Arc<MessageInbox>,
    /// The number of the last message sent.
    last: AtomicU64,
}

/// The messages that arrived and were not received yet.
struct MessageInbox {
    state: Mutex<Arrived>,
    /// The number of messages that arrived, in this process's memory, so that a waiter is notified.
    count: Symmetric<u64>,
    me: hydrant::Rank,
}

#[derive(Default)]
struct Arrived {
    complete: VecDeque<Letter>,
    /// Incomplete messages, by sender and number.
    parts: FxHashMap<(usize, u64), Letter>,
    count: u64,
}

/// A message that arrived.
struct Letter {
    context: u64,
    tag: i64,
    from: usize,
    bytes: Vec<u8>,
}

impl MessagePassing {
    /// Collective.
    pub(crate) fn new(job: &Job) -> Result<Arc<Self>> {
        let inbox = Arc::new(MessageInbox {
            state: Mutex::default(),
            count: job.alloc(1)?,
            me: job.rank(),
        });
        let arrived = Arc::clone(&inbox);
        let handler = job.handler(move |context, args, payload| {
            if let &[belongs, tag, number, bytes] = args {
                let head = (belongs, tag as i64, number, bytes as usize);
                arrived.add_piece(context.source().index(), head, payload);
            }
        })?;
        Ok(Arc::new(Self {
            job: job.downgrade(),
            handler,
            inbox,
            last: AtomicU64::new(0),
        }))
    }

    /// Sends bytes.
    pub(crate) fn send(&self, context: u64, tag: i64, bytes: &[u8], to: usize) -> Result<()> {
        let job = self.job()?;
        let number = self.last.fetch_add(1, Relaxed);
        let args = [context, tag as u64, number, bytes.len() as u64];
        let most = job.limits().max_medium.max(1);
        let (first, rest) = bytes.split_at(bytes.len().min(most));
        for piece in std::iter::once(first).chain(rest.chunks(most)) {
            job.request_medium(Memory::rank(to), self.handler, &args, piece)?;
        }
        Ok(())
    }

    /// Waits for the next message from `from`, or from any process. Returns the sender and the
    /// bytes.
    ///
    /// # Errors
    /// [`Error::Hydrant`], for example if the sender's program ended and none of its messages is
    /// left.
    pub(crate) fn receive(
        &self,
        context: u64,
        tag: i64,
        from: Option<usize>,
    ) -> Result<(usize, Vec<u8>)> {
        let job = self.job()?;
        let is_present = || match from {
            Some(from) => match job.check_present(Memory::rank(from)) {
                Err(cause @ hydrant::Error::PeerEnded { .. }) => Err(cause),
                // The wait below reports a lost process, after it has looked at the messages sent
                // before.
                _ => Ok(()),
            },
            None => Ok(()),
        };
        loop {
            // This comes before the look at the messages: a message sent before the process ended
            // has arrived by then.
            let present = is_present();
            let seen = {
                let mut state = self.inbox.state.lock();
                let wanted = |it: &Letter| {
                    (it.context, it.tag) == (context, tag)
                        && from.is_none_or(|from| from == it.from)
                };
                if let Some(at) = state.complete.iter().position(wanted)
                    && let Some(letter) = state.complete.remove(at)
                {
                    return Ok((letter.from, letter.bytes));
                }
                state.count
            };
            present?;
            job.wait_until(&self.inbox.count, 0, |count| {
                count > seen || is_present().is_err()
            })?;
        }
    }

    fn job(&self) -> Result<Job> {
        self.job.upgrade().ok_or(Error::NotInitialized)
    }
}

impl MessageInbox {
    /// Handles a piece of a message. The pieces of a sender arrive in order.
    fn add_piece(
        &self,
        from: usize,
        (context, tag, number, bytes): (u64, i64, u64, usize),
        piece: &[u8],
    ) {
        let mut state = self.state.lock();
        let key = (from, number);
        let mut letter = state.parts.remove(&key).unwrap_or_else(|| Letter {
            context,
            tag,
            from,
            bytes: Vec::with_capacity(bytes.min(1 << 20)),
        });
        letter.bytes.extend_from_slice(piece);
        if letter.bytes.len() < bytes {
            state.parts.insert(key, letter);
            return;
        }
        state.complete.push_back(letter);
        state.count += 1;
        // The count is written under the lock, so it only grows. The write notifies the waiter. A
        // job that is over has no waiter.
        let _ = self.count.put_value(self.me, 0, state.count);
    }
}

impl Armci {
    /// Sends bytes to a process, which may be this one. On return the bytes are free. ARMCI's
    /// `armci_msg_snd`.
    ///
    /// # Errors
    /// [`Error::NoProcess`], [`Error::Hydrant`].
    pub fn send(&self, tag: i32, bytes: &[u8], to: i32) -> Result<()> {
        let to = self.memory.process(to)?;
        self.messages.send(PROGRAM, tag.into(), bytes, to)
    }

    /// Waits for the next message with a tag from a process, or from any process. Returns the
    /// sender and the number of bytes written to `into`. ARMCI's `armci_msg_rcv` and
    /// `armci_msg_rcvany`.
    ///
    /// # Errors
    /// [`Error::NoProcess`], [`Error::Hydrant`]. [`Error::Truncated`] if the message is longer than
    /// `into`: it is dropped then.
    pub fn receive(&self, tag: i32, into: &mut [u8], from: Option<i32>) -> Result<(i32, usize)> {
        let from = from.map(|from| self.memory.process(from)).transpose()?;
        let (from, bytes) = self.messages.receive(PROGRAM, tag.into(), from)?;
        let room = into.len();
        let part = into.get_mut(..bytes.len()).ok_or(Error::Truncated {
            from,
            bytes: bytes.len(),
            room,
        })?;
        part.copy_from_slice(&bytes);
        Ok((from as i32, bytes.len()))
    }
}
