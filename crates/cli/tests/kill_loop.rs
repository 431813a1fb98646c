//! One rank of a job, killed at some moment in some situation. `cargo xtask kill-loop` does
//! this a hundred times.
//!
//! `HYDRANT_TEST_SEED` repeats one.

#[path = "../../hydrant/tests/support/left_behind.rs"]
mod left_behind;
#[path = "../../hydrant/tests/support/running.rs"]
mod running;
#[path = "../../hydrant/tests/support/situations.rs"]
mod situations;
#[path = "../../hydrant/tests/support/mod.rs"]
mod support;

use std::{
    env,
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use left_behind::Trace;
use running::{Running, fields};
use rustix::process::{Pid, Signal, kill_process};

const RANKS: u64 = 4;

fn main() -> ExitCode {
    let test = support::test("kill_loop_once".to_owned(), kill_one).with_ignored_flag(true);
    support::main(|_, arguments| situations::rank(arguments), vec![test])
}

fn kill_one() {
    let seed = match env::var("HYDRANT_TEST_SEED") {
        Ok(seed) => seed.parse().expect("HYDRANT_TEST_SEED is a number"),
        Err(_) => fresh_seed(),
    };
    let situation = situations::ALL[(seed % 997) as usize % situations::ALL.len()];
    let victim = seed / 997 % RANKS;
    let delay = Duration::from_micros(seed / (997 * RANKS) % 60_000);
    println!("seed {seed}: {situation:?}, rank {victim} killed after {delay:?}");

    let token = format!("kill-loop-{}-{seed}", std::process::id());
    let mut trace = Trace::before(&token);
    let mut command = Command::new(env!("CARGO_BIN_EXE_hydrant"));
    command.args(["run", "-n", &RANKS.to_string(), "--prefix", "none"]);
    command.args(support::role(&[
        "lost",
        &situation.name(),
        &victim.to_string(),
        &token,
    ]));
    let mut job = Running::start(command);
    let ready = job.expect("ready", RANKS as usize);
    ready.iter().for_each(|rank| trace.note_rank(&rank[1]));
    thread::sleep(delay);
    let named = |rank: &&Vec<String>| rank[0] == victim.to_string();
    let pid = &ready.iter().find(named).expect("the victim is ready")[1];
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    let killed = running::now();
    kill_process(pid.expect("a process id"), Signal::KILL).expect("the victim is killed");

    let (status, printed) = job.end();
    let all = printed.join("\n");
    let told: Vec<_> = (printed.iter())
        .filter_map(|line| fields(line, "lost"))
        .collect();
    assert_eq!(
        told.len() as u64,
        RANKS - 1,
        "not every survivor was told of a loss:\n{all}"
    );
    for rank in &told {
        let at = Duration::from_micros(rank[2].parse().expect("a time"));
        println!(
            "rank {} was told after {:?}",
            rank[0],
            at.saturating_sub(killed)
        );
        assert_eq!(
            rank[1],
            victim.to_string(),
            "rank {} was told of another:\n{all}",
            rank[0]
        );
    }
    assert_eq!(status, 128 + 9, "the status is the killed rank's:\n{all}");
    trace.assert_nothing_left();
}

fn fresh_seed() -> u64 {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())
        .expect("the kernel gives random bytes");
    // Few digits, to be typed again.
    u64::from_le_bytes(bytes) % 1_000_000_000
}
