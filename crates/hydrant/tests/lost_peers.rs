//! A rank killed by SIGKILL while the others wait on it, flood it, or reach into its memory:
//! each hears which rank was lost, the job's status says so, and nothing is left behind.

#[path = "support/killed.rs"]
mod killed;
#[path = "support/situations.rs"]
mod situations;

use std::{process::ExitCode, thread, time::Duration};

use hydrant_testing::{
    launcher,
    left_behind::JobRemains,
    roles,
    running::{self, Running},
};
use rustix::process::{Signal, kill_process};

/// Ranks of the jobs; the middle one is killed.
const RANKS: u32 = 4;
const VICTIM: u32 = 2;

fn main() -> ExitCode {
    let tests = situations::ALL.map(|situation| {
        roles::test(
            format!("killed_while_{}", snake(&situation.name())),
            move || {
                kill_one(&situation.name());
            },
        )
    });
    roles::main(
        |_, arguments| Some(situations::rank(arguments)),
        tests.into(),
    )
}

fn snake(name: &str) -> String {
    name.chars().fold(String::new(), |mut snake, letter| {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
        snake
    })
}

fn kill_one(situation: &str) {
    let token = format!("lost-peers-{}-{situation}", std::process::id());
    let mut trace = JobRemains::before(&token);
    let victim = VICTIM.to_string();
    let command = launcher::command(RANKS, &["lost", situation, &victim, &token]);
    let mut job = Running::start(command);
    let pids = killed::ready(&mut job, RANKS);
    for pid in &pids {
        trace.note_rank(&pid.as_raw_nonzero().to_string());
    }
    // Into the situation, and some way.
    thread::sleep(Duration::from_millis(100));
    let begun = running::now();
    kill_process(pids[VICTIM as usize], Signal::KILL).expect("the victim is killed");
    let (status, printed) = job.end();
    for rank in killed::all_told(&printed, RANKS, VICTIM) {
        let at = Duration::from_micros(rank[2].parse().expect("a time"));
        let after = at.saturating_sub(begun);
        println!("{situation}: rank {} was told after {after:?}", rank[0]);
    }
    let all = printed.join("\n");
    assert_eq!(status, 128 + 9, "the status is the killed rank's:\n{all}");
    trace.assert_one_file();
    trace.assert_nothing_left();
}
