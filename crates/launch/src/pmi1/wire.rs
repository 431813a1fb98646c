//! The PMI-1 wire format: lines of `name=value` pairs, the first of them `cmd`.
//!
//! Neither names nor values contain blanks. A command is one line and must arrive as one write. No
//! written standard exists: the format is the common part of MPICH's `simple_pmi.c`, its Hydra
//! launcher and Slurm's `mpi/pmi2` plugin.

use std::fmt::Write as _;

/// The version of PMI-1 that Hydrant speaks.
pub(crate) const VERSION: (u32, u32) = (1, 1);

/// The longest line that all servers and clients in use accept, with its newline.
///
/// MPICH and Slurm keep buffers of 1024 bytes for a line.
pub(crate) const MAX_LINE: usize = 1024;

/// A parsed command or answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PmiLine<'a> {
    /// The value of `cmd`.
    pub(crate) command: &'a str,
    /// True for the first line of a command of several lines (`mcmd`).
    pub(crate) multiple: bool,
    fields: Vec<(&'a str, &'a str)>,
}

impl<'a> PmiLine<'a> {
    /// Parses a line. The error says which part is wrong.
    pub(crate) fn parse(text: &'a str) -> Result<PmiLine<'a>, String> {
        let mut fields = Vec::new();
        for word in text.split_ascii_whitespace() {
            match word.split_once('=') {
                Some((name, value)) if !name.is_empty() => fields.push((name, value)),
                _ => return Err(format!("`{}` is not name=value", shorten(word))),
            }
        }
        match fields.first() {
            Some(&("cmd", command)) => Ok(PmiLine {
                command,
                multiple: false,
                fields,
            }),
            Some(&("mcmd", command)) => Ok(PmiLine {
                command,
                multiple: true,
                fields,
            }),
            _ => Err(format!("`{}` does not begin with cmd=", shorten(text))),
        }
    }

    /// Returns the value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&'a str> {
        self.fields
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| *value)
    }

    /// Returns the value of a field as a number.
    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.field(name)?.parse().ok()
    }
}

/// Returns the start of a foreign text, escaped and short enough for a message.
pub(crate) fn shorten(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut shown: String = text
        .trim_end()
        .chars()
        .take(SHOWN)
        .flat_map(char::escape_debug)
        .collect();
    if text.trim_end().chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

/// Escapes the characters of `text` that the format cannot carry, as `%XX`.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' && byte != b'=' {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Escapes as much of `text` as fits into `room` bytes. A text that is cut ends with an ellipsis, behind a whole word
/// where there is one.
pub(crate) fn escape_within(text: &str, room: usize) -> String {
    let whole = escape(text);
    if whole.len() <= room {
        return whole;
    }
    let mut kept: String = text.chars().take(room).collect();
    while escape(&kept).len() + escape(" …").len() > room && kept.pop().is_some() {}
    if let Some((words, _)) = kept.rsplit_once(' ') {
        kept.truncate(words.len());
    }
    escape(&(kept + " …"))
}

/// Reverses [`escape`]. A `%` that [`escape`] did not write stays unchanged.
pub(crate) fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_ends_behind_a_word() {
        assert_eq!(escape_within("two words", 100), escape("two words"));
        let cut = escape_within(&"one word ".repeat(20), 100);
        assert!(cut.len() <= 100, "{cut}");
        let cut = unescape(&cut);
        assert!(cut.ends_with("one …") || cut.ends_with("word …"), "{cut}");
        assert_eq!(unescape(&escape_within(&"é".repeat(99), 30)), "ééé …");
    }

    #[test]
    fn lines_are_split_into_fields() {
        let line = PmiLine::parse("cmd=put kvsname=job key=a value=x=y rc=-1\n").unwrap();
        assert_eq!((line.command, line.multiple), ("put", false));
        assert_eq!(line.field("value"), Some("x=y"));
        assert_eq!(line.number::<i32>("rc"), Some(-1));
        assert_eq!(line.field("none"), None);
        assert!(PmiLine::parse("mcmd=spawn\n").unwrap().multiple);
    }

    #[test]
    fn malformed_lines_are_refused_with_the_reason() {
        for (text, reason) in [
            ("", "does not begin"),
            ("put key=a", "not name=value"),
            ("key=a cmd=put", "does not begin"),
            ("cmd=put =x", "not name=value"),
        ] {
            let error = PmiLine::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let error = PmiLine::parse(&"x".repeat(4000)).unwrap_err();
        assert!(error.len() < 200 && error.contains('…'));
    }

    #[test]
    fn an_escaped_text_has_no_blanks_and_unescapes_unchanged() {
        for text in ["", "plain", "two words", "a=b %41\n", "ä – ü", "100%"] {
            let escaped = escape(text);
            assert!(
                escaped.bytes().all(|b| b.is_ascii_graphic() && b != b'='),
                "{escaped}"
            );
            assert_eq!(unescape(&escaped), text);
        }
        assert_eq!(unescape("50%"), "50%");
        assert_eq!(unescape("%zz%4"), "%zz%4");
        assert_eq!(unescape("%é"), "%é");
    }
}
