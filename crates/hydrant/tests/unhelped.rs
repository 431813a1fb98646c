//! Ranks whose helper cannot be started: the system refuses each thread that asks for the default stack, because
//! no address space has room for that. The network's own threads have small stacks of their own, and there is no
//! service thread.

use std::{
    env,
    io::{self, Write},
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
    thread,
};

use hydrant::{Rank, Result};
use hydrant_testing::{launcher, roles};

const RANKS: u32 = 2;
const LEN: usize = 64 << 10;
const ROUNDS: u8 = 8;
/// What the standard library takes for the bytes of a stack, and more than there are.
const STACK: (&str, &str) = ("RUST_MIN_STACK", "2305843009213693952");

fn main() -> ExitCode {
    let tests = vec![roles::test("all_is_registered_on_demand", on_demand)];
    roles::main(role, tests)
}

fn role(role: &str, _: &[String]) -> Option<ExitCode> {
    let end = match role {
        "rank" => begin_anew(),
        "unhelped" => use_memory().map_err(|error| error.to_string()),
        _ => return None,
    };
    Some(match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // In one piece, for the other rank may say the same at the same time.
            let _ = io::stderr().write_all(format!("error {error}\n").as_bytes());
            ExitCode::FAILURE
        }
    })
}

/// The launcher needs threads; the rank that it started has none from here on.
fn begin_anew() -> std::result::Result<(), String> {
    let words = roles::role(&["unhelped"]);
    let mut command = Command::new(&words[0]);
    let cause = command.args(&words[1..]).env(STACK.0, STACK.1).exec();
    Err(cause.to_string())
}

fn on_demand() {
    for inter_node in [None, Some("smp+pin")] {
        let mut command = launcher::command(RANKS, &["rank"]);
        command.envs([
            ("HYDRANT_CONDUIT", "smp+pin"),
            ("HYDRANT_REGISTRATION", "foresight"),
            ("HYDRANT_SERVICE", "off"),
            ("RUST_LOG", "warn"),
        ]);
        if let Some(conduit) = inter_node {
            command.envs([
                ("HYDRANT_CONDUIT", "auto"),
                ("HYDRANT_PRETEND_HOSTS", "2"),
                ("HYDRANT_INTER_NODE", conduit),
            ]);
        }
        let output = command.output().expect("the job starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{inter_node:?}: {text}");
    }
}

/// Puts, gets and long messages, all of which arrive.
fn use_memory() -> Result<()> {
    let refused = thread::Builder::new().spawn(|| ());
    assert!(
        refused.is_err(),
        "threads can be started: {:?}",
        env::var(STACK.0)
    );
    let job = hydrant::join()?;
    let memory = job.alloc::<u8>(LEN)?;
    for round in 0..ROUNDS {
        let mut data = vec![round + 1; LEN];
        if job.rank() == Rank(0) {
            memory.put(Rank(1), 0, &data)?;
            data.fill(0);
            memory.get(Rank(1), 0, &mut data)?;
            assert!(data.iter().all(|byte| *byte == round + 1));
            job.send(Rank(1), 1, &data)?;
        } else {
            data.fill(0);
            job.receive(Rank(0), 1, &mut data)?;
            assert!(data.iter().all(|byte| *byte == round + 1));
        }
        job.barrier()?;
    }
    let foresight = job.foresight().expect("it is the strategy");
    assert!(!foresight.is_helped, "{foresight:?}");
    assert_eq!((foresight.registered_ahead, foresight.given_up), (0, 0));
    let local = job.registration().expect("memory is registered").local;
    assert!(local.registrations > 0, "{local:?}");
    job.finalize()
}
