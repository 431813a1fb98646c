//! `cargo xtask beside-peers`: Hydrant beside the other libraries of its field, in one sitting.
//!
//! The libraries are pinned public packages, which are installed below the target folder. A program in C
//! measures all of them in the same way (`docs/beside-peers`), and `hydrant bench` measures Hydrant. The
//! sides take turns, and the table has the medians of their runs. A side that cannot be installed is left
//! out, with the reason.

mod cases;
mod sides;
mod table;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::command::{at_root, cargo, quoted, run, run_listening, succeeded, target_folder};
use crate::error::Error;
use crate::hosts;
use crate::report::TableFormat;
use sides::{PeerNetwork, PeerSide, PeerSides};
use table::PeerFigures;

/// The network, and the number of runs.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// The network that joins the ranks
    #[arg(long, value_enum, default_value_t = PeerNetwork::Tcp)]
    network: PeerNetwork,

    /// Runs of each side, in turns; the table has their medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Only these sides, by their names in JSON, such as hydrant,ucx
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
}

/// Installs, compiles and measures all sides, and prints the table.
pub(crate) fn report(arguments: &Arguments, format: TableFormat) -> ExitCode {
    let sides = PeerSides::of(arguments.network);
    match measure(arguments, &sides) {
        Ok(figures) => {
            match format {
                TableFormat::Table => print!("\n{}", figures.markdown(&sides)),
                TableFormat::Json => (figures.json(&sides).iter()).for_each(|it| println!("{it}")),
            }
            ExitCode::SUCCESS
        }
        Err(cause) => {
            eprintln!("beside-peers: {cause}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments, sides: &PeerSides) -> Result<PeerFigures, Error> {
    if arguments.network == PeerNetwork::Tcp {
        hosts::allowed()?;
    }
    run(cargo("build --release -p hydrant-cli -p hydrant-bench"))?;
    let asked = |side: &&PeerSide| {
        side.runs()
            && (arguments.only.is_empty() || arguments.only.iter().any(|it| it == side.name))
    };
    let mut here = Vec::new();
    for side in sides.all().filter(asked) {
        match side.prepare() {
            Ok(()) => here.push(side),
            Err(cause) => eprintln!("beside-peers: {} is left out: {cause}", side.label),
        }
    }
    let script = write_script(arguments, &here)?;
    let command = match arguments.network {
        PeerNetwork::Tcp => hosts::apart(&script),
        PeerNetwork::Smp => {
            let mut command = at_root("sh");
            command.arg(&script);
            command
        }
    };
    let mut figures = PeerFigures::default();
    let (command, status) = run_listening(command, |line| figures.listen(sides, line))?;
    succeeded(command, status, vec![])?;
    for side in here.iter().filter(|side| !figures.has(side)) {
        eprintln!(
            "beside-peers: {} printed no figure; its messages are above",
            side.label
        );
    }
    Ok(figures)
}

/// Writes the script's file. The file stays, so that it can be run again by hand.
fn write_script(arguments: &Arguments, sides: &[&PeerSide]) -> Result<PathBuf, Error> {
    let path = |path: PathBuf| quoted(&path.to_string_lossy());
    let mut text = format!(
        "exec 2>&1\ntarget={}\nfolder={}\nprograms={}\n",
        path(target_folder().join("release")),
        path(sides::folder()),
        path(sides::folder().join("programs")),
    );
    let ranks: &[u32] = match arguments.network {
        PeerNetwork::Tcp => {
            text += "work=/run/hydrant-beside-peers\n";
            text += hosts::FUNCTIONS;
            text += include_str!("tcp.sh");
            &[2, 4]
        }
        PeerNetwork::Smp => {
            text += include_str!("smp.sh");
            &[2]
        }
    };
    for _ in 0..arguments.runs {
        for ranks in ranks {
            for side in sides {
                text += &format!("echo side {0} {ranks}\n({0} {ranks})\n", side.name);
            }
        }
    }
    text += "true\n";
    let file = sides::folder().join("sides.sh");
    fs::write(&file, text).map_err(hosts::not_written(&file))?;
    Ok(file)
}
