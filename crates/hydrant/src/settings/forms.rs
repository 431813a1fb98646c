//! The forms of values: how each is read, shown, and described to users.

use std::{fmt::Display, ops::RangeInclusive, time::Duration};

use rustix::thread::CpuSet;

use super::{format_bytes, parse_bytes};

/// The values that a setting may have.
pub(super) trait ValueForm<T> {
    /// Reads a value.
    ///
    /// # Errors
    /// The end of a sentence that begins with "expected".
    fn read(&self, text: &str) -> Result<T, String>;

    /// Returns the text that [`read`](Self::read) accepts for `value`.
    fn show(&self, value: &T) -> String;

    /// Describes the values, for the documentation and for errors.
    fn values(&self) -> String;

    /// Returns the unit of a number, in the plural; `None` if the value is a word.
    fn unit(&self) -> Option<&'static str> {
        None
    }
}

/// One of these values, each by its word.
pub(super) struct OneOf<T: 'static>(pub(super) &'static [T]);

impl<T: Display + Clone> ValueForm<T> for OneOf<T> {
    fn read(&self, text: &str) -> Result<T, String> {
        let named = self.0.iter().find(|value| value.to_string() == text);
        named.cloned().ok_or_else(|| {
            let words: Vec<String> = self.0.iter().map(T::to_string).collect();
            with_near(self.values(), text, words.iter().map(String::as_str))
        })
    }

    fn show(&self, value: &T) -> String {
        value.to_string()
    }

    fn values(&self) -> String {
        let words: Vec<String> = self.0.iter().map(T::to_string).collect();
        listed(&words)
    }
}

/// `on` or `off`.
pub(super) struct Switch;

impl ValueForm<bool> for Switch {
    fn read(&self, text: &str) -> Result<bool, String> {
        match text {
            "1" | "on" | "yes" | "true" => Ok(true),
            "0" | "off" | "no" | "false" => Ok(false),
            _ => Err(self.values()),
        }
    }

    fn show(&self, value: &bool) -> String {
        if *value { "on" } else { "off" }.to_owned()
    }

    fn values(&self) -> String {
        "on or off".to_owned()
    }
}

/// Any text, which these words describe.
pub(super) struct Text(pub(super) &'static str);

impl ValueForm<String> for Text {
    fn read(&self, text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }

    fn show(&self, value: &String) -> String {
        value.clone()
    }

    fn values(&self) -> String {
        self.0.to_owned()
    }
}

/// A number of bytes.
pub(super) struct ByteCount(pub(super) RangeInclusive<u64>);

impl<T: TryFrom<u64> + TryInto<u64> + Copy> ValueForm<T> for ByteCount {
    fn read(&self, text: &str) -> Result<T, String> {
        let bytes = parse_bytes(text).filter(|bytes| self.0.contains(bytes));
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| ValueForm::<T>::values(self))
    }

    fn show(&self, value: &T) -> String {
        format_bytes((*value).try_into().unwrap_or(u64::MAX))
    }

    fn values(&self) -> String {
        let [least, most] = [self.0.start(), self.0.end()].map(|bytes| format_bytes(*bytes));
        format!("bytes from {least} to {most}, such as 64K")
    }

    fn unit(&self) -> Option<&'static str> {
        Some("bytes")
    }
}

/// A number of this unit.
pub(super) struct Quantity(pub(super) &'static str, pub(super) RangeInclusive<u64>);

impl<T: TryFrom<u64> + TryInto<u64> + Copy> ValueForm<T> for Quantity {
    fn read(&self, text: &str) -> Result<T, String> {
        let number = text.parse().ok().filter(|number| self.1.contains(number));
        let number = number.and_then(|number: u64| number.try_into().ok());
        number.ok_or_else(|| ValueForm::<T>::values(self))
    }

    fn show(&self, value: &T) -> String {
        (*value).try_into().unwrap_or(u64::MAX).to_string()
    }

    fn values(&self) -> String {
        match (self.1.start(), self.1.end()) {
            (least, &u64::MAX) => format!("a number from {least} on"),
            (least, most) => format!("a number from {least} to {most}"),
        }
    }

    fn unit(&self) -> Option<&'static str> {
        Some(self.0)
    }
}

/// A duration as a number of seconds.
pub(super) struct Seconds(pub(super) RangeInclusive<u64>);

/// A duration as a number of microseconds.
pub(super) struct Microseconds(pub(super) RangeInclusive<u64>);

/// A duration is read and shown as the number of its units.
macro_rules! duration {
    ($form:ident, $unit:literal, $from:path, $count:path) => {
        impl ValueForm<Duration> for $form {
            fn read(&self, text: &str) -> Result<Duration, String> {
                Quantity($unit, self.0.clone()).read(text).map($from)
            }

            fn show(&self, value: &Duration) -> String {
                $count(value).to_string()
            }

            fn values(&self) -> String {
                ValueForm::<u64>::values(&Quantity($unit, self.0.clone()))
            }

            fn unit(&self) -> Option<&'static str> {
                Some($unit)
            }
        }
    };
}

