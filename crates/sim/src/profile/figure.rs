//! Figures of a profile file, each with its origin.

use toml::{Table, Value};

use super::error::{ProfileError, nearest};
use crate::time::{Picos, Rate};

/// A table of a profile, read key by key; [`done`](Self::done) rejects keys that were not read.
pub(super) struct FigureTable<'a> {
    file: &'a str,
    path: String,
    table: Table,
    asked: Vec<&'static str>,
}

/// A figure whose origin was checked.
struct CheckedFigure {
    value: Value,
    unit: String,
}

impl<'a> FigureTable<'a> {
    pub(super) fn new(file: &'a str, path: &str, table: Table) -> Self {
        Self {
            file,
            path: path.to_owned(),
            table,
            asked: Vec::new(),
        }
    }

    /// The table at a key.
    pub(super) fn section(&mut self, key: &'static str) -> Result<FigureTable<'a>, ProfileError> {
        const EXPECTED: &str = "a section of figures";
        match self.take(key, EXPECTED)? {
            Value::Table(table) => Ok(FigureTable::new(self.file, &self.at(key), table)),
            other => Err(self.bad(key, &other, EXPECTED)),
        }
    }

    /// The list of tables at a key.
    pub(super) fn list(&mut self, key: &'static str) -> Result<Vec<FigureTable<'a>>, ProfileError> {
        const EXPECTED: &str = "a list of figures, smallest size first";
        match self.take(key, EXPECTED)? {
            Value::Array(items) if !items.is_empty() => (items.into_iter().enumerate())
                .map(|(n, item)| match item {
                    Value::Table(table) => {
                        let path = format!("{}[{n}]", self.at(key));
                        Ok(FigureTable::new(self.file, &path, table))
                    }
                    other => Err(self.bad(key, &other, EXPECTED)),
                })
                .collect(),
            other => Err(self.bad(key, &other, EXPECTED)),
        }
    }

    /// A string without unit and origin.
    pub(super) fn text(&mut self, key: &'static str) -> Result<String, ProfileError> {
        const EXPECTED: &str = "a text";
        match self.take(key, EXPECTED)? {
            Value::String(text) => Ok(text),
            other => Err(self.bad(key, &other, EXPECTED)),
        }
    }

    /// A length of time.
    pub(super) fn time(&mut self, key: &'static str) -> Result<Picos, ProfileError> {
        const EXPECTED: &str = "a time of at least zero in ps, ns, us, ms or s";
        let figure = self.figure(key, EXPECTED)?;
        let unit = match &*figure.unit {
            "ps" => 1.0,
            "ns" => 1e3,
            "us" => 1e6,
            "ms" => 1e9,
            "s" => 1e12,
            _ => return Err(self.bad(key, &format!("in {:?}", figure.unit), EXPECTED)),
        };
        let picos = self.number(key, &figure.value, EXPECTED)? * unit;
        // A hundred seconds for one step of a machine is a slip of the unit.
        if picos > 1e14 {
            return Err(self.bad(key, &figure.value, "a time below a hundred seconds"));
        }
        Ok(Picos(picos.round() as u64))
    }

    /// A length of time above zero, so that time cannot stand still.
    pub(super) fn step(&mut self, key: &'static str) -> Result<Picos, ProfileError> {
        let time = self.time(key)?;
        if time.0 == 0 {
            return Err(self.bad(key, &time, "a time above zero"));
        }
        Ok(time)
    }

    /// A bandwidth.
    pub(super) fn rate(&mut self, key: &'static str) -> Result<Rate, ProfileError> {
        const EXPECTED: &str = "a bandwidth above zero in MB/s or GB/s, or ns/B";
        let figure = self.figure(key, EXPECTED)?;
        let number = self.number(key, &figure.value, EXPECTED)?;
        let femtos = match &*figure.unit {
            "MB/s" => 1e9 / number,
            "GB/s" => 1e6 / number,
            "ns/B" => 1e6 * number,
            _ => return Err(self.bad(key, &format!("in {:?}", figure.unit), EXPECTED)),
        };
        if !(1.0..=1e15).contains(&femtos) {
            return Err(self.bad(key, &figure.value, EXPECTED));
        }
        Ok(Rate(femtos.round() as u64))
    }

    /// A rate of operations; returns the picoseconds of one operation.
    pub(super) fn pace(&mut self, key: &'static str) -> Result<Picos, ProfileError> {
        const EXPECTED: &str = "operations a second, above zero, in 1/s or M/s";
        let figure = self.figure(key, EXPECTED)?;
        let number = self.number(key, &figure.value, EXPECTED)?;
        let picos = match &*figure.unit {
            "1/s" => 1e12 / number,
            "M/s" => 1e6 / number,
            _ => return Err(self.bad(key, &format!("in {:?}", figure.unit), EXPECTED)),
        };
        if !(1.0..=1e14).contains(&picos) {
            return Err(self.bad(key, &figure.value, EXPECTED));
        }
        Ok(Picos(picos.round() as u64))
    }

    /// A whole number, at least `least`.
    pub(super) fn count(&mut self, key: &'static str, least: u64) -> Result<u64, ProfileError> {
        const EXPECTED: &str = "a whole number in bytes, KiB, MiB or count, large enough to work";
        let figure = self.figure(key, EXPECTED)?;
        let unit = match &*figure.unit {
            "bytes" | "count" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            _ => return Err(self.bad(key, &format!("in {:?}", figure.unit), EXPECTED)),
        };
        (figure.value.as_integer())
            .and_then(|number| u64::try_from(number).ok())
            .and_then(|number| number.checked_mul(unit))
            .filter(|number| (least..1 << 48).contains(number))
            .ok_or_else(|| self.bad(key, &figure.value, EXPECTED))
    }

    /// As [`count`](Self::count), or `"none"` for no limit.
    pub(super) fn limit(&mut self, key: &'static str) -> Result<Option<u64>, ProfileError> {
        let none = (self.table.get(key))
            .and_then(|figure| figure.get("value"))
            .is_some_and(|value| value.as_str() == Some("none"));
        if none {
            self.figure(key, "a whole number, or none")?;
            return Ok(None);
        }
        self.count(key, 1).map(Some)
    }

    /// A probability, in units of 2^-32.
    pub(super) fn chance(&mut self, key: &'static str) -> Result<u64, ProfileError> {
        const EXPECTED: &str = "a probability from 0 to below 1 as a ratio";
        let figure = self.figure(key, EXPECTED)?;
        let number = self.number(key, &figure.value, EXPECTED)?;
        if figure.unit != "ratio" || number >= 1.0 {
            return Err(self.bad(key, &figure.value, EXPECTED));
        }
        Ok((number * 4_294_967_296.0) as u64)
    }

    /// A truth value.
    pub(super) fn flag(&mut self, key: &'static str) -> Result<bool, ProfileError> {
        const EXPECTED: &str = "true or false";
        let figure = self.figure(key, EXPECTED)?;
        (figure.value.as_bool()).ok_or_else(|| self.bad(key, &figure.value, EXPECTED))
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&str, T)],
        expected: &'static str,
    ) -> Result<T, ProfileError> {
        let figure = self.figure(key, expected)?;
        let word = figure.value.as_str().unwrap_or_default();
        (words.iter().find(|(name, _)| *name == word))
            .map(|(_, meaning)| *meaning)
            .ok_or_else(|| self.bad(key, &figure.value, expected))
    }

