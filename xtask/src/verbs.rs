//! The check of RDMA on a real kernel: programs and tests that run in virtual machines.
//!
//! A machine takes long to boot where processors are emulated. So all steps that want the same kind
//! of machine run in one, by a script that reports the end of each step.

use std::env;
use std::fs;
use std::path::PathBuf;

use crate::command::{quoted, run_listening, succeeded, target_folder};
use crate::dose::Dose;
use crate::error::Error;
use crate::faults;
use crate::programs::{self, TestProgram};
use crate::runners::ran_something;
use crate::tool::Tool;
use crate::vm;

/// The tools that the machine must have.
pub(crate) const TOOLS: &[Tool] = &[
    Tool::Cc,
    Tool::Qemu,
    Tool::Busybox,
    Tool::Kmod,
    Tool::Xz,
    Tool::Ip,
    Tool::IbverbsUtils,
    Tool::IbverbsProviders,
    Tool::SshClient,
    Tool::Perftest,
];

/// The tests that run, with the machines they need: one line each.
const SUITES: [VerbsSuite; 11] = [
    VerbsSuite {
        hosts: 1,
        package: "hydrant-smp",
        target: "processes",
        short: Some(""),
        long: "",
    },
    VerbsSuite {
        hosts: 1,
        package: "hydrant-verbs",
        target: "conformance",
        short: Some("plain"),
        long: "",
    },
    VerbsSuite {
        hosts: 1,
        package: "hydrant-verbs",
        target: "bare",
        short: Some(""),
        long: "",
    },
    VerbsSuite {
        hosts: 1,
        package: "hydrant",
        target: "native_atomics",
        short: Some(""),
        long: "",
    },
    VerbsSuite {
        hosts: 1,
        package: "hydrant",
        target: "expelled",
        short: Some("over_rdma"),
        long: "over_rdma",
    },
    VerbsSuite {
        hosts: 1,
        package: "hydrant",
        target: "foresight",
        short: Some("over_rdma"),
        long: "over_rdma",
    },
    VerbsSuite {
        hosts: 1,
        package: "hydrant",
        target: "joined",
        short: Some("over_rdma"),
        long: "over_rdma",
    },
    VerbsSuite {
        hosts: 1,
        package: "hydrant",
        target: "paged",
        short: Some("gone"),
        long: "",
    },
    VerbsSuite {
        hosts: 1,
        package: "hydrant-apps",
        target: "verbs",
        short: Some("bitonic"),
        long: "",
    },
    VerbsSuite {
        hosts: 1,
        package: "hydrant-mixed",
        target: "conformance",
        short: None,
        long: "verbs_",
    },
    VerbsSuite {
        hosts: 2,
        package: "hydrant-apps",
        target: "hosts",
        short: Some("bitonic"),
        long: "",
    },
];

/// Foreign programs that must run. If they fail, the machine is to blame and not our code.
const PROGRAMS: [ForeignProgram; 4] = [
    ForeignProgram {
        hosts: 1,
        name: "ibv_rc_pingpong on one host",
        script: "both_ends ibv_rc_pingpong -g 1",
    },
    ForeignProgram {
        hosts: 1,
        name: "ib_write_lat on one host",
        script: "both_ends ib_write_lat -x 1 -n 100",
    },
    ForeignProgram {
        hosts: 2,
        name: "ibv_rc_pingpong between hosts",
        script: "between ibv_rc_pingpong -g 1 -n 100",
    },
    ForeignProgram {
        hosts: 2,
        name: "ib_write_lat between hosts",
        script: "between ib_write_lat -x 1 -n 100",
    },
];

/// A limit that ends a hang, longer than any machine takes.
const SECONDS: &str = "3600";

/// The beginning of every script. A client retries until its server is there. Both outputs go to
/// one stream, so that no line is torn by another.
const FUNCTIONS: &str = r#"
exec 2>&1
step() {
	echo "step begins: $1"
	name=$1
	shift
	if "$@"; then
		echo
		echo "step passed: $name"
	else
		status=$?
		echo
		echo "step failed with status $status: $name"
		failed=1
		wire
	fi
}
# Between two machines: whether they still hear of each other at all. If not, no program of ours is
# to blame, and what is known of it is said.
wire() {
	[ -n "$HYDRANT_TEST_HOSTS" ] || return 0
	timeout 60 ssh host2 true && return
	echo "the wire stands still"
	ip -s link show eth0
	grep virtio /proc/interrupts
	dmesg | grep -v 'speed is unknown' | tail -n 40
	exit 1
}
client() {
	tries=0
	until "$@"; do
		tries=$((tries + 1))
		[ $tries -lt 40 ] || return 1
		sleep 0.5
	done
}
both_ends() {
	"$@" >/dev/null &
	client "$@" localhost && wait $!
}
between() {
	timeout 300 ssh host2 "$@" >/dev/null &
	client timeout 60 "$@" host2 && wait $!
}
in_folder() {
	cd "$1" || return
	shift
	CARGO_MANIFEST_DIR=$PWD "$@"
}
failed=0
"#;

