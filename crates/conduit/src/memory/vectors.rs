//! What the processor moves and adds at once.

use std::arch::asm;

/// The longest vectors of the processor, of those that are used here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub(super) enum Vectors {
    /// 16 bytes: every x86-64 has them.
    Sse2,
    /// 32 bytes.
    Avx2,
    /// 64 bytes.
    Avx512,
}

impl Vectors {
    /// Those of this processor.
    #[inline]
    pub(super) fn here() -> Self {
        // Processors that have the first do not clock down where vectors are long.
        if is_x86_feature_detected!("avx512vbmi2") && is_x86_feature_detected!("avx512dq") {
            Self::Avx512
        } else if is_x86_feature_detected!("avx2") {
            Self::Avx2
        } else {
            Self::Sse2
        }
    }

    /// All that this processor has.
    #[cfg(test)]
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let kinds = [Self::Sse2, Self::Avx2, Self::Avx512];
        kinds.into_iter().filter(|it| *it <= Self::here())
    }

    /// Called behind the last of many that used them: code for short vectors would be slow else.
    #[inline]
    pub(super) fn end(self) {
        if self != Self::Sse2 {
            // SAFETY: there is AVX; it clears upper halves of registers, all of which are declared
            // as changed.
            unsafe { asm!("vzeroupper", clobber_abi("sysv64"), options(nostack, nomem)) }
        }
    }
}
