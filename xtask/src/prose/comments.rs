//! Finds the comments of Rust and C: a lexer that knows literals and nothing else.
//!
//! A comment mark inside a string, a raw string or a character literal is no comment. Rust's tokens
//! are those of the reference, chapter "Tokens"; the next quote tells lifetimes from characters.

use std::iter::Peekable;
use std::str::CharIndices;

/// One line of text, without the marks of a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextLine {
    /// Its number in the file, from 1.
    pub(super) number: usize,
    /// Its text.
    pub(super) text: String,
}

/// The language of a file, as far as its literals differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Rust,
    C,
}

/// The prefix of the reason that an `unsafe` block needs.
const SAFETY: &str = "SAFETY:";

/// The comments of a file, each as its lines. Comments of one kind on consecutive lines are one.
pub(super) fn comments(text: &str, language: Language) -> Vec<Vec<TextLine>> {
    let mut lexer = Lexer {
        text,
        chars: text.char_indices().peekable(),
        line: 1,
        start: 0,
        code: false,
        found: Vec::new(),
    };
    lexer.run(language);
    joined(lexer.found)
}

/// A comment as it stands in the file.
struct Raw {
    line: usize,
    marks: Marks,
    /// True if code stands before it on its line.
    trails: bool,
    /// Without the marks that open and close it.
    body: String,
}

/// The marks that make it a comment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marks {
    /// `//`
    Plain,
    /// `///`
    Outer,
    /// `//!`
    Inner,
    /// `/*` and `*/`
    Block,
}

struct Lexer<'a> {
    text: &'a str,
    chars: Peekable<CharIndices<'a>>,
    line: usize,
    /// The beginning of the last word, which may be the prefix of a raw string.
    start: usize,
    /// True if code stands on this line before the next character.
    code: bool,
    found: Vec<Raw>,
}

impl Lexer<'_> {
    fn run(&mut self, language: Language) {
        while let Some((at, c)) = self.next() {
            let rest = &self.text[at..];
            match c {
                '/' if rest.starts_with("//") => self.line_comment(at, language),
                '/' if rest.starts_with("/*") => self.block_comment(at, language),
                '"' if language == Language::Rust && self.is_raw(at) => self.raw_string(at),
                '"' => self.skip_quoted('"'),
                '\'' if language == Language::C || is_character(rest) => self.skip_quoted('\''),
                _ => {
                    self.code |= !c.is_whitespace();
                    if !(c.is_alphanumeric() || c == '_' || c == '#') {
                        self.start = at + c.len_utf8();
                    }
                }
            }
        }
    }

    fn next(&mut self) -> Option<(usize, char)> {
        let next = self.chars.next();
        if let Some((_, '\n')) = next {
            self.line += 1;
            self.code = false;
        }
        next
    }

    fn line_comment(&mut self, at: usize, language: Language) {
        let rest = &self.text[at..];
        let whole = rest.split('\n').next().unwrap_or_default();
        let (marks, length) = match language {
            Language::Rust if whole.starts_with("//!") => (Marks::Inner, 3),
            Language::Rust if whole.starts_with("///") && !whole.starts_with("////") => {
                (Marks::Outer, 3)
            }
            _ => (Marks::Plain, 2),
        };
        self.push(self.line, marks, &whole[length..]);
        while self.chars.next_if(|&(_, c)| c != '\n').is_some() {}
    }

    fn block_comment(&mut self, at: usize, language: Language) {
        let line = self.line;
        let trails = self.code;
        let mut depth = 0_usize;
        let mut end = self.text.len();
        let mut from = at;
        // The first slash is already consumed.
        while let Some(&(here, _)) = self.chars.peek() {
            let opens = self.text[from..].starts_with("/*");
            if opens && (depth == 0 || language == Language::Rust) {
                depth += 1;
                self.next();
            } else if self.text[from..].starts_with("*/") {
                depth -= 1;
                self.next();
                if depth == 0 {
                    end = from;
                    break;
                }
            }
            from = self.chars.peek().map_or(here, |&(here, _)| here);
            self.next();
        }
        let body = self.text.get(at + 2..end).unwrap_or_default();
        self.code = trails;
        self.push(line, Marks::Block, body);
    }

    fn push(&mut self, line: usize, marks: Marks, body: &str) {
        self.found.push(Raw {
            line,
            marks,
            trails: self.code,
            body: body.trim_end_matches('\r').to_owned(),
        });
    }

    /// True if the word before the quote at `at` makes it a raw string.
    fn is_raw(&self, at: usize) -> bool {
        let word = self.text.get(self.start..at).unwrap_or_default();
        ["r", "br", "cr"].contains(&word.trim_end_matches('#'))
    }

    fn raw_string(&mut self, at: usize) {
        let word = &self.text[self.start..at];
        let hashes = "#".repeat(word.chars().filter(|&c| c == '#').count());
        let end = format!("\"{hashes}");
        let length = self.text[at + 1..].find(&end);
        let end = length.map_or(self.text.len(), |it| at + 1 + it + end.len());
        while self.chars.peek().is_some_and(|&(here, _)| here < end) {
            self.next();
        }
        self.code = true;
        self.start = end;
    }

    fn skip_quoted(&mut self, quote: char) {
        while let Some((at, c)) = self.next() {
            if c == '\\' {
                self.next();
            } else if c == quote {
                self.start = at + 1;
                break;
            }
        }
        self.code = true;
    }
}

