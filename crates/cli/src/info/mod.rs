//! `hydrant info`: the resources of this machine for Hydrant, and every setting in force; or the state of
//! other hosts.

mod hosts;
mod page;

use std::io::{self, Write};

use clap::Args;
use hydrant::Settings;
use hydrant::settings::{Origin, SettingRow};
use hydrant_conduit::{Cost, Error, RegistrationCaps};
use serde::Serialize;
use serde_json::{Map, Value};

use hosts::PossibleJobs;
use hydrant_report::format::Format;
use hydrant_report::machine::{Fact, Machine, fact};
use hydrant_report::remote::RemoteArgs;
use hydrant_report::units;

/// The arguments of `hydrant info`.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// How to print it: for people, or one JSON object a line.
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// The reason why not everything was printed, or why no job can run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InfoError {
    /// Standard output is closed or full.
    #[error("cannot print: {0}")]
    Print(#[source] io::Error),
    /// No job starts while a setting is bad.
    #[error("the settings cannot be used: {0}")]
    Setting(#[source] hydrant::Error),
    /// Hosts cannot take part in a job.
    #[error("no job can run on all of these hosts: the list above has the remedies")]
    NoJob,
    /// Some jobs run, and others may fail.
    #[error("a job ran on these hosts, but others may fail: the list above has the remedies")]
    SomeJobs,
}

/// One printed line; as JSON, one object.
#[derive(Debug, Serialize)]
struct InfoLine {
    section: &'static str,
    name: String,
    value: String,
    /// The origin of a setting's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    /// The numbers in the value. Each key ends in its unit; a number is `null` where there is no
    /// limit, or the value is `auto`.
    #[serde(flatten)]
    figures: Map<String, Value>,
    meaning: String,
}

impl InfoLine {
    fn of(section: &'static str, fact: Fact) -> Self {
        let (name, meaning) = (fact.name.to_owned(), fact.meaning.to_owned());
        InfoLine {
            section,
            name,
            value: fact.value,
            origin: None,
            figures: fact.figures,
            meaning,
        }
    }
}

impl From<SettingRow> for InfoLine {
    fn from(row: SettingRow) -> Self {
        let origin = match row.origin {
            Origin::Default => "default",
            Origin::Environment => "environment",
            Origin::Builder => "builder",
            _ => "elsewhere",
        };
        let figure = row.unit.map(|unit| (unit.to_owned(), row.figure().into()));
        // A terminal shows no markup.
        let mut meaning = format!("{}: {}", row.meaning.replace('`', ""), row.values);
        if row.is_experimental {
            meaning += " (for experiments only)";
        }
        if let Some(expected) = row.refused {
            meaning = format!("not valid: expected {expected}");
        }
        InfoLine {
            section: "settings",
            name: row.name.to_owned(),
            value: row.value,
            origin: Some(origin.to_owned()),
            figures: figure.into_iter().collect(),
            meaning,
        }
    }
}

/// Prints everything, then the error of a bad setting in the environment.
pub(crate) fn run(args: &InfoArgs) -> Result<(), InfoError> {
    if !args.remote.hosts.is_empty() {
        // The ranks of all hosts get the settings of this process.
        Settings::from_env().map_err(InfoError::Setting)?;
        let check = hosts::check(&args.remote);
        print(args, &check.lines).map_err(InfoError::Print)?;
        return match check.jobs {
            PossibleJobs::All => Ok(()),
            PossibleJobs::Some => Err(InfoError::SomeJobs),
            PossibleJobs::None => Err(InfoError::NoJob),
        };
    }
    let mut lines = lines();
    let settings = Settings::of_env();
    settings.warn_unknown();
    lines.extend(settings.rows().into_iter().map(InfoLine::from));
    print(args, &lines).map_err(InfoError::Print)?;
    let refusal = settings.refusals().next();
    refusal.map_or(Ok(()), |error| Err(InfoError::Setting(error)))
}

fn print(args: &InfoArgs, lines: &[InfoLine]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match args.format {
        Format::Json => {
            for line in lines {
                writeln!(out, "{}", serde_json::to_string(line)?)?;
            }
        }
        Format::Table => write!(out, "{}", page::text(lines))?,
    }
    out.flush()
}

fn lines() -> Vec<InfoLine> {
    let machine = Machine::here();
    let mut lines = Vec::new();
    lines.extend(conduits().map(|fact| InfoLine::of("conduits", fact)));
    lines.extend(
        machine
            .facts()
            .into_iter()
            .map(|fact| InfoLine::of("machine", fact)),
    );
    lines.push(InfoLine::of("machine", memory_changes()));
    lines.extend(
        machine
            .limits()
            .into_iter()
            .map(|fact| InfoLine::of("limits", fact)),
    );
    lines.push(InfoLine::of("limits", buffers()));
    let environment = |name: &str| std::env::var(name).ok();
    lines.extend(launchers(environment).map(|fact| InfoLine::of("launcher", fact)));
    lines
}

/// The available conduits, and the reason for each missing one.
fn conduits() -> impl Iterator<Item = Fact> {
    [
        fact("smp", "available", "ranks of one host, by shared memory"),
        pinned(hydrant_pin::probe()),
        verbs(),
        ofi(),
        fact(
            "sim",
            "available",
            "a network in virtual time; there, no service thread answers",
        ),
    ]
    .into_iter()
}

/// The active RDMA ports and the cost of registration on the first, or the reason why there are
/// none.
fn verbs() -> Fact {
    let verbs = |value: String| fact("verbs", value, "RDMA NICs, by libibverbs");
    let settings = Settings::of_env();
    let ports = match hydrant::settings::rdma_ports(&settings) {
        Ok(ports) => ports.join(", "),
        Err(why) => return verbs(format!("absent: {why}")),
    };
    let options = hydrant_verbs::VerbsOptions {
        on_demand: hydrant::settings::memory_paging(&settings).is_ok(),
        devices: settings.verbs_device,
        gid_index: settings.verbs_gid,
        ..hydrant_verbs::VerbsOptions::default()
    };
    match hydrant_verbs::probe(&options) {
        Ok(costs) => with_costs(
            verbs(format!("available: {ports}; {}", costing(costs))),
            costs,
        ),
        Err(why) => verbs(format!(
            "available: {ports}; what registration costs is not known: {why}"
        )),
    }
}

/// The endpoints of libfabric that a job here may use, or the reason why there are none.
fn ofi() -> Fact {
    let ofi = |value: String| {
        fact(
            "ofi",
            value,
            "TCP between any hosts, and fabrics, by libfabric",
        )
    };
    match hydrant::settings::fabric_endpoints(&Settings::of_env()) {
        Ok(endpoints) => ofi(format!("available: {}", endpoints.join("; "))),
        Err(why) => ofi(format!("absent: {why}")),
    }
}

/// The means to hear of changes of memory, or the reason why there are none.
fn memory_changes() -> Fact {
    let settings = Settings::of_env();
    let heard = match hydrant::settings::memory_monitor(&settings) {
        Ok(how) => how,
        Err(why) => format!("not heard: {why}"),
    };
    let value = match hydrant::settings::memory_paging(&settings) {
        Ok(port) => format!("followed by {port}, which pages on demand; elsewhere {heard}"),
        Err(why) => format!("{heard}; no on-demand paging: {why}"),
    };
    fact(
        "memory changes",
        value,
        "if heard or followed, memory of the program stays registered after its use",
    )
}

/// The receive buffers for messages with as many peers as a large cLAN had (Nieplocha and others
/// 2002, §3, "Memory consumption").
fn buffers() -> Fact {
    const PEERS: usize = 128;
    let settings = Settings::of_env();
    let window = settings.verbs_window;
    let of_a_peer = hydrant_verbs::VerbsOptions::default().buffers_for_a_peer(window);
    let [each, all] = [of_a_peer, PEERS * of_a_peer].map(|bytes| units::bytes(bytes as f64));
    fact(
        "verbs buffers",
        format!("{all} for {PEERS} peers, {each} for each that is connected"),
        "registered, for messages: HYDRANT_VERBS_WINDOW",
    )
    .figure(
        "buffers_for_128_peers_bytes",
        Some((PEERS * of_a_peer) as u64),
    )
}

/// The cost of registration with played NICs, or the reason why there are none.
fn pinned(found: Result<RegistrationCaps, Error>) -> Fact {
    let meaning = "ranks of one host, whose memory is reached where it is pinned, as by a NIC";
    match found {
        Ok(found) => {
            let costs = [found.register, found.deregister];
            let most = units::bytes(found.max_bytes as f64);
            let value = format!("available: {}, up to {most}", costing(costs));
            with_costs(fact("smp+pin", value, meaning), costs)
                .figure("max_bytes", Some(found.max_bytes))
        }
        Err(why) => fact("smp+pin", format!("absent: {why}"), meaning),
    }
}

fn costing(costs: [Cost; 2]) -> String {
    let [register, deregister] = costs.map(|cost| {
        let (per_op, per_page) = (units::nanos(cost.per_op_ns), units::nanos(cost.per_page_ns));
        format!("{per_op} + {per_page} a page")
    });
    format!("registers in {register}, deregisters in {deregister}")
}

fn with_costs(fact: Fact, [register, deregister]: [Cost; 2]) -> Fact {
    // The figure is measured, so digits beyond tenths mean nothing.
    let tenths = |nanos: f64| Some((nanos * 10.0).round() / 10.0);
    fact.figure("register_nanoseconds", tenths(register.per_op_ns))
        .figure("register_page_nanoseconds", tenths(register.per_page_ns))
        .figure("deregister_nanoseconds", tenths(deregister.per_op_ns))
        .figure(
            "deregister_page_nanoseconds",
            tenths(deregister.per_page_ns),
        )
}

/// The launchers whose variables are set: they decide how a program started here would join a job.
fn launchers(environment: impl Fn(&str) -> Option<String>) -> impl Iterator<Item = Fact> {
    [
        (
            "PMI-1",
            ["PMI_FD", "PMI_PORT"],
            "hydrant run, mpiexec.hydra, srun --mpi=pmi2",
        ),
        (
            "PMIx",
            ["PMIX_NAMESPACE", "PMIX_RANK"],
            "mpirun of Open MPI, srun --mpi=pmix",
        ),
        (
            "Slurm",
            ["SLURM_STEP_ID", "SLURM_PROCID"],
            "offers PMI-1 or PMIx if told to by --mpi",
        ),
    ]
    .map(|(name, variables, meaning)| {
        let seen = variables.map(|variable| Some(format!("{variable}={}", environment(variable)?)));
        let seen: Vec<String> = seen.into_iter().flatten().collect();
        let value = if seen.is_empty() {
            "not seen".to_owned()
        } else {
            seen.join(" ")
        };
        fact(name, value, meaning)
    })
    .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_appears_once_and_json_is_one_object_a_line() {
        let lines = lines();
        let text = page::text(&lines);
        for section in ["conduits", "machine", "limits", "launcher"] {
            assert_eq!(
                text.lines().filter(|line| *line == section).count(),
                1,
                "{section}"
            );
        }
        let smp = serde_json::to_value(&lines[0]).unwrap();
        assert_eq!(smp["name"], "smp");
        assert_eq!(smp["value"], "available");
        assert!(smp.get("origin").is_none());
    }

    #[test]
    fn figures_are_numbers_under_their_units() {
        let line = |name: &str, value: &str| {
            let variable = (name.to_owned(), value.to_owned());
            let rows = Settings::from_vars([variable]).unwrap().rows();
            let row = rows.into_iter().find(|row| row.name == name).unwrap();
            serde_json::to_value(InfoLine::from(row)).unwrap()
        };
        assert_eq!(line("HYDRANT_HEAP", "1.5G")["bytes"], 3_u64 << 29);
        assert_eq!(line("HYDRANT_SPIN", "7")["microseconds"], 7);
        assert_eq!(line("HYDRANT_M", "auto")["bytes"], Value::Null);
        assert!(line("HYDRANT_CONDUIT", "smp").get("bytes").is_none());
        let lines = lines();
        let of = |name: &str| lines.iter().find(|line| line.name == name).unwrap();
        assert!(of("memory").figures["total_bytes"].as_u64() > Some(0));
        assert!(of("page size").figures["bytes"].as_u64() >= Some(4096));
        assert!(of("open files (ulimit -n)").figures.contains_key("files"));
    }

    #[test]
    fn the_page_fits_80_columns() {
        let mut lines = lines();
        lines.extend(Settings::new().rows().into_iter().map(InfoLine::from));
        for line in page::text(&lines).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn a_launcher_is_seen_by_its_variables() {
        let environment = |name: &str| (name == "PMI_FD").then(|| "7".to_owned());
        let values: Vec<String> = launchers(environment).map(|fact| fact.value).collect();
        assert_eq!(values, ["PMI_FD=7", "not seen", "not seen"]);
    }

    #[test]
    fn a_setting_says_where_it_came_from() {
        let variable = ("HYDRANT_HEAP".to_owned(), "1G".to_owned());
        let settings = Settings::from_vars([variable]).unwrap();
        let lines: Vec<InfoLine> = settings.rows().into_iter().map(InfoLine::from).collect();
        let heap = lines
            .iter()
            .find(|line| line.name == "HYDRANT_HEAP")
            .unwrap();
        assert_eq!(heap.origin.as_deref(), Some("environment"));
        assert!(
            lines
                .iter()
                .any(|line| line.origin.as_deref() == Some("default"))
        );
    }

    #[test]
    fn a_setting_for_experiments_says_so() {
        let rows = Settings::new().rows().into_iter();
        let lines: Vec<InfoLine> = rows.map(InfoLine::from).collect();
        let meaning = |name: &str| {
            let line = lines.iter().find(|line| line.name == name);
            line.expect("there is such a setting").meaning.clone()
        };
        assert!(meaning("HYDRANT_WIDEN").ends_with("on or off (for experiments only)"));
        assert!(meaning("HYDRANT_BOOTSTRAP").ends_with("auto, alone, pmi1, pmix or mpi"));
    }

    #[test]
    fn a_missing_conduit_has_a_reason() {
        for fact in conduits().filter(|fact| !fact.value.starts_with("available")) {
            assert!(fact.value.starts_with("absent: "), "{fact:?}");
        }
    }
}
