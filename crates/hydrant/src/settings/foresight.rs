//! What can be set about the strategy that foresees what is used.

use std::{fmt, str::FromStr, time::Duration};

use hydrant_foresight::sharing::Policy;

/// How the strategy `foresight` goes about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForesightSettings {
    /// Whether firehoses are moved to peers' memory ahead of the puts and gets that are expected, and given back
    /// after them.
    pub firehoses: bool,
    /// True if giving up registrations may cost only a small part of the time.
    pub steps_back: bool,
    /// How many cores of a host are idle, which the helpers of its ranks share.
    pub cores: IdleCores,
    /// How they are distributed where there are fewer cores than helpers.
    pub policy: Policy,
    /// How long helpers that share a core run on end.
    pub slice: Duration,
}

impl Default for ForesightSettings {
    fn default() -> Self {
        Self {
            firehoses: true,
            // Programs that lose little time would save less memory.
            steps_back: false,
            cores: IdleCores::Each,
            // The paper favours it.
            policy: Policy::Conservative,
            slice: Duration::from_millis(3),
        }
    }
}

/// How many cores of a host neither compute nor communicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum IdleCores {
    /// One for the helper of each rank.
    #[default]
    Each,
    /// Those beyond one for each rank.
    Auto,
    /// So many.
    Count(u32),
}

impl FromStr for IdleCores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "each" => Ok(Self::Each),
            "auto" => Ok(Self::Auto),
            _ => match text.parse() {
                Ok(count) if count <= MOST_CORES => Ok(Self::Count(count)),
                _ => Err(format!("each, auto or a number up to {MOST_CORES}")),
            },
        }
    }
}

/// More than any host has.
const MOST_CORES: u32 = 1 << 20;

impl fmt::Display for IdleCores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Each => f.pad("each"),
            Self::Auto => f.pad("auto"),
            Self::Count(count) => f.pad(&count.to_string()),
        }
    }
}

/// A policy by its name.
pub(super) fn policy(text: &str) -> Result<Policy, String> {
    match text {
        "aggressive" => Ok(Policy::Aggressive),
        "conservative" => Ok(Policy::Conservative),
        _ => Err("aggressive or conservative".to_owned()),
    }
}

/// The name of a policy.
pub(super) fn policy_name(policy: Policy) -> String {
    let name = match policy {
        Policy::Aggressive => "aggressive",
        Policy::Conservative => "conservative",
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_and_policies_are_found_by_their_names() {
        for cores in [IdleCores::Each, IdleCores::Auto, IdleCores::Count(7)] {
            assert_eq!(cores.to_string().parse(), Ok(cores));
        }
        for policy_of in [Policy::Aggressive, Policy::Conservative] {
            assert_eq!(policy(&policy_name(policy_of)), Ok(policy_of));
        }
    }

    #[test]
    fn what_is_no_such_value_is_said() {
        for text in ["", "all", "-1", "1048577", "1.5"] {
            let why = text.parse::<IdleCores>().expect_err(text);
            assert!(why.contains("each, auto or a number"), "{why}");
        }
        let why = policy("fair").expect_err("there is none");
        assert!(why.contains("aggressive or conservative"), "{why}");
    }
}
