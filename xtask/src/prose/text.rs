//! The sentences of a text in Markdown, as rustdoc and plain comments are too.
//!
//! Paragraphs and items of lists hold sentences. Headings, tables, code blocks and definitions of
//! links hold none (CommonMark 0.31, sections 4 and 5, as far as this tree needs them).

use super::comments::TextLine;

/// One sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sentence {
    /// The line that it begins on.
    pub(super) line: usize,
    /// The number of words. Inline code counts as one word and a link's target as none.
    pub(super) words: usize,
    /// The first word in lower case, if it is a word and not code.
    pub(super) first: String,
    /// True if it ends with a question mark.
    pub(super) asks: bool,
    /// The text as written, on one line.
    pub(super) text: String,
}

/// A character of a paragraph.
#[derive(Clone, Copy)]
struct Glyph {
    /// The character as written.
    written: char,
    /// The character that is read; none in the target of a link.
    read: Option<char>,
    /// Its line.
    line: usize,
}

/// Stands for each character of inline code, so that code is one word and no opening.
const CODE: char = '\u{e000}';

/// Abbreviations that end no sentence, whatever follows.
const ABBREVIATIONS: [&str; 12] = [
    "e.g", "i.e", "vs", "cf", "al", "approx", "resp", "incl", "fig", "figs", "eq", "sect",
];

/// Abbreviations that end no sentence before a number.
const BEFORE_NUMBERS: [&str; 9] = ["sec", "no", "p", "pp", "ch", "vol", "v", "tab", "ver"];

/// The sentences of these lines.
pub(super) fn sentences(lines: &[TextLine]) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    for paragraph in paragraphs(lines) {
        split(&paragraph, &mut sentences);
    }
    sentences
}

/// The text of each paragraph and item.
fn paragraphs(lines: &[TextLine]) -> Vec<Vec<TextLine>> {
    let mut found: Vec<Vec<TextLine>> = vec![Vec::new()];
    let mut fence: Option<String> = None;
    let mut in_list = false;
    let mut after_blank = true;
    for line in lines {
        let unquoted = line.text.trim_start();
        let unquoted = unquoted.strip_prefix("> ").unwrap_or(&line.text);
        let text = unquoted.trim();
        let indent = unquoted.len() - unquoted.trim_start().len();
        if let Some(open) = &fence {
            if text.starts_with(open.as_str()) && text.trim_start_matches(&open[..1]).is_empty() {
                fence = None;
            }
            continue;
        }
        let was_blank = std::mem::replace(&mut after_blank, text.is_empty());
        let item = item(text);
        let code = indent >= 4 && was_blank && item.is_none() && !in_list;
        if let Some(mark) = fence_of(text) {
            fence = Some(mark);
        }
        if fence.is_some() || text.is_empty() || is_no_text(text) || code {
            // A block of code continues for as long as its lines are indented.
            after_blank |= code;
            found.push(Vec::new());
            continue;
        }
        if item.is_some() {
            in_list = true;
            found.push(Vec::new());
        } else if indent == 0 && was_blank {
            in_list = false;
        }
        if let Some(last) = found.last_mut() {
            last.push(TextLine {
                number: line.number,
                text: item.unwrap_or(text).to_owned(),
            });
        }
    }
    found.retain(|it| !it.is_empty());
    found
}

/// The mark that opens a block of code.
fn fence_of(text: &str) -> Option<String> {
    ["```", "~~~"].into_iter().find_map(|mark| {
        let rest = text.trim_start_matches(&mark[..1]);
        let opens = text.starts_with(mark) && !rest.contains(&mark[..1]);
        opens.then(|| text[..text.len() - rest.len()].to_owned())
    })
}

/// True if a line is a heading, a row of a table, a rule, a picture, a definition of a link or markup.
fn is_no_text(text: &str) -> bool {
    let heading = text.trim_start_matches('#');
    let is_heading = text.starts_with('#') && (heading.is_empty() || heading.starts_with(' '));
    let defines = text.starts_with('[') && text.contains("]: ") && !text.contains(". ");
    let is_rule = text.chars().all(|c| "-=*_ ".contains(c));
    let is_markup = text.starts_with("<!--")
        || text.starts_with("</")
        || text.starts_with("![")
        || text.starts_with("<p");
    is_heading || text.starts_with('|') || defines || is_rule || is_markup
}

