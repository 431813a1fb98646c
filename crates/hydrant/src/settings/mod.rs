//! Everything that can be set, in one place.
//!
//! Each setting is a `HYDRANT_*` variable and a method of
//! [`JobBuilder`](crate::JobBuilder) that says the same; the builder wins. A variable that
//! nobody knows is a warning, a bad value an error. [`Settings::rows`] tells the values in
//! force and where each came from.

mod atomics;
mod conduit;
mod foresight;
pub(crate) mod log_filter;
mod messages;
mod registration;
mod size;
mod table;

use std::{
    collections::BTreeMap,
    env,
    io::{self, Write},
    time::Duration,
};

use hydrant_launch::Kind;
use hydrant_smp::Foreign;

use crate::Error;
pub use registration::RegistrationSettings;

pub use atomics::AtomicsKind;
pub use conduit::{ConduitKind, InterNodeKind, rdma_ports};
pub use foresight::{ForesightSettings, IdleCores};
pub use messages::MessageProtocol;
pub use size::{format_bytes, parse_bytes};
use table::TABLE;

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Origin {
    /// Nobody said otherwise.
    Default,
    /// The environment.
    Environment,
    /// The program.
    Builder,
}

/// One setting, for people.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct SettingRow {
    /// The variable.
    pub name: &'static str,
    /// The value in force.
    pub value: String,
    /// Where it came from.
    pub origin: Origin,
    /// What it means, in a sentence.
    pub meaning: &'static str,
    /// What a number says how many of, such as `bytes`; none if the value is a word.
    pub unit: Option<&'static str>,
}

impl SettingRow {
    /// The value as a number of [`unit`](Self::unit)s; none if it is a word, such as `auto`.
    pub fn figure(&self) -> Option<u64> {
        self.unit.and_then(|_| parse_bytes(&self.value))
    }
}

/// What can be set about RDMA NICs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerbsSettings {
    /// Devices, or ports as `device:port`, separated by commas; empty: any.
    pub devices: String,
    /// The index of the port's address that peers are told; the best, if not given.
    pub gid_index: Option<u8>,
    /// How long a packet waits to be acknowledged before it is sent again, as a power of two
    /// times 4.096 µs; what suits the device, if not given.
    pub ack_timeout: Option<u8>,
    /// Most requests of a rank that may be unhandled at a peer. Twice as many receive buffers stand ready
    /// there for it, so that no message is dropped.
    pub window: u32,
}

impl Default for VerbsSettings {
    fn default() -> Self {
        Self {
            devices: String::new(),
            gid_index: None,
            ack_timeout: None,
            window: hydrant_verbs::Options::default().window,
        }
    }
}

/// The values in force.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Which network joins the ranks.
    pub conduit: ConduitKind,
    /// Which network joins ranks of different hosts.
    pub inter_node: InterNodeKind,
    /// How many hosts the ranks pretend to be on, in blocks, to try on one host what happens on
    /// several.
    pub pretend_hosts: u32,
    /// How memory gets registered, where the network needs that.
    pub registration: RegistrationSettings,
    /// Who changes words of 64 bits atomically.
    pub atomics: AtomicsKind,
    /// How what is used is foreseen, by the strategy `foresight`.
    pub foresight: ForesightSettings,
    /// How two-sided messages go.
    pub messages: MessageProtocol,
    /// Most bytes of a message that is sent at once; by what the network costs, if not given.
    pub messages_eager: Option<usize>,
    /// Whether peers may name any address of this rank.
    pub anywhere: bool,
    /// Ranks of a simulated job.
    pub sim_ranks: u32,
    /// What a simulated network draws its chances from: the same seed, the same run.
    pub sim_seed: u64,
    /// How ranks find each other.
    pub bootstrap: Kind,
    /// Bytes of memory each rank may allocate for the job.
    pub heap: usize,
    /// Whether a service thread answers while the application computes. In virtual time there
    /// is none.
    pub service: bool,
    /// The processors on which the service thread may run; none: those of the thread that joins, or, where that
    /// has one and ranks that share memory have no more, those of the others.
    pub service_cpus: Vec<usize>,
    /// The processors that the launcher had for the ranks of the host; none: it did not say.
    pub host_cpus: Vec<usize>,
    /// How long a waiting thread spins before it yields and sleeps.
    pub spin: Duration,
    /// How long to wait for the other ranks at the start.
    pub join_timeout: Duration,
    /// Messages that a ring between two ranks holds.
    pub ring_slots: usize,
    /// Bytes of payload that a ring holds, of which a message carries a quarter; if not given, what the number of
    /// ranks allows, and messages carry 16 KiB.
    pub ring_payload: Option<usize>,
    /// Buffers that a rank may have exposed at once, on `smp+pin` extents registered; what the
    /// network can do well, if not given.
    pub extents: Option<usize>,
    /// How memory outside the heap is reached.
    pub foreign: Foreign,
    /// What concerns RDMA NICs alone.
    pub verbs: VerbsSettings,
    /// How long a rank of another host may answer nothing before it is lost; zero: for ever. Of
    /// RDMA alone: between pretended hosts the kernel says whose process ended.
    pub peer_timeout: Duration,
    /// Whether counters are printed at the end.
    pub counters: bool,
    /// The filter of [`log_to_stderr`](crate::log_to_stderr): a level, or pairs such as `hydrant=debug`, separated by
    /// commas.
    pub log: String,
    origins: BTreeMap<&'static str, Origin>,
    /// What variables say that other parts of Hydrant read for themselves.
    elsewhere: BTreeMap<&'static str, String>,
    /// Variables with our prefix that are no settings.
    unknown: Vec<String>,
}

