//! The jobs and the faults, and the result that is expected of each.

use crate::faults::scenarios::Expected::{self, Cases, Lost, Split, Unharmed};
use crate::faults::scenarios::{MachineKind, Scenario};

/// All scenarios, in the order of the table.
pub(super) const ALL: &[Scenario] = &[
    short(
        "cannon on two hosts",
        1,
        "hosts a b; program 'cannon on two hosts' 'every element is that of the serial product' \
         env -u HYDRANT_INTER_NODE $target/hydrant run -n 4 --hosts a,b $target/cannon --n 300",
        Cases(1),
    ),
    short(
        "cannon on three hosts",
        1,
        "hosts a b c; program 'cannon on three hosts' 'every element is that of the serial product' \
         $target/hydrant run -n 4 --hosts a:2,b,c $target/cannon --n 300",
        Cases(1),
    ),
    short(
        "torture on two hosts",
        2,
        "hosts a b; start_ranks a,b torture --seconds 3 --seed $run; end",
        Unharmed,
    ),
    long(
        "torture on three hosts",
        2,
        "hosts a b c; start_ranks a:2,b,c torture --seconds 6 --seed 1$run; end",
        Unharmed,
    ),
    short(
        "rank killed in mid-put",
        4,
        "hosts a b; begin a,b --die put --at 0.$((run * 2)) --seed $run --seconds 20; end",
        Lost(&[1]),
    ),
    long(
        "rank stopped for 2 s",
        2,
        "hosts a b; begin a,b $until_enough --seed $run; sleep 0.5; now; kill -STOP $(rank 1); \
         sleep 2; kill -CONT $(rank 1); sleep 1; enough; end",
        Unharmed,
    ),
    short(
        "rank stopped for good",
        2,
        "hosts a b; begin a,b $until_enough --seed $run; sleep 0.5; now; kill -STOP $(rank 1); \
         survivors 3; kill -KILL $(rank 1); end",
        Lost(&[1]),
    ),
    short(
        "link down for 2 s",
        4,
        "hosts a b; begin a,b $until_enough --seed $run; sleep 0.5; now; cut_link b; sleep 2; mend_link b; \
         sleep 1; enough; end",
        Unharmed,
    ),
    short(
        "link cut for good",
        2,
        "hosts a b; begin a,b $until_enough --seed $run; sleep 0.5; now; cut_link b; end",
        Split(&[0, 1]),
    ),
];

/// A scenario that every test run tries.
const fn short(
    name: &'static str,
    runs: u32,
    script: &'static str,
    expected: Expected,
) -> Scenario {
    Scenario {
        name,
        machine: MachineKind::Namespaces,
        runs,
        short: true,
        script,
        expected,
    }
}

/// A scenario of the long dose only.
const fn long(name: &'static str, runs: u32, script: &'static str, expected: Expected) -> Scenario {
    Scenario {
        short: false,
        ..short(name, runs, script, expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_runs_have_times_below_a_second() {
        for (at, scenario) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|other| other.name != scenario.name));
            // `--at 0.$((run * 2))`: from the fifth run on, the time would be earlier again.
            assert!((1..=4).contains(&scenario.runs), "{}", scenario.name);
        }
    }
}
