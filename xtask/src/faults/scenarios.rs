//! The faults: how each is injected, and the result that is expected.

/// The kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MachineKind {
    /// One host with a device at either end of a wire. Ranks 0 and 2 use the first device, ranks 1
    /// and 3 the second.
    Wire,
    /// Two hosts; ranks 0 and 1 are on the first.
    Hosts,
    /// No machine: network namespaces of this host, which the script makes itself.
    Namespaces,
}

impl MachineKind {
    /// The resources that are counted before and after a job.
    pub(crate) fn resources(self) -> &'static str {
        match self {
            MachineKind::Wire | MachineKind::Hosts => "pinned pages",
            MachineKind::Namespaces => "processes or files of shared memory",
        }
    }

    /// The heading of the column of what a job left.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            MachineKind::Wire | MachineKind::Hosts => "left pinned",
            MachineKind::Namespaces => "left behind",
        }
    }
}

/// The result that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// No error, at no rank.
    Unharmed,
    /// Every surviving rank gets the error that these ranks are lost, and no other error.
    Lost(&'static [u32]),
    /// These ranks are one half, the others the other. Each half gets the error that the other half
    /// is lost.
    Split(&'static [u32]),
    /// No rank begins. An error contains all these texts; the first one is shown.
    Refused(&'static [&'static str]),
    /// Cases tried separately. So many reports say for each whether it was right.
    Cases(usize),
}

/// One fault to inject.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) machine: MachineKind,
    pub(crate) runs: u32,
    /// True for the scenarios that every test run tries, once.
    pub(crate) short: bool,
    /// The calls that inject the fault: functions of `functions.sh`. `$run` is the number of the
    /// run.
    pub(crate) script: &'static str,
    pub(crate) expected: Expected,
}

use Expected::{Cases, Lost, Refused, Split, Unharmed};
use MachineKind::{Hosts, Wire};