duration!(Seconds, "seconds", Duration::from_secs, Duration::as_secs);
duration!(
    Microseconds,
    "microseconds",
    Duration::from_micros,
    Duration::as_micros
);

/// `auto`, or a value of another form.
pub(super) struct OrAuto<F>(pub(super) F);

impl<T, F: ValueForm<T>> ValueForm<Option<T>> for OrAuto<F> {
    fn read(&self, text: &str) -> Result<Option<T>, String> {
        if text == "auto" {
            return Ok(None);
        }
        let value = self.0.read(text).map(Some);
        value.map_err(|expected| format!("auto, or {expected}"))
    }

    fn show(&self, value: &Option<T>) -> String {
        (value.as_ref()).map_or_else(|| "auto".to_owned(), |value| self.0.show(value))
    }

    fn values(&self) -> String {
        format!("auto, or {}", self.0.values())
    }

    fn unit(&self) -> Option<&'static str> {
        self.0.unit()
    }
}

/// Processors as numbers and ranges. `auto` is none.
pub(super) struct Processors;

impl ValueForm<Vec<usize>> for Processors {
    fn read(&self, text: &str) -> Result<Vec<usize>, String> {
        if text == "auto" {
            return Ok(Vec::new());
        }
        let number = |cpu: &str| {
            let cpu = cpu.trim().parse::<usize>().ok();
            cpu.filter(|cpu| *cpu < CpuSet::MAX_CPU)
        };
        let mut all = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => all.extend(first..=last),
                _ => return Err(self.values()),
            }
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    fn show(&self, value: &Vec<usize>) -> String {
        match value.as_slice() {
            [] => "auto".to_owned(),
            cpus => (cpus.iter().map(usize::to_string).collect::<Vec<_>>()).join(","),
        }
    }

    fn values(&self) -> String {
        let most = CpuSet::MAX_CPU - 1;
        format!("auto, or processors from 0 to {most}, such as 0,4-7")
    }
}

/// Returns the words as a list, with "or" before the last one.
pub(super) fn listed(words: &[impl AsRef<str>]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [some @ .., last] if !some.is_empty() => format!("{} or {last}", some.join(", ")),
        words => words.concat(),
    }
}

/// Returns `expected` with the word that `text` may have meant, if one is near.
pub(super) fn with_near<'a>(
    expected: String,
    text: &str,
    words: impl Iterator<Item = &'a str>,
) -> String {
    match near(text, words, 1.max(text.len() / 3)) {
        Some(word) => format!("{expected}; did you mean {word}?"),
        None => expected,
    }
}

/// Returns the word nearest to `text`, if it is at most `most` letters away.
pub(super) fn near<'a>(
    text: &str,
    words: impl Iterator<Item = &'a str>,
    most: usize,
) -> Option<&'a str> {
    let nearest = words
        .map(|word| (strsim::levenshtein(word, text), word))
        .min();
    nearest
        .filter(|(distance, _)| *distance <= most)
        .map(|(_, word)| word)
}

/// Gives the values of an enumeration their words: `ALL`, `name`, [`Display`] and
/// [`FromStr`](std::str::FromStr).
macro_rules! words {
    ($type:ident { $($variant:ident => $word:literal),+ $(,)? }) => {
        impl $type {
            /// Every value, in the order of the documentation.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Returns the word by which users choose the value.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                use $crate::settings::forms::{ValueForm, OneOf};
                OneOf(&Self::ALL).read(text)
            }
        }
    };
}

pub(super) use words;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_nearly_right_is_named() {
        let words = OneOf(&crate::MessageProtocol::ALL);
        let why = words.read("rendevous").unwrap_err();
        assert_eq!(
            why,
            "auto, eager, rendezvous or pipeline; did you mean rendezvous?"
        );
        assert!(!words.read("smoke").unwrap_err().contains("did you mean"));
    }

    #[test]
    fn numbers_outside_their_range_are_refused_with_it() {
        let bytes = OrAuto(ByteCount(4 << 10..=1 << 20));
        assert_eq!(bytes.read("auto"), Ok(None::<u64>));
        assert_eq!(bytes.read("8K"), Ok(Some(8 << 10)));
        for text in ["1", "2M", "16Q", ""] {
            let why = ValueForm::<Option<u64>>::read(&bytes, text).unwrap_err();
            assert_eq!(why, "auto, or bytes from 4 KiB to 1 MiB, such as 64K");
        }
        let why = ValueForm::<u64>::read(&Quantity("seeds", 0..=u64::MAX), "-1");
        assert_eq!(why.unwrap_err(), "a number from 0 on");
    }

    #[test]
    fn processors_are_numbers_and_ranges() {
        assert_eq!(Processors.read("4-6,0, 5"), Ok(vec![0, 4, 5, 6]));
        assert_eq!(Processors.show(&vec![0, 4]), "0,4");
        for text in ["", "1-", "2-1", "auto:1", "99999"] {
            let why = Processors.read(text).unwrap_err();
            assert!(why.contains("such as 0,4-7"), "{text}: {why}");
        }
    }
}
