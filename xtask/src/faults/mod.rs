//! `cargo xtask faults`: injects faults under a job on RDMA, in virtual machines.
//!
//! It reports the errors that the ranks got, the time until then, and the resources that were left.
//! The ranks run `hammer` of `apps`, which checks everything that it reads. `docs/faults.md` has a
//! table that this command printed.

pub(crate) mod runs;
pub(crate) mod scenarios;
pub(crate) mod table;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::command::{quoted, run_listening, succeeded, target_folder};
use crate::dose::Dose;
use crate::error::Error;
use crate::programs;
use crate::vm;
use runs::Listener;
use scenarios::{ALL, MachineKind, Scenario};

/// The choice of scenarios, and the file for the table.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Also write the table, as Markdown, to this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Only scenarios whose names have this in them
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// The beginning of every script, whatever the ranks run on.
pub(crate) const JOB: &str = include_str!("job.sh");

/// A limit that ends a hang, longer than any machine takes.
const SECONDS: &str = "1500";

/// A limit so low that moves and evictions happen all the time.
const LIMITS: [(&str, &str); 2] = [("HYDRANT_M", "128K"), ("HYDRANT_MAXVICTIM", "16K")];

/// Runs all scenarios and prints the table. Returns success if all came out as expected.
pub(crate) fn report(arguments: &Arguments) -> ExitCode {
    let chosen: Vec<Scenario> = (ALL.iter().copied())
        .filter(|it| it.name.contains(&arguments.only))
        .collect();
    match try_all(&chosen) {
        Ok(outcome) => {
            print!("\n{}", outcome.table);
            let written = (arguments.markdown.as_ref()).map(|file| {
                fs::write(file, &outcome.table).map_err(vm::Error::file("write", file))
            });
            if let Some(Err(cause)) = written {
                eprintln!("faults: {cause}");
                return ExitCode::FAILURE;
            }
            outcome.problems.iter().for_each(|it| println!("{it}"));
            if outcome.problems.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(cause) => {
            eprintln!("faults: {cause}");
            ExitCode::FAILURE
        }
    }
}

/// The part of `test` and `full`. In the short dose each short scenario runs once.
pub(crate) fn check(dose: Dose) -> Result<Vec<String>, Error> {
    try_all(&in_dose(ALL, dose))?.checked()
}

/// The scenarios of a dose.
pub(crate) fn in_dose(all: &[Scenario], dose: Dose) -> Vec<Scenario> {
    match dose {
        Dose::Long => all.to_vec(),
        Dose::Short => (all.iter().copied())
            .filter(|it| it.short)
            .map(|it| Scenario { runs: 1, ..it })
            .collect(),
    }
}

/// The outcome of all scenarios.
pub(crate) struct FaultsOutcome {
    /// The table, as Markdown.
    pub(crate) table: String,
    /// The problems found, a sentence each.
    problems: Vec<String>,
}

impl FaultsOutcome {
    /// # Errors
    /// Nothing was tried.
    pub(crate) fn of(results: &[runs::Tried]) -> Result<Self, Error> {
        if results.is_empty() {
            return Err(Error::NothingRan {
                command: "faults".into(),
            });
        }
        Ok(Self {
            table: table::of_all(results),
            problems: results.iter().flat_map(runs::Tried::problems).collect(),
        })
    }

    /// The lines of the table.
    ///
    /// # Errors
    /// The table and the problems, if there are any.
    pub(crate) fn checked(self) -> Result<Vec<String>, Error> {
        let lines: Vec<String> = self.table.lines().map(str::to_owned).collect();
        if self.problems.is_empty() {
            Ok(lines)
        } else {
            Err(Error::Faults {
                problems: [lines, self.problems].concat(),
            })
        }
    }
}

fn try_all(chosen: &[Scenario]) -> Result<FaultsOutcome, Error> {
    programs::build_shipped()?;
    let mut results = Vec::new();
    for machine in [MachineKind::Wire, MachineKind::Hosts] {
        let here: Vec<Scenario> = (chosen.iter().copied())
            .filter(|it| it.machine == machine)
            .collect();
        if !here.is_empty() {
            results.extend(run_in(machine, &here)?);
        }
    }
    FaultsOutcome::of(&results)
}

/// Boots one machine and runs all scenarios of its kind.
fn run_in(machine: MachineKind, scenarios: &[Scenario]) -> Result<Vec<runs::Tried>, Error> {
    let (options, name): (&[&str], _) = match machine {
        MachineKind::Wire => (&["--devices", "2"], "faults-1.sh"),
        _ => (&["--hosts", "2"], "faults-2.sh"),
    };
    let script = write_script(name, machine, scenarios)?;
    let mut command = vm::in_machine(SECONDS, options, &script)?;
    command.envs(LIMITS);
    let mut listener = Listener::new(scenarios);
    let (command, status) = run_listening(command, |line| listener.listen(line))?;
    succeeded(command, status, vec![])?;
    Ok(listener.tried())
}

/// Writes the script's file. The file stays, so that it can be run again by hand.
fn write_script(
    name: &str,
    machine: MachineKind,
    scenarios: &[Scenario],
) -> Result<PathBuf, Error> {
    let program = |name: &str| quoted(&programs::shipped(name).to_string_lossy());
    let mut text = format!(
        "exec 2>&1\nwork=/tmp/faults\nmkdir -p $work\nhydrant={}\nhammer={}\n",
        program("hydrant"),
        program("hammer")
    );
    text += JOB;
    text += include_str!("functions.sh");
    text += match machine {
        MachineKind::Wire => "export HYDRANT_CONDUIT=verbs\n",
        MachineKind::Hosts | MachineKind::Namespaces => {
            "launch='--hosts host1:2,host2:2 --host-silence 30'\n"
        }
    };
    text += &calls(scenarios);
    let folder = target_folder().join("vm");
    let file = folder.join(name);
    let wrote = fs::create_dir_all(folder).and_then(|()| fs::write(&file, text));
    wrote.map_err(vm::Error::file("write", &file))?;
    Ok(file)
}

/// The part of a script that runs the scenarios.
pub(crate) fn calls(scenarios: &[Scenario]) -> String {
    let mut text = String::new();
    for scenario in scenarios {
        for run in 1..=scenario.runs {
            // A subshell, so that its settings end with it.
            text += &format!(
                "echo; echo fault begins: {}\n(run={run}; {})\necho; echo fault ends\n",
                quoted(scenario.name),
                scenario.script
            );
        }
    }
    text
}
