//! The output of `hydrant info` as a page of text for a terminal of 80 columns.

use super::InfoLine;

/// The columns of the narrowest terminal in use.
const COLUMNS: usize = 80;

/// The column of the meaning of a line.
const MEANING: usize = 6;

/// All lines, a heading for each section: the name, the value beside it, the meaning below.
pub(super) fn text(lines: &[InfoLine]) -> String {
    let mut text = String::new();
    for section in lines.chunk_by(|a, b| a.section == b.section) {
        text += &format!("{}\n", section[0].section);
        let widest = section.iter().map(|line| width(&line.name)).max();
        let names = widest.unwrap_or(0);
        for line in section {
            let gap = " ".repeat(names - width(&line.name));
            let first = format!("  {}{gap}  ", line.name);
            text += &paragraph(&first, names + 4, &value(line));
            if !line.meaning.is_empty() {
                text += &paragraph(&" ".repeat(MEANING), MEANING, &line.meaning);
            }
        }
        text += "\n";
    }
    text
}

/// The value, with its origin if it is a setting.
fn value(line: &InfoLine) -> String {
    let value = match line.value.as_str() {
        "" => "(empty)",
        value => value,
    };
    match &line.origin {
        Some(origin) => format!("{value} ({origin})"),
        None => value.to_owned(),
    }
}

/// `words` after `first`, in lines that continue at column `indent`.
fn paragraph(first: &str, indent: usize, words: &str) -> String {
    let room = COLUMNS - indent;
    let lines = wrap(words, room);
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let before = match number {
            0 => first,
            _ => &" ".repeat(indent),
        };
        text += &format!("{before}{line}\n");
    }
    text
}

/// Breaks lines between words, and within words that are longer than a line.
fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for piece in letters.chunks(room) {
            let piece: String = piece.iter().collect();
            let last = lines.last_mut().expect("there is a line from the start");
            match width(last) {
                0 => *last = piece,
                taken if taken + 1 + width(&piece) <= room => *last += &format!(" {piece}"),
                _ => lines.push(piece),
            }
        }
    }
    lines
}

/// The terminal cells of `text`: no printed character is wider than one cell.
fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, value: &str, meaning: &str) -> InfoLine {
        InfoLine {
            section: "things",
            name: name.to_owned(),
            value: value.to_owned(),
            origin: None,
            figures: serde_json::Map::new(),
            meaning: meaning.to_owned(),
        }
    }

    #[test]
    fn values_stand_below_each_other_and_meanings_below_them() {
        let setting = InfoLine {
            origin: Some("default".to_owned()),
            ..line("much longer", "", "what it is")
        };
        assert_eq!(
            text(&[line("µ", "1", ""), setting]),
            "things\n  µ            1\n  much longer  (empty) (default)\n      what it is\n\n"
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let long = "word ".repeat(40) + &"x".repeat(200);
        let text = text(&[line("name", &long, &long)]);
        assert!(text.lines().all(|line| width(line) <= COLUMNS), "{text}");
        let letters = |text: &str| text.chars().filter(|it| *it == 'x').count();
        assert_eq!(letters(&text), 400);
    }
}
