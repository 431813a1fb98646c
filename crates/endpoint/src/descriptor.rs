//! Descriptors of regions: what an owner gives to those who may use its memory.
//!
//! ```text
//! "HYR1"  owner(8)  region(8)  terms: number(1), each start(8), len(8), rights(1), until(8)   seal(16)
//! ```
//!
//! The owner seals the first terms with a secret of its own. A holder can narrow the descriptor by further terms: the
//! next seal is a hash of the terms under the last seal, which is then gone. So everybody can narrow, nobody can widen,
//! and only the owner can check.

use std::{
    fmt,
    ops::Range,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hydrant_base::{fixed, words::Fixed};
use hydrant_local::proof::{Bytes16, hash, is_same};
use smallvec::SmallVec;

use crate::{Error, Result, hex};

const MAGIC: [u8; 4] = *b"HYR1";
/// The most terms of a descriptor.
const MAX_TERMS: usize = 8;

/// The rights of those who hold a descriptor.
///
/// ```
/// use hydrant_endpoint::Rights;
///
/// let both = Rights::READ | Rights::WRITE;
/// assert!(both.contains(Rights::WRITE));
/// assert!(!Rights::READ.contains(both));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// The right to read.
    pub const READ: Self = Self(1);
    /// The right to write.
    pub const WRITE: Self = Self(2);
    /// Both rights.
    pub const READ_WRITE: Self = Self(3);

    /// Returns whether all of `other` are among these.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "none",
            1 => "read",
            2 => "write",
            _ => "read and write",
        })
    }
}

/// A step of narrowing: a part of the range before it, rights, and an end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct DescriptorTerms {
    start: u64,
    len: u64,
    rights: u8,
    /// Nanoseconds since 1970; 0 for no end.
    until: u64,
}

fixed! {
    DescriptorTerms { start, len, rights, until }
}

impl DescriptorTerms {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(25);
        self.put(&mut bytes);
        bytes
    }
}

/// The memory that a descriptor names, after all its terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DescriptorScope {
    /// The first byte in the region.
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) rights: Rights,
    /// Nanoseconds since 1970.
    pub(crate) until: Option<u64>,
}

/// A description of lent memory, to be given to those who may use it.
///
/// [`Region::descriptor`](crate::Region::descriptor) makes one. A holder [opens](crate::Peer::open) it at the owner, or
/// gives it to others, whole or [narrowed](Self::narrow). It is worthless to those who cannot connect to the owner.
///
/// ```
/// use hydrant_endpoint::{Descriptor, Endpoint, Rights};
///
/// let owner = Endpoint::builder().listen()?;
/// let region = owner.alloc(4096)?;
/// let whole = region.descriptor(Rights::READ_WRITE);
/// let part = whole.narrow(1024..2048, Rights::READ, None)?;
/// let again: Descriptor = part.to_string().parse()?;
/// assert_eq!((again.len(), again.rights()), (1024, Rights::READ));
/// # Ok::<(), hydrant_endpoint::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Descriptor {
    pub(crate) owner: u64,
    pub(crate) region: u64,
    terms: SmallVec<[DescriptorTerms; 2]>,
    seal: Bytes16,
}

impl Descriptor {
    /// Describes a part of a region of this process, whose secret is `secret`.
    pub(crate) fn new(secret: &Bytes16, [owner, region]: [u64; 2], scope: DescriptorScope) -> Self {
        let terms = DescriptorTerms {
            start: scope.start,
            len: scope.len,
            rights: scope.rights.0,
            until: scope.until.unwrap_or(0),
        };
        Self {
            owner,
            region,
            seal: first_seal(secret, [owner, region], &terms),
            terms: SmallVec::from_slice(&[terms]),
        }
    }

    /// Returns whether this process has made the descriptor.
    pub(crate) fn is_of(&self, secret: &Bytes16) -> bool {
        let Some((first, more)) = self.terms.split_first() else {
            return false;
        };
        let first = first_seal(secret, [self.owner, self.region], first);
        let last = (more.iter()).fold(first, |seal, terms| next_seal(&seal, terms));
        is_same(&last, &self.seal)
    }

