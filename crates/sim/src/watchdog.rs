//! Looks after turns that do not come back by themselves.
//!
//! A thread that has the turn may block outside the conduit: it joins another thread, or waits for
//! a lock. If the awaited thread wants a turn, the job is stuck. The watchdog then takes the turn
//! away until the blocked thread calls again.
//!
//! Real time decides which turn is lost and when, and a program that loses one may have other
//! figures in another run. No turn is lost, therefore, that might come back by itself. A computing
//! thread keeps it, however long that takes. A thread that waits for a lock keeps it while the
//! holder merely lacks a core, because some thread of the process works then. A thread that reads,
//! writes or sleeps keeps it for many seconds.
//!
//! A slow rank is not late either. The job begins when all ranks are there, or when no thread of
//! the process does anything by which a rank might still come. A deadlock is reported when no
//! thread works that could resolve it.

use std::{
    fs,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use hydrant_conduit::Error;

use crate::{World, turns::ActorPhase};

const NAME: &str = "hydrant-sim-watch";
/// The time between two looks.
const TICK: Duration = Duration::from_millis(10);
/// Consecutive looks at a thread that waits for others, none of which works, before its turn is
/// taken away.
const DESERTED: u32 = 2;
/// The same limit if others work; their work may be unrelated.
const BLOCKED: u32 = 100;
/// Consecutive looks at a thread that sleeps for another reason.
const ASLEEP: u32 = 1000;
/// Looks at a thread that computes, while others want the turn, before a warning is logged.
const LONG: u32 = 1000;
/// Consecutive looks at missing ranks before the job begins without them: if all threads of the
/// process wait for each other, and if some do other things.
const MISSING: (u32, u32) = (200, 6000);
/// Consecutive looks at a world without events before a deadlock is reported: if no thread of the
/// process works, and if some do.
const STUCK: (u32, u32) = (20, 1000);

pub(crate) fn start(world: &Arc<World>) -> Result<(), Error> {
    let world = Arc::downgrade(world);
    thread::Builder::new()
        .name(NAME.to_owned())
        .spawn(move || watch(&world))
        .map(drop)
        .map_err(|cause| Error::system("starting the watchdog of a simulation", cause))
}

/// Counts of looks since the last call.
#[derive(Default)]
struct LookCounts {
    calls: u64,
    /// All looks.
    idle: u32,
    /// Looks at which the holder of the turn slept.
    asleep: u32,
    /// Consecutive looks at which no thread of the process did relevant work.
    quiet: u32,
    /// Looks at which the holder of the turn computed.
    busy: u32,
}

fn watch(world: &Weak<World>) {
    let mut seen = LookCounts::default();
    loop {
        thread::sleep(TICK);
        let Some(world) = world.upgrade() else {
            return;
        };
        inspect(&world, &mut seen);
    }
}

fn inspect(world: &World, seen: &mut LookCounts) {
    let mut state = world.lock();
    let turns = &mut state.turns;
    if turns.calls != seen.calls {
        *seen = LookCounts {
            calls: turns.calls,
            ..LookCounts::default()
        };
        return;
    }
    seen.idle += 1;
    if !turns.open {
        if turns.anyone_ready() {
            seen.count_quiet(|doing| doing == ThreadActivity::Wait);
            if seen.quiet >= MISSING.0 || seen.idle >= MISSING.1 {
                turns.open = true;
                world.pass_on(state);
            }
        }
        return;
    }
    if let Some(holder) = turns.running {
        let actor = &turns.actors[holder];
        let waited_for = turns.anyone_ready() || turns.anyone_waits();
        let doing = if actor.seated {
            ThreadActivity::of(actor.seat.tid)
        } else {
            // It was woken, and has no core yet.
            ThreadActivity::Work
        };
        if seen.record_holder(doing) && waited_for {
            turns.drop_turn(holder, ActorPhase::Away);
            *seen = LookCounts::default();
            world.pass_on(state);
        } else if seen.busy == LONG && waited_for {
            tracing::warn!(
                rank = actor.rank,
                "this rank has computed for seconds of real time without calling Hydrant, and in \
                 virtual time the others stand still meanwhile. If it waits for memory to change, it \
                 is to wait by Job::wait_until, or to call Job::poll as it looks"
            );
        }
        return;
    }
    let stuck = turns.anyone_waits() && !turns.anyone_ready() && !turns.anyone_away();
    if !stuck || !state.events.is_empty() {
        return;
    }
    seen.count_quiet(|doing| doing != ThreadActivity::Work);
    if seen.quiet >= STUCK.0 || seen.idle >= STUCK.1 {
        state.turns.wake_stranded();
        *seen = LookCounts::default();
        world.pass_on(state);
    }
}

impl LookCounts {
    /// Records the activity of the turn's holder. Returns true if the holder is to lose the turn.
    fn record_holder(&mut self, doing: ThreadActivity) -> bool {
        if doing == ThreadActivity::Work {
            (self.asleep, self.quiet) = (0, 0);
            self.busy += 1;
            return false;
        }
        self.asleep += 1;
        self.busy = 0;
        if doing == ThreadActivity::Else {
            return self.asleep >= ASLEEP;
        }
        self.count_quiet(|doing| doing != ThreadActivity::Work);
        self.quiet >= DESERTED || self.asleep >= BLOCKED
    }

    /// Counts a look at which all threads of the process match `quiet`.
    fn count_quiet(&mut self, quiet: impl Fn(ThreadActivity) -> bool) {
        self.quiet = if everybody(quiet) { self.quiet + 1 } else { 0 };
    }
}

/// The activity of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadActivity {
    /// Runs, or wants a core or a page.
    Work,
    /// Waits for another thread; a thread that is gone waits for ever.
    Wait,
    /// Sleeps, reads or writes.
    Else,
}

impl ThreadActivity {
    fn of(tid: i32) -> Self {
        let folder = format!("/proc/self/task/{tid}");
        match fs::read_to_string(format!("{folder}/stat")) {
            Ok(stat) if !sleeps(&stat) => return ThreadActivity::Work,
            Ok(_) => {}
            Err(_) => return ThreadActivity::Wait,
        }
        // If the system hides the call, assume a wait for a thread, the most common one.
        let call = fs::read_to_string(format!("{folder}/syscall")).unwrap_or_default();
        let number = call.split(' ').next().and_then(|word| word.parse().ok());
        match number {
            Some(libc::SYS_futex) | None => ThreadActivity::Wait,
            Some(_) => ThreadActivity::Else,
        }
    }
}

/// True if all threads of the process, except watchdogs, match `is_so`.
fn everybody(is_so: impl Fn(ThreadActivity) -> bool) -> bool {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return true;
    };
    tasks.flatten().all(|task| {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        // The system truncates names.
        let watches = !name.is_empty() && NAME.starts_with(name.trim_end());
        let tid = task.file_name().to_str().and_then(|tid| tid.parse().ok());
        watches || tid.is_none_or(|tid| is_so(ThreadActivity::of(tid)))
    })
}

/// True if the thread with this line in `/proc` sleeps, or has ended.
fn sleeps(stat: &str) -> bool {
    // The name in parentheses may hold anything; the state comes after it.
    (stat.rsplit_once(") ")).is_some_and(|(_, rest)| rest.starts_with(['S', 'X', 'Z']))
}
