//! Global procedure calls: a process has another one run a procedure, which answers.
//!
//! Procedures run in threads of their own, one at a time, so that they may do what any thread may: lock,
//! put and get. While one waits for a procedure that it called itself, another has its [turn](turns).

mod turns;

use std::{
    any::Any,
    future::Future,
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
};

use hydrant::{Function, Job, Rank, Symmetric};
use parking_lot::{Mutex, RwLock};

use self::turns::{Turns, out_of_turn};
use crate::{Armci, Error, Result, memory::Memory};

/// Tries to take a lock between two looks whether all processes are still there.
const LOOK: u32 = 1000;

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

/// The answer to a call, once the procedure has returned, or panicked.
#[derive(Default)]
struct Answer {
    ready: Option<thread::Result<Answered>>,
    waker: Option<Waker>,
}

/// Waits for an answer.
struct Answering(Arc<Mutex<Answer>>);

impl Future for Answering {
    type Output = Answered;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        let mut answer = self.0.lock();
        match answer.ready.take() {
            Some(Ok(answered)) => Poll::Ready(answered),
            // Its caller is told what it said.
            Some(Err(said)) => panic::resume_unwind(said),
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
        // Its threads end with the job.
        let turns = Turns::new();
        let call = job.async_function(move |from: Rank, asked: Asked| {
            let answer = Arc::<Mutex<Answer>>::default();
            let (known, told) = (Arc::clone(&known), Arc::clone(&answer));
            turns.give(Box::new(move || {
                let run = AssertUnwindSafe(|| run(&known, from, asked));
                tell(&told, panic::catch_unwind(run));
            }));
            Answering(answer)
        })?;
        Ok(Self {
            call,
            procedures,
            locks: job.alloc(1)?,
        })
    }
}

/// Runs a procedure, if there is one of that number.
fn run(
    procedures: &RwLock<Vec<Option<Arc<Procedure>>>>,
    from: Rank,
    (number, header, data, lengths): Asked,
) -> Answered {
    let known = usize::try_from(number).ok();
    let known = known.and_then(|at| procedures.read().get(at).cloned().flatten());
    known.map(|procedure| {
        let lengths = lengths.map(|length| length as usize);
        let mut reply = procedure(from.0 as i32, &header, &data, lengths);
        reply.header.truncate(lengths[0]);
        reply.data.truncate(lengths[1]);
        (reply.header, reply.data)
    })
}

fn tell(answer: &Mutex<Answer>, answered: Result<Answered, Box<dyn Any + Send>>) {
    let mut answer = answer.lock();
    answer.ready = Some(answered);
    let waker = answer.waker.take();
    drop(answer);
    if let Some(waker) = waker {
        waker.wake();
    }
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
    /// [`Error::NoProcess`], [`Error::Code`] if there is no such procedure; [`Error::Hydrant`], also if it
    /// panicked.
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
        let answered = out_of_turn(|| self.job.call(rank, &self.gpc.call, &asked))?;
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
    /// As [`try_lock_procedures`](Self::try_lock_procedures); also if some process ended meanwhile, for
    /// that may be who has it.
    pub fn lock_procedures(&self, proc: i32) -> Result<()> {
        for tries in 1_u32.. {
            if self.try_lock_procedures(proc)? {
                break;
            }
            if tries.is_multiple_of(LOOK) {
                self.job.quiet()?;
            }
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
