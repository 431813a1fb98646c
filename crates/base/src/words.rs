//! Values as little-endian words of fixed length, in bytes that may come from a peer.

/// The reason why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

/// The most items of a list, whose length is one byte: as many as a payload of a few kilobytes
/// holds.
pub const MAX_LIST: usize = 32;

/// A value whose encoding is a sequence of words. The length of each word depends on its type alone.
///
/// ```
/// use hydrant_base::words::{Fixed, only};
///
/// let mut bytes = Vec::new();
/// (7_u64, true).put(&mut bytes);
/// assert_eq!(only(&bytes), Ok((7_u64, true)));
/// assert!(only::<u64>(&bytes).is_err());
/// ```
pub trait Fixed: Sized {
    /// Appends the encoding.
    fn put(&self, to: &mut Vec<u8>);

    /// Takes a value off the front of `from`.
    ///
    /// # Errors
    /// [`Malformed`], after which an unknown part of the bytes is taken.
    fn take(from: &mut &[u8]) -> Result<Self, Malformed>;
}

/// A value of one byte, which is never [`NONE`](Code::NONE).
pub trait Code: Sized + Copy {
    /// The byte that stands for no value in an option.
    const NONE: u8 = 0xff;

    /// The byte of the value.
    fn code(self) -> u8;

    /// The value of a byte.
    ///
    /// # Errors
    /// [`Malformed`] if the byte has no value.
    fn of(code: u8) -> Result<Self, Malformed>;
}

/// Takes a value, behind which no byte may be left.
///
/// # Errors
/// [`Malformed`].
pub fn only<T: Fixed>(mut bytes: &[u8]) -> Result<T, Malformed> {
    let value = T::take(&mut bytes)?;
    if bytes.is_empty() {
        Ok(value)
    } else {
        Err(Malformed("more bytes than a value has"))
    }
}

/// Takes values until no byte is left, or one is malformed.
pub fn values<T: Fixed>(mut bytes: &[u8]) -> impl Iterator<Item = Result<T, Malformed>> {
    std::iter::from_fn(move || {
        let value = (!bytes.is_empty()).then(|| T::take(&mut bytes));
        if matches!(value, Some(Err(_))) {
            bytes = &[];
        }
        value
    })
}

/// Implements [`Fixed`] for a structure, field after field.
#[macro_export]
macro_rules! fixed {
    ($($name:ident { $($field:tt),* })*) => { $(
        impl $crate::words::Fixed for $name {
            fn put(&self, to: &mut Vec<u8>) {
                $($crate::words::Fixed::put(&self.$field, to);)*
            }

            fn take(from: &mut &[u8]) -> Result<Self, $crate::words::Malformed> {
                Ok(Self { $($field: $crate::words::Fixed::take(from)?),* })
            }
        }
    )* };
}

macro_rules! integers {
    ($($integer:ident)*) => { $(
        impl Fixed for $integer {
            #[inline]
            fn put(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                let (word, rest) = from.split_first_chunk().ok_or(Malformed("cut short"))?;
                *from = rest;
                Ok(Self::from_le_bytes(*word))
            }
        }
    )* };
}

integers!(u8 u16 u32 u64 i32);

impl Fixed for bool {
    fn put(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag that is neither yes nor no")),
        }
    }
}

impl<T: Code> Fixed for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        to.push(self.map_or(T::NONE, T::code));
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let code = u8::take(from)?;
        (code != T::NONE).then(|| T::of(code)).transpose()
    }
}

impl<T: Fixed> Fixed for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        debug_assert!(self.len() <= MAX_LIST, "lists are cut before");
        to.push(self.len() as u8);
        self.iter().for_each(|item| item.put(to));
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let len = usize::from(u8::take(from)?);
        if len > MAX_LIST {
            return Err(Malformed("a list that is too long"));
        }
        (0..len).map(|_| T::take(from)).collect()
    }
}

impl<T: Fixed + Copy + Default, const N: usize> Fixed for [T; N] {
    fn put(&self, to: &mut Vec<u8>) {
        self.iter().for_each(|item| item.put(to));
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let mut items = [T::default(); N];
        for item in &mut items {
            *item = T::take(from)?;
        }
        Ok(items)
    }
}

macro_rules! tuples {
    ($(($($name:ident $number:tt)*))*) => { $(
        impl<$($name: Fixed),*> Fixed for ($($name,)*) {
            fn put(&self, to: &mut Vec<u8>) {
                $(self.$number.put(to);)*
            }

            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                Ok(($($name::take(from)?,)*))
            }
        }
    )* };
}

tuples!((A 0 B 1) (A 0 B 1 C 2) (A 0 B 1 C 2 D 3) (A 0 B 1 C 2 D 3 E 4));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_little_endian_and_come_back() {
        let mut bytes = Vec::new();
        (0x0102_u16, [3_u32; 2]).put(&mut bytes);
        (vec![true, false], -1_i32).put(&mut bytes);
        assert_eq!(
            bytes,
            [2, 1, 3, 0, 0, 0, 3, 0, 0, 0, 2, 1, 0, 255, 255, 255, 255]
        );
        let mut from = &bytes[..];
        assert_eq!(Fixed::take(&mut from), Ok((0x0102_u16, [3_u32; 2])));
        assert_eq!(only(from), Ok((vec![true, false], -1_i32)));
    }

    #[test]
    fn malformed_bytes_are_an_error() {
        assert_eq!(only::<u32>(&[1, 2, 3]), Err(Malformed("cut short")));
        assert!(only::<u16>(&[1, 2, 3]).is_err());
        assert!(only::<bool>(&[2]).is_err());
        assert!(only::<Vec<u8>>(&[33; 40]).is_err());
        let all = |bytes| values::<u16>(bytes).collect::<Vec<_>>();
        assert_eq!(all(&[1, 0, 2, 0]), [Ok(1), Ok(2)]);
        assert_eq!(all(&[1, 0, 2]), [Ok(1), Err(Malformed("cut short"))]);
    }
}