struct VerbsSuite {
    /// The number of machines that it needs.
    hosts: u32,
    package: &'static str,
    /// The file in the package's `tests` folder.
    target: &'static str,
    /// The tests of the short dose: those with this in their name, or none.
    short: Option<&'static str>,
    /// The tests of the long dose.
    long: &'static str,
}

struct ForeignProgram {
    hosts: u32,
    name: &'static str,
    script: &'static str,
}

/// One line of a script.
#[derive(Debug, PartialEq, Eq)]
struct ScriptStep {
    name: String,
    script: String,
    /// True if the standard test harness must have run a test in it.
    has_tests: bool,
}

/// Runs every program and the tests of this dose, in as few machines as possible. A failure in one
/// machine does not keep the others from running.
pub(crate) fn verbs(dose: Dose) -> Result<Vec<String>, Error> {
    // Tests start the command and build it if it is missing. A build takes very long in the
    // machine.
    programs::build_shipped()?;
    let suites: Vec<VerbsSuite> = (SUITES.into_iter())
        .filter(|it| it.tests(dose).is_some())
        .collect();
    let tests: Vec<_> = suites.iter().map(|it| (it.package, it.target)).collect();
    let tests = programs::build_tests(&tests)?;
    let [one, two] = [1, 2].map(|hosts| with_hosts(hosts, dose, &suites, &tests));
    let broken = faults::check(dose);
    let mut notes = one?;
    notes.extend(two?);
    notes.extend(broken?);
    Ok(notes)
}

/// Runs the suites that need this many machines. `tests` are the programs of all suites, in their
/// order.
fn with_hosts(
    hosts: u32,
    dose: Dose,
    suites: &[VerbsSuite],
    tests: &[TestProgram],
) -> Result<Vec<String>, Error> {
    let mut steps = Vec::new();
    for program in PROGRAMS.iter().filter(|it| it.hosts == hosts) {
        steps.push(ScriptStep {
            name: program.name.to_owned(),
            script: program.script.to_owned(),
            has_tests: false,
        });
    }
    let suites = suites.iter().zip(tests);
    for (suite, program) in suites.filter(|(suite, _)| suite.hosts == hosts) {
        steps.extend((suite.tests(dose)).map(|only| suite.step(program, only)));
    }
    if hosts == 1 {
        steps.push(soak(dose)?);
    }
    run_steps(hosts, &steps)
}

/// The part of [`crate::soak`] that needs the virtual machine.
fn soak(dose: Dose) -> Result<ScriptStep, Error> {
    let this = env::current_exe().map_err(|source| Error::NotRun {
        command: "xtask soak".into(),
        source,
    })?;
    Ok(ScriptStep {
        name: "soak".to_owned(),
        script: format!(
            "{} soak --here --only verbs --minutes {}",
            quoted(&this.to_string_lossy()),
            dose.soak_on_verbs().as_secs_f64() / 60.0
        ),
        has_tests: false,
    })
}

impl VerbsSuite {
    /// The filter of the tests that this dose runs; `None` if it runs none.
    fn tests(&self, dose: Dose) -> Option<&'static str> {
        match dose {
            Dose::Short => self.short,
            Dose::Long => Some(self.long),
        }
    }

    /// The step that runs those of its tests whose names have `only` in them.
    fn step(&self, program: &TestProgram, only: &str) -> ScriptStep {
        ScriptStep {
            name: format!("{} {}", self.package, self.target),
            // One test at a time, because its ranks want the processors for themselves.
            script: format!(
                "in_folder {} {} --test-threads=1 {}",
                quoted(&program.folder.to_string_lossy()),
                quoted(&program.file.to_string_lossy()),
                only
            ),
            has_tests: true,
        }
    }
}

/// Boots the machines and runs the steps. Each step must pass, and steps with tests must have run
/// some. If the machines lost contact, that is a fault of theirs, so the steps run once more in new
/// machines.
fn run_steps(hosts: u32, steps: &[ScriptStep]) -> Result<Vec<String>, Error> {
    let mut stood_still = false;
    let ended = boot_for(hosts, steps, &mut stood_still);
    if ended.is_ok() || !stood_still {
        return ended;
    }
    let mut notes = boot_for(hosts, steps, &mut stood_still)?;
    let why = "the wire between the machines stood still: all steps ran again in new ones";
    notes.insert(0, why.to_owned());
    Ok(notes)
}