/// The text of an item of a list; none where the line does not begin one.
fn item(text: &str) -> Option<&str> {
    let (mark, rest) = text.split_once(' ')?;
    let number = mark.strip_suffix(['.', ')']).unwrap_or_default();
    let counted = matches!(number.len(), 1 | 2) && number.bytes().all(|c| c.is_ascii_digit());
    (counted || ["-", "*", "+", "•"].contains(&mark)).then(|| rest.trim_start())
}

fn split(paragraph: &[TextLine], into: &mut Vec<Sentence>) {
    let pieces = pieces(paragraph);
    let mut start = 0;
    for at in 0..pieces.len() {
        if is_end(&pieces, start, at) {
            into.extend(sentence(&pieces[start..=at]));
            start = at + 1;
        }
    }
    into.extend(sentence(&pieces[start..]));
}

/// The characters of a paragraph, with its code and its links' targets marked.
fn pieces(paragraph: &[TextLine]) -> Vec<Glyph> {
    let mut pieces: Vec<Glyph> = Vec::new();
    for line in paragraph {
        let written = line.text.chars().chain([' ']);
        pieces.extend(written.map(|written| Glyph {
            written,
            read: Some(written),
            line: line.number,
        }));
    }
    let is =
        |pieces: &[Glyph], at: usize, c: char| pieces.get(at).is_some_and(|it| it.read == Some(c));
    let mut at = 0;
    while at < pieces.len() {
        if is(&pieces, at, '`') {
            let ticks = (at..).take_while(|&it| is(&pieces, it, '`')).count();
            let run = |from: usize| (from..).take_while(|&it| is(&pieces, it, '`')).count();
            let mut end = at + ticks;
            while end < pieces.len() && run(end) != ticks {
                end += run(end).max(1);
            }
            if end < pieces.len() {
                for piece in &mut pieces[at..end + ticks] {
                    piece.read = Some(CODE);
                }
                end += ticks;
            } else {
                end = at + ticks;
            }
            at = end;
        } else if is(&pieces, at, ']') && is(&pieces, at + 1, '(') {
            let length = pieces[at..].iter().position(|it| it.written == ')');
            let end = length.map_or(at, |it| at + it);
            for piece in &mut pieces[(at + 1).min(end)..=end] {
                piece.read = None;
            }
            at = end + 1;
        } else {
            at += 1;
        }
    }
    pieces
}

/// True if the sentence that begins at `start` ends with the character at `at`, which may be a
/// bracket or a mark of emphasis behind the full stop.
fn is_end(pieces: &[Glyph], start: usize, at: usize) -> bool {
    let stops = |c: char| ".!?…".contains(c);
    let closes = |c: char| "\"')]*_”’»".contains(c);
    if !pieces[at].read.is_some_and(|c| stops(c) || closes(c)) {
        return false;
    }
    let read: Vec<char> = pieces[start..=at].iter().filter_map(|it| it.read).collect();
    let Some(stop) = read.iter().rposition(|c| !closes(*c)) else {
        return false;
    };
    if !stops(read[stop]) {
        return false;
    }
    let mut after = pieces[at + 1..].iter().filter_map(|it| it.read);
    if after.next().is_some_and(|c| !c.is_whitespace()) {
        return false;
    }
    let mut after = after.filter(|c| !c.is_whitespace() && !"\"'([*_“‘«".contains(*c));
    let next = after.next();
    if next.is_some_and(char::is_lowercase) {
        return false;
    }
    let word = read[..stop].rsplit(|c| c.is_whitespace()).next();
    let word: String = word.unwrap_or_default().iter().collect();
    let word = word
        .trim_start_matches(|c: char| !c.is_alphanumeric())
        .to_lowercase();
    let number = next.is_some_and(|c| c.is_ascii_digit());
    let abbreviated =
        ABBREVIATIONS.contains(&word.as_str()) || number && BEFORE_NUMBERS.contains(&word.as_str());
    read[stop] != '.' || !abbreviated || next.is_none()
}

