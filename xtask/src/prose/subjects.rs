//! The subjects of commits: each fits the width that `git log` leaves it.

use super::budget::{SUBJECT, SUBJECTS_SINCE};
use crate::command::{at_root, output, succeeds};

/// The range of commits to check where the first commit is not in the clone.
const LAST: &str = "--max-count=20";

/// A sentence for each subject that is too long; none where there is no history to look at.
pub(super) fn problems() -> Option<Vec<String>> {
    let mut known = at_root("git");
    known.args(["merge-base", "--is-ancestor", SUBJECTS_SINCE, "HEAD"]);
    // A shallow clone lacks the base, and so does an imported history.
    let range = if succeeds(known) {
        format!("{SUBJECTS_SINCE}..HEAD")
    } else {
        LAST.to_owned()
    };
    let mut any = at_root("git");
    any.args(["rev-parse", "--verify", "HEAD"]);
    if !succeeds(any) {
        return None;
    }
    let mut log = at_root("git");
    log.args(["log", "--no-merges", "--format=%h %s", &range]);
    let printed = output(log).ok()?;
    Some(too_long(&String::from_utf8_lossy(&printed)))
}

/// The problems of these lines, each a commit and its subject.
fn too_long(log: &str) -> Vec<String> {
    let commits = log.lines().filter_map(|it| it.split_once(' '));
    let lengths = commits.map(|(commit, subject)| (commit, subject, subject.chars().count()));
    let long = lengths.filter(|&(_, _, length)| length > SUBJECT);
    let told = |(commit, subject, length)| {
        format!(
            "commit {commit}: its subject has {length} characters, at most {SUBJECT}: {subject}"
        )
    };
    long.map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_counted_in_characters() {
        let fits = "é".repeat(SUBJECT);
        let log = format!("aaaa {fits}\nbbbb {fits}x\ncccc Short");
        let problems = too_long(&log);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("commit bbbb: its subject has 73 characters"));
    }
}