/// Like [`run_steps`], in one boot. Sets `stood_still` if the wire between the machines stopped.
fn boot_for(
    hosts: u32,
    steps: &[ScriptStep],
    stood_still: &mut bool,
) -> Result<Vec<String>, Error> {
    let script = write_script(hosts, steps)?;
    let mut command = vm::in_machine(SECONDS, &["--hosts", &hosts.to_string()], &script)?;
    // The machine has a device, so no test may skip itself.
    command.env("HYDRANT_TEST_REQUIRE", "1");
    if hosts > 1 {
        command.env("HYDRANT_TEST_HOSTS", "host1,host2");
    }

    let mut outcome = ScriptProgress::default();
    let (command, status) = run_listening(command, |line| outcome.listen(line))?;
    *stood_still = outcome.stood_still;
    let notes = succeeded(command, status, outcome.notes)?;
    let idle = steps.iter().find(|step| {
        let has_passed = outcome.passed.contains(&step.name);
        !has_passed || step.has_tests && !outcome.tested.contains(&step.name)
    });
    match idle {
        None => Ok(notes),
        Some(step) => Err(Error::NothingRan {
            command: step.name.clone(),
        }),
    }
}

/// Writes the script's file. The file stays, so that it can be run again by hand.
fn write_script(hosts: u32, steps: &[ScriptStep]) -> Result<PathBuf, Error> {
    let mut text = FUNCTIONS.to_owned();
    for step in steps {
        text += &format!("step {} {}\n", quoted(&step.name), step.script);
    }
    text += "exit $failed\n";
    let folder = target_folder().join("vm");
    let file = folder.join(format!("verbs-{hosts}.sh"));
    let wrote = fs::create_dir_all(folder).and_then(|()| fs::write(&file, text));
    wrote.map_err(vm::Error::file("write", &file))?;
    Ok(file)
}

/// The script's reports so far.
#[derive(Debug, Default)]
struct ScriptProgress {
    /// The step that runs.
    now: String,
    passed: Vec<String>,
    /// The steps in which tests ran.
    tested: Vec<String>,
    /// True if the machines lost contact.
    stood_still: bool,
    notes: Vec<String>,
}

impl ScriptProgress {
    fn listen(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("step begins: ") {
            self.now = name.to_owned();
        } else if let Some(name) = line.strip_prefix("step passed: ") {
            self.passed.push(name.to_owned());
            self.notes.push(line.to_owned());
        } else if line == "the wire stands still" {
            self.stood_still = true;
        } else if line.starts_with("step failed ") {
            self.notes.push(line.to_owned());
        } else if ran_something(line) {
            self.tested.push(self.now.clone());
            self.notes.push(format!("{}: {line}", self.now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_step_is_separate_from_its_status() {
        let mut outcome = ScriptProgress::default();
        for line in [
            "step begins: a",
            "test result: ok. 0 passed; 0 failed; 3 ignored",
            "step passed: a",
            "step begins: b c",
            "test result: ok. 2 passed; 0 failed; 0 ignored",
            "step failed with status 1: b c",
        ] {
            outcome.listen(line);
        }
        assert!(!outcome.stood_still);
        outcome.listen("the wire stands still");
        assert!(outcome.stood_still);
        assert_eq!(outcome.passed, ["a"]);
        assert_eq!(outcome.tested, ["b c"]);
        assert_eq!(outcome.notes.len(), 3);
    }

    #[test]
    fn the_script_continues_after_a_failure_and_reports_it_at_the_end() {
        let steps = ["true", "false", "test a = 'a'"].map(|script| ScriptStep {
            name: format!("it's {script}"),
            script: script.to_owned(),
            has_tests: false,
        });
        let file = write_script(0, &steps).unwrap();
        let ran = std::process::Command::new("sh")
            .arg(&file)
            .output()
            .unwrap();
        fs::remove_file(file).unwrap();
        let said = String::from_utf8(ran.stdout).unwrap();
        let ends: Vec<_> = said.lines().filter(|it| it.contains("ed")).collect();
        let expected = [
            "step passed: it's true",
            "step failed with status 1: it's false",
            "step passed: it's test a = 'a'",
        ];
        assert_eq!(ends, expected);
        assert_eq!(ran.status.code(), Some(1));
    }
}
