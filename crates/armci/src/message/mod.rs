//! Messages between processes, and collectives over any list of processes: what ARMCI programs use
//! beside MPI, or instead of it.
//!
//! A message is taken along when it is sent, and kept at its receiver until that asks for it.

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
pub use scopes::{Scope, Tree};

use crate::{Armci, Error, Result, memory::Memory};

/// Whose messages those of programs are.
const PROGRAM: u64 = 0;
/// Of the processes of a node; of nodes' masters; of processes that make a group.
pub(crate) const NODE: u64 = 1;
pub(crate) const MASTERS: u64 = 2;
pub(crate) const GROUPS: u64 = 3;
/// Of all processes together.
pub(crate) const ALL: u64 = 4;

/// What is sent and received.
pub(crate) struct Messages {
    job: hydrant::WeakJob,
    handler: Handler,
    inbox: Arc<Inbox>,
    /// The number of the last message sent.
    last: AtomicU64,
}

/// What arrived and was not asked for yet.
struct Inbox {
    state: Mutex<Arrived>,
    /// How many messages arrived, in this process's memory.
    count: Symmetric<u64>,
    me: hydrant::Rank,
}

#[derive(Default)]
struct Arrived {
    whole: VecDeque<Letter>,
    /// Messages of which some is missing, by sender and number.
    parts: FxHashMap<(usize, u64), Letter>,
    count: u64,
}

struct Letter {
    context: u64,
    tag: i64,
    from: usize,
    bytes: Vec<u8>,
}

impl Messages {
    /// Collective.
    pub(crate) fn new(job: &Job) -> Result<Arc<Self>> {
        let inbox = Arc::new(Inbox {
            state: Mutex::default(),
            count: job.alloc(1)?,
            me: job.rank(),
        });
        let arrived = Arc::clone(&inbox);
        let handler = job.handler(move |context, args, payload| {
            if let &[belongs, tag, number, bytes] = args {
                let head = (belongs, tag as i64, number, bytes as usize);
                arrived.take(context.source().index(), head, payload);
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

    /// Waits for the next message of a sender, or of any: who sent it, and its bytes.
    ///
    /// # Errors
    /// [`Error::Hydrant`], among others if the sender's program came to its end and no message of it is left.
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
                // The wait below tells of a loss when it has looked at what the process sent before.
                _ => Ok(()),
            },
            None => Ok(()),
        };
        loop {
            // Read before the look at the messages: whatever was sent before the end has arrived by then.
            let present = is_present();
            let seen = {
                let mut state = self.inbox.state.lock();
                let wanted = |it: &Letter| {
                    (it.context, it.tag) == (context, tag)
                        && from.is_none_or(|from| from == it.from)
                };
                if let Some(at) = state.whole.iter().position(wanted)
                    && let Some(letter) = state.whole.remove(at)
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

impl Inbox {
    /// A piece of a message arrived; the pieces of a sender come in order.
    fn take(
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
        state.whole.push_back(letter);
        state.count += 1;
        // Under the lock, so that it only grows. Whoever waits for it is notified; a job that is over
        // has nobody who does.
        let _ = self.count.put_value(self.me, 0, state.count);
    }
}

impl Armci {
    /// Sends bytes to a process, which may be this one. They are free when this returns. ARMCI's
    /// `armci_msg_snd`.
    ///
    /// # Errors
    /// [`Error::NoProcess`], [`Error::Hydrant`].
    pub fn send(&self, tag: i32, bytes: &[u8], to: i32) -> Result<()> {
        let to = self.memory.process(to)?;
        self.messages.send(PROGRAM, tag.into(), bytes, to)
    }

    /// Waits for the next message with a tag from a process, or from any: who sent it, and how many bytes
    /// of `into` it fills. ARMCI's `armci_msg_rcv` and `armci_msg_rcvany`.
    ///
    /// # Errors
    /// [`Error::NoProcess`], [`Error::Hydrant`]; [`Error::Truncated`] if it is longer: it is gone then.
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