    /// True if the table has the key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Fails if a key was not read.
    pub(super) fn done(self) -> Result<(), ProfileError> {
        let Some(key) = self.table.keys().next() else {
            return Ok(());
        };
        Err(ProfileError::UnknownKey {
            file: self.file.to_owned(),
            key: self.at(key),
            near: nearest(key, self.asked.iter()).map(|near| self.at(near)),
        })
    }

    fn figure(
        &mut self,
        key: &'static str,
        expected: &'static str,
    ) -> Result<CheckedFigure, ProfileError> {
        let value = self.take(key, expected)?;
        let Value::Table(table) = value else {
            let expected = "a table of value, unit and source (or calibrated)";
            return Err(self.bad(key, &value, expected));
        };
        let mut parts = FigureTable::new(self.file, &self.at(key), table);
        let value = parts.take("value", expected)?;
        let unit = if parts.has("unit") {
            parts.text("unit")?
        } else {
            String::new()
        };
        let origin = if parts.has("calibrated") {
            "calibrated"
        } else {
            "source"
        };
        let said = parts.text(origin)?;
        if said.trim().is_empty() {
            return Err(parts.bad(origin, &"empty", "where the figure comes from"));
        }
        parts.done()?;
        Ok(CheckedFigure { value, unit })
    }

    fn number(
        &self,
        key: &str,
        value: &Value,
        expected: &'static str,
    ) -> Result<f64, ProfileError> {
        (value
            .as_float()
            .or_else(|| value.as_integer().map(|whole| whole as f64)))
        .filter(|number| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| self.bad(key, value, expected))
    }

    fn take(&mut self, key: &'static str, expected: &'static str) -> Result<Value, ProfileError> {
        self.asked.push(key);
        (self.table.remove(key)).ok_or_else(|| ProfileError::Missing {
            file: self.file.to_owned(),
            key: self.at(key),
            expected,
        })
    }

    fn bad(
        &self,
        key: &str,
        found: &impl std::fmt::Display,
        expected: &'static str,
    ) -> ProfileError {
        ProfileError::Bad {
            file: self.file.to_owned(),
            key: self.at(key),
            found: found.to_string(),
            expected,
        }
    }

    fn at(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }
}
