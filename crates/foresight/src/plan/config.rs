//! How a helper plans.

use crate::costs::Costs;
use crate::predictor::Method;
use crate::sharing::Sharing;
use crate::signature::{DEFAULT_WINDOW, MAX_WINDOW};

/// How a helper plans.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// How many communications before belong to a signature.
    pub window: usize,
    /// Low bits of addresses that signatures leave out.
    pub grain_bits: u32,
    /// What predicts.
    pub method: Method,
    /// What the helper's steps take.
    pub costs: Costs,
    /// With whom it shares its core.
    pub sharing: Sharing,
    /// The bytes of a page: regions are whole pages.
    pub page_bytes: u64,
    /// The most bytes that may be registered.
    pub limit_bytes: u64,
    /// One part in so many of the time may be lost by giving up regions that are used again unforeseen. A region that
    /// would cost more stays registered. Zero means no bound, as in the paper.
    pub lost_part: u64,
    /// How many regions are remembered that are neither registered nor expected to be.
    pub regions: usize,
}

impl Config {
    /// The paper's window with our predictor, and no limit. Addresses on one page are the same buffer for
    /// signatures, as they are for the NIC: programs shift their offsets a little from use to use, as IS does.
    pub const DEFAULT: Config = Config {
        window: DEFAULT_WINDOW,
        grain_bits: 12,
        method: Method::Landmarks,
        costs: Costs::TYPICAL,
        sharing: Sharing::NONE,
        page_bytes: 4096,
        limit_bytes: u64::MAX,
        lost_part: 0,
        regions: 1024,
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

/// Why there is no such plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A page of no power of two.
    #[error("a page of {bytes} bytes; it is a power of two")]
    Page {
        /// What was asked for.
        bytes: u64,
    },
    /// A window that is too long.
    #[error("a window of {window} communications; {MAX_WINDOW} are the most")]
    Window {
        /// What was asked for.
        window: usize,
    },
    /// Addresses of which nothing would be left.
    #[error("signatures that leave out {bits} bits of addresses; 63 are the most")]
    Grain {
        /// What was asked for.
        bits: u32,
    },
}
