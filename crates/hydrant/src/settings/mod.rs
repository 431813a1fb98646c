//! All settings, in one place.
//!
//! Each setting is a `HYDRANT_*` variable and a method of [`JobBuilder`](crate::JobBuilder); the
//! builder wins. An unknown variable is a warning, a bad value an error. [`Settings::rows`] lists
//! the values in force and their origins. `table.rs` declares them all.

mod atomics;
mod conduit;
#[cfg(test)]
mod documentation;
#[cfg(feature = "foresight")]
mod foresight;
mod forms;
#[cfg(feature = "log")]
pub(crate) mod log_filter;
mod messages;
mod monitor;
#[cfg(feature = "verbs")]
mod odp;
mod size;
mod table;

use std::{
    env,
    io::{self, Write},
};

use crate::Error;
use table::{ABSENT, TABLE};

pub use atomics::AtomicsKind;
pub use conduit::{ConduitKind, InterNodeKind};
#[cfg(feature = "foresight")]
pub use foresight::{ForesightPolicy, IdleCores};
pub use messages::MessageProtocol;
pub use monitor::MonitorKind;
#[cfg(feature = "verbs")]
pub(crate) use odp::PagingChoice;
#[cfg(feature = "verbs")]
pub use odp::PagingKind;
pub use size::{format_bytes, parse_bytes};
pub use table::Settings;
pub(crate) use table::{each_setting, parse_settings};

/// Returns the ports of RDMA devices that a job could use here, for display.
///
/// # Errors
/// A sentence with the reason why there is none.
#[cfg(feature = "verbs")]
pub fn rdma_ports(settings: &Settings) -> Result<Vec<String>, String> {
    let ports = hydrant_verbs::ports(&settings.verbs_device, settings.verbs_gid)?;
    Ok(ports.iter().map(ToString::to_string).collect())
}

/// Returns the endpoints of libfabric that a rank here may use, one line each, best first.
///
/// # Errors
/// A sentence with the reason why there is none.
#[cfg(feature = "ofi")]
pub fn fabric_endpoints(settings: &Settings) -> Result<Vec<String>, String> {
    let options = hydrant_ofi::OfiOptions {
        provider: settings.ofi_provider.clone(),
        interface: settings.ofi_interface.clone(),
        ..hydrant_ofi::OfiOptions::default()
    };
    let endpoints = hydrant_ofi::endpoints(&options)?;
    Ok(endpoints.iter().map(ToString::to_string).collect())
}

/// Returns how this process hears of changes of its memory, for display.
///
/// # Errors
/// A sentence with the reason why it does not.
pub fn memory_monitor(settings: &Settings) -> Result<String, String> {
    if settings.monitor == MonitorKind::Off {
        return Err("HYDRANT_MONITOR=off".to_owned());
    }
    if settings.monitor == MonitorKind::Allocator {
        return match hydrant_monitor::ReportingAllocator::is_in_force() {
            true => Ok("told by the program's ReportingAllocator alone".to_owned()),
            false => {
                Err("HYDRANT_MONITOR=allocator, and this program has none that reports".to_owned())
            }
        };
    }
    let monitor = hydrant_monitor::Monitor::of_process().map_err(|absent| absent.to_string())?;
    let source = match monitor.source() {
        Ok(hydrant_monitor::MonitorSource::SystemCall) => "userfaultfd(2)",
        Ok(hydrant_monitor::MonitorSource::Device) => "/dev/userfaultfd",
        Err(why) => return Ok(format!("told by the program's allocator alone: {why}")),
    };
    let files = match monitor.watches_files() {
        true => "files and initialised statics included",
        false => "not of files and initialised statics",
    };
    Ok(format!("heard by {source}, {files}"))
}

/// Returns the decision about on-demand paging, before a device is looked at.
#[cfg(feature = "verbs")]
pub(crate) fn paging_choice(settings: &Settings) -> PagingChoice {
    settings.odp.choose(settings.monitor, || {
        let monitor = hydrant_monitor::Monitor::of_process();
        monitor.is_ok_and(|monitor| monitor.source().is_ok())
    })
}

/// Returns the port of an RDMA device that pages registered memory on demand in a job, for display.
///
/// # Errors
/// A sentence with the reason why memory is pinned instead.
#[cfg(feature = "verbs")]
pub fn memory_paging(settings: &Settings) -> Result<String, String> {
    if let PagingChoice::Never(why) = paging_choice(settings) {
        return Err(why.to_owned());
    }
    hydrant_verbs::on_demand_paging(&hydrant_verbs::VerbsOptions {
        devices: settings.verbs_device.clone(),
        gid_index: settings.verbs_gid,
        ..hydrant_verbs::VerbsOptions::default()
    })
}

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
    /// The value in force, or the text that is no value.
    pub value: String,
    /// The origin of the value.
    pub origin: Origin,
    /// The meaning, as a part of a sentence. Words of code are between backticks.
    pub meaning: &'static str,
    /// The values that the setting may have, in words.
    pub values: String,
    /// The expected values, if `value` is none of them.
    pub refused: Option<String>,
    /// True if only experiments need the setting.
    pub is_experimental: bool,
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

impl Settings {
    /// Returns the defaults, changed by the environment. Variables that are no settings are kept
    /// for [`warn_unknown`](Self::warn_unknown).
    ///
    /// # Errors
    /// [`Error::Setting`] naming the first variable with a bad value.
    pub fn from_env() -> Result<Self, Error> {
        Self::checked(Self::of_env())
    }

