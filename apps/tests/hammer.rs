//! Ranks that access each other's memory during a fault: by shared memory, and where only pinned
//! memory is reached. Faults of RDMA need a machine of their own: `cargo xtask faults`.

mod support;

use hydrant::Strategy;
use serde_json::Value;
use support::{
    Launcher::{self, HydrantRun, Pinned},
    job, texts,
};

const HAMMER: &str = env!("CARGO_BIN_EXE_hammer");
const RANKS: u32 = 4;

/// The reports of all surviving ranks.
#[track_caller]
fn reports(launcher: Launcher, arguments: &[&str]) -> Vec<Value> {
    let arguments = [arguments, &["--format", "json"]].concat();
    let output = job(launcher, RANKS, HAMMER, &arguments).unwrap();
    let (out, err) = texts(&output);
    let lines = out.lines().filter(|line| line.starts_with('{'));
    let stories: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).expect("a rank prints JSON"))
        .collect();
    for story in &stories {
        assert_eq!(story["wrong"], 0, "{story}{err}");
        assert_eq!(story["pinned_after"], 0, "{story}{err}");
        let cases = story["cases"].as_array().unwrap();
        let wrong: Vec<_> = cases.iter().filter(|case| case["right"] != true).collect();
        assert!(wrong.is_empty(), "{wrong:?}{err}");
    }
    stories
}

fn strategies() -> impl Iterator<Item = Strategy> {
    (Strategy::ALL.into_iter()).filter(|strategy| *strategy != Strategy::Paging)
}

#[test]
fn ranks_find_all_data_at_its_address() {
    let pinned = strategies().map(|strategy| Pinned(strategy.name()));
    for launcher in pinned.chain([HydrantRun]) {
        let stories = reports(launcher, &["--seconds", "0.5"]);
        assert_eq!(stories.len() as u32, RANKS, "{launcher:?}");
        for story in stories {
            assert!(
                story["verified"].as_u64() > Some(0),
                "{launcher:?}: {story}"
            );
            assert_eq!(story["failure"], Value::Null, "{launcher:?}: {story}");
        }
    }
}

#[test]
fn survivors_of_a_killed_rank_go_on_without_it() {
    for launcher in [HydrantRun, Pinned("firehose"), Pinned("bounce")] {
        for situation in ["put", "move", "registration"] {
            // Shared memory has neither moves nor registrations.
            if launcher != Pinned("firehose") && situation != "put" {
                continue;
            }
            let arguments = ["--seconds", "20", "--at", "0.2", "--die", situation];
            let stories = reports(launcher, &arguments);
            assert_eq!(stories.len() as u32, RANKS - 1, "{launcher:?}");
            for story in stories {
                let lost: Vec<_> = story["lost"].as_array().unwrap().iter().collect();
                assert_eq!(lost.len(), 1, "{launcher:?} {situation}: {story}");
                assert_eq!(lost[0]["rank"], 1, "{launcher:?} {situation}: {story}");
                assert!(lost[0]["operations_after"].as_u64() > Some(0), "{story}");
                assert_eq!(story["errors"].as_array().unwrap().len(), 1, "{story}");
            }
        }
    }
}

#[test]
fn memory_that_cannot_be_reached_is_an_error_and_nothing_else() {
    let pinned = strategies().map(|strategy| Pinned(strategy.name()));
    for launcher in pinned.chain([HydrantRun]) {
        let stories = reports(launcher, &["--targets"]);
        assert_eq!(stories.len() as u32, RANKS, "{launcher:?}");
        for story in stories {
            assert!(
                !story["cases"].as_array().unwrap().is_empty(),
                "{launcher:?}"
            );
        }
    }
}
