//! All settings, in one place.
//!
//! Each setting is a `HYDRANT_*` variable and a method of [`JobBuilder`](crate::JobBuilder); the
//! builder wins. An unknown variable is a warning, a bad value an error. [`Settings::rows`] lists
//! the values in force and their origins.

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

/// The origin of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Origin {
    /// The default.
    Default,
    /// An environment variable.
    Environment,
    /// The program.
    Builder,
}

/// One setting, for display.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct SettingRow {
    /// The name of the variable.
    pub name: &'static str,
    /// The value in force.
    pub value: String,
    /// The origin of the value.
    pub origin: Origin,
    /// The meaning, in a sentence.
    pub meaning: &'static str,
    /// The unit of a number, in the plural, such as `bytes`; `None` if the value is a word.
    pub unit: Option<&'static str>,
}

impl SettingRow {
    /// Returns the value as a number of [`unit`](Self::unit)s, or `None` if it is a word such as
    /// `auto`.
    pub fn figure(&self) -> Option<u64> {
        self.unit.and_then(|_| parse_bytes(&self.value))
    }
}

/// The settings of RDMA NICs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerbsSettings {
    /// Devices, or ports as `device:port`, separated by commas. If empty, any device is used.
    pub devices: String,
    /// The index of the port's address that peers are told. By default, the best one.
    pub gid_index: Option<u8>,
    /// How long a packet waits for an acknowledgement before it is sent again: the exponent `n` in
    /// 4.096 µs × 2ⁿ. By default, a value that suits the device.
    pub ack_timeout: Option<u8>,
    /// The most requests of a rank that may be unhandled at a peer. The peer has twice as many
    /// receive buffers for it, so that no message is dropped.
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
    /// The network that joins the ranks.
    pub conduit: ConduitKind,
    /// The network that joins ranks of different hosts.
    pub inter_node: InterNodeKind,
    /// How many hosts the ranks pretend to be on, in blocks, so that a job for several hosts can be
    /// tried on one.
    pub pretend_hosts: u32,
    /// The strategy and limits of registration, for networks that need it.
    pub registration: RegistrationSettings,
    /// The executor that changes words of 64 bits atomically.
    pub atomics: AtomicsKind,
    /// The settings of the strategy `foresight`.
    pub foresight: ForesightSettings,
    /// The protocol of two-sided messages.
    pub messages: MessageProtocol,
    /// The most bytes of a message that is sent eagerly. By default, this follows the costs of the
    /// network.
    pub messages_eager: Option<usize>,
    /// True if peers may name any address of this rank.
    pub anywhere: bool,
    /// The number of ranks of a simulated job.
    pub sim_ranks: u32,
    /// The random seed of a simulated network: the same seed gives the same run.
    pub sim_seed: u64,
    /// How ranks find each other.
    pub bootstrap: Kind,
    /// The bytes of memory that each rank may allocate for the job.
    pub heap: usize,
    /// True if a service thread answers while the application computes. In virtual time there is
    /// none.
    pub service: bool,
    /// The processors on which the service thread may run. If empty, those of the joining thread.
    /// If that has one processor, and the ranks that share memory have no more, those of the other
    /// ranks.
    pub service_cpus: Vec<usize>,
    /// The processors that the launcher had for the ranks of the host. Empty if it did not tell.
    pub host_cpus: Vec<usize>,
    /// How long a waiting thread spins before it yields and sleeps.
    pub spin: Duration,
    /// How long to wait for the other ranks at the start.
    pub join_timeout: Duration,
    /// The number of messages that a ring between two ranks holds.
    pub ring_slots: usize,
    /// The bytes of payload that a ring holds. A message carries at most a quarter. By default,
    /// this depends on the number of ranks, and messages carry 16 KiB.
    pub ring_payload: Option<usize>,
    /// The number of buffers that a rank may have exposed at once, and on `smp+pin` of registered
    /// extents. By default, what the network does well.
    pub extents: Option<usize>,
    /// How memory outside the heap is reached.
    pub foreign: Foreign,
    /// The settings of RDMA NICs.
    pub verbs: VerbsSettings,
    /// How long a rank of another host may be silent before it is lost; zero means forever. For
    /// RDMA only: between pretended hosts the kernel reports processes that end.
    pub peer_timeout: Duration,
    /// True if counters are printed at the end.
    pub counters: bool,
    /// The filter of [`log_to_stderr`](crate::log_to_stderr): a level, or pairs such as `hydrant=debug`, separated by
    /// commas.
    pub log: String,
    origins: BTreeMap<&'static str, Origin>,
    /// The values of variables that other parts of Hydrant read.
    elsewhere: BTreeMap<&'static str, String>,
    /// Variables with Hydrant's prefix that are no settings.
    unknown: Vec<String>,
}

impl Settings {
    /// Returns the defaults, without the environment.
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

    /// Returns the defaults, changed by the environment. Variables that are no settings are kept
    /// for [`warn_unknown`](Self::warn_unknown).
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

    /// As [`from_env`](Self::from_env), from the variables given.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
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

    /// Keeps the value of a variable that another part of Hydrant reads, for display.
    fn note(&mut self, name: &'static str, text: &str) -> Result<(), String> {
        self.elsewhere.insert(name, text.to_owned());
        Ok(())
    }

    fn noted(&self, name: &str) -> Option<&str> {
        let text = self.elsewhere.get(name)?;
        Some(text.as_str()).filter(|text| !text.is_empty())
    }

    /// Notes that the program set `name`.
    pub(crate) fn built(&mut self, name: &'static str) {
        self.origins.insert(name, Origin::Builder);
    }

    /// Warns that `name` has no effect in this job, if it was set.
    pub(crate) fn warn_unused(&self, name: &'static str, why: &str) {
        if self.origins.contains_key(name) {
            warn(&format!("{name} has no effect here: {why}"));
        }
    }

    /// Warns on standard error of each variable that looks like a setting and is none. A job does
    /// so itself, once for all its ranks. Programs that read settings and start no job call this.
    pub fn warn_unknown(&self) {
        for name in &self.unknown {
            let near = (TABLE.iter())
                .map(|setting| (strsim::levenshtein(setting.name, name), setting.name))
                .min()
                .filter(|(distance, _)| *distance <= 2.max((name.len() - "HYDRANT_".len()) / 3));
            let hint = match near {
                Some((_, near)) => format!("did you mean {near}?"),
                None => "`hydrant info` lists them".to_owned(),
            };
            warn(&format!("{name} is not a setting; {hint}"));
        }
    }

    /// Returns every setting: its value in force, its origin and its meaning.
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

/// Prints a warning in one write, because other ranks write to the same stream.
fn warn(what: &str) {
    // Not to the log, because most programs have no subscriber.
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
