//! The budgets of the check: the most that the tree may have now, and the goals.
//!
//! A budget is lowered whenever the tree has become better, until it is the goal. It is not raised.

/// The words that a sentence may have.
pub(super) const WORDS: usize = 30;

/// The words that begin no sentence, unless it is a question.
pub(super) const OPENINGS: [&str; 6] = ["what", "who", "whose", "whoever", "whether", "which"];

/// The characters that the subject of a commit may have.
pub(super) const SUBJECT: usize = 72;

/// The commit whose successors keep to `SUBJECT`.
pub(super) const SUBJECTS_SINCE: &str = "5335fbe6ca3b3c52af2e5e44e2af3469561491c2";

/// A ceiling and its goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Budget {
    /// The ceiling now.
    pub(super) now: f64,
    /// The ceiling at last.
    pub(super) goal: f64,
}

/// Percent of the sentences that may have more words than `WORDS`.
pub(super) const LONG: Budget = Budget {
    now: 1.0,
    goal: 1.0,
};

/// Percent of the sentences that may begin with one of `OPENINGS`.
pub(super) const OPENED: Budget = Budget {
    now: 2.0,
    goal: 2.0,
};

/// Types that may have the name of a type in another module, beside those of `MAY_BE_SHARED`.
pub(super) const SHARED_TYPES: Budget = Budget {
    now: 0.0,
    goal: 0.0,
};

/// The names that many modules declare, each with the reason.
pub(super) const MAY_BE_SHARED: [(&str, &str); 6] = [
    (
        "Arguments",
        "the arguments of a command, always named with its module",
    ),
    (
        "Cli",
        "the command line of a program, as clap's documents call it",
    ),
    (
        "Error",
        "each area has one, as the standard library's modules do",
    ),
    (
        "Result",
        "the standard library's `Result` with the crate's own error",
    ),
    (
        "Sealed",
        "the private supertrait of a trait that no other crate may implement",
    ),
    (
        "Stats",
        "each part counts for itself, and the counts are named with the part",
    ),
];

impl Budget {
    /// A sentence if `found` is above the ceiling.
    pub(super) fn exceeded(&self, subject: &str, found: f64) -> Option<String> {
        let Budget { now, goal } = self;
        (found > *now)
            .then(|| format!("{subject}: {found} is above the budget of {now} (goal {goal})"))
    }
}
