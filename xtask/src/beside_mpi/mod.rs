//! `cargo xtask beside-mpi`: programs of the kind that users write, beside the same in C and MPI.
//!
//! It compares their lines of code, and their times when all sides run in turn, on one host or on
//! several. Each program checks its own answer, and the answers are compared. `docs/beside-mpi.md`
//! has tables that it printed.

mod answer;
mod sides;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::command::{cargo, output, quoted, run, target_folder};
use crate::error::Error;
use crate::hosts;
use crate::report::TableFormat;
use crate::tool::Tool;
use answer::answer;
use sides::{ComparedSide, RanksOn};
use table::{ProgramRow, json, lines, median, table, unreadable};

/// The numbers of runs, ranks and hosts.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Ranks of each program, but for one that needs a square number
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,

    /// Runs of each side, one after the other in turn; the table has their medians
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Run on so many hosts, with one rank each: network namespaces at a bridge, over TCP alone.
    /// More hosts take part in a program that needs a square number
    #[arg(long, conflicts_with = "ranks", value_parser = clap::value_parser!(u32).range(2..=25))]
    hosts: Option<u32>,

    /// Only programs whose names have this in them
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// For the script of `--hosts`: the hosts, of which `--ranks` take part, or more
    #[arg(long, hide = true, value_delimiter = ',')]
    on: Vec<String>,
}

impl Arguments {
    fn chosen(&self) -> impl Iterator<Item = &'static ComparedProgram> {
        let text = self.only.as_deref().unwrap_or_default();
        (PROGRAMS.iter()).filter(move |program| program.name.contains(text))
    }
}

/// A program on both sides.
struct ComparedProgram {
    name: &'static str,
    arguments: &'static [&'static str],
    /// The arguments between hosts, where an operation takes a thousand times as long.
    between_hosts: &'static [&'static str],
    /// True if the ranks are a square mesh.
    square: bool,
}

impl ComparedProgram {
    /// The number of its ranks, from that of the others.
    fn ranks(&self, others: u32) -> u32 {
        let mut squares = (1_u32..).map(|side| side.saturating_mul(side));
        match self.square {
            true => squares.find(|square| *square >= others).unwrap_or(others),
            false => others,
        }
    }
}

const PROGRAMS: [ComparedProgram; 6] = [
    ComparedProgram {
        name: "cannon",
        arguments: &["512"],
        between_hosts: &["1024"],
        square: true,
    },
    ComparedProgram {
        name: "halo",
        arguments: &["512", "500"],
        between_hosts: &["512", "2000"],
        square: false,
    },
    ComparedProgram {
        name: "hash_table",
        arguments: &["100000"],
        between_hosts: &["5000"],
        square: false,
    },
    ComparedProgram {
        name: "integer_sort",
        arguments: &["1048576"],
        between_hosts: &["4194304"],
        square: false,
    },
    ComparedProgram {
        name: "page_server",
        arguments: &["50000"],
        between_hosts: &["5000"],
        square: false,
    },
    ComparedProgram {
        name: "summa",
        arguments: &["512"],
        between_hosts: &["1024"],
        square: false,
    },
];

/// The tools that hosts need beside those of the sides.
const TOOLS_OF_HOSTS: [Tool; 2] = [Tool::Ip, Tool::Libfabric];

/// Builds, runs and compares all programs. Returns success if every answer was right.
pub(crate) fn report(arguments: &Arguments, format: TableFormat) -> ExitCode {
    let printed = match arguments.hosts {
        Some(count) => between_hosts(count, arguments, format),
        None => compare_all(arguments).map(|rows| print(&rows, arguments, format)),
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("beside-mpi: {cause}");
            ExitCode::FAILURE
        }
    }
}

fn print(rows: &[ProgramRow], arguments: &Arguments, format: TableFormat) {
    match format {
        TableFormat::Table => print!("\n{}", table(rows)),
        TableFormat::Json => (rows.iter())
            .for_each(|row| println!("{}", json(row, arguments.runs, !arguments.on.is_empty()))),
    }
}

/// Makes hosts, on which this command runs again.
fn between_hosts(count: u32, arguments: &Arguments, format: TableFormat) -> Result<(), Error> {
    hosts::allowed()?;
    find_tools(&TOOLS_OF_HOSTS)?;
    build(arguments)?;
    let most = arguments.chosen().map(|program| program.ranks(count)).max();
    let names = ('a'..='z').take(most.unwrap_or(count) as usize);
    let names: Vec<String> = names.map(String::from).collect();
    let again = again(&names, count, arguments, format);
    let said = output(hosts::script("release", &again)?)?;
    print!("{}", String::from_utf8_lossy(&said));
    Ok(())
}

