//! Global procedure calls: a process has another one run a procedure, which answers.
//!
//! Procedures run in a thread of their own, one after the other, so that they may do what any thread may:
//! lock, put and get.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, mpsc},
    task::{Context, Poll, Waker},
    thread,
};

use hydrant::{Function, Job, Rank, Symmetric};
use parking_lot::{Mutex, RwLock};

use crate::{Armci, Error, Result, memory::Memory};

/// What is sent back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// A header.
    pub header: Vec<u8>,
    /// Data.
    pub data: Vec<u8>,
}

/// A procedure: it gets who calls, a header and data, and how long the header and the data of its reply
/// may be.
pub type Procedure = dyn Fn(i32, &[u8], &[u8], [usize; 2]) -> Reply + Send + Sync;

/// What goes there: the procedure's number, a header, data, and how long those of the reply may be.
type Asked = (i32, Vec<u8>, Vec<u8>, [u64; 2]);
/// What comes back, if there is such a procedure.
type Answered = Option<(Vec<u8>, Vec<u8>)>;

/// The procedures of a process.
pub(crate) struct Gpc {
    call: Function<Asked, Answered>,
    procedures: Arc<RwLock<Vec<Option<Arc<Procedure>>>>>,
    /// A lock of each process: 1 while somebody has it.
    locks: Symmetric<u64>,
}

/// A call that waits for its turn.
struct Task {
    from: Rank,
    asked: Asked,
    answer: Arc<Mutex<Answer>>,
}

#[derive(Default)]
struct Answer {
    ready: Option<Answered>,
    waker: Option<Waker>,
}

/// Waits for the answer to a task.
struct Answering(Arc<Mutex<Answer>>);

impl Future for Answering {
    type Output = Answered;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        let mut answer = self.0.lock();
        match answer.ready.take() {
            Some(answered) => Poll::Ready(answered),
            None => {
                answer.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Gpc {
    /// Collective.
    pub(crate) fn new(job: &Job) -> Result<Self> {
        let procedures: Arc<RwLock<Vec<Option<Arc<Procedure>>>>> = Arc::default();
        let known = Arc::clone(&procedures);
        let tasks: Mutex<Option<mpsc::Sender<Task>>> = Mutex::default();
        let call = job.async_function(move |from: Rank, asked: Asked| {
            let answer = Arc::<Mutex<Answer>>::default();
            let task = Task {
                from,
                asked,
                answer: Arc::clone(&answer),
            };
            let mut tasks = tasks.lock();
            // The thread begins with the first call, and ends with the job.
            let sender = tasks.get_or_insert_with(|| start(&known));
            if sender.send(task).is_err() {
                answer.lock().ready = Some(None);
            }
            Answering(answer)
        })?;
        Ok(Self {
            call,
            procedures,
            locks: job.alloc(1)?,
        })
    }
}

/// Starts the thread that runs procedures.
fn start(procedures: &Arc<RwLock<Vec<Option<Arc<Procedure>>>>>) -> mpsc::Sender<Task> {
    let (sender, tasks) = mpsc::channel::<Task>();
    let procedures = Arc::clone(procedures);
    thread::spawn(move || {
        for Task {
            from,
            asked: (number, header, data, lengths),
            answer,
        } in tasks
        {
            let known = usize::try_from(number).ok();
            let known = known.and_then(|at| procedures.read().get(at).cloned().flatten());
            let reply = known.map(|procedure| {
                let lengths = lengths.map(|length| length as usize);
                let mut reply = procedure(from.0 as i32, &header, &data, lengths);
                reply.header.truncate(lengths[0]);
                reply.data.truncate(lengths[1]);
                (reply.header, reply.data)
            });
            let mut answer = answer.lock();
            answer.ready = Some(reply);
            let waker = answer.waker.take();
            drop(answer);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    });
    sender
}

impl Armci {
    /// Registers a procedure: its number, which is the same at all processes if all register the same
    /// ones in the same order. ARMCI's `Gpc_register`.
    pub fn register(&self, procedure: Arc<Procedure>) -> i32 {
        let mut procedures = self.gpc.procedures.write();
        procedures.push(Some(procedure));
        procedures.len() as i32 - 1
    }

    /// Forgets a procedure. ARMCI's `Gpc_release`.
    pub fn release(&self, number: i32) {
        let mut procedures = self.gpc.procedures.write();
        if let Some(known) = usize::try_from(number)
            .ok()
            .and_then(|at| procedures.get_mut(at))
        {
            *known = None;
        }
    }

    /// Has a process run a procedure, and waits for its reply, whose header and data are so long at most.
    /// ARMCI's `Gpc_exec`.
    ///
    /// # Errors
    /// [`Error::NoProcess`], [`Error::Code`] if there is no such procedure, [`Error::Hydrant`].
    pub fn execute(
        &self,
        number: i32,
        proc: i32,
        header: &[u8],
        data: &[u8],
        lengths: [usize; 2],
    ) -> Result<Reply> {
        let rank = Memory::rank(self.memory.process(proc)?);
        let lengths = lengths.map(|length| length as u64);
        let asked = (number, header.to_vec(), data.to_vec(), lengths);
        let answered = self.job.call(rank, &self.gpc.call, &asked)?;
        let (header, data) = answered.ok_or(Error::Code {
            what: "a procedure of that process",
            code: number,
        })?;
        Ok(Reply { header, data })
    }

    /// Takes the lock of a process, if nobody has it. ARMCI's `Gpc_trylock`.
    ///
    /// # Errors
    /// [`Error::NoProcess`], [`Error::Hydrant`].
    pub fn try_lock_procedures(&self, proc: i32) -> Result<bool> {
        let rank = Memory::rank(self.memory.process(proc)?);
        Ok(self.gpc.locks.compare_swap(rank, 0, 0, 1)? == 0)
    }

    /// Takes the lock of a process. ARMCI's `Gpc_lock`.
    ///
    /// # Errors
    /// As [`try_lock_procedures`](Self::try_lock_procedures).
    pub fn lock_procedures(&self, proc: i32) -> Result<()> {
        while !self.try_lock_procedures(proc)? {
            self.job.poll();
            thread::yield_now();
        }
        Ok(())
    }

    /// Gives the lock of a process back. ARMCI's `Gpc_unlock`.
    ///
    /// # Errors
    /// As [`try_lock_procedures`](Self::try_lock_procedures).
    pub fn unlock_procedures(&self, proc: i32) -> Result<()> {
        let rank = Memory::rank(self.memory.process(proc)?);
        self.gpc.locks.swap(rank, 0, 0)?;
        Ok(())
    }
}