    /// As [`from_env`](Self::from_env), from the variables given.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Result<Self, Error> {
        Self::checked(Self::of_vars(vars))
    }

    /// As [`from_env`](Self::from_env), for display: a bad value leaves the default in force, and
    /// [`rows`](Self::rows) has it with what was expected.
    pub fn of_env() -> Self {
        Self::of_vars(env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            let value = value.to_string_lossy().into_owned();
            name.starts_with("HYDRANT_").then_some((name, value))
        }))
    }

    fn of_vars(vars: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut settings = Self::new();
        for (name, value) in vars {
            match TABLE.iter().find(|setting| setting.name == name) {
                Some(setting) => {
                    if let Err(expected) = (setting.set)(&mut settings, value.trim()) {
                        settings.refused.insert(setting.name, (value, expected));
                    }
                    settings.origins.insert(setting.name, Origin::Environment);
                }
                None if name.starts_with("HYDRANT_TEST_") => {}
                None => settings.ignored.push(ignored(&name)),
            }
        }
        settings
    }

    fn checked(self) -> Result<Self, Error> {
        let refusal = self.refusals().next();
        refusal.map_or(Ok(self), Err)
    }

    /// Returns an [`Error::Setting`] for each variable with a bad value, of settings for display.
    pub fn refusals(&self) -> impl Iterator<Item = Error> {
        (self.refused.iter()).map(|(name, (value, expected))| Error::Setting {
            name,
            value: value.clone(),
            expected: expected.clone(),
        })
    }

    /// Notes that the program set `name`.
    pub(crate) fn built(&mut self, name: &'static str) {
        self.refused.remove(name);
        self.origins.insert(name, Origin::Builder);
    }

    /// Warns that `name` has no effect in this job, if it was set.
    #[cfg(feature = "pin")]
    pub(crate) fn warn_unused(&self, name: &'static str, why: &str) {
        if self.origins.contains_key(name) {
            warn(&format!("{name} has no effect here: {why}"));
        }
    }

    /// Warns on standard error of each variable that looks like a setting and is none. A job does
    /// so itself, once for all its ranks. Programs that read settings and start no job call this.
    pub fn warn_unknown(&self) {
        for sentence in &self.ignored {
            warn(sentence);
        }
    }

    /// Returns every setting: its value in force, its origin and its meaning.
    pub fn rows(&self) -> Vec<SettingRow> {
        let row = |setting: &table::Setting| {
            let refused = self.refused.get(setting.name);
            let (value, expected) = match refused {
                Some((value, expected)) => (value.clone(), Some(expected.clone())),
                None => ((setting.show)(self), None),
            };
            SettingRow {
                name: setting.name,
                value,
                origin: (self.origins.get(setting.name).copied()).unwrap_or(Origin::Default),
                meaning: setting.meaning,
                values: (setting.values)(),
                refused: expected,
                is_experimental: setting.is_experimental,
                unit: (setting.unit)(),
            }
        };
        TABLE.iter().map(row).collect()
    }
}

/// Explains why a variable with Hydrant's prefix has no effect.
fn ignored(name: &str) -> String {
    if let Some((_, feature)) = ABSENT.iter().find(|(absent, _)| *absent == name) {
        let without = built_without(feature);
        return format!("{name} has no effect: it needs {without}");
    }
    let most = 2.max(name.len().saturating_sub("HYDRANT_".len()) / 3);
    let names = TABLE.iter().map(|setting| setting.name);
    let hint = match forms::near(name, names, most) {
        Some(near) => format!("did you mean {near}?"),
        None => "`hydrant info` lists them".to_owned(),
    };
    format!("{name} is not a setting; {hint}")
}

/// Describes the feature that something needs, as the end of a sentence.
pub(crate) fn built_without(feature: &str) -> String {
    format!("the feature `{feature}` of the crate hydrant, which this program was built without")
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
            ("HYDRANT_M", "16Q"),
            ("HYDRANT_REGISTRATION", "firehoze"),
            ("HYDRANT_INTER_NODE", "tcp"),
            ("HYDRANT_PRETEND_HOSTS", "0"),
            ("HYDRANT_ATOMICS", "both"),
            ("HYDRANT_ODP", "maybe"),
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
    fn a_bad_value_leaves_the_others_in_force() {
        let vars = [("HYDRANT_M", "16Q"), ("HYDRANT_HEAP", "3 MiB")];
        let settings = Settings::of_vars(vars.map(|(name, value)| (name.into(), value.into())));
        assert_eq!((settings.m, settings.heap), (None, 3 << 20));
        let rows = settings.rows();
        let m = rows.iter().find(|row| row.name == "HYDRANT_M").unwrap();
        assert_eq!(m.value, "16Q");
        assert!(m.refused.as_ref().unwrap().contains("bytes from 4 KiB"));
        assert_eq!(rows.iter().filter(|row| row.refused.is_some()).count(), 1);
    }

    #[test]
    fn a_name_that_is_nearly_right_gets_a_hint() {
        assert!(ignored("HYDRANT_HAEP").contains("did you mean HYDRANT_HEAP?"));
        assert!(ignored("HYDRANT_NO_SUCH_THING").contains("`hydrant info`"));
        // The caller of `from_vars` may pass any name.
        assert!(ignored("HWIDEN").contains("is not a setting"));
    }

    /// The library has a default of its own, for programs that use it without `hydrant`.
    #[cfg(feature = "verbs")]
    #[test]
    fn the_window_is_by_default_that_of_the_library() {
        let window = hydrant_verbs::VerbsOptions::default().window;
        assert_eq!(Settings::new().verbs_window, window);
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