/// The sentence of these characters; none if it has fewer than two words.
fn sentence(pieces: &[Glyph]) -> Option<Sentence> {
    let read: String = pieces.iter().filter_map(|it| it.read).collect();
    let is_word = |it: &&str| it.chars().any(|c| c.is_alphanumeric() || c == CODE);
    let words: Vec<&str> = read.split_whitespace().filter(is_word).collect();
    if words.len() < 2 {
        return None;
    }
    let begin = pieces.iter().position(|it| !it.written.is_whitespace())?;
    let marks = |c: char| !c.is_alphanumeric() && c != CODE;
    let first = words[0].trim_start_matches(marks);
    let first: String = first.chars().take_while(|c| c.is_alphabetic()).collect();
    let written: String = pieces.iter().map(|it| it.written).collect();
    Some(Sentence {
        line: pieces[begin].line,
        words: words.len(),
        first: first.to_lowercase(),
        asks: read
            .trim_end_matches(|c: char| !c.is_alphanumeric() && c != '?')
            .ends_with('?'),
        text: written.split_whitespace().collect::<Vec<_>>().join(" "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Sentence> {
        let lines = text.lines().enumerate().map(|(index, text)| TextLine {
            number: index + 1,
            text: text.to_owned(),
        });
        sentences(&lines.collect::<Vec<_>>())
    }

    fn sentence_texts(text: &str) -> Vec<String> {
        let one = |it: Sentence| format!("{}:{} {}", it.line, it.words, it.text);
        read(text).into_iter().map(one).collect()
    }

    #[test]
    fn lines_of_a_paragraph_join_and_blank_lines_end_a_sentence() {
        let text = "One two\nthree. Four\nfive six\n\nSeven eight";
        let expected = ["1:3 One two three.", "2:3 Four five six", "5:2 Seven eight"];
        assert_eq!(sentence_texts(text), expected);
    }

    #[test]
    fn abbreviations_numbers_and_code_end_no_sentence() {
        for text in [
            "Small words (e.g. One) count.",
            "As Li et al. Say it is so.",
            "See Fig. 3 and sec. 4 of it.",
            "MSRV 1.88 builds `a. B` and foo.Bar too.",
            "Rounds, retries etc. are counted.",
            "It is [a link](http://a.b/c. D) here.",
        ] {
            assert_eq!(sentence_texts(text).len(), 1, "{text}");
        }
        for text in [
            "The answer is no. Then it ends.",
            "It ends with `code`. `More` follows it.",
            "It ends (as said.) More follows.",
            "**It ends.** More follows.",
            "Does it end? It does.",
            "It has version 2. Then it ends.",
        ] {
            assert_eq!(sentence_texts(text).len(), 2, "{text}");
        }
    }

    #[test]
    fn inline_code_is_one_word_and_a_target_none() {
        let words = |text: &str| read(text)[0].words;
        assert_eq!(words("Calls `a + b + c` here."), 3);
        assert_eq!(words("Calls ``a ` b`` here."), 3);
        assert_eq!(words("A [link](https://a.b/c \"its title\") here."), 3);
        assert_eq!(words("One – two — three."), 3);
    }

    #[test]
    fn items_headings_and_tables_part_sentences() {
        let text = "# What it is\n![A picture](a.svg)\n\nIt has:\n- one thing\n  of two\n2. another thing\n\n| a b c | d e |\n|---|---|\nEnd of it.";
        let expected = [
            "4:2 It has:",
            "5:4 one thing of two",
            "7:2 another thing",
            "11:3 End of it.",
        ];
        assert_eq!(sentence_texts(text), expected);
    }

    #[test]
    fn code_is_no_text() {
        let text = "See this.\n```\nWhat a line. Another one.\n```\nMore text.\n\n    some more code\n\n    and code\n\nLast text.";
        let expected = ["1:2 See this.", "5:2 More text.", "11:2 Last text."];
        assert_eq!(sentence_texts(text), expected);
        let item = "- An item.\n\n  Its second paragraph.\n  ```sh\n  run a thing\n  ```";
        assert_eq!(
            sentence_texts(item),
            ["1:2 An item.", "3:3 Its second paragraph."]
        );
    }

    #[test]
    fn the_first_word_is_found_behind_marks() {
        let first = |text: &str| read(text)[0].first.clone();
        assert_eq!(first("(What's there."), "what");
        assert_eq!(first("**Who** comes."), "who");
        assert_eq!(first("`What` comes."), "");
        assert!(read("What is it? It is this.")[0].asks);
        assert!(!read("What is it? It is this.")[1].asks);
    }
}