impl Settings {
    /// The defaults, whatever the environment says.
    pub fn new() -> Self {
        Self {
            conduit: ConduitKind::Auto,
            inter_node: InterNodeKind::Verbs,
            pretend_hosts: 1,
            registration: RegistrationSettings::default(),
            atomics: AtomicsKind::Auto,
            foresight: ForesightSettings::default(),
            messages: MessageProtocol::Auto,
            messages_eager: None,
            anywhere: false,
            sim_ranks: 1,
            sim_seed: 1,
            bootstrap: Kind::Auto,
            heap: table::default_heap(),
            service: true,
            service_cpus: Vec::new(),
            host_cpus: Vec::new(),
            spin: Duration::from_micros(50),
            join_timeout: Duration::from_secs(60),
            ring_slots: 256,
            ring_payload: None,
            extents: None,
            foreign: Foreign::Auto,
            verbs: VerbsSettings::default(),
            peer_timeout: Duration::from_secs(10),
            counters: false,
            log: "warn".to_owned(),
            origins: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            unknown: Vec::new(),
        }
    }

    /// The defaults, changed by the environment. Variables that are no settings are kept for
    /// [`warn_unknown`](Self::warn_unknown).
    ///
    /// # Errors
    /// [`Error::Setting`] naming the first variable with a bad value.
    pub fn from_env() -> Result<Self, Error> {
        let vars = env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            let value = value.to_string_lossy().into_owned();
            name.starts_with("HYDRANT_").then_some((name, value))
        });
        Self::from_vars(vars)
    }

    /// As [`from_env`](Self::from_env), with the variables given.
    ///
    /// # Errors
    /// As there.
    pub fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Result<Self, Error> {
        let mut settings = Self::new();
        for (name, value) in vars {
            match TABLE.iter().find(|setting| setting.name == name) {
                Some(setting) => {
                    (setting.set)(&mut settings, value.trim()).map_err(|expected| {
                        Error::Setting {
                            name: setting.name,
                            value,
                            expected,
                        }
                    })?;
                    settings.origins.insert(setting.name, Origin::Environment);
                }
                None if table::belongs_to_tests(&name) => {}
                None => settings.unknown.push(name),
            }
        }
        Ok(settings)
    }

    /// Keeps what a variable says that another part of Hydrant reads, to be shown.
    fn note(&mut self, name: &'static str, text: &str) -> Result<(), String> {
        self.elsewhere.insert(name, text.to_owned());
        Ok(())
    }

    fn noted(&self, name: &str) -> Option<&str> {
        let text = self.elsewhere.get(name)?;
        Some(text.as_str()).filter(|text| !text.is_empty())
    }

    /// Notes that the program itself set `name`.
    pub(crate) fn built(&mut self, name: &'static str) {
        self.origins.insert(name, Origin::Builder);
    }

    /// Warns that `name` does nothing in this job, if somebody set it.
    pub(crate) fn warn_unused(&self, name: &'static str, why: &str) {
        if self.origins.contains_key(name) {
            warn(&format!("{name} has no effect here: {why}"));
        }
    }

    /// Warns on standard error of each variable that looks like a setting and is none. A job does so itself, once for
    /// all its ranks. Programs that read settings and start no job call this.
    pub fn warn_unknown(&self) {
        for name in &self.unknown {
            let near = (TABLE.iter())
                .map(|setting| (table::distance(setting.name, name), setting.name))
                .min()
                .filter(|(distance, _)| *distance <= 2.max((name.len() - "HYDRANT_".len()) / 3));
            let hint = match near {
                Some((_, near)) => format!("did you mean {near}?"),
                None => "`hydrant info` lists them".to_owned(),
            };
            warn(&format!("{name} is not a setting; {hint}"));
        }
    }

    /// Every setting: its value in force, where it came from and what it means.
    pub fn rows(&self) -> Vec<SettingRow> {
        (TABLE.iter())
            .map(|setting| SettingRow {
                name: setting.name,
                value: (setting.show)(self),
                origin: (self.origins.get(setting.name).copied()).unwrap_or(Origin::Default),
                meaning: setting.meaning,
                unit: setting.unit,
            })
            .collect()
    }
}

