//! The values that the settings of the strategy `foresight` may have.

use std::{fmt, str::FromStr};

use super::forms::{Quantity, ValueForm};

/// The helpers that run if a host has fewer idle cores than helpers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ForesightPolicy {
    /// Those of the ranks that register most, each on a core of its own, as the paper recommends.
    #[default]
    Conservative,
    /// All of them, which take turns on a core.
    Aggressive,
}

super::forms::words!(ForesightPolicy {
    Conservative => "conservative",
    Aggressive => "aggressive",
});

/// The number of cores of a host that neither compute nor communicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum IdleCores {
    /// One for the helper of each rank.
    #[default]
    Each,
    /// The cores beyond one for each rank.
    Auto,
    /// This number.
    Count(u32),
}

/// The form of [`IdleCores`].
pub(super) struct IdleCoresForm;

/// More cores than any host has.
const COUNT: Quantity = Quantity("cores", 0..=1 << 20);

impl ValueForm<IdleCores> for IdleCoresForm {
    fn read(&self, text: &str) -> Result<IdleCores, String> {
        match text {
            "each" => Ok(IdleCores::Each),
            "auto" => Ok(IdleCores::Auto),
            _ => (COUNT.read(text).map(IdleCores::Count)).map_err(|_| self.values()),
        }
    }

    fn show(&self, value: &IdleCores) -> String {
        value.to_string()
    }

    fn values(&self) -> String {
        format!("each, auto or {}", ValueForm::<u32>::values(&COUNT))
    }
}

impl FromStr for IdleCores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        IdleCoresForm.read(text)
    }
}

impl fmt::Display for IdleCores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Each => f.pad("each"),
            Self::Auto => f.pad("auto"),
            Self::Count(count) => f.pad(&count.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_read_as_they_are_shown() {
        for cores in [IdleCores::Each, IdleCores::Auto, IdleCores::Count(7)] {
            assert_eq!(cores.to_string().parse(), Ok(cores));
        }
        for text in ["", "all", "-1", "1048577", "1.5"] {
            let why = text.parse::<IdleCores>().expect_err(text);
            assert!(why.contains("each, auto or a number"), "{why}");
        }
    }
}
