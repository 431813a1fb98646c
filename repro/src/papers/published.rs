//! The papers' figures, from a data file, each with the sentence that states it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use super::ReproduceError;

/// A paper.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paper {
    /// The authors, the year and the title.
    pub(crate) name: String,
    figures: BTreeMap<String, PublishedValue>,
}

impl Paper {
    /// Its figures, by name.
    pub(crate) fn figures(&self) -> impl Iterator<Item = (&String, &PublishedValue)> {
        self.figures.iter()
    }
}

/// A figure of a paper.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PublishedValue {
    /// The value.
    pub(crate) value: f64,
    /// The unit: `us`, `MB/s`; empty for a count.
    pub(crate) unit: String,
    /// The table, or the section and the sentence.
    pub(crate) source: String,
}

/// All papers, by short name.
pub(crate) fn papers() -> Result<&'static BTreeMap<String, Paper>, ReproduceError> {
    static PAPERS: OnceLock<Result<BTreeMap<String, Paper>, String>> = OnceLock::new();
    PAPERS
        .get_or_init(|| {
            toml::from_str(include_str!("published.toml")).map_err(|why| why.to_string())
        })
        .as_ref()
        .map_err(|why| ReproduceError::Papers(why.clone()))
}

/// A figure, by paper and name.
pub(crate) fn figure(paper: &str, name: &str) -> Result<&'static PublishedValue, ReproduceError> {
    (papers()?.get(paper))
        .and_then(|paper| paper.figures.get(name))
        .ok_or_else(|| ReproduceError::Papers(format!("there is no figure {paper}.{name}")))
}

/// The value of a figure.
pub(crate) fn value(paper: &str, name: &str) -> Result<f64, ReproduceError> {
    figure(paper, name).map(|figure| figure.value)
}

impl PublishedValue {
    /// The value with its unit, for a reader.
    pub(crate) fn words(&self) -> String {
        format!(
            "{} {}",
            self.value,
            self.unit.replace("us", "µs").replace('x', "×")
        )
        .trim()
        .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_value_and_a_source() {
        let papers = papers().expect("the file is well formed");
        assert_eq!(papers.len(), 4);
        for (short, paper) in papers {
            assert!(
                !paper.name.is_empty() && paper.figures.len() >= 3,
                "{short}"
            );
            for (name, figure) in &paper.figures {
                assert!(figure.value > 0.0, "{short}.{name}");
                assert!(
                    figure.source.contains(": "),
                    "{short}.{name}: {}",
                    figure.source
                );
            }
        }
    }

    #[test]
    fn missing_tools_are_named() {
        let error = figure("firehose", "speed").expect_err("no such figure");
        assert!(error.to_string().contains("firehose.speed"), "{error}");
        assert_eq!(figure("firehose", "gap").expect("it is").words(), "30 µs");
    }
}
