//! The service thread.

use std::{
    hint,
    sync::Arc,
    thread,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use hydrant_conduit::Sleeper;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::Progress;
use crate::{Result, Settings, counters::Count};

/// How long the application may leave messages alone before the service thread takes over, if it
/// did so lately. A peer that waits for an answer does not wait so long: it
/// [wakes](super::wait) us.
const NAP: Duration = Duration::from_millis(1);
/// As long as the application looks after messages, and none waits for room, each nap is twice as long as the one before, up
/// to this: each takes a core from it, and costs what several messages do.
const LONGEST_NAP: Duration = Duration::from_millis(32);
/// How long the thread looks on for more before it blocks. An application thread that has lost its
/// core to it may be just about to look for itself.
const BRIEF: Duration = Duration::from_micros(20);

/// Starts the service thread of a rank.
pub(crate) fn start_service(
    progress: &Arc<Progress>,
    settings: &Settings,
) -> Result<JoinHandle<()>> {
    let progress = Arc::clone(progress);
    let cpus = if settings.service_cpus.is_empty() && progress.shares_cores {
        beside_own(&settings.host_cpus)
    } else {
        settings.service_cpus.clone()
    };
    thread::Builder::new()
        .name(format!("hydrant-serve-{}", progress.rank))
        .spawn(move || {
            stay_on(&cpus);
            serve(&progress);
        })
        .map_err(|cause| {
            hydrant_conduit::Error::system("starting the service thread", cause).into()
        })
}

/// Of the processors of a host those that are not this thread's, if it has but one: a rank that waits for an answer
/// is found there, and one that computes is not disturbed.
fn beside_own(host: &[usize]) -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(own) if own.count() == 1 => (host.iter().copied())
            .filter(|cpu| *cpu < CpuSet::MAX_CPU && !own.is_set(*cpu))
            .collect(),
        _ => Vec::new(),
    }
}

/// Keeps the calling thread on some processors, unless there are none; where they are not to be had it
/// stays where it was, and is only slower.
fn stay_on(cpus: &[usize]) {
    let mut set = CpuSet::new();
    // A program may name any.
    let cpus = cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU);
    cpus.clone().for_each(|cpu| set.set(*cpu));
    if cpus.clone().next().is_none() {
        return;
    }
    if let Err(cause) = sched_setaffinity(None, &set) {
        tracing::warn!(%cause, cpus = ?cpus.collect::<Vec<_>>(), "the service thread stays on the processors of its rank");
    }
}

fn serve(progress: &Progress) {
    let mut seen = progress.attended();
    let mut nap = NAP;
    while !progress.is_stopped() {
        let begun = Instant::now();
        if progress.has_backlog() {
            nap = NAP;
        }
        progress.service_rests(nap > NAP);
        progress.ignore_tasks(true);
        progress.conduit.wait(Sleeper::Nap, Some(nap), &mut || {
            progress.is_stopped() || nap > NAP && progress.has_backlog() || progress.has_tasks()
        });
        progress.ignore_tasks(false);
        progress.service_rests(false);
        let woken = begun.elapsed() < nap;
        nap = if progress.asleep() > 0 {
            // A sleeping application thread is woken by messages itself, and by room.
            progress.park_service();
            nap
        } else if progress.has_tasks() {
            watch_over(progress);
            NAP
        } else if progress.has_backlog() && !woken {
            // The application may have looked a moment ago, and compute by now.
            watch_over(progress);
            NAP
        } else if progress.attended() != seen && !woken {
            longer(nap)
        } else if progress.is_inside() {
            // It is about to look for itself, if not soon: the network is doing its work in there.
            look(progress);
            longer(nap)
        } else {
            watch_over(progress);
            NAP
        };
        seen = progress.attended();
    }
}

fn longer(nap: Duration) -> Duration {
    (2 * nap).min(LONGEST_NAP)
}

/// Answers what has come: how much that was.
fn look(progress: &Progress) -> usize {
    let found = progress.poll();
    if found > 0 {
        progress.tally.one(Count::Services);
    }
    found
}

/// Answers messages while the application does not look at them, or while tasks wait.
fn watch_over(progress: &Progress) {
    let since = progress.attended();
    let left_alone = || progress.attended() == since && !progress.is_inside();
    let alone = || (progress.has_tasks() || left_alone()) && !progress.is_stopped();
    let mut quiet_since = None;
    // Once in any case: a peer may have asked for it.
    loop {
        let found = look(progress);
        let changes = progress.conduit.changes();
        progress.advance_errands();
        if progress.has_tasks() {
            progress.notice_ended();
        }
        if !alone() {
            return;
        }
        if found > 0 {
            quiet_since = None;
            continue;
        }
        let quiet = quiet_since.get_or_insert_with(Instant::now).elapsed();
        if quiet < BRIEF && !progress.shares_cores {
            hint::spin_loop();
        } else {
            let sleeper = match (progress.has_backlog(), progress.has_tasks()) {
                (true, _) => Sleeper::Room,
                (false, true) => Sleeper::Application,
                (false, false) => Sleeper::Service,
            };
            let rests = sleeper == Sleeper::Service;
            progress.service_rests(rests);
            progress.ignore_tasks(rests);
            let settles = if progress.has_tasks() {
                progress.news_counts_in()
            } else {
                None
            };
            progress.conduit.wait(sleeper, settles, &mut || {
                !alone()
                    || progress.would_sleep_past_room(sleeper)
                    || progress.has_ready_errand()
                    || progress.has_tasks() && (rests || changes != progress.conduit.changes())
            });
            progress.ignore_tasks(false);
            progress.service_rests(false);
            quiet_since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_that_no_set_has_are_left_out() {
        let before = sched_getaffinity(None).expect("a thread has some");
        stay_on(&[CpuSet::MAX_CPU, usize::MAX]);
        assert_eq!(sched_getaffinity(None).expect("some"), before);
    }

    #[test]
    fn who_has_one_processor_is_served_on_the_others() {
        let own = |cpus: &[usize]| {
            let mut set = CpuSet::new();
            cpus.iter().for_each(|cpu| set.set(*cpu));
            sched_setaffinity(None, &set).expect("one of those it has");
        };
        let all = sched_getaffinity(None).expect("a thread has some");
        let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu));
        let first = first.expect("a thread has one");
        own(&[first]);
        assert_eq!(
            beside_own(&[first, first + 1, CpuSet::MAX_CPU]),
            [first + 1]
        );
        assert_eq!(beside_own(&[]), [0; 0]);
        if let Some(second) = (first + 1..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)) {
            own(&[first, second]);
            assert_eq!(beside_own(&[first, second, second + 1]), [0; 0]);
        }
    }
}