    /// Returns the memory after all terms. Each term was within the one before when it was added, or is cut here.
    pub(crate) fn scope(&self) -> DescriptorScope {
        let mut scope = DescriptorScope {
            start: 0,
            len: u64::MAX,
            rights: Rights::READ_WRITE,
            until: None,
        };
        for terms in &self.terms {
            let skipped = terms.start.min(scope.len);
            scope.start = scope.start.saturating_add(skipped);
            scope.len = terms.len.min(scope.len - skipped);
            scope.rights = Rights(scope.rights.0 & terms.rights);
            if terms.until != 0 {
                scope.until = Some(
                    scope
                        .until
                        .map_or(terms.until, |until| until.min(terms.until)),
                );
            }
        }
        scope
    }

    /// Returns a descriptor of a part, with fewer rights or for a shorter time. `range` counts from the begin of what
    /// this descriptor names. Rights that it lacks are not added. `lease` counts from now on, by the clocks of the two
    /// hosts; without one the descriptor lasts as long as this one.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::BadRange`], [`Error::NarrowedTooOften`].
    pub fn narrow(
        &self,
        range: Range<u64>,
        rights: Rights,
        lease: Option<Duration>,
    ) -> Result<Self> {
        let scope = self.scope();
        let part = check_range(&range, scope.len)?;
        if self.terms.len() == MAX_TERMS {
            return Err(Error::NarrowedTooOften {
                limit: MAX_TERMS - 1,
            });
        }
        let terms = DescriptorTerms {
            start: range.start,
            len: part,
            rights: scope.rights.0 & rights.0,
            until: lease.map_or(0, end_of),
        };
        let mut narrowed = self.clone();
        narrowed.seal = next_seal(&self.seal, &terms);
        narrowed.terms.push(terms);
        Ok(narrowed)
    }

    /// Returns the bytes that the descriptor names.
    pub fn len(&self) -> u64 {
        self.scope().len
    }

    /// Returns whether the descriptor names no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns what its holder may do.
    pub fn rights(&self) -> Rights {
        self.scope().rights
    }

    /// Returns the incarnation of the endpoint that owns the memory.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Returns the descriptor as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut to = MAGIC.to_vec();
        (self.owner, self.region).put(&mut to);
        to.push(self.terms.len() as u8);
        self.terms.iter().for_each(|terms| terms.put(&mut to));
        to.extend_from_slice(&self.seal);
        to
    }

    /// Parses a descriptor. Only the owner can tell a forged one, when it is opened.
    ///
    /// # Errors
    /// [`Error::BadDescriptor`] if the bytes are cut, or something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let bad = Error::BadDescriptor;
        let cut = |_| bad("they are cut");
        let Some(mut rest) = bytes.strip_prefix(&MAGIC) else {
            return Err(bad("they do not begin as one of this version"));
        };
        let rest = &mut rest;
        let (owner, region) = Fixed::take(rest).map_err(cut)?;
        let number = usize::from(u8::take(rest).map_err(cut)?);
        if number == 0 || number > MAX_TERMS {
            return Err(bad("they have no terms, or too many"));
        }
        let terms: Result<SmallVec<[DescriptorTerms; 2]>, _> =
            (0..number).map(|_| DescriptorTerms::take(rest)).collect();
        let terms = terms.map_err(cut)?;
        let seal = Fixed::take(rest).map_err(cut)?;
        if !rest.is_empty() {
            return Err(bad("there are more of them than a descriptor has"));
        }
        Ok(Self {
            owner,
            region,
            terms,
            seal,
        })
    }
}

/// Checks that a range is within `len` bytes. Returns its length.
pub(crate) fn check_range(range: &Range<u64>, len: u64) -> Result<u64> {
    let Some(part) = range.end.checked_sub(range.start) else {
        return Err(Error::BadRange {
            start: range.start,
            end: range.end,
        });
    };
    if range.end > len {
        return Err(Error::OutOfBounds {
            offset: range.start,
            len: part,
            region: len,
        });
    }
    Ok(part)
}

/// Returns the end of a lease that begins now, in nanoseconds since 1970.
pub(crate) fn end_of(lease: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let end = now.unwrap_or_default().saturating_add(lease).as_nanos();
    u64::try_from(end).unwrap_or(u64::MAX)
}