/// True if the quote opens a character, and not a lifetime.
fn is_character(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    match chars.next() {
        Some('\\') => true,
        Some(_) => chars.next() == Some('\''),
        None => false,
    }
}

fn joined(found: Vec<Raw>) -> Vec<Vec<TextLine>> {
    let mut comments: Vec<Vec<TextLine>> = Vec::new();
    let mut before: Option<(Marks, usize)> = None;
    for raw in found {
        let lines = lines(&raw);
        let follows = before == Some((raw.marks, raw.line.wrapping_sub(1)));
        match comments.last_mut() {
            Some(last) if follows && !raw.trails && raw.marks != Marks::Block => last.extend(lines),
            _ => comments.push(lines),
        }
        before = Some((raw.marks, raw.line));
    }
    comments
}

fn lines(raw: &Raw) -> Vec<TextLine> {
    let bodies = raw.body.split('\n').enumerate();
    bodies
        .map(|(index, body)| {
            let body = match raw.marks {
                Marks::Block => body.trim_start().trim_start_matches(['*', '!']),
                _ => body,
            };
            let body = body.strip_prefix(' ').unwrap_or(body);
            let body = body.strip_prefix(SAFETY).map_or(body, str::trim_start);
            TextLine {
                number: raw.line + index,
                text: body.trim_end().to_owned(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comment_texts(text: &str, language: Language) -> Vec<String> {
        let told = |it: &TextLine| format!("{} {}", it.number, it.text);
        let one = |it: &Vec<TextLine>| it.iter().map(told).collect::<Vec<_>>().join("|");
        comments(text, language).iter().map(one).collect()
    }

    #[test]
    fn consecutive_lines_of_one_kind_are_one_comment() {
        let text = "//! Room.\n//! Two.\n/// Type.\nstruct A; // Field.\n// Next.\n\n// Last.";
        let expected = ["1 Room.|2 Two.", "3 Type.", "4 Field.|5 Next.", "7 Last."];
        assert_eq!(comment_texts(text, Language::Rust), expected);
        let text = "a, // One.\nb, // Two.";
        assert_eq!(comment_texts(text, Language::Rust), ["1 One.", "2 Two."]);
    }

    #[test]
    fn literals_hide_what_looks_like_a_comment() {
        for code in [
            r#"let a = "https://a"; "#,
            r##"let a = r#"quote " and // more"#; "##,
            r#"let a = r"\"; "#,
            r#"let a = b"\"//"; "#,
            "let a = '\"'; ",
            "let a = '\\''; ",
            "fn f<'a>(a: &'a u8) {} ",
            "let r#for = \"//\"; ",
            "let bar = [\"//\"]; ",
            "let a = \"// one\n// two\"; ",
            "let a = br##\"//\"#\n//\"##; ",
        ] {
            let line = code.lines().count();
            let text = format!("{code}// Seen.\n");
            let expected = [format!("{line} Seen.")];
            assert_eq!(comment_texts(&text, Language::Rust), expected, "{code}");
        }
    }

    #[test]
    fn blocks_lose_their_stars_and_nest_in_rust_alone() {
        let text = "/* One\n * two. */ int a; /* b */";
        assert_eq!(comment_texts(text, Language::C), ["1 One|2 two.", "2 b"]);
        let text = "/* a /* b */ c */ // d";
        assert_eq!(comment_texts(text, Language::Rust).len(), 2);
        assert_eq!(comment_texts("/* a /* b */ // c", Language::C).len(), 2);
        assert_eq!(comment_texts("/**/ // c", Language::C), ["1 ", "1 c"]);
        assert_eq!(comment_texts("char c = '\"'; // c", Language::C), ["1 c"]);
    }

    #[test]
    fn the_prefix_of_a_reason_is_no_word_of_it() {
        let text = "// SAFETY: 1. It holds.\n//         2. It is ours.";
        let expected = ["1 1. It holds.|2         2. It is ours."];
        assert_eq!(comment_texts(text, Language::Rust), expected);
    }
}
