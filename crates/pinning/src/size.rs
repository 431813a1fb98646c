//! Sizes in bytes, as sentences show them.

use std::fmt;

/// A size in bytes, shown in readable units: `64 MiB`, `1228 bytes`, `23.4 MiB (24536012 bytes)`.
/// Nothing is rounded away. The short form, `{:#}`, omits the parentheses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

/// From this size on, three digits are easier to read than all.
const MANY: u64 = 10 << 10;

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        let unit = UNITS.iter().find(|(_, scale)| bytes >= *scale);
        match unit {
            Some((unit, scale)) if bytes.is_multiple_of(*scale) => {
                write!(f, "{} {unit}", bytes / scale)
            }
            Some((unit, scale)) if bytes >= MANY => {
                let value = bytes as f64 / *scale as f64;
                let decimals = match value {
                    ..10.0 => 2,
                    ..100.0 => 1,
                    _ => 0,
                };
                write!(f, "{value:.decimals$} {unit}")?;
                if f.alternate() {
                    Ok(())
                } else {
                    write!(f, " ({bytes} bytes)")
                }
            }
            _ => write!(f, "{bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_at_a_glance_and_lose_nothing() {
        for (bytes, text, short) in [
            (0, "0 bytes", "0 bytes"),
            (1228, "1228 bytes", "1228 bytes"),
            (4096, "4 KiB", "4 KiB"),
            (10_239, "10239 bytes", "10239 bytes"),
            (10_241, "10.0 KiB (10241 bytes)", "10.0 KiB"),
            (64 << 20, "64 MiB", "64 MiB"),
            ((64 << 20) + 1, "64.0 MiB (67108865 bytes)", "64.0 MiB"),
            (3 << 29, "1.50 GiB (1610612736 bytes)", "1.50 GiB"),
            (1 << 45, "32 TiB", "32 TiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
            assert_eq!(format!("{:#}", Size(bytes)), short);
        }
    }
}