fn first_seal(secret: &Bytes16, [owner, region]: [u64; 2], terms: &DescriptorTerms) -> Bytes16 {
    let parts = [
        &owner.to_le_bytes()[..],
        &region.to_le_bytes(),
        &terms.bytes(),
    ];
    hash(secret, "region", &parts)
}

fn next_seal(seal: &Bytes16, terms: &DescriptorTerms) -> Bytes16 {
    hash(seal, "narrowed", &[&terms.bytes()])
}

/// The descriptor as text.
impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.to_bytes(), f)
    }
}

/// The seal does not show.
impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = self.scope();
        write!(
            f,
            "Descriptor({} bytes at {} of region {} of incarnation {:016x}, to {:?})",
            scope.len, scope.start, self.region, self.owner, scope.rights
        )
    }
}

impl FromStr for Descriptor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bytes = hex::read(text).ok_or(Error::BadDescriptor("the text is not hexadecimal"))?;
        Self::from_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: Bytes16 = [9; 16];

    fn whole() -> Descriptor {
        let scope = DescriptorScope {
            start: 0,
            len: 100,
            rights: Rights::READ_WRITE,
            until: None,
        };
        Descriptor::new(&SECRET, [1, 2], scope)
    }

    #[test]
    fn only_the_owner_makes_descriptors_and_anybody_narrows_them() {
        let whole = whole();
        assert!(whole.is_of(&SECRET));
        assert!(!whole.is_of(&[8; 16]));
        let part = whole.narrow(10..50, Rights::READ, None).unwrap();
        let part = part.narrow(5..15, Rights::READ_WRITE, None).unwrap();
        assert!(part.is_of(&SECRET));
        let scope = part.scope();
        assert_eq!(
            (scope.start, scope.len, scope.rights),
            (15, 10, Rights::READ)
        );
        assert!(part.narrow(5..16, Rights::READ, None).is_err());
        let backwards = Range { start: 6, end: 5 };
        assert!(matches!(
            part.narrow(backwards, Rights::READ, None),
            Err(Error::BadRange { .. })
        ));
    }

    #[test]
    fn a_descriptor_can_be_narrowed_seven_times() {
        let mut descriptor = whole();
        for _ in 0..7 {
            descriptor = descriptor.narrow(0..100, Rights::READ, None).unwrap();
        }
        assert!(descriptor.is_of(&SECRET));
        let refused = descriptor.narrow(0..100, Rights::READ, None);
        assert!(matches!(refused, Err(Error::NarrowedTooOften { limit: 7 })));
    }

    #[test]
    fn each_change_of_a_descriptor_is_found() {
        let lease = Some(Duration::from_secs(60));
        let part = whole().narrow(10..50, Rights::READ, lease).unwrap();
        assert!(part.scope().until.is_some());
        let bytes = part.to_bytes();
        assert_eq!(Descriptor::from_bytes(&bytes).unwrap(), part);
        for len in 0..bytes.len() {
            assert!(Descriptor::from_bytes(&bytes[..len]).is_err());
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let changed = Descriptor::from_bytes(&changed);
            assert!(changed.is_err() || !changed.unwrap().is_of(&SECRET), "{at}");
        }
        // A holder that removes the last terms lacks the seal before them.
        let mut widened = part.clone();
        widened.terms.pop();
        assert!(!widened.is_of(&SECRET));
    }

    proptest! {
        #[test]
        fn the_scope_of_any_descriptor_is_within_its_first_terms(
            bytes in prop::collection::vec(any::<u8>(), 0..300), number in 0_u8..9,
        ) {
            let mut all = MAGIC.to_vec();
            (1_u64, 2_u64).put(&mut all);
            all.push(number);
            all.extend(bytes);
            if let Ok(descriptor) = Descriptor::from_bytes(&all) {
                let (scope, first) = (descriptor.scope(), descriptor.terms[0]);
                prop_assert!(scope.len <= first.len);
                prop_assert!(scope.len == 0 || scope.start - first.start <= first.len - scope.len);
            }
        }
    }
}
