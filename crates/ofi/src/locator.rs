//! Locators: the addresses of an endpoint without a job, as bytes that users carry.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version of the format, 1 |
//! | 1 | the number of addresses, each of which follows as |
//! | 1, n | a length, and the provider, protocol and family as text |
//! | 1, n | a length, and the endpoint's address as the provider writes it |
//!
//! A locator is no secret: without the key that belongs to it, it opens nothing.

use crate::choice::Candidate;

const VERSION: u8 = 1;

/// An address of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LocatorEntry {
    pub(crate) candidate: Candidate,
    /// The address, as the provider writes it.
    pub(crate) name: Vec<u8>,
}

/// Writes a locator of these addresses. Each part has at most 255 bytes.
pub(crate) fn write(addresses: &[LocatorEntry]) -> Vec<u8> {
    let mut bytes = vec![VERSION, addresses.len() as u8];
    for address in addresses {
        for part in [address.candidate.to_line().as_bytes(), &address.name] {
            bytes.push(part.len() as u8);
            bytes.extend(part);
        }
    }
    bytes
}

/// Reads a locator.
///
/// # Errors
/// A sentence that says why the bytes are none.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<LocatorEntry>, String> {
    let malformed = || format!("{} bytes are no locator of an endpoint", bytes.len());
    let (version, rest) = bytes.split_first().ok_or_else(malformed)?;
    if *version != VERSION {
        return Err(format!(
            "the locator is of version {version} of the format, and this program reads {VERSION}"
        ));
    }
    let (count, mut rest) = rest.split_first().ok_or_else(malformed)?;
    let mut addresses = Vec::new();
    for _ in 0..*count {
        let line = take(&mut rest).ok_or_else(malformed)?;
        let name = take(&mut rest).ok_or_else(malformed)?.to_vec();
        // Other addresses may be of providers that this version does not know.
        let candidate = str::from_utf8(line).ok().and_then(Candidate::from_line);
        addresses.extend(candidate.map(|candidate| LocatorEntry { candidate, name }));
    }
    if rest.is_empty() && !addresses.is_empty() {
        Ok(addresses)
    } else {
        Err(malformed())
    }
}

/// Takes a part that begins with its length.
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, behind) = rest.split_first()?;
    let (part, behind) = behind.split_at_checked(usize::from(*len))?;
    *rest = behind;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(line: &str, name: &[u8]) -> LocatorEntry {
        LocatorEntry {
            candidate: Candidate::from_line(line).expect("a candidate"),
            name: name.to_vec(),
        }
    }

    #[test]
    fn locators_are_read_back() {
        let all = [
            address("tcp 1 2 4", &[7; 16]),
            address("tcp;ofi_rxm 1 2 6", &[8; 28]),
        ];
        for count in 1..=2 {
            assert_eq!(read(&write(&all[..count])).as_deref(), Ok(&all[..count]));
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let good = write(&[address("tcp 1 2 4", &[7; 16])]);
        for len in 0..good.len() {
            assert!(read(&good[..len]).is_err(), "{len} bytes");
        }
        assert!(read(&[&good[..], &[0]].concat()).is_err());
        let mut newer = good;
        newer[0] = 2;
        let why = read(&newer).expect_err("another version");
        assert!(why.contains("version 2"), "{why}");
        assert!(read(&[1, 1, 1, b'x', 0]).is_err());
    }
}
