//! Whole programs on a simulated network, as `hydrant run --conduit sim:… --registration … cannon`
//! starts them.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use hydrant::Strategy;
use hydrant_launch::launcher::{self, Spec};
use serde::Deserialize;

use super::ReproduceError;

/// A program's report about itself.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ParsedReport {
    /// The run time, in virtual time.
    pub(crate) seconds: f64,
    /// The computing part of the run time.
    pub(crate) compute_seconds: f64,
    /// The number of puts.
    pub(crate) puts: u64,
    /// The mean time of a put.
    pub(crate) mean_put_nanoseconds: Option<f64>,
    /// The mean times of puts with registered memory, and of the others.
    one_sided_put_nanoseconds: Option<f64>,
    other_put_nanoseconds: Option<f64>,
    counters: BTreeMap<String, u64>,
}

impl ParsedReport {
    /// The mean times of the puts that moved a firehose and of those that did not, in microseconds.
    pub(crate) fn kinds(&self) -> [Option<f64>; 2] {
        [self.other_put_nanoseconds, self.one_sided_put_nanoseconds]
            .map(|nanos| nanos.map(|nanos| nanos / 1e3))
    }

    /// A counter, summed over all ranks.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

/// A program of the papers, and the size of its problem.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    /// Its name.
    pub(crate) name: &'static str,
    /// The number of ranks.
    pub(crate) ranks: u32,
    /// The size of the problem.
    pub(crate) n: u64,
}

impl Program {
    /// Runs the program with element puts under the Firehose paper's limits, and checks its result.
    pub(crate) fn run(&self, strategy: Strategy) -> Result<ParsedReport, ReproduceError> {
        let failed = |why: String| ReproduceError::Program {
            program: self.name,
            strategy: strategy.to_string(),
            why,
        };
        let own = env::current_exe().map_err(|why| failed(why.to_string()))?;
        let mut spec = Spec::for_network(true, self.ranks, self.name);
        spec.beside = own.parent().map(Path::to_owned);
        spec.workspace = Some(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        // A program that is missing beside this command is built.
        let mut say = |event| eprintln!("hydrant-repro: {event}");
        let program = launcher::find_program(&spec, &mut say);
        let mut run = Command::new(program.map_err(|why| failed(why.to_string()))?);
        // The user's own settings must not change the comparison.
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("HYDRANT_") {
                run.env_remove(name);
            }
        }
        let paper = [
            ("HYDRANT_M", "400M"),
            ("HYDRANT_MAXVICTIM", "50M"),
            ("HYDRANT_BUCKET", "4096"),
            ("HYDRANT_BORROW", "off"),
            ("HYDRANT_ADAPTIVE_VICTIMS", "off"),
            ("HYDRANT_PIGGYBACK", "0"),
        ];
        let output = run
            .envs(paper)
            .envs(spec.environment)
            .env("HYDRANT_CONDUIT", "sim:myrinet-gm")
            .env("HYDRANT_REGISTRATION", strategy.name())
            .args(["--n", &self.n.to_string(), "--put", "1"])
            .args(["--verify", "quick", "--format", "json"])
            .stdin(Stdio::null())
            .output()
            .map_err(|why| failed(why.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said: Vec<&str> = said
                .lines()
                .filter(|line| !line.is_empty())
                .take(3)
                .collect();
            return Err(failed(format!("{}: {}", output.status, said.join("; "))));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        (text.lines().find(|line| line.starts_with('{')))
            .ok_or_else(|| failed("it reported nothing".to_owned()))
            .and_then(|line| serde_json::from_str(line).map_err(|why| failed(why.to_string())))
    }
}
