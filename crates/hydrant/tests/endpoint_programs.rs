//! The example programs of endpoints, small. Each starts processes of its own, kills some, and checks its answer.

#[path = "../examples/cache.rs"]
mod cache;
#[path = "../examples/guests.rs"]
mod guests;

use std::{error::Error, process::ExitCode};

use hydrant_testing::roles::{self, test};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = |outcome: Result<(), Box<dyn Error>>| match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    };
    // The processes that the programs start.
    match words[..] {
        ["guest", ..] => return ended(guests::play(&words)),
        ["store", ..] => return ended(cache::play(&words)),
        _ => {}
    }
    roles::main(
        |_, _| None,
        vec![
            test("guests_come_and_go_and_see_only_their_pages", || {
                guests::play(&["1000"]).unwrap();
            }),
            test("a_cache_whose_processes_are_killed_loses_nothing", || {
                cache::play(&["2"]).unwrap();
            }),
        ],
    )
}