/// Warns in one write: other ranks write to the same place meanwhile.
fn warn(what: &str) {
    // The log is no place for it: most programs have no subscriber.
    let warning = format!("hydrant: warning: {what}\n");
    // The reader may be gone, which is no reason to panic.
    let _ = io::stderr().write_all(warning.as_bytes());
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &str) -> Result<Settings, Error> {
        Settings::from_vars([(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn values_come_from_the_environment() {
        let settings = set("HYDRANT_HEAP", "3 MiB").unwrap();
        assert_eq!(settings.heap, 3 << 20);
        let row = (settings.rows().into_iter())
            .find(|row| row.name == "HYDRANT_HEAP")
            .unwrap();
        assert_eq!(
            (row.value.as_str(), row.origin),
            ("3 MiB", Origin::Environment)
        );
    }

    #[test]
    fn bad_values_are_errors_that_name_the_variable() {
        for (name, value) in [
            ("HYDRANT_CONDUIT", "tcp"),
            ("HYDRANT_CONDUIT", "sim:"),
            ("HYDRANT_INTER_NODE", "tcp"),
            ("HYDRANT_PRETEND_HOSTS", "0"),
            ("HYDRANT_ATOMICS", "both"),
            ("HYDRANT_SIM_RANKS", "0"),
            ("HYDRANT_SIM_SEED", "-1"),
            ("HYDRANT_HEAP", "lots"),
            ("HYDRANT_HEAP", "-1"),
            ("HYDRANT_SERVICE", "maybe"),
            ("HYDRANT_SERVICE_CPUS", "auto:1"),
            ("HYDRANT_HOST_CPUS", "1-"),
            ("HYDRANT_RING_SLOTS", "0"),
            ("HYDRANT_RING_SLOTS", "99999999999"),
            ("HYDRANT_BOOTSTRAP", "smoke-signals"),
            ("HYDRANT_SMP_FOREIGN", "telepathy"),
            ("HYDRANT_SPIN", "x"),
            ("HYDRANT_JOIN_TIMEOUT", ""),
            ("HYDRANT_EXTENTS", "0"),
            ("HYDRANT_RING_PAYLOAD", "7"),
            ("HYDRANT_COUNTERS", "2"),
            ("HYDRANT_FORESIGHT_FIREHOSES", "some"),
            ("HYDRANT_FORESIGHT_STEPS_BACK", "a little"),
            ("HYDRANT_FORESIGHT_CORES", "all"),
            ("HYDRANT_FORESIGHT_POLICY", "fair"),
            ("HYDRANT_FORESIGHT_SLICE", "0"),
        ] {
            let error = set(name, value).unwrap_err().to_string();
            assert!(error.contains(&format!("{name}={value}")), "{error}");
            assert!(error.contains("expected"), "{error}");
        }
    }

    #[test]
    fn every_value_shown_can_be_set() {
        for row in Settings::new().rows() {
            let again = set(row.name, &row.value).unwrap();
            let row_again = (again.rows().into_iter())
                .find(|again| again.name == row.name)
                .unwrap();
            assert_eq!(row_again.value, row.value);
            assert_eq!(row_again.origin, Origin::Environment);
        }
    }

    #[test]
    fn unknown_variables_are_no_error() {
        assert!(set("HYDRANT_NO_SUCH_THING", "1").is_ok());
    }
}
