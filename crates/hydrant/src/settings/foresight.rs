//! The settings of the strategy that predicts uses of memory.

use std::{fmt, str::FromStr, time::Duration};

use hydrant_foresight::sharing::Policy;

/// The settings of the strategy `foresight`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForesightSettings {
    /// True if firehoses are moved to peers' memory ahead of expected puts and gets, and released
    /// after them.
    pub firehoses: bool,
    /// True if evictions may cost only a small part of the time.
    pub steps_back: bool,
    /// The number of idle cores of a host, which the helpers of its ranks share.
    pub cores: IdleCores,
    /// How helpers share the cores if there are fewer cores than helpers.
    pub policy: Policy,
    /// How long a helper runs before another helper on its core does.
    pub slice: Duration,
}

impl Default for ForesightSettings {
    fn default() -> Self {
        Self {
            firehoses: true,
            // Without it, programs that lose little time save more memory.
            steps_back: false,
            cores: IdleCores::Each,
            // As the paper recommends.
            policy: Policy::Conservative,
            slice: Duration::from_millis(3),
        }
    }
}

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

/// More cores than any host has.
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

/// Returns the policy with this name.
pub(super) fn policy(text: &str) -> Result<Policy, String> {
    match text {
        "aggressive" => Ok(Policy::Aggressive),
        "conservative" => Ok(Policy::Conservative),
        _ => Err("aggressive or conservative".to_owned()),
    }
}

/// Returns the name of a policy.
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
    fn values_that_do_not_exist_are_refused_with_a_list() {
        for text in ["", "all", "-1", "1048577", "1.5"] {
            let why = text.parse::<IdleCores>().expect_err(text);
            assert!(why.contains("each, auto or a number"), "{why}");
        }
        let why = policy("fair").expect_err("there is none");
        assert!(why.contains("aggressive or conservative"), "{why}");
    }
}
