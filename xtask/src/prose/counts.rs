//! Counts sentences by folder, and prints the counts.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

use super::budget::{Budget, LONG, OPENED, OPENINGS, WORDS};
use super::comments::{Language, TextLine, comments};
use super::text::{Sentence, sentences};

/// Characters of a sentence that a list of places shows.
const SHOWN: usize = 72;

/// The counts of one folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    sentences: usize,
    long: usize,
    opened: usize,
}

/// The rule that a sentence breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Long(usize),
    Opened,
}

/// A sentence that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Breach {
    pub(super) file: PathBuf,
    pub(super) line: usize,
    pub(super) fault: Rule,
    pub(super) text: String,
}

/// All that was counted.
#[derive(Debug, Default)]
pub(super) struct SentenceCounts {
    folders: BTreeMap<String, Count>,
    /// Each sentence that breaks a rule; one that breaks both is there twice.
    pub(super) places: Vec<Breach>,
    /// The sentences of comments that begin with a word.
    first_words: BTreeMap<String, usize>,
}

impl SentenceCounts {
    /// Counts the text of a file. Its ending says whether it is Rust, C or Markdown; any other file
    /// is left out.
    pub(super) fn add(&mut self, file: &Path, text: &str) {
        match file.extension().and_then(|it| it.to_str()) {
            Some("rs") => self.add_comments(file, &comments(text, Language::Rust)),
            Some("h") => self.add_comments(file, &comments(text, Language::C)),
            Some("md") => {
                let lines = text.lines().enumerate().map(|(index, text)| TextLine {
                    number: index + 1,
                    text: text.to_owned(),
                });
                self.add_sentences(file, sentences(&lines.collect::<Vec<_>>()));
            }
            _ => {}
        }
    }

    fn add_comments(&mut self, file: &Path, comments: &[Vec<TextLine>]) {
        for comment in comments {
            let sentences = sentences(comment);
            for sentence in sentences.iter().filter(|it| !it.first.is_empty()) {
                *self.first_words.entry(sentence.first.clone()).or_default() += 1;
            }
            self.add_sentences(file, sentences);
        }
    }

    fn add_sentences(&mut self, file: &Path, sentences: Vec<Sentence>) {
        let count = self.folders.entry(folder(file)).or_default();
        for sentence in sentences {
            count.sentences += 1;
            let long = (sentence.words > WORDS).then_some(Rule::Long(sentence.words));
            let opened = OPENINGS.contains(&sentence.first.as_str()) && !sentence.asks;
            let opened = opened.then_some(Rule::Opened);
            count.long += usize::from(long.is_some());
            count.opened += usize::from(opened.is_some());
            self.places
                .extend(long.into_iter().chain(opened).map(|fault| Breach {
                    file: file.to_owned(),
                    line: sentence.line,
                    fault,
                    text: shortened(&sentence.text),
                }));
        }
    }

    /// A sentence for each share that is above its budget.
    pub(super) fn problems(&self) -> Vec<String> {
        let all = self.total();
        let long = LONG.exceeded("percent of sentences over 30 words", all.percent(all.long));
        let opened = OPENED.exceeded("percent of forbidden openings", all.percent(all.opened));
        long.into_iter().chain(opened).collect()
    }

    /// True if there was no sentence at all.
    pub(super) fn is_empty(&self) -> bool {
        self.total().sentences == 0
    }

    fn total(&self) -> Count {
        let add = |sum: Count, it: &Count| Count {
            sentences: sum.sentences + it.sentences,
            long: sum.long + it.long,
            opened: sum.opened + it.opened,
        };
        self.folders.values().fold(Count::default(), add)
    }

    /// The lines of the table: each folder, all of them, the budget and the goal.
    pub(super) fn table(&self) -> Vec<String> {
        let mut rows =
            vec![["folder", "sentences", "over 30 words", "%", "openings", "%"].map(str::to_owned)];
        for (folder, count) in &self.folders {
            rows.push(count.cells(folder));
        }
        rows.push(self.total().cells("all"));
        let limits = |name: &str, share: fn(&Budget) -> f64| {
            let [long, opened] = [share(&LONG), share(&OPENED)].map(|it| format!("{it:.2}"));
            [
                name.to_owned(),
                String::new(),
                String::new(),
                long,
                String::new(),
                opened,
            ]
        };
        rows.push(limits("budget", |it| it.now));
        rows.push(limits("goal", |it| it.goal));
        aligned(&rows)
    }

    /// The table as JSON objects.
    pub(super) fn json(&self) -> Vec<Value> {
        let row = |folder: &str, count: &Count| {
            json!({
                "folder": folder,
                "sentences": count.sentences,
                "long": count.long,
                "long_percent": count.percent(count.long),
                "openings": count.opened,
                "openings_percent": count.percent(count.opened),
            })
        };
        let mut rows: Vec<Value> = self
            .folders
            .iter()
            .map(|(name, it)| row(name, it))
            .collect();
        rows.push(row("all", &self.total()));
        let limits = |name: &str, long: f64, opened: f64| {
            json!({
                "folder": name, "long_percent": long, "openings_percent": opened,
            })
        };
        rows.push(limits("budget", LONG.now, OPENED.now));
        rows.push(limits("goal", LONG.goal, OPENED.goal));
        rows
    }

    /// The commonest first words of sentences in comments, with how many they begin.
    pub(super) fn first_words(&self, most: usize) -> Vec<(&str, usize)> {
        let mut words: Vec<_> = self
            .first_words
            .iter()
            .map(|(word, &count)| (word.as_str(), count))
            .collect();
        words.sort_by_key(|&(word, count)| (std::cmp::Reverse(count), word));
        words.truncate(most);
        words
    }
}

