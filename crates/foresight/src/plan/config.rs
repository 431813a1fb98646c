//! The configuration of a plan.

use crate::costs::Costs;
use crate::sharing::Sharing;
use crate::signature::{DEFAULT_WINDOW, MAX_WINDOW};

/// The configuration of a plan.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlanConfig {
    /// The number of earlier communications in a signature.
    pub window: usize,
    /// The number of low address bits that signatures ignore.
    pub grain_bits: u32,
    /// The durations of the helper's steps.
    pub costs: Costs,
    /// The helpers on the same core.
    pub sharing: Sharing,
    /// Bytes of a page: regions are whole pages.
    pub page_bytes: u64,
    /// The limit on registered bytes.
    pub limit_bytes: u64,
    /// One part in so many of the time may be lost by deregistering regions whose next use is not foreseen. A region
    /// that would cost more stays registered. Zero means no bound, as in the paper.
    pub lost_part: u64,
    /// The number of remembered regions that are neither registered nor expected.
    pub regions: usize,
    /// The most shared pages kept apart; further ones are registered with their buffers. Zero for memory whose pages
    /// the driver cannot register apart: it need not ask for [changes](super::Plan::take_shared) then.
    pub pages_apart: usize,
}

impl PlanConfig {
    /// The paper's window, and no limit. Signatures treat addresses on one page as the
    /// same buffer, as the NIC does: programs such as IS shift their offsets a little from use to use.
    pub const DEFAULT: PlanConfig = PlanConfig {
        window: DEFAULT_WINDOW,
        grain_bits: 12,
        costs: Costs::TYPICAL,
        sharing: Sharing::NONE,
        page_bytes: 4096,
        limit_bytes: u64::MAX,
        lost_part: 0,
        regions: 1024,
        pages_apart: 1024,
    };

    pub(super) fn check(&self) -> Result<(), Invalid> {
        if !self.page_bytes.is_power_of_two() {
            return Err(Invalid::Page {
                bytes: self.page_bytes,
            });
        }
        if self.window > MAX_WINDOW {
            return Err(Invalid::Window {
                window: self.window,
            });
        }
        if self.grain_bits >= u64::BITS {
            return Err(Invalid::Grain {
                bits: self.grain_bits,
            });
        }
        Ok(())
    }
}

/// An invalid configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The page size is not a power of two.
    #[error("a page of {bytes} bytes: a page size is a power of two")]
    Page {
        /// The requested size.
        bytes: u64,
    },
    /// The window is too long.
    #[error("a window of {window} communications; the maximum is {MAX_WINDOW}")]
    Window {
        /// The requested window.
        window: usize,
    },
    /// Signatures would ignore all address bits.
    #[error("signatures that ignore {bits} low bits of addresses; the maximum is 63")]
    Grain {
        /// The requested bits.
        bits: u32,
    },
}
