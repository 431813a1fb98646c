//! The address of an endpoint.
//!
//! ```text
//! "HYE" version(1)  incarnation(8)  key(16)  name: length(1), bytes
//! ways: number(1), each kind(1), length(2), bytes   sum(8)
//! ```

use std::{fmt, str::FromStr};

use hydrant_base::words::Fixed;
use hydrant_local::proof::{Bytes16, hash};

use crate::{Error, Result, hex};

const MAGIC: [u8; 4] = *b"HYE1";
/// The most bytes of a name.
pub const MAX_NAME: usize = 200;
/// The most ways to an endpoint.
const MAX_WAYS: usize = 8;
/// The most bytes of a way.
pub(crate) const MAX_WAY: usize = 1024;

/// A way to reach an endpoint.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Way {
    /// A socket of the endpoint's host, by its name.
    Local(Bytes16),
    /// An endpoint of the network, by its locator.
    Far(Vec<u8>),
    /// A way that this version does not know.
    Unknown(u8, Vec<u8>),
}

/// The address of an endpoint: a few hundred bytes that others need to [connect](crate::Endpoint::connect) to it.
///
/// It contains a key, so whoever has it can connect. It is valid as long as the endpoint lives: an endpoint that is
/// started again has another. It travels by any means, as bytes or as text.
///
/// ```
/// use hydrant_endpoint::{Address, Endpoint};
///
/// let endpoint = Endpoint::builder().name("cache-0").listen()?;
/// let text = endpoint.address().to_string();
/// let address: Address = text.parse()?;
/// assert_eq!(&address, endpoint.address());
/// assert_eq!(address.name(), "cache-0");
/// # Ok::<(), hydrant_endpoint::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Address {
    pub(crate) incarnation: u64,
    pub(crate) key: Bytes16,
    pub(crate) name: String,
    pub(crate) ways: Vec<Way>,
}

impl Address {
    /// Returns the address as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut to = MAGIC.to_vec();
        (self.incarnation, self.key).put(&mut to);
        to.push(self.name.len() as u8);
        to.extend_from_slice(self.name.as_bytes());
        to.push(self.ways.len() as u8);
        for way in &self.ways {
            let (kind, bytes) = match way {
                Way::Local(name) => (1, &name[..]),
                Way::Far(locator) => (2, &locator[..]),
                Way::Unknown(kind, bytes) => (*kind, &bytes[..]),
            };
            (kind, bytes.len() as u16).put(&mut to);
            to.extend_from_slice(bytes);
        }
        let sum = sum(&to);
        to.extend_from_slice(&sum);
        to
    }

    /// Parses an address.
    ///
    /// # Errors
    /// [`Error::BadAddress`] if the bytes are cut, changed, or something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let bad = Error::BadAddress;
        let cut = |_| bad("they are cut");
        if !bytes.starts_with(&MAGIC[..3]) {
            return Err(bad("they do not begin as one"));
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(bad("it is of another version of Hydrant"));
        }
        let (contents, sum_given) = (bytes.split_last_chunk::<8>()).ok_or(bad("they are cut"))?;
        if sum(contents) != *sum_given {
            return Err(bad("they are cut or changed"));
        }
        let mut rest = &contents[MAGIC.len()..];
        let (incarnation, key) = Fixed::take(&mut rest).map_err(cut)?;
        let name_len = usize::from(u8::take(&mut rest).map_err(cut)?);
        let name = take(&mut rest, name_len).ok_or(bad("they are cut"))?;
        let name = std::str::from_utf8(name).map_err(|_| bad("the name is not UTF-8"))?;
        if name.len() > MAX_NAME {
            return Err(bad("the name is too long"));
        }
        let number = usize::from(u8::take(&mut rest).map_err(cut)?);
        if number > MAX_WAYS {
            return Err(bad("there are too many ways"));
        }
        let mut ways = Vec::with_capacity(number);
        for _ in 0..number {
            let (kind, len) = <(u8, u16)>::take(&mut rest).map_err(cut)?;
            let len = usize::from(len);
            let bytes = take(&mut rest, len).ok_or(bad("they are cut"))?;
            if len > MAX_WAY {
                return Err(bad("a way is too long"));
            }
            ways.push(match (kind, bytes.try_into()) {
                (1, Ok(name)) => Way::Local(name),
                (1, Err(_)) => return Err(bad("a way is malformed")),
                (2, _) => Way::Far(bytes.to_vec()),
                _ => Way::Unknown(kind, bytes.to_vec()),
            });
        }
        if !rest.is_empty() {
            return Err(bad("there are more of them than an address has"));
        }
        Ok(Self {
            incarnation,
            key,
            name: name.to_owned(),
            ways,
        })
    }

    /// Returns the address of another incarnation, which need not exist. For tests.
    #[doc(hidden)]
    pub fn with_incarnation(mut self, incarnation: u64) -> Self {
        self.incarnation = incarnation;
        self
    }

    /// Returns the address with another key, which need not fit. For tests.
    #[doc(hidden)]
    pub fn with_key(&self, key: [u8; 16]) -> Self {
        Self {
            key,
            ..self.clone()
        }
    }

    /// Returns the address without the ways of its host. For tests.
    #[doc(hidden)]
    pub fn only_far(&self) -> Self {
        let mut other = self.clone();
        other.ways.retain(|way| matches!(way, Way::Far(_)));
        other
    }

    /// Returns the name that the endpoint has given itself.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of the endpoint's incarnation, which is drawn at random when it starts.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }
}

/// Takes bytes off the front.
fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (bytes, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(bytes)
}

/// A sum that finds cuts and changes by accident.
fn sum(bytes: &[u8]) -> [u8; 8] {
    let hash = hash(&[0; 16], "address", &[bytes]);
    *hash.first_chunk().expect("a hash has 16 bytes")
}

/// The address as text.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.to_bytes(), f)
    }
}

/// The key does not show.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Address({:?}, incarnation {:016x})",
            self.name, self.incarnation
        )
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bytes = hex::read(text).ok_or(Error::BadAddress("the text is not hexadecimal"))?;
        Self::from_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Address {
        Address {
            incarnation: 7,
            key: [3; 16],
            name: "kv".into(),
            ways: vec![
                Way::Local([5; 16]),
                Way::Far(vec![7, 8, 9]),
                Way::Unknown(9, vec![1, 2]),
            ],
        }
    }

    #[test]
    fn an_address_survives_bytes_and_text() {
        let address = sample();
        assert_eq!(Address::from_bytes(&address.to_bytes()).unwrap(), address);
        let text = format!(" {address}\n");
        assert_eq!(text.parse::<Address>().unwrap(), address);
        assert!(!format!("{address:?}").contains("0303"));
    }

    #[test]
    fn each_cut_and_each_change_is_found() {
        let bytes = sample().to_bytes();
        for len in 0..bytes.len() {
            assert!(Address::from_bytes(&bytes[..len]).is_err(), "{len}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert!(Address::from_bytes(&changed).is_err(), "{at}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Address::from_bytes(&longer).is_err());
        assert!("xyz".parse::<Address>().is_err());
        assert!("abc".parse::<Address>().is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_with_a_right_sum_are_parsed_or_refused(rest in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut bytes = MAGIC.to_vec();
            bytes.extend(&rest);
            let sum = sum(&bytes);
            bytes.extend(sum);
            if let Ok(address) = Address::from_bytes(&bytes) {
                prop_assert_eq!(address.to_bytes(), bytes);
            }
        }
    }
}
