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

/// How long the application may ignore messages before the service thread takes over, if the
/// application polled lately. A peer that waits for an answer does not wait so long: it
/// [wakes](super::wait) this rank.
const NAP: Duration = Duration::from_millis(1);
/// The limit of a nap. Each nap is twice as long as the one before, while the application polls and
/// no message waits for room. Each takes a core from the application and costs as much as several
/// messages.
const LONGEST_NAP: Duration = Duration::from_millis(32);
/// How long the thread polls on before it blocks. An application thread that lost its core to it
/// may be just about to poll.
const BRIEF: Duration = Duration::from_micros(20);

/// Starts the service thread of a rank.
pub(crate) fn start_service(
    progress: &Arc<Progress>,
    settings: &Settings,
) -> Result<JoinHandle<()>> {
    let progress = Arc::clone(progress);
    let cpus = if settings.service_cpus.is_empty() && progress.shares_cores {
        other_processors(&settings.host_cpus)
    } else {
        settings.service_cpus.clone()
    };
    thread::Builder::new()
        .name(format!("hydrant-serve-{}", progress.rank))
        .spawn(move || {
            bind_to(&cpus);
            serve(&progress);
        })
        .map_err(|cause| {
            hydrant_conduit::Error::system("starting the service thread", cause).into()
        })
}

/// Returns the processors of the host that this thread may not use, if the thread may use only one.
/// Peers that wait for an answer then find the service thread there, and a computing application is
/// not disturbed.
fn other_processors(host: &[usize]) -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(own) if own.count() == 1 => (host.iter().copied())
            .filter(|cpu| *cpu < CpuSet::MAX_CPU && !own.is_set(*cpu))
            .collect(),
        _ => Vec::new(),
    }
}

/// Binds the calling thread to some processors, if any are given. If that fails the thread stays
/// where it was, and is only slower.
fn bind_to(cpus: &[usize]) {
    let mut set = CpuSet::new();
    // A program may name any processor.
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
            // Messages and room wake a sleeping application thread directly.
            progress.park_service();
            nap
        } else if progress.has_tasks() {
            answer_until_idle(progress);
            NAP
        } else if progress.has_backlog() && !woken {
            // The application may have polled a moment ago, and compute by now.
            answer_until_idle(progress);
            NAP
        } else if progress.attended() != seen && !woken {
            longer(nap)
        } else if progress.is_inside() {
            // The application is about to poll, if not soon: the network is doing its work within
            // the call.
            poll_counted(progress);
            longer(nap)
        } else {
            answer_until_idle(progress);
            NAP
        };
        seen = progress.attended();
    }
}

fn longer(nap: Duration) -> Duration {
    (2 * nap).min(LONGEST_NAP)
}

/// Polls once. Returns how many messages and completions were found.
fn poll_counted(progress: &Progress) -> usize {
    let found = progress.poll();
    if found > 0 {
        progress.tally.one(Count::Services);
    }
    found
}

/// Answers messages while the application does not poll, or while tasks wait.
fn answer_until_idle(progress: &Progress) {
    let since = progress.attended();
    let left_alone = || progress.attended() == since && !progress.is_inside();
    let alone = || (progress.has_tasks() || left_alone()) && !progress.is_stopped();
    let mut quiet_since = None;
    // At least once, because a peer may have asked for it.
    loop {
        let found = poll_counted(progress);
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
    fn processors_beyond_the_largest_set_are_ignored() {
        let before = sched_getaffinity(None).expect("a thread has some");
        bind_to(&[CpuSet::MAX_CPU, usize::MAX]);
        assert_eq!(sched_getaffinity(None).expect("some"), before);
    }

    #[test]
    fn a_rank_with_one_processor_is_served_on_the_others() {
        let own = |cpus: &[usize]| {
            let mut set = CpuSet::new();
            cpus.iter().for_each(|cpu| set.set(*cpu));
            sched_setaffinity(None, &set).expect("the thread may use these");
        };
        let all = sched_getaffinity(None).expect("a thread has some");
        let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu));
        let first = first.expect("a thread has one");
        own(&[first]);
        assert_eq!(
            other_processors(&[first, first + 1, CpuSet::MAX_CPU]),
            [first + 1]
        );
        assert_eq!(other_processors(&[]), [0; 0]);
        if let Some(second) = (first + 1..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)) {
            own(&[first, second]);
            assert_eq!(other_processors(&[first, second, second + 1]), [0; 0]);
        }
    }
}
