//! The filter of the log: the events that `log_to_stderr` prints.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

use super::forms::ValueForm;

/// The form of the text of a filter.
pub(super) struct LogFilter;

impl ValueForm<String> for LogFilter {
    fn read(&self, text: &str) -> Result<String, String> {
        let told = |part| {
            format!(
                "{}; {part:?} is neither a level nor such a pair",
                self.values()
            )
        };
        parse(text).map_err(told)?;
        Ok(text.to_owned())
    }

    fn show(&self, value: &String) -> String {
        value.clone()
    }

    fn values(&self) -> String {
        "a log filter: off, error, warn, info, debug or trace, or levels of parts, such as hydrant=debug"
            .to_owned()
    }
}

/// Returns the filter that a text names: a level, or pairs such as `hydrant=debug`, separated by commas.
///
/// # Errors
/// The part of the text that is neither.
pub(crate) fn parse(text: &str) -> Result<Targets, String> {
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let mut filter = Targets::new();
    for part in parts {
        let (target, level) = part.split_once('=').unwrap_or(("", part));
        let level: LevelFilter = level.parse().map_err(|_| part.to_owned())?;
        filter = match target {
            "" => filter.with_default(level),
            target => filter.with_target(target, level),
        };
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::parse;

    #[test]
    fn a_filter_has_a_level_for_all_and_levels_for_targets() {
        let all = parse("Debug").unwrap();
        assert!(all.would_enable("any", &Level::DEBUG) && !all.would_enable("any", &Level::TRACE));
        let pair = parse("warn, hydrant=trace").unwrap();
        assert!(pair.would_enable("hydrant::rma", &Level::TRACE));
        assert!(
            pair.would_enable("other", &Level::WARN) && !pair.would_enable("other", &Level::INFO)
        );
        assert!(!parse("off").unwrap().would_enable("hydrant", &Level::ERROR));
        assert_eq!(parse("loud").unwrap_err(), "loud");
        assert_eq!(parse("info,hydrant=loud").unwrap_err(), "hydrant=loud");
    }
}
