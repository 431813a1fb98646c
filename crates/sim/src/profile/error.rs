//! What can be wrong with a profile.

/// Why there is no such profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No profile of that name is shipped.
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
        /// What the system said.
        cause: String,
    },

    /// The file is not TOML.
    #[error("profile {file} is not TOML: {cause}")]
    Syntax {
        /// The file.
        file: String,
        /// What the parser said.
        cause: String,
    },

    /// A figure is not there.
    #[error("profile {file} has no {key}: {expected} was expected")]
    Missing {
        /// The file.
        file: String,
        /// The figure's place.
        key: String,
        /// What should be there.
        expected: &'static str,
    },

    /// A figure is there, but cannot be one.
    #[error("profile {file}: {key} is {found}: {expected} was expected")]
    Bad {
        /// The file.
        file: String,
        /// The figure's place.
        key: String,
        /// What is there.
        found: String,
        /// What should be there.
        expected: &'static str,
    },

    /// Something is there that no profile has.
    #[error("profile {file}: {key} is nothing that a profile has{}", did_you_mean(.near))]
    UnknownKey {
        /// The file.
        file: String,
        /// Its place.
        key: String,
        /// The key nearest to it, if one is near.
        near: Option<String>,
    },
}

fn did_you_mean(near: &Option<impl std::fmt::Display>) -> String {
    near.as_ref()
        .map_or_else(String::new, |near| format!(" (did you mean {near}?)"))
}

/// The candidate that differs from `name` in the fewest letters, if few enough.
pub(super) fn nearest<T: AsRef<str>>(name: &str, candidates: impl Iterator<Item = T>) -> Option<T> {
    candidates
        .map(|candidate| (strsim::levenshtein(name, candidate.as_ref()), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| *distance <= candidate.as_ref().len().div_ceil(3))
        .map(|(_, candidate)| candidate)
}
