//! Hangs: a thread of the process checks whether any operation exceeds the patience. Then it prints
//! the operations of all threads, and ends the process.

use std::{
    io::Write,
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use hydrant::Rank;

/// The status of a process that hung.
const HUNG: i32 = 4;
/// The pause between two checks.
const PAUSE: Duration = Duration::from_millis(500);

/// The current operation of a thread.
#[derive(Debug)]
pub(crate) struct WatchSlot {
    rank: Rank,
    thread: usize,
    what: String,
    /// The start of the operation; none between two operations.
    since: Option<Instant>,
}

static SLOTS: Mutex<Vec<Arc<Mutex<WatchSlot>>>> = Mutex::new(Vec::new());

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A slot for a thread.
pub(crate) fn slot(rank: Rank, thread: usize) -> Arc<Mutex<WatchSlot>> {
    let slot = Arc::new(Mutex::new(WatchSlot {
        rank,
        thread,
        what: String::new(),
        since: None,
    }));
    locked(&SLOTS).push(Arc::clone(&slot));
    slot
}

pub(crate) fn begin(slot: &Mutex<WatchSlot>, what: &str) {
    let mut slot = locked(slot);
    slot.what.clear();
    slot.what.push_str(what);
    slot.since = Some(Instant::now());
}

pub(crate) fn end(slot: &Mutex<WatchSlot>) {
    locked(slot).since = None;
}

/// Watches until the process ends.
pub(crate) fn start(patience: Duration, seed: u64) {
    thread::spawn(move || {
        loop {
            thread::sleep(PAUSE);
            let hangs = |slot: &Arc<Mutex<WatchSlot>>| {
                let since = locked(slot).since;
                since.is_some_and(|since| since.elapsed() > patience)
            };
            if locked(&SLOTS).iter().any(hangs) {
                give_up(patience, seed);
            }
        }
    });
}

fn give_up(patience: Duration, seed: u64) -> ! {
    let mut story = String::new();
    for slot in locked(&SLOTS).iter() {
        let slot = locked(slot);
        let what = match slot.since {
            None => "between two operations".to_owned(),
            Some(since) => format!(
                "for {:.1} s in: {}",
                since.elapsed().as_secs_f64(),
                slot.what
            ),
        };
        story += &format!(
            "torture: rank {} thread {}, {what}\n",
            slot.rank, slot.thread
        );
    }
    let hang = serde_json::json!({
        "program": "torture",
        "hung": story,
        "patience": patience.as_secs_f64(),
        "seed": seed,
    });
    let _ = std::io::stderr().write_all(story.as_bytes());
    let _ = std::io::stdout().write_all(format!("{hang}\n").as_bytes());
    process::exit(HUNG)
}
