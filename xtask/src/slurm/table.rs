//! The table: a line for each case.

/// A case: its subject, the command, the outcome, and the fault if the outcome is wrong.
#[derive(Debug, PartialEq)]
pub(super) struct CaseRow {
    pub(super) what: &'static str,
    pub(super) command: String,
    pub(super) seen: String,
    pub(super) problem: Option<String>,
}

/// The rows in columns of equal width, under headings.
pub(super) fn table(rows: &[CaseRow]) -> Vec<String> {
    let headings = ["what", "command", "seen"].map(str::to_owned);
    let cells = |row: &CaseRow| [row.what.to_owned(), row.command.clone(), row.seen.clone()];
    let all: Vec<[String; 3]> = [headings]
        .into_iter()
        .chain(rows.iter().map(cells))
        .collect();
    let width = |column: usize| all.iter().map(|it| it[column].chars().count()).max();
    let (first, second) = (width(0).unwrap_or(0), width(1).unwrap_or(0));
    all.iter()
        .map(|[what, command, seen]| format!("{what:<first$}  {command:<second$}  {seen}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_line_up() {
        let row = |what, command: &str, seen: &str| CaseRow {
            what,
            command: command.to_owned(),
            seen: seen.to_owned(),
            problem: None,
        };
        let rows = [
            row("two nodes", "srun", "right"),
            row("three", "salloc x", "wrong"),
        ];
        let expected = [
            "what       command   seen",
            "two nodes  srun      right",
            "three      salloc x  wrong",
        ];
        assert_eq!(table(&rows), expected);
    }
}
