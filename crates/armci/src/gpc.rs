//! Global procedure calls: a process has another one run a procedure, which answers.
//!
//! Procedures run in threads of their own, one at a time, so that they may do what any thread may: lock,
//! put and get. While one waits for a procedure that it called itself, another has its [turn](turns). One
//! that cannot answer yet says so, and is run again after a rest in which others have theirs.

mod turns;

use std::{
    any::Any,
    future::Future,
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use hydrant::{CallHandle, Function, Job, Rank, Symmetric};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use self::turns::{Turns, out_of_turn, rest};
use crate::{Armci, Error, Result, memory::Memory};

/// Tries to take a lock between two looks whether all processes are still there.
const LOOK: u32 = 1000;
/// Tries of those who want a lock of procedures, before they rest between two.
const TRIES: u32 = 64;

/// What is sent back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// A header.
    pub header: Vec<u8>,
    /// Data.
    pub data: Vec<u8>,
}

/// What a procedure is called with, and what it replies.
#[derive(Debug)]
pub struct Request {
    /// Who calls.
    pub from: i32,
    /// A header.
    pub header: Vec<u8>,
    /// Data.
    pub data: Vec<u8>,
    /// As long as its header and its data may be, until the procedure shortens them.
    pub reply: Reply,
}

/// Why a procedure is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It was called.
    First,
    /// It said that it has not replied yet.
    Again,
}

/// A procedure: whether its reply is complete. If not it is run again later, with the same request.
pub type Procedure = dyn Fn(&mut Request, Turn) -> bool + Send + Sync;

/// So long procedures that have not replied rest.
const REST: Duration = Duration::from_micros(100);

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
    /// Calls that were begun and not waited for, by number.
    open: Mutex<FxHashMap<i32, CallHandle<Answered>>>,
    last: AtomicI32,
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
                match panic::catch_unwind(run) {
                    Ok(Some(answered)) => tell(&told, Ok(answered)),
                    // The job is over, and its caller with it.
                    Ok(None) => {}
                    Err(said) => tell(&told, Err(said)),
                }
            }));
            Answering(answer)
        })?;
        Ok(Self {
            call,
            procedures,
            locks: job.alloc(1)?,
            open: Mutex::default(),
            last: AtomicI32::new(0),
        })
    }
}

/// Runs a procedure, if there is one of that number, until its reply is complete; nothing if the job is
/// over before.
fn run(
    procedures: &RwLock<Vec<Option<Arc<Procedure>>>>,
    from: Rank,
    (number, header, data, lengths): Asked,
) -> Option<Answered> {
    let known = usize::try_from(number).ok();
    let known = known.and_then(|at| procedures.read().get(at).cloned().flatten());
    let Some(procedure) = known else {
        return Some(None);
    };
    // C counts no further.
    let lengths = lengths.map(|length| length.min(i32::MAX as u64) as usize);
    let mut request = Request {
        from: from.0 as i32,
        header,
        data,
        reply: Reply {
            header: vec![0; lengths[0]],
            data: vec![0; lengths[1]],
        },
    };
    let mut turn = Turn::First;
    while !procedure(&mut request, turn) {
        if !rest(REST) {
            return None;
        }
        turn = Turn::Again;
    }
    let Reply {
        mut header,
        mut data,
    } = request.reply;
    header.truncate(lengths[0]);
    data.truncate(lengths[1]);
    Some(Some((header, data)))
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
        // A handler has no turn to give up: it interrupts who did.
        hydrant::may_wait("waiting for a procedure")?;
        let answered = out_of_turn(|| {
            Ok::<_, Error>(self.ask(number, proc, (header, data), lengths)?.wait()?)
        })?;
        replied(number, answered)
    }

    /// Begins [`execute`](Self::execute): the number of the call, never 0, by which it is waited for. ARMCI's
    /// `Gpc_exec` with a handle.
    ///
    /// # Errors
    /// As there.
    pub fn execute_nb(
        &self,
        number: i32,
        proc: i32,
        header: &[u8],
        data: &[u8],
        lengths: [usize; 2],
    ) -> Result<i32> {
        let call = self.ask(number, proc, (header, data), lengths)?;
        let next = || self.gpc.last.fetch_add(1, Relaxed).wrapping_add(1);
        let mut open = self.gpc.open.lock();
        let name = std::iter::repeat_with(next).find(|name| *name != 0 && !open.contains_key(name));
        let name = name.unwrap_or(1);
        open.insert(name, call);
        Ok(name)
    }

    /// Waits for the reply to a call that was begun; none if it was waited for before. ARMCI's `Gpc_wait`.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn wait_executed(&self, name: i32, number: i32) -> Result<Option<Reply>> {
        hydrant::may_wait("waiting for a procedure")?;
        let call = self.gpc.open.lock().remove(&name);
        match call {
            Some(call) => replied(number, out_of_turn(|| call.wait())?).map(Some),
            None => Ok(None),
        }
    }

    fn ask(
        &self,
        number: i32,
        proc: i32,
        (header, data): (&[u8], &[u8]),
        lengths: [usize; 2],
    ) -> Result<CallHandle<Answered>> {
        let rank = Memory::rank(self.memory.process(proc)?);
        let lengths = lengths.map(|length| length as u64);
        let asked = (number, header.to_vec(), data.to_vec(), lengths);
        Ok(self.job.call_nb(rank, &self.gpc.call, &asked)?)
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
        let mut tries = 0_u32;
        while !self.try_lock_procedures(proc)? {
            tries = tries.wrapping_add(1);
            if tries.is_multiple_of(LOOK) {
                self.job.quiet()?;
            }
            self.job.poll();
            match tries {
                ..TRIES => thread::yield_now(),
                _ => thread::sleep(REST),
            }
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

fn replied(number: i32, answered: Answered) -> Result<Reply> {
    let (header, data) = answered.ok_or(Error::Code {
        what: "a procedure of that process",
        code: number,
    })?;
    Ok(Reply { header, data })
}