impl Count {
    fn percent(&self, part: usize) -> f64 {
        if self.sentences == 0 {
            return 0.0;
        }
        let share = 100.0 * part as f64 / self.sentences as f64;
        (share * 100.0).round() / 100.0
    }

    fn cells(&self, name: &str) -> [String; 6] {
        let percent = |part| format!("{:.2}", self.percent(part));
        [
            name.to_owned(),
            self.sentences.to_string(),
            self.long.to_string(),
            percent(self.long),
            self.opened.to_string(),
            percent(self.opened),
        ]
    }
}

impl Breach {
    /// The place as a line that editors can follow.
    pub(super) fn line(&self) -> String {
        let fault = match self.fault {
            Rule::Long(words) => format!("{words} words"),
            Rule::Opened => "opening".to_owned(),
        };
        format!(
            "{}:{}: {fault}: {}",
            self.file.display(),
            self.line,
            self.text
        )
    }

    /// The place as a JSON object.
    pub(super) fn json(&self) -> Value {
        let (fault, words) = match self.fault {
            Rule::Long(words) => ("long", Some(words)),
            Rule::Opened => ("opening", None),
        };
        json!({"file": self.file, "line": self.line, "fault": fault, "words": words, "text": self.text})
    }
}

/// Columns that line up: the first to the left, all others to the right.
pub(super) fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|it| width(it).unwrap_or(0)).collect();
    let line = |row: &[String; N]| {
        let mut line = format!("{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            line += &format!("  {cell:>width$}");
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// The crate that a file is in, or its top folder.
fn folder(file: &Path) -> String {
    let mut parts = file
        .parent()
        .unwrap_or(Path::new(""))
        .components()
        .map(Component::as_os_str);
    let first = parts.next().map(|it| it.to_string_lossy().into_owned());
    match (first.as_deref(), parts.next()) {
        (Some("crates"), Some(second)) => format!("crates/{}", second.to_string_lossy()),
        (Some(first), _) => first.to_owned(),
        (None, _) => "(root)".to_owned(),
    }
}

/// The beginning of a sentence, cut between words.
fn shortened(text: &str) -> String {
    if text.chars().count() <= SHOWN {
        return text.to_owned();
    }
    let cut: String = text.chars().take(SHOWN).collect();
    let words = cut
        .rsplit_once(' ')
        .map_or(cut.as_str(), |(words, _)| words);
    format!("{words} …")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(files: &[(&str, &str)]) -> SentenceCounts {
        let mut counts = SentenceCounts::default();
        for (file, text) in files {
            counts.add(Path::new(file), text);
        }
        counts
    }

    #[test]
    fn comments_count_and_code_does_not() {
        let long = format!("{}end", "word ".repeat(WORDS));
        let just = format!("{}end", "word ".repeat(WORDS - 1));
        let counts = counts(&[
            (
                "crates/a/src/lib.rs",
                &format!("/// {long}.\nfn what_is() {{ \"What is it.\" }}\n// {just}."),
            ),
            ("crates/a/include/a.h", "/* Who calls it. */ int what;"),
            ("README.md", "What is it? Whether it is.\n"),
            ("docs/a.txt", "What is left out."),
        ]);
        let places: Vec<_> = counts.places.iter().map(|it| (it.line, it.fault)).collect();
        let expected = [
            (1, Rule::Long(WORDS + 1)),
            (1, Rule::Opened),
            (1, Rule::Opened),
        ];
        assert_eq!(places, expected);
        assert_eq!(
            counts.places[2].line(),
            "README.md:1: opening: Whether it is."
        );
        let count = counts.folders["crates/a"];
        assert_eq!((count.sentences, count.long, count.opened), (3, 1, 1));
        assert_eq!(counts.folders["(root)"].sentences, 2);
        assert!(!counts.folders.contains_key("docs"));
    }

    #[test]
    fn the_table_lines_up_and_adds_up() {
        let counts = counts(&[
            ("crates/a/src/lib.rs", "// What is it.\n// It is it."),
            ("xtask/src/main.rs", "// It is so."),
        ]);
        let table = counts.table();
        let cells = |line: usize| table[line].split_whitespace().collect::<Vec<_>>();
        assert_eq!(cells(1), ["crates/a", "2", "0", "0.00", "1", "50.00"]);
        assert_eq!(cells(3), ["all", "3", "0", "0.00", "1", "33.33"]);
        assert!(
            table.iter().all(|it| it.len() == table[0].len()),
            "{table:?}"
        );
        assert_eq!(counts.json()[2]["openings_percent"], 33.33);
    }

    #[test]
    fn a_share_above_its_budget_is_a_problem() {
        let long = "Word ".repeat(WORDS + 1);
        let problems = counts(&[("a.md", &format!("What is it. {long}"))]).problems();
        assert_eq!(problems.len(), 2);
        assert!(
            problems[1].contains("50 is above the budget"),
            "{problems:?}"
        );
        assert_eq!(counts(&[("a.md", "It is it.")]).problems(), [""; 0]);
    }

    #[test]
    fn the_commonest_first_words_come_first() {
        let counts = counts(&[(
            "src/lib.rs",
            "// The one.\n// A thing. The other.\n// `A` b.",
        )]);
        assert_eq!(counts.first_words(1), [("the", 2)]);
        assert_eq!(counts.first_words(9), [("the", 2), ("a", 1)]);
    }

    #[test]
    fn long_text_is_cut_between_words() {
        assert_eq!(shortened("Short text."), "Short text.");
        let cut = shortened(&"word ".repeat(40));
        assert!(
            cut.ends_with("word …") && cut.chars().count() <= SHOWN + 2,
            "{cut}"
        );
    }
}
