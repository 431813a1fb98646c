//! Children that a thread forks while the others go on. Their use of the rank's handles is refused, and their end, in
//! any way, does not affect other ranks.

#![allow(unsafe_code)] // forks

use std::{
    panic::{self, AssertUnwindSafe},
    process, thread,
    time::{Duration, Instant},
};

use hydrant::{Error, Job, Op, Rank, Result, Symmetric};

use super::{
    anywhere::Anywhere,
    hand::{Hand, is_simulated},
    lender::Lender,
};

/// The time that a child may take: it waits for nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two checks whether it has ended.
const PAUSE: Duration = Duration::from_micros(200);
/// The status of a child if something was not refused.
const WRONG: i32 = 9;
/// The status of a child that ends the job.
const ABORTED: i32 = 7;

/// The calls of children. Their stores to the board, or their messages, would pass for a thread's own.
pub(crate) struct Forks {
    board: Symmetric<u64>,
}

/// The ways in which a child ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChildEnd {
    Now,
    Exit,
    Panic,
    Abort,
}

impl Forks {
    pub(crate) fn new(board: &Symmetric<u64>) -> Self {
        Self {
            board: board.clone(),
        }
    }

    /// Forks a child, unless time is virtual, where ranks are threads.
    pub(crate) fn step(
        &self,
        hand: &mut Hand<'_>,
        lender: &mut Lender,
        anywhere: &mut Anywhere,
    ) -> Result<()> {
        let (act, rank) = (hand.dice.below(12), hand.draw_rank());
        let end = match hand.dice.below(4) {
            0 => ChildEnd::Now,
            1 => ChildEnd::Exit,
            2 => ChildEnd::Panic,
            _ => ChildEnd::Abort,
        };
        if is_simulated(hand.job) {
            return Ok(());
        }
        let what = format!("fork of a child, which does {act}");
        let status = hand.must(&what, |job| {
            // SAFETY: the child of a process with several threads calls only functions that are
            // allowed there: the allocator's, and this crate's.
            match unsafe { libc::fork() } {
                0 => {
                    let refused = self.act(job, act, rank);
                    // The child's drops must not end the loan.
                    lender.drop_guard();
                    anywhere.drop_loan();
                    leave(job, end, refused)
                }
                child if child < 0 => Err(std::io::Error::last_os_error().into()),
                child => Ok(wait(child)),
            }
        })?;
        let expected = match end {
            ChildEnd::Abort => ABORTED,
            _ => 0,
        };
        if let Some(status) = status {
            let is_right = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == expected;
            hand.check(is_right, || format!("{what}: it ended with {status:#x}"));
        }
        Ok(())
    }

    /// Returns whether the child's call is refused.
    fn act(&self, job: &Job, act: usize, rank: Rank) -> bool {
        let at = self.board.len() - 1;
        let done: Result<()> = match act {
            0 => self.board.put_value(rank, at, 1),
            1 => self.board.get_value(rank, at).map(drop),
            2 => self.board.fetch_add(rank, at, 1).map(drop),
            3 => (self.board.put_nb(rank, 0, vec![1; at]))
                .map_or_else(|it| Err(it.into()), |_| Ok(())),
            4 => job.send(rank, 1, &[1_u8]),
            5 => self.board.local().map(drop),
            6 => job.barrier(),
            7 => job.all_reduce(&mut [1_u64], Op::Sum),
            8 => job.alloc::<u64>(8).map(drop),
            9 => job.expose(vec![1_u64; 900]).map(drop),
            10 => job.quiet(),
            _ => job.finalize(),
        };
        matches!(done, Err(Error::Forked { .. }))
    }
}

/// Ends the child.
fn leave(job: &Job, end: ChildEnd, is_right: bool) -> ! {
    let status = if is_right { 0 } else { WRONG };
    match end {
        ChildEnd::Exit => process::exit(status),
        ChildEnd::Abort if is_right => job.abort(ABORTED),
        ChildEnd::Panic => {
            // The child's exit unwinds the open calls here, as far as a scope would.
            let unwound = panic::catch_unwind(AssertUnwindSafe(|| {
                job.scope(|_| -> Result<()> { panic::resume_unwind(Box::new(())) })
            }));
            // A scope does not begin in a child.
            let refused = matches!(unwound, Ok(Err(Error::Forked { .. })));
            exit_now(if refused { status } else { WRONG })
        }
        ChildEnd::Now | ChildEnd::Abort => exit_now(status),
    }
}

fn exit_now(status: i32) -> ! {
    // SAFETY: the call ends the process.
    unsafe { libc::_exit(status) }
}

/// The way a child ended. A child that hangs is killed.
fn wait(child: i32) -> i32 {
    let since = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: the status is a local variable.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 if since.elapsed() > PATIENCE => {
                // SAFETY: the process is a child of this one that was not waited for.
                unsafe { libc::kill(child, libc::SIGKILL) };
                // SAFETY: the status is a local variable.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                return status;
            }
            0 => thread::sleep(PAUSE),
            _ => return status,
        }
    }
}