/// A remote shell for hosts with a core each, in turn. Two ranks that spin on the same core would
/// wait a time slice for each message.
const ONE_CORE: &str = r#"cat >$work/one_core <<END
#!/bin/sh
core=\$((\$(printf %d "'\$1") % $(nproc)))
exec taskset --cpu-list \$core $work/rsh "\$@"
END
chmod +x $work/one_core
export HYDRANT_RSH=$work/one_core
"#;

/// The end of the script: makes the hosts, and runs this command on them. The times to wait for a
/// peer are the defaults, not those of tests.
fn again(names: &[String], count: u32, arguments: &Arguments, format: TableFormat) -> String {
    let format = match format {
        TableFormat::Table => "table",
        TableFormat::Json => "json",
    };
    let runs = arguments.runs;
    let mut options = format!("--format {format} --runs {runs} --ranks {count}");
    if let Some(only) = &arguments.only {
        options += &format!(" --only {}", quoted(only));
    }
    format!(
        "unset HYDRANT_PEER_TIMEOUT HYDRANT_JOIN_TIMEOUT\n\
         {ONE_CORE}\
         hosts {}\n\
         \"$xtask\" beside-mpi {options} --on {}\n",
        names.join(" "),
        names.join(",")
    )
}

fn compare_all(arguments: &Arguments) -> Result<Vec<ProgramRow>, Error> {
    if arguments.on.is_empty() {
        build(arguments)?;
    }
    (arguments.chosen())
        .map(|program| compare(program, arguments))
        .collect()
}

/// Builds the programs of all sides.
fn build(arguments: &Arguments) -> Result<(), Error> {
    for side in ComparedSide::ALL {
        find_tools(side.tools())?;
    }
    run(cargo("build --release -p hydrant-cli"))?;
    run(cargo("build --release -p hydrant --examples"))?;
    let folder = folder();
    fs::create_dir_all(&folder).map_err(|cause| unreadable(&folder, &cause))?;
    for program in arguments.chosen() {
        for side in ComparedSide::ALL {
            side.compile(program.name, &folder)?;
        }
    }
    Ok(())
}

fn find_tools(tools: &[Tool]) -> Result<(), Error> {
    match tools.iter().find(|tool| !tool.is_here()) {
        None => Ok(()),
        Some(tool) => Err(Error::NotRead {
            what: format!("{} is not here: cargo xtask setup installs it", tool.name()),
        }),
    }
}

/// The folder of the programs in C.
fn folder() -> PathBuf {
    target_folder().join("beside-mpi")
}

fn compare(program: &ComparedProgram, arguments: &Arguments) -> Result<ProgramRow, Error> {
    let (name, ranks) = (program.name, program.ranks(arguments.ranks));
    let (place, given) = match arguments.on.get(..ranks as usize) {
        Some(hosts) => (RanksOn::Hosts(hosts), program.between_hosts),
        None => (RanksOn::Here, program.arguments),
    };
    let mut seconds = ComparedSide::ALL.map(|_| Vec::new());
    for _ in 0..arguments.runs {
        let mut right: Option<String> = None;
        for (side, seconds) in ComparedSide::ALL.into_iter().zip(&mut seconds) {
            let mut command = side.start(name, &folder(), ranks, place);
            command.args(given);
            let (answer, time) = answer(command, name)?;
            seconds.push(time);
            let right = right.get_or_insert_with(|| answer.clone());
            if *right != answer {
                let side = side.name();
                let what = format!("{name} says \"{right}\" in Rust and \"{answer}\" by {side}");
                return Err(Error::NotRead { what });
            }
        }
    }
    let rust = format!("crates/hydrant/examples/{name}.rs");
    let c = format!("docs/beside-mpi/{name}.c");
    Ok(ProgramRow {
        name,
        ranks,
        lines: [lines(Path::new(&rust))?, lines(Path::new(&c))?],
        seconds: seconds.map(median),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mesh_has_at_least_as_many_ranks_as_others() {
        let [cannon, halo, ..] = &PROGRAMS;
        assert_eq!([1, 2, 4, 5].map(|ranks| cannon.ranks(ranks)), [1, 4, 4, 9]);
        assert_eq!(halo.ranks(5), 5);
    }

    #[test]
    fn both_sides_of_every_program_are_there() {
        for program in PROGRAMS {
            for file in [
                format!("crates/hydrant/examples/{}.rs", program.name),
                format!("docs/beside-mpi/{}.c", program.name),
            ] {
                assert!(lines(Path::new(&file)).unwrap() > 30, "{file}");
            }
        }
    }
}
