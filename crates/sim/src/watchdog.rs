//! Looks after turns that do not come back by themselves.
//!
//! A thread that has the turn may block outside the conduit: it joins another thread, or waits
//! for a lock that another has. If that one wants a turn, nothing goes on, and the turn is taken
//! away until the thread calls again. Which turn is lost so, and when, is real time's doing, and a
//! program that loses one may have other figures in another run; so none is lost that might come
//! back by itself. A thread that computes keeps it, however long that takes. So does one that waits
//! for a lock whose holder has no core just now: some thread of the process is at work then. One
//! that reads, writes or sleeps keeps it for many seconds.
//!
//! Nor is a rank late that is only slow: the game begins when all are there, or when no thread of
//! the process is about anything by which one might still come. That nothing will ever happen again
//! is said when no thread works that could change it.

use std::{
    fs,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use hydrant_conduit::Error;

use crate::{World, turns::Phase};

const NAME: &str = "hydrant-sim-watch";
/// Between two looks.
const TICK: Duration = Duration::from_millis(10);
/// Looks in a row at a thread that waits for others, none of which works, before its turn is
/// taken away.
const DESERTED: u32 = 2;
/// The same where others work, which may have to do with other things.
const BLOCKED: u32 = 100;
/// Looks in a row at a thread that sleeps for another reason.
const ASLEEP: u32 = 1000;
/// Looks at a thread that computes, while others want the turn, before that is worth a word.
const LONG: u32 = 1000;
/// Looks in a row at ranks that did not call yet, and a process whose threads all wait for each
/// other, before the others begin without them; and where some do other things.
const MISSING: (u32, u32) = (200, 6000);
/// Looks in a row at a world in which nothing can happen, and a process in which nobody works,
/// before that is called a deadlock; and where others work.
const STUCK: (u32, u32) = (20, 1000);

pub(crate) fn start(world: &Arc<World>) -> Result<(), Error> {
    let world = Arc::downgrade(world);
    thread::Builder::new()
        .name(NAME.to_owned())
        .spawn(move || watch(&world))
        .map(drop)
        .map_err(|cause| Error::system("starting the watchdog of a simulation", cause))
}

/// What the looks in a row were like since the last call.
#[derive(Default)]
struct Seen {
    calls: u64,
    /// All looks.
    idle: u32,
    /// Those at which whoever has the turn slept.
    asleep: u32,
    /// Those in a row at which nobody in the process did anything that mattered.
    quiet: u32,
    /// Those at which it computed.
    busy: u32,
}

fn watch(world: &Weak<World>) {
    let mut seen = Seen::default();
    loop {
        thread::sleep(TICK);
        let Some(world) = world.upgrade() else {
            return;
        };
        look(&world, &mut seen);
    }
}

fn look(world: &World, seen: &mut Seen) {
    let mut state = world.lock();
    let turns = &mut state.turns;
    if turns.calls != seen.calls {
        *seen = Seen {
            calls: turns.calls,
            ..Seen::default()
        };
        return;
    }
    seen.idle += 1;
    if !turns.open {
        if turns.anyone_ready() {
            seen.count_quiet(|doing| doing == Doing::Wait);
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
        let doing = match actor.seated {
            true => Doing::of(actor.seat.tid),
            // It was woken, and has no core yet.
            false => Doing::Work,
        };
        if seen.saw(doing) && waited_for {
            turns.drop_turn(holder, Phase::Away);
            *seen = Seen::default();
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
    seen.count_quiet(|doing| doing != Doing::Work);
    if seen.quiet >= STUCK.0 || seen.idle >= STUCK.1 {
        state.turns.strand();
        *seen = Seen::default();
        world.pass_on(state);
    }
}

impl Seen {
    /// Whether a thread that was seen so as it has the turn is to lose it.
    fn saw(&mut self, doing: Doing) -> bool {
        if doing == Doing::Work {
            (self.asleep, self.quiet) = (0, 0);
            self.busy += 1;
            return false;
        }
        self.asleep += 1;
        self.busy = 0;
        if doing == Doing::Else {
            return self.asleep >= ASLEEP;
        }
        self.count_quiet(|doing| doing != Doing::Work);
        self.quiet >= DESERTED || self.asleep >= BLOCKED
    }

    /// Counts a look at which all threads of the process are about something of this kind.
    fn count_quiet(&mut self, quiet: impl Fn(Doing) -> bool) {
        self.quiet = if everybody(quiet) { self.quiet + 1 } else { 0 };
    }
}

/// What a thread is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It runs, or wants a core, or a page.
    Work,
    /// It waits for another thread; one that is gone does so for ever.
    Wait,
    /// It sleeps, reads or writes.
    Else,
}

impl Doing {
    fn of(tid: i32) -> Self {
        let folder = format!("/proc/self/task/{tid}");
        match fs::read_to_string(format!("{folder}/stat")) {
            Ok(stat) if !sleeps(&stat) => return Doing::Work,
            Ok(_) => {}
            Err(_) => return Doing::Wait,
        }
        // Where the system does not tell, most waits are for threads.
        let call = fs::read_to_string(format!("{folder}/syscall")).unwrap_or_default();
        let number = call.split(' ').next().and_then(|word| word.parse().ok());
        match number {
            Some(libc::SYS_futex) | None => Doing::Wait,
            Some(_) => Doing::Else,
        }
    }
}

/// Whether all threads of the process but watchdogs are about something of this kind.
fn everybody(is_so: impl Fn(Doing) -> bool) -> bool {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return true;
    };
    tasks.flatten().all(|task| {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        // The system cuts names.
        let watches = !name.is_empty() && NAME.starts_with(name.trim_end());
        let tid = task.file_name().to_str().and_then(|tid| tid.parse().ok());
        watches || tid.is_none_or(|tid| is_so(Doing::of(tid)))
    })
}

/// Whether the thread that has this line in `/proc` sleeps, or has ended.
fn sleeps(stat: &str) -> bool {
    // The name in parentheses may hold anything; the state comes after it.
    (stat.rsplit_once(") ")).is_some_and(|(_, rest)| rest.starts_with(['S', 'X', 'Z']))
}
