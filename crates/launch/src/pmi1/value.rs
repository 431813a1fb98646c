//! Encoding of bytes as values of a PMI-1 key-value space: hexadecimal, in chunks.
//!
//! A PMI-1 value has about a thousand characters at most and no blanks. The first chunk begins with
//! the number of chunks in four hexadecimal digits. A reader needs to know no other limit of the
//! writer.

use std::fmt::Write as _;

use crate::MAX_VALUE;

/// The hexadecimal digits in the number of chunks.
const COUNT_DIGITS: usize = 4;

/// The least room in a chunk with which the number of chunks of the longest value fits its digits.
pub(crate) const MIN_ROOM: usize = 2 * MAX_VALUE / 0xffff + COUNT_DIGITS;

/// Splits `value` into chunks of at most `room` characters, at least one.
pub(crate) fn encode(value: &[u8], room: usize) -> Vec<String> {
    debug_assert!(room >= MIN_ROOM && value.len() <= MAX_VALUE);
    let digits = COUNT_DIGITS + 2 * value.len();
    let chunks = digits.div_ceil(room);
    let mut text = String::with_capacity(digits);
    let _ = write!(text, "{chunks:04x}");
    for byte in value {
        let _ = write!(text, "{byte:02x}");
    }
    let mut out = Vec::with_capacity(chunks);
    while text.len() > room {
        let rest = text.split_off(room);
        out.push(std::mem::replace(&mut text, rest));
    }
    out.push(text);
    out
}

/// Returns the number of chunks, read from the first chunk, and that chunk's digits.
pub(crate) fn first(chunk: &str) -> Result<(usize, &str), String> {
    let (count, digits) = chunk
        .split_at_checked(COUNT_DIGITS)
        .ok_or("a value without a count of chunks")?;
    match usize::from_str_radix(count, 16) {
        Ok(chunks) if chunks > 0 => Ok((chunks, digits)),
        _ => Err(format!("`{count}` for a count of chunks")),
    }
}

/// Decodes the digits of all chunks.
pub(crate) fn decode(digits: &str) -> Result<Vec<u8>, String> {
    fn digit(byte: u8) -> Result<u8, String> {
        char::from(byte)
            .to_digit(16)
            .map(|d| d as u8)
            .ok_or_else(|| format!("{:?} in a value of hexadecimal digits", char::from(byte)))
    }
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || pairs.len() > MAX_VALUE {
        return Err(format!("a value of {} hexadecimal digits", digits.len()));
    }
    pairs
        .iter()
        .map(|&[high, low]| Ok(digit(high)? << 4 | digit(low)?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_all(chunks: &[String]) -> Vec<u8> {
        let (count, digits) = first(&chunks[0]).unwrap();
        assert_eq!(count, chunks.len());
        let mut all = digits.to_owned();
        all.extend(chunks[1..].iter().map(String::as_str));
        decode(&all).unwrap()
    }

    #[test]
    fn values_of_every_length_decode_unchanged() {
        for room in [MIN_ROOM, 17, 901, 902] {
            for len in [0, 1, 2, 5, 100, 449, 450, 451, 5000] {
                let value: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
                let chunks = encode(&value, room);
                assert!(chunks.iter().all(|c| c.len() <= room && !c.is_empty()));
                assert_eq!(decode_all(&chunks), value);
            }
        }
        let longest = vec![0xa5; MAX_VALUE];
        assert_eq!(decode_all(&encode(&longest, MIN_ROOM)), longest);
    }

    #[test]
    fn values_of_other_programs_are_refused() {
        assert!(first("00").is_err());
        assert!(first("0000ab").is_err());
        assert!(first("zzzzab").is_err());
        assert!(first("é012").is_err());
        assert!(decode("abc").is_err());
        assert!(decode("0g").is_err());
        assert!(decode(&"00".repeat(MAX_VALUE + 1)).is_err());
    }
}