/// All scenarios, in the order of the table.
pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "nothing",
        machine: Wire,
        runs: 1,
        short: false,
        script: "begin --seconds 2; end",
        expected: Unharmed,
    },
    Scenario {
        name: "1 % of packets lost",
        machine: Wire,
        runs: 3,
        short: true,
        script: "netem loss 1%; begin --seconds 3 --seed $run; end; calm",
        expected: Unharmed,
    },
    Scenario {
        name: "5 % of packets lost",
        machine: Wire,
        runs: 3,
        short: false,
        script: "netem loss 5%; begin --seconds 3 --seed $run; end; calm",
        expected: Unharmed,
    },
    Scenario {
        name: "one packet in four overtaken",
        machine: Wire,
        runs: 2,
        short: false,
        script: "netem delay 2ms reorder 75% 50%; begin --seconds 3 --seed $run; end; calm",
        expected: Unharmed,
    },
    Scenario {
        name: "5 % of packets twice",
        machine: Wire,
        runs: 2,
        short: false,
        script: "netem duplicate 5%; begin --seconds 3 --seed $run; end; calm",
        expected: Unharmed,
    },
    Scenario {
        name: "wire cut for 5 s",
        machine: Wire,
        runs: 2,
        short: false,
        script: "begin $until_enough --seed $run; sleep 0.5; now; cut; sleep 5; mend; \
                 sleep 1; enough; end",
        expected: Unharmed,
    },
    Scenario {
        name: "wire cut for good",
        machine: Wire,
        runs: 1,
        short: false,
        script: "begin $until_enough; sleep 0.5; now; cut; end; mend",
        expected: Split(&[0, 2]),
    },
    Scenario {
        name: "rank killed in mid-put",
        machine: Wire,
        runs: 5,
        short: true,
        script: "begin --die put --at 0.$((run * 2)) --seed $run --seconds 20; end",
        expected: Lost(&[1]),
    },
    Scenario {
        name: "rank killed in mid-move",
        machine: Wire,
        runs: 5,
        short: false,
        script: "begin --die move --at 0.$((run * 2)) --seed $run --seconds 20; end",
        expected: Lost(&[1]),
    },
    Scenario {
        name: "rank killed in mid-registration",
        machine: Wire,
        runs: 5,
        short: false,
        script: "begin --die registration --at 0.$((run * 2)) --seed $run --seconds 20; end",
        expected: Lost(&[1]),
    },
    Scenario {
        name: "rank killed, 5 % of packets lost",
        machine: Wire,
        runs: 3,
        short: false,
        script: "netem loss 5%; begin --die put --at 0.$((run * 2)) --seed $run --seconds 20; \
                 end; calm",
        expected: Lost(&[1]),
    },
    Scenario {
        name: "rank stopped for 3 s",
        machine: Wire,
        runs: 2,
        short: false,
        script: "begin $until_enough --seed $run; sleep 0.5; now; kill -STOP $(rank 1); sleep 3; \
                 kill -CONT $(rank 1); sleep 1; enough; end",
        expected: Unharmed,
    },
    Scenario {
        name: "rank stopped for good",
        machine: Wire,
        runs: 2,
        short: false,
        script: "begin $until_enough --seed $run; sleep 0.5; now; kill -STOP $(rank 1); \
                 survivors 3; kill -KILL $(rank 1); end",
        expected: Lost(&[1]),
    },
    Scenario {
        name: "memlock of 64 KiB",
        machine: Wire,
        runs: 1,
        short: false,
        script: "limit=64; unset HYDRANT_M HYDRANT_MAXVICTIM; begin; end",
        expected: Refused(&["RLIMIT_MEMLOCK"]),
    },
    Scenario {
        name: "memlock of 8 MiB",
        machine: Wire,
        runs: 1,
        short: true,
        script: "limit=8192; unset HYDRANT_M HYDRANT_MAXVICTIM; begin --seconds 2; end",
        expected: Unharmed,
    },
    Scenario {
        name: "memlock less than M",
        machine: Wire,
        runs: 1,
        short: false,
        script: "limit=1000; begin --seconds 2; end",
        expected: Unharmed,
    },
    Scenario {
        name: "memory regions used up",
        machine: Wire,
        runs: 2,
        short: false,
        script: "confine; begin $until_enough --seed $run; sleep 0.5; now; no_more; sleep 3; enough; end",
        expected: Unharmed,
    },
    Scenario {
        name: "memory",
        machine: Wire,
        runs: 1,
        short: true,
        script: "begin --targets; end",
        expected: Cases(4),
    },
    Scenario {
        name: "interface of a host down for 5 s",
        machine: Hosts,
        runs: 5,
        short: false,
        script: "begin $until_enough; sleep 0.5; now; ip link set eth0 down; sleep 5; \
                 ip link set eth0 up; sleep 1; enough; end",
        expected: Unharmed,
    },
    Scenario {
        name: "host stopped",
        machine: Hosts,
        runs: 1,
        short: false,
        script: "begin $until_enough; sleep 0.5; now; control stop host2; end; \
                 control continue host2; sleep 3",
        expected: Lost(&[2, 3]),
    },
    Scenario {
        name: "host gone",
        machine: Hosts,
        runs: 1,
        short: false,
        script: "begin $until_enough; sleep 0.5; now; control kill host2; end",
        expected: Lost(&[2, 3]),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_runs_have_times_below_a_second() {
        for (at, scenario) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|other| other.name != scenario.name));
            // `--at 0.$((run * 2))`: from the fifth run on, the time would be earlier again.
            assert!((1..=5).contains(&scenario.runs), "{}", scenario.name);
        }
    }

    #[test]
    fn a_scenario_that_kills_a_host_is_the_last_of_its_machine() {
        let last = ALL.iter().rev().find(|it| it.machine == Hosts);
        assert!(last.is_some_and(|it| it.script.contains("kill host2")));
    }
}
