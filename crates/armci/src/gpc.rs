//! Global procedure calls: a process has another process run a procedure and reply.
//!
//! Procedures run in threads of their own, one at a time. So they may do anything that a thread
//! may: lock, put and get. While a procedure waits for a procedure that it called itself, another
//! has its [turn](turns). A procedure that cannot reply yet returns false. It is run again after a
//! rest in which other procedures have their turns.

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

use self::turns::{ProcedureTurns, out_of_turn, sleep};
use crate::{Armci, Error, Result, memory::Memory};

/// The number of tries to take a lock between two checks that all processes are present.
const TRIES_PER_CHECK: u32 = 1000;
/// The number of tries to take a lock before a waiter sleeps between tries.
const TRIES: u32 = 64;

/// The reply of a procedure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// A header.
    pub header: Vec<u8>,
    /// Data.
    pub data: Vec<u8>,
}

/// The arguments of a procedure, and its reply.
#[derive(Debug)]
pub struct Request {
    /// The calling process.
    pub from: i32,
    /// A header.
    pub header: Vec<u8>,
    /// Data.
    pub data: Vec<u8>,
    /// The reply. Its header and data have the caller's greatest lengths, and the procedure may
    /// shorten them.
    pub reply: Reply,
}

/// The reason that a procedure is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// The procedure was called.
    First,
    /// The procedure did not complete its reply the last time.
    Again,
}

/// A procedure. It returns true if its reply is complete. Otherwise it is run again later with the
/// same request.
pub type Procedure = dyn Fn(&mut Request, Turn) -> bool + Send + Sync;

/// The time that a procedure rests before it is run again.
const REST: Duration = Duration::from_micros(100);

/// A call: the procedure's number, a header, data, and the greatest lengths of the reply's header
/// and data.
type CallArguments = (i32, Vec<u8>, Vec<u8>, [u64; 2]);
/// An answer: the reply's header and data, or `None` if there is no such procedure.
type ProcedureAnswer = Option<(Vec<u8>, Vec<u8>)>;

/// The procedures of a process.
pub(crate) struct Gpc {
    call: Function<CallArguments, ProcedureAnswer>,
    procedures: Arc<RwLock<Vec<Option<Arc<Procedure>>>>>,
    /// The lock of each process: 1 while it is taken.
    locks: Symmetric<u64>,
    /// Calls that were begun and not yet waited for, by number.
    open: Mutex<FxHashMap<i32, CallHandle<ProcedureAnswer>>>,
    last: AtomicI32,
}

/// The answer to a call, once the procedure has returned, or panicked.
#[derive(Default)]
struct Answer {
    ready: Option<thread::Result<ProcedureAnswer>>,
    waker: Option<Waker>,
}

/// Waits for an answer.
struct Answering(Arc<Mutex<Answer>>);

