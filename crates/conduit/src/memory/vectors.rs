//! The vectors of the processor.

use std::arch::asm;

/// The longest vectors of the processor, of those in use here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub(super) enum Vectors {
    /// 16 bytes. Every x86-64 has them.
    Sse2,
    /// 32 bytes.
    Avx2,
    /// 64 bytes.
    Avx512,
}

impl Vectors {
    /// Returns those of this processor.
    #[inline]
    pub(super) fn here() -> Self {
        // Processors with the first feature do not clock down for long vectors.
        if is_x86_feature_detected!("avx512vbmi2") && is_x86_feature_detected!("avx512dq") {
            Self::Avx512
        } else if is_x86_feature_detected!("avx2") {
            Self::Avx2
        } else {
            Self::Sse2
        }
    }

    /// Returns all that this processor has.
    #[cfg(test)]
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let kinds = [Self::Sse2, Self::Avx2, Self::Avx512];
        kinds.into_iter().filter(|it| *it <= Self::here())
    }

    /// Must be called after the last use of vectors. Code for short vectors would be slow
    /// otherwise.
    #[inline]
    pub(super) fn end(self) {
        if self != Self::Sse2 {
            // SAFETY: the processor has AVX. The instruction clears upper halves of registers, all
            // of which are declared as changed.
            unsafe { asm!("vzeroupper", clobber_abi("sysv64"), options(nostack, nomem)) }
        }
    }
}
