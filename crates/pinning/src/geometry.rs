//! Buckets: fixed, aligned runs of pages, the unit of all bookkeeping (Firehose §3.2).

use crate::Error;

/// The number of bits of a bucket's number: addresses of 52 bits, more than any user program has.
pub const BUCKET_BITS: u32 = 40;

/// The cut of addresses into buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    page: u64,
    shift: u32,
}

impl Geometry {
    /// Makes buckets of `bucket` bytes on pages of `page` bytes.
    ///
    /// # Errors
    /// [`Error::BucketSize`] unless both are powers of two, the page has at least 4096 bytes and
    /// the bucket is a multiple of the page.
    pub fn new(page: usize, bucket: usize) -> Result<Self, Error> {
        let fits = page.is_power_of_two() && bucket.is_power_of_two() && bucket >= page;
        if !fits || page < 4096 {
            return Err(Error::BucketSize { bucket, page });
        }
        Ok(Self {
            page: page as u64,
            shift: bucket.trailing_zeros(),
        })
    }

    /// The bytes of a bucket.
    #[inline]
    pub fn bucket(self) -> u64 {
        1 << self.shift
    }

    /// The bytes of a page.
    pub fn page(self) -> u64 {
        self.page
    }

    /// The pages of a bucket.
    pub fn pages(self) -> u64 {
        self.bucket() / self.page
    }

    /// The bucket of an address.
    #[inline]
    pub fn bucket_of(self, addr: u64) -> u64 {
        addr >> self.shift
    }

    /// The first address of a bucket.
    #[inline]
    pub fn address_of(self, bucket: u64) -> u64 {
        bucket << self.shift
    }

    /// The number of whole buckets in so many bytes.
    pub fn buckets_in(self, bytes: u64) -> u64 {
        bytes >> self.shift
    }

    /// The buckets that `len` bytes at `addr` touch; an empty run for no bytes.
    ///
    /// # Errors
    /// [`Error::Overflow`] if the bytes leave the address space.
    pub fn span(self, addr: u64, len: u64) -> Result<Run, Error> {
        let end = addr
            .checked_add(len)
            .filter(|end| *end <= 1 << (BUCKET_BITS + 12))
            .ok_or(Error::Overflow { addr, len })?;
        let first = self.bucket_of(addr);
        if len == 0 {
            return Ok(Run { first, count: 0 });
        }
        Ok(Run {
            first,
            count: self.bucket_of(end - 1) + 1 - first,
        })
    }
}

/// A run of buckets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Run {
    /// The first bucket.
    pub first: u64,
    /// The number of buckets.
    pub count: u64,
}

impl Run {
    /// The bucket behind the last one.
    #[inline]
    pub fn end(self) -> u64 {
        self.first + self.count
    }

    /// The buckets of the run.
    pub fn buckets(self) -> impl Iterator<Item = u64> + use<> {
        self.first..self.end()
    }

    /// Returns true if the runs share a bucket.
    pub fn overlaps(self, other: Run) -> bool {
        self.first < other.end() && other.first < self.end()
    }

    /// Returns true if all of `other` lies within this run.
    pub fn contains(self, other: Run) -> bool {
        self.first <= other.first && other.end() <= self.end()
    }

    /// Returns true if all buckets of the run exist.
    pub(crate) fn is_sane(self) -> bool {
        self.count > 0
            && self.count <= 1 << BUCKET_BITS
            && self.first < 1 << BUCKET_BITS
            && self.end() <= 1 << BUCKET_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_touch_the_buckets_they_lie_in() {
        let geometry = Geometry::new(4096, 8192).expect("powers of two");
        let span = |addr, len| geometry.span(addr, len).map(|run| (run.first, run.count));
        assert_eq!(span(0, 1), Ok((0, 1)));
        assert_eq!(span(8191, 2), Ok((0, 2)));
        assert_eq!(span(8192, 8192), Ok((1, 1)));
        assert_eq!(span(8192, 0), Ok((1, 0)));
        assert_eq!(
            span(u64::MAX - 3, 8),
            Err(Error::Overflow {
                addr: u64::MAX - 3,
                len: 8
            })
        );
    }

    #[test]
    fn a_bucket_is_a_power_of_two_of_pages() {
        for (page, bucket) in [(4096, 0), (4096, 2048), (4096, 12288), (1000, 4096), (1, 1)] {
            assert_eq!(
                Geometry::new(page, bucket),
                Err(Error::BucketSize { bucket, page })
            );
        }
    }
}
