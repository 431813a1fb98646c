//! The errors of reading a profile.

/// The reason why a profile cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No profile of this name is shipped.
    #[error("there is no profile {name:?}{}; there are: {known}, and paths of .toml files", did_you_mean(.near))]
    Unknown {
        /// The name that was given.
        name: String,
        /// The shipped name nearest to it, if one is near.
        near: Option<&'static str>,
        /// All shipped names.
        known: String,
    },

    /// The file cannot be read.
    #[error("profile {file}: {cause}")]
    Unreadable {
        /// The file.
        file: String,
        /// The system's error.
        cause: String,
    },

    /// The file is not TOML.
    #[error("profile {file} is not TOML: {cause}")]
    Syntax {
        /// The file.
        file: String,
        /// The parser's error.
        cause: String,
    },

    /// A figure is missing.
    #[error("profile {file} has no {key}: {expected} was expected")]
    Missing {
        /// The file.
        file: String,
        /// The figure's key.
        key: String,
        /// The expected value.
        expected: &'static str,
    },

    /// A figure is there, but its value is not valid.
    #[error("profile {file}: {key} is {found}: {expected} was expected")]
    Bad {
        /// The file.
        file: String,
        /// The figure's key.
        key: String,
        /// The value found.
        found: String,
        /// The expected value.
        expected: &'static str,
    },

    /// The key belongs to no profile.
    #[error("profile {file}: {key} is no key of a profile{}", did_you_mean(.near))]
    UnknownKey {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// The known key nearest to it, if one is near.
        near: Option<String>,
    },
}

fn did_you_mean(near: &Option<impl std::fmt::Display>) -> String {
    near.as_ref()
        .map_or_else(String::new, |near| format!(" (did you mean {near}?)"))
}

/// The candidate that differs from `name` in the fewest letters, if they are few enough.
pub(super) fn nearest<T: AsRef<str>>(name: &str, candidates: impl Iterator<Item = T>) -> Option<T> {
    candidates
        .map(|candidate| (strsim::levenshtein(name, candidate.as_ref()), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| *distance <= candidate.as_ref().len().div_ceil(3))
        .map(|(_, candidate)| candidate)
}
