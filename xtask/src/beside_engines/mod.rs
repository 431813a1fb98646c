//! `cargo xtask beside-engines`: Hydrant beside the transfer engines of its field, in one sitting (`docs/beside-engines.md`).
//!
//! `tools/engines` does the same work through each engine, on one host and between two that are network namespaces. The
//! engines are wheels of PyPI. One that cannot be installed is left out, with the reason. The sides take turns.

mod cases;
mod sides;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::command::{at_root, cargo, quoted, run, run_listening, succeeded, target_folder};
use crate::error::Error;
use crate::hosts;
use crate::report::TableFormat;
use sides::{EngineSide, SIDES};
use table::EngineFigures;

/// The dose, the sides and the places.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Rounds of each side, in turns; the table has the medians of their medians
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// One round with few repetitions: shows that all works, not how fast
    #[arg(long)]
    quick: bool,

    /// Only these sides, by their names in JSON, such as hydrant,nixl-ucx
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,

    /// Only this place
    #[arg(long, value_enum)]
    place: Option<EnginePlace>,
}

/// The place of the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum EnginePlace {
    /// On one host.
    Host,
    /// On two hosts that are network namespaces, with TCP between them.
    Hosts,
}

impl EnginePlace {
    const ALL: [EnginePlace; 2] = [EnginePlace::Host, EnginePlace::Hosts];

    fn name(self) -> &'static str {
        match self {
            EnginePlace::Host => "host",
            EnginePlace::Hosts => "hosts",
        }
    }

    fn label(self) -> &'static str {
        match self {
            EnginePlace::Host => "one host",
            EnginePlace::Hosts => "two hosts",
        }
    }
}

/// A side that is installed, and its Python.
type InstalledSide = (&'static EngineSide, PathBuf);

/// Installs and measures all sides, and prints the table.
pub(crate) fn report(arguments: &Arguments, format: TableFormat) -> ExitCode {
    match measure(arguments) {
        Ok(figures) => {
            match format {
                TableFormat::Table => print!("\n{}", figures.table()),
                TableFormat::Json => figures.json().iter().for_each(|it| println!("{it}")),
            }
            ExitCode::SUCCESS
        }
        Err(cause) => {
            eprintln!("beside-engines: {cause}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<EngineFigures, Error> {
    run(cargo("build --release -p hydrant-capi"))?;
    let asked = |side: &&EngineSide| {
        arguments.only.is_empty() || arguments.only.iter().any(|it| it == side.name)
    };
    let mut here: Vec<InstalledSide> = Vec::new();
    for side in SIDES.iter().filter(asked) {
        match side.prepare() {
            Ok(python) => here.push((side, python)),
            Err(cause) => eprintln!("beside-engines: {} is left out: {cause}", side.label),
        }
    }
    let mut figures = EngineFigures::default();
    for place in EnginePlace::ALL {
        if arguments.place.is_some_and(|only| only != place) {
            continue;
        }
        if place == EnginePlace::Hosts
            && let Err(cause) = hosts::allowed()
        {
            eprintln!("beside-engines: {} are left out: {cause}", place.label());
            continue;
        }
        let script = write_script(arguments, place, &here)?;
        let command = match place {
            EnginePlace::Host => {
                let mut command = at_root("sh");
                command.arg(&script);
                command
            }
            EnginePlace::Hosts => hosts::apart(&script),
        };
        let (command, status) = run_listening(command, |line| figures.listen(line))?;
        succeeded(command, status, vec![])?;
        for (side, _) in &here {
            if !figures.has(side, place) {
                let (side, place) = (side.label, place.label());
                eprintln!(
                    "beside-engines: {side} printed no figure on {place}; its messages are above"
                );
            }
        }
    }
    match figures.unknown() {
        Some(line) => Err(Error::NotRead {
            what: format!("no row of the table has the name of {line}"),
        }),
        None => Ok(figures),
    }
}

/// Writes the script's file. The file stays, so that it can be run again by hand.
fn write_script(
    arguments: &Arguments,
    place: EnginePlace,
    here: &[InstalledSide],
) -> Result<PathBuf, Error> {
    let folder = target_folder().join("beside-engines");
    let library = target_folder().join("release/libhydrant_capi.so");
    let mut text = format!(
        "exec 2>&1\n\
         export HYDRANT_LIBRARY={} PYTHONDONTWRITEBYTECODE=1\n\
         export HYDRANT_NIXL_LOG=off NIXL_LOG_LEVEL=FATAL UCX_LOG_LEVEL=fatal\n",
        quoted(&library.to_string_lossy())
    );
    match place {
        EnginePlace::Host => text += "export HYDRANT_OFI_INTERFACE=lo\n",
        EnginePlace::Hosts => {
            text += "work=/run/hydrant-beside-engines\n";
            text += hosts::FUNCTIONS;
            text += include_str!("hosts.sh");
            let names: Vec<_> = (0..here.len()).flat_map(host_names).collect();
            text += &format!("hosts {}\n", names.join(" "));
        }
    }
    let rounds = if arguments.quick { 1 } else { arguments.rounds };
    let calls: Vec<_> = (here.iter().enumerate())
        .map(|(at, side)| call(arguments, place, side, at))
        .collect();
    for round in 0..rounds {
        let mut turn: Vec<&str> = calls.iter().map(String::as_str).collect();
        if round % 2 == 1 {
            turn.reverse();
        }
        text += &(turn.join("\n") + "\n");
    }
    // What waits for seconds does so at the same time.
    for ((side, _), call) in here.iter().zip(&calls) {
        if side.has_peers() {
            text += &format!("{call} --waits &\n");
        }
    }
    text += "wait\ntrue\n";
    let file = folder.join(format!("{}.sh", place.name()));
    let wrote = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, text));
    wrote.map_err(hosts::not_written(&file))?;
    Ok(file)
}

/// The hosts of the side with this number: of the process that uses memory, and of the one that lends it.
fn host_names(side: usize) -> [String; 2] {
    [format!("a{side}"), format!("b{side}")]
}

/// The command that measures a side. No side needs two minutes.
fn call(arguments: &Arguments, place: EnginePlace, side: &InstalledSide, number: usize) -> String {
    let (side, python) = side;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/engines/measure.py");
    let mut text = format!(
        "{} {} {} --place {}",
        quoted(&python.to_string_lossy()),
        quoted(&script.to_string_lossy()),
        side.name,
        place.name()
    );
    if place == EnginePlace::Hosts {
        let [own, peer] = host_names(number);
        text = format!(
            "ip netns exec {own} {text} --peer-prefix 'ip netns exec {peer}' --link \"$work/link {peer}\" \
             --own-address 10.9.0.{} --peer-address 10.9.0.{}",
            2 * number + 1,
            2 * number + 2
        );
    }
    if arguments.quick {
        text += " --quick";
    }
    format!("timeout --kill-after=5 120 {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_hosts_of_its_own() {
        let arguments = Arguments {
            rounds: 1,
            quick: true,
            only: vec![],
            place: None,
        };
        let side = (&SIDES[1], PathBuf::from("python"));
        let text = call(&arguments, EnginePlace::Hosts, &side, 1);
        assert!(
            text.starts_with("timeout --kill-after=5 120 ip netns exec a1 python "),
            "{text}"
        );
        for part in [
            "nixl-ucx --place hosts",
            "--peer-prefix 'ip netns exec b1'",
            "--own-address 10.9.0.3 --peer-address 10.9.0.4",
            "--quick",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = call(&arguments, EnginePlace::Host, &side, 1);
        assert!(!text.contains("netns"), "{text}");
    }
}