impl Future for Answering {
    type Output = ProcedureAnswer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ProcedureAnswer> {
        let mut answer = self.0.lock();
        match answer.ready.take() {
            Some(Ok(answered)) => Poll::Ready(answered),
            // The caller gets the message of the panic.
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
        // The threads of `turns` end with the job.
        let turns = ProcedureTurns::new();
        let call = job.async_function(move |from: Rank, asked: CallArguments| {
            let answer = Arc::<Mutex<Answer>>::default();
            let (known, completed) = (Arc::clone(&known), Arc::clone(&answer));
            turns.submit(Box::new(move || {
                let run = AssertUnwindSafe(|| run(&known, from, asked));
                match panic::catch_unwind(run) {
                    Ok(Some(answered)) => complete(&completed, Ok(answered)),
                    // The job is over, so the caller no longer waits.
                    Ok(None) => {}
                    Err(said) => complete(&completed, Err(said)),
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

/// Runs a procedure until its reply is complete. Returns `Some(None)` if no procedure has that
/// number, and `None` if the job ends first.
fn run(
    procedures: &RwLock<Vec<Option<Arc<Procedure>>>>,
    from: Rank,
    (number, header, data, lengths): CallArguments,
) -> Option<ProcedureAnswer> {
    let known = usize::try_from(number).ok();
    let known = known.and_then(|at| procedures.read().get(at).cloned().flatten());
    let Some(procedure) = known else {
        return Some(None);
    };
    // C counts lengths in an `int`.
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
        if !sleep(REST) {
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

fn complete(answer: &Mutex<Answer>, answered: Result<ProcedureAnswer, Box<dyn Any + Send>>) {
    let mut answer = answer.lock();
    answer.ready = Some(answered);
    let waker = answer.waker.take();
    drop(answer);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Armci {
    /// Registers a procedure and returns its number. The number is the same at all processes if all
    /// register the same procedures in the same order. ARMCI's `Gpc_register`.
    pub fn register(&self, procedure: Arc<Procedure>) -> i32 {
        let mut procedures = self.gpc.procedures.write();
        procedures.push(Some(procedure));
        procedures.len() as i32 - 1
    }

    /// Unregisters a procedure. ARMCI's `Gpc_release`.
    pub fn release(&self, number: i32) {
        let mut procedures = self.gpc.procedures.write();
        if let Some(known) = usize::try_from(number)
            .ok()
            .and_then(|at| procedures.get_mut(at))
        {
            *known = None;
        }
    }

    /// Has a process run a procedure, and waits for its reply. `lengths` are the greatest lengths
    /// of the reply's header and data in bytes. ARMCI's `Gpc_exec`.
    ///
    /// # Errors
    /// [`Error::NoProcess`]. [`Error::Code`] if there is no such procedure. [`Error::Hydrant`], for
    /// example if the procedure panicked.
    pub fn execute(
        &self,
        number: i32,
        proc: i32,
        header: &[u8],
        data: &[u8],
        lengths: [usize; 2],
    ) -> Result<Reply> {
        // A handler has no turn to release: it interrupts a thread that may have one.
        hydrant::may_wait("waiting for a procedure")?;
        let answered = out_of_turn(|| {
            Ok::<_, Error>(self.ask(number, proc, (header, data), lengths)?.wait()?)
        })?;
        replied(number, answered)
    }

    /// Begins [`execute`](Self::execute). Returns the number of the call, never 0, for
    /// [`wait_executed`](Self::wait_executed). ARMCI's `Gpc_exec` with a handle.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
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

    /// Waits for the reply to a call that was begun. Returns `None` if it was waited for before.
    /// ARMCI's `Gpc_wait`.
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
    ) -> Result<CallHandle<ProcedureAnswer>> {
        let rank = Memory::rank(self.memory.process(proc)?);
        let lengths = lengths.map(|length| length as u64);
        let asked = (number, header.to_vec(), data.to_vec(), lengths);
        Ok(self.job.call_nb(rank, &self.gpc.call, &asked)?)
    }

    /// Takes the lock of a process if it is free. Returns true if it took the lock. ARMCI's
    /// `Gpc_trylock`.
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
    /// As [`try_lock_procedures`](Self::try_lock_procedures). Also fails if a process ended
    /// meanwhile, because that process may hold the lock.
    pub fn lock_procedures(&self, proc: i32) -> Result<()> {
        let mut tries = 0_u32;
        while !self.try_lock_procedures(proc)? {
            tries = tries.wrapping_add(1);
            if tries.is_multiple_of(TRIES_PER_CHECK) {
                self.job.quiet()?;
            }
            self.job.poll();
            if tries < TRIES {
                thread::yield_now();
            } else {
                thread::sleep(REST);
            }
        }
        Ok(())
    }

    /// Releases the lock of a process. ARMCI's `Gpc_unlock`.
    ///
    /// # Errors
    /// As [`try_lock_procedures`](Self::try_lock_procedures).
    pub fn unlock_procedures(&self, proc: i32) -> Result<()> {
        let rank = Memory::rank(self.memory.process(proc)?);
        self.gpc.locks.swap(rank, 0, 0)?;
        Ok(())
    }
}

fn replied(number: i32, answered: ProcedureAnswer) -> Result<Reply> {
    let (header, data) = answered.ok_or(Error::Code {
        what: "a procedure of that process",
        code: number,
    })?;
    Ok(Reply { header, data })
}
