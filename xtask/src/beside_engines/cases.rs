//! The rows of the table, in their order. `tools/engines` prints figures under the same names.

/// The unit of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineUnit {
    Nanoseconds,
    Bytes,
}

impl EngineUnit {
    pub(super) fn name(self) -> &'static str {
        match self {
            EngineUnit::Nanoseconds => "ns",
            EngineUnit::Bytes => "bytes",
        }
    }

    /// The figure with three digits.
    pub(super) fn show(self, figure: f64) -> String {
        let (scale, units): (f64, &[&str]) = match self {
            EngineUnit::Nanoseconds => (1e3, &["ns", "µs", "ms", "s"]),
            EngineUnit::Bytes => (1024.0, &["B", "KiB", "MiB", "GiB"]),
        };
        let mut figure = figure;
        let mut at = 0;
        while figure >= scale * 0.9995 && at + 1 < units.len() {
            figure /= scale;
            at += 1;
        }
        let behind = match figure {
            _ if at == 0 => 0,
            ..9.995 => 2,
            ..99.95 => 1,
            _ => 0,
        };
        format!("{figure:.behind$} {}", units[at])
    }
}

/// The name of a row, and its unit.
pub(super) type EngineCase = (&'static str, EngineUnit);

const fn time(name: &'static str) -> EngineCase {
    (name, EngineUnit::Nanoseconds)
}

/// All rows. A place has those of which some side printed a figure.
pub(super) const CASES: &[EngineCase] = &[
    time("write 4 KiB"),
    time("write 64 KiB"),
    time("write 1 MiB"),
    time("write 64 MiB"),
    time("read 4 KiB"),
    time("read 64 KiB"),
    time("read 1 MiB"),
    time("read 64 MiB"),
    time("write 4 KiB, allocated by the engine"),
    time("write 64 MiB, allocated by the engine"),
    time("write 10,000 of 4 KiB"),
    time("read 10,000 of 4 KiB"),
    time("posting a write of 4 KiB"),
    time("posting a write of 64 MiB"),
    time("posting a write of 10,000"),
    time("SIGKILL, told without traffic"),
    time("SIGKILL, then a write fails"),
    time("SIGSTOP, then a write fails"),
    time("link down, told without traffic"),
    time("link down, then a write fails"),
    time("link up again, until a write"),
    time("a new process of the name, until a write"),
    time("idle agent, processor time a second"),
    time("lending 1 GiB"),
    time("lending 16 GiB"),
    ("bytes in memory by lending 16 GiB", EngineUnit::Bytes),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_the_best_unit() {
        let time = |figure| EngineUnit::Nanoseconds.show(figure);
        assert_eq!(time(462.0), "462 ns");
        assert_eq!(time(2_243.0), "2.24 µs");
        assert_eq!(time(999_700.0), "1.00 ms");
        assert_eq!(time(3_006_469_915.0), "3.01 s");
        let bytes = |figure| EngineUnit::Bytes.show(figure);
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(17_179_869_184.0), "16.0 GiB");
    }

    #[test]
    fn every_row_has_a_name_of_its_own() {
        for (at, (name, _)) in CASES.iter().enumerate() {
            assert!(CASES[..at].iter().all(|(other, _)| other != name), "{name}");
        }
    }
}
