//! Arguments that both programs take.

use std::{fmt, num::NonZeroUsize, path::PathBuf, str::FromStr};

use clap::{Args, ValueEnum};

/// The amount of checking of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Against the answer of one rank alone, element by element
    Full,
    /// By properties that a wrong answer is most unlikely to have
    Quick,
    /// Not at all
    None,
}

/// How the summary is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SummaryFormat {
    /// For people
    Table,
    /// One JSON object on one line
    Json,
}

/// The number of elements that one put carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// All elements that go to a rank in a step.
    Block,
    /// A row of a block.
    Row,
    /// At most this many elements.
    Elements(NonZeroUsize),
}

impl Granularity {
    /// The most elements of a put, for blocks of `rows` rows of `columns` elements; never 0.
    pub fn elements(self, rows: usize, columns: usize) -> usize {
        match self {
            Self::Block => rows.saturating_mul(columns).max(1),
            Self::Row => columns.max(1),
            Self::Elements(most) => most.get(),
        }
    }
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => f.write_str("block"),
            Self::Row => f.write_str("row"),
            Self::Elements(most) => most.fmt(f),
        }
    }
}

impl FromStr for Granularity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "block" => Ok(Self::Block),
            "row" => Ok(Self::Row),
            number => (number.parse().map(Self::Elements))
                .map_err(|_| "it is block, row or a number of elements from 1 on".to_owned()),
        }
    }
}

/// The uses of the result and of the measurements.
#[derive(Debug, Clone, Args)]
pub struct ResultArgs {
    /// How much to check the result
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Verify::Full)]
    verify: Verify,

    /// Short for --verify none
    #[arg(long, conflicts_with = "verify")]
    no_verify: bool,

    /// How to print the summary
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = SummaryFormat::Table)]
    pub format: SummaryFormat,

    /// Where to write the result: text if the name ends in .txt, else raw little-endian
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

impl ResultArgs {
    /// How much to check the result.
    pub fn verify(&self) -> Verify {
        if self.no_verify {
            Verify::None
        } else {
            self.verify
        }
    }
}

/// A number from 1 on.
pub(crate) fn positive(text: &str) -> Result<usize, String> {
    (text.parse().ok())
        .filter(|number| *number > 0)
        .ok_or_else(|| "it is a number from 1 on".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granularities_are_read_and_written() {
        for text in ["block", "row", "1", "4096"] {
            assert_eq!(text.parse::<Granularity>().unwrap().to_string(), text);
        }
        for text in ["", "0", "-1", "rows", "1.5"] {
            assert!(text.parse::<Granularity>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_put_carries_at_least_one_element() {
        assert_eq!(Granularity::Block.elements(0, 0), 1);
        assert_eq!(Granularity::Row.elements(7, 3), 3);
        assert_eq!(Granularity::Block.elements(7, 3), 21);
        assert_eq!("5".parse::<Granularity>().unwrap().elements(7, 3), 5);
    }
}
