//! Numbers of bytes as people write them.

const UNITS: [(&str, u64); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

/// Parses `123`, `64K`, `2M`, `1.5 GiB`. All units are powers of two.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1_u64 << 40,
        _ => return None,
    };
    match number.parse::<u64>() {
        Ok(number) => number.checked_mul(scale),
        Err(_) if number.contains('.') => {
            let bytes = number.parse::<f64>().ok()? * scale as f64;
            (bytes.is_finite() && bytes < u64::MAX as f64).then_some(bytes as u64)
        }
        Err(_) => None,
    }
}

/// Formats bytes in the shortest exact form: `64 KiB`, `1234`.
pub fn format_bytes(bytes: u64) -> String {
    (UNITS.iter())
        .find(|(_, scale)| bytes >= *scale && bytes.is_multiple_of(*scale))
        .map_or_else(
            || bytes.to_string(),
            |(unit, scale)| format!("{} {unit}", bytes / scale),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_formatted() {
        assert_eq!(parse_bytes("123"), Some(123));
        assert_eq!(parse_bytes("64K"), Some(64 << 10));
        assert_eq!(parse_bytes(" 1.5 GiB "), Some(3 << 29));
        assert_eq!(parse_bytes("2mb"), Some(2 << 20));
        for bad in [
            "",
            "K",
            "1.2.3",
            "-1",
            "1 XB",
            "99999999999999999999",
            "99999999 TiB",
        ] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
        for bytes in [0, 1, 1000, 1024, 1536, 64 << 10, 3 << 30, 5 << 40] {
            assert_eq!(parse_bytes(&format_bytes(bytes)), Some(bytes));
        }
    }
}
