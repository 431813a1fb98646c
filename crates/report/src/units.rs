//! Figures for a reader: three digits and a fitting unit.

/// Three significant digits, never in powers of ten.
pub fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A time given in nanoseconds.
pub fn nanos(nanos: f64) -> String {
    // The limits lie where three digits round up to the next unit.
    let (scale, unit) = match nanos.abs() {
        size if size < 999.5 => (1.0, "ns"),
        size if size < 999.5e3 => (1e3, "µs"),
        size if size < 999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {unit}", plain(nanos / scale))
}

/// A size: `64`, `4 KiB`, `1 MiB`.
pub fn bytes(bytes: f64) -> String {
    let (scale, unit) = match bytes {
        size if size < 1024.0 => return plain(bytes),
        size if size < 1024.0 * 1024.0 => (1024.0, "KiB"),
        size if size < 1024.0 * 1024.0 * 1024.0 => (1024.0 * 1024.0, "MiB"),
        _ => (1024.0 * 1024.0 * 1024.0, "GiB"),
    };
    format!("{} {unit}", plain(bytes / scale))
}

/// Like [`digits`], without decimals that are all zero.
pub fn plain(value: f64) -> String {
    let text = digits(value);
    match text.trim_end_matches('0').strip_suffix('.') {
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_choose_their_unit() {
        assert_eq!(nanos(3.0), "3 ns");
        assert_eq!(nanos(3.124), "3.12 ns");
        assert_eq!(nanos(100.0), "100 ns");
        assert_eq!(nanos(999.7), "1 µs");
        assert_eq!(nanos(1393.6), "1.39 µs");
        assert_eq!(nanos(2.5e9), "2.50 s");
    }

    #[test]
    fn sizes_choose_their_unit() {
        assert_eq!(bytes(8.0), "8");
        assert_eq!(bytes(4096.0), "4 KiB");
        assert_eq!(bytes(1536.0), "1.50 KiB");
        assert_eq!(bytes(4.0 * 1024.0 * 1024.0), "4 MiB");
    }
}
