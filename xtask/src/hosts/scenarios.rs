//! The jobs and the faults, and the result that is expected of each.

use crate::faults::scenarios::Expected::{self, Cases, Lost, Refused, Split, Unharmed};
use crate::faults::scenarios::{MachineKind, Scenario};

/// All scenarios, in the order of the table.
pub(super) const ALL: &[Scenario] = &[
    short(
        "cannon on two hosts",
        1,
        "hosts a b; cannon 'cannon on two hosts' \
         env -u HYDRANT_INTER_NODE $target/hydrant run -n 4 --hosts a,b",
        Cases(1),
    ),
    short(
        "cannon on three hosts",
        1,
        "hosts a b c; cannon 'cannon on three hosts' \
         $target/hydrant run -n 4 --hosts a:2,b,c",
        Cases(1),
    ),
    short(
        "cannon over ssh",
        1,
        "hosts a b; servers a b; cannon 'cannon over ssh' \
         $target/hydrant run -n 4 --hosts a,b",
        Cases(1),
    ),
    short(
        "cannon by mpiexec.hydra",
        1,
        "hosts a b; cannon 'cannon by mpiexec.hydra' \
         mpiexec.hydra -iface br0 -launcher rsh -launcher-exec $HYDRANT_RSH -hosts a,b -n 4",
        Cases(1),
    ),
    short(
        "cannon by mpirun",
        1,
        "hosts a b; cannon 'cannon by mpirun' \
         open_mpi --mca plm_rsh_agent $HYDRANT_RSH --host a:2,b:2 -n 4",
        Cases(1),
    ),
    long(
        "cannon by mpiexec.hydra over ssh",
        1,
        "hosts a b; servers a b; \
         cannon 'cannon by mpiexec.hydra over ssh' \
         mpiexec.hydra -iface br0 -launcher ssh -launcher-exec $work/go -hosts a,b -n 4",
        Cases(1),
    ),
    long(
        "cannon by mpirun over ssh",
        1,
        "hosts a b; servers a b; \
         cannon 'cannon by mpirun over ssh' \
         open_mpi --mca plm_rsh_agent \"$HYDRANT_RSH\" --host a:2,b:2 -n 4",
        Cases(1),
    ),
    short(
        "torture on two hosts",
        2,
        "hosts a b; start_ranks a,b torture --seconds 2 --seed $run; end",
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
    long(
        "host cut off, ranks begun by ssh",
        1,
        "hosts a b; servers a b; silence='--host-silence 6'; begin a,b $until_enough; sleep 0.5; now; \
         cut_link b; end",
        Lost(&[2, 3]),
    ),
    long(
        "3 % of packets lost",
        2,
        "hosts a b; netem a loss 3% delay 2ms; begin a,b --seconds 3 --seed $run; end",
        Unharmed,
    ),
    short(
        "connections broken under load",
        4,
        "hosts a b; begin a,b $until_enough --seed $run; \
         attack break 2 $(rank 0) $(rank 1) $(rank 2) $(rank 3); enough; end",
        Unharmed,
    ),
    short(
        "stranger at the ranks' ports",
        2,
        "hosts a b; begin a,b $until_enough --seed $run; \
         attack_from a intrude 2 $(ports a 10.9.0.1) $(ports b 10.9.0.2); enough; end",
        Unharmed,
    ),
    short(
        "stranger on another host",
        1,
        "hosts a b; begin a,b $until_enough --seed $run; \
         \"$xtask\" hosts intrude 2 $(ports a 10.9.0.1) $(ports b 10.9.0.2) && exit; enough; end",
        Unharmed,
    ),
    short(
        "connections refused",
        1,
        "hosts a b; firewall b 'reject with tcp reset'; begin a,b --seconds 1; end",
        Refused(&[
            "connection is refused",
            " at 10.9.0.2:",
            "HYDRANT_OFI_INTERFACE",
        ]),
    ),
    short(
        "connections dropped",
        1,
        "hosts a b; firewall b drop; HYDRANT_JOIN_TIMEOUT=3 begin a,b --seconds 1; end",
        Refused(&["get no answer", " at 10.9.0.2:", "HYDRANT_OFI_INTERFACE"]),
    ),
    short(
        "connections dropped on one host, by `hydrant info`",
        1,
        "hosts a b; firewall b drop; HYDRANT_JOIN_TIMEOUT=3 info 'connections dropped on one host' \
         'a makes no connection to b' a,b",
        Cases(1),
    ),
    long(
        "no route",
        1,
        "hosts a b; ip -n b route add prohibit 10.9.0.1/32; HYDRANT_JOIN_TIMEOUT=3 begin a,b --seconds 1; \
         end",
        Refused(&["no route", " at 10.9.0.1:", "HYDRANT_OFI_INTERFACE"]),
    ),
    short(
        "nothing, IPv6 alone",
        1,
        "six=1; hosts a b; begin a,b --seconds 2; end",
        Unharmed,
    ),
    short(
        "bridge that leads nowhere",
        1,
        "docker=ab; hosts a b; begin a,b --seconds 2; end",
        Unharmed,
    ),
    long(
        "a bridge of one host alone",
        1,
        "docker=b; hosts a b; begin a,b --seconds 2; end",
        Unharmed,
    ),
    short(
        "that bridge, named by a setting",
        1,
        "docker=ab; hosts a b; export HYDRANT_OFI_INTERFACE=docker0; begin a,b --seconds 1; end",
        Refused(&["docker0"]),
    ),
    long(
        "host names that are loopback",
        1,
        "hosts a b; for host in a b; do echo \"127.0.0.1 localhost $host\" >$work/names.$host; done; \
         begin a,b --seconds 2; rm $work/names.*; end",
        Unharmed,
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
