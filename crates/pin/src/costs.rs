//! The measured costs of pinning.

#![allow(unsafe_code)] // registers scratch memory

use std::time::Instant;

use hydrant_conduit::{Cost, Permission, RegistrationCaps, measure, memory::PAGE};

use crate::{ring::MOST_BYTES, table::PinnedTable};

/// The costs that rank 0 measures and publishes, so that all ranks report the same.
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct MeasuredCosts {
    /// Cost of registering in ns: per operation, and per page.
    register: [f64; 2],
    /// Cost of deregistering in ns: per operation, and per page.
    deregister: [f64; 2],
    /// Cost of copying a byte, in ns.
    copy: f64,
}

impl MeasuredCosts {
    /// Measures the costs, within a millisecond or two.
    pub(crate) fn measure(table: &PinnedTable) -> Self {
        let (register, deregister, copy) = measure_all(table).unwrap_or(UNKNOWN);
        Self {
            register: [register.per_op_ns, register.per_page_ns],
            deregister: [deregister.per_op_ns, deregister.per_page_ns],
            copy,
        }
    }

    /// The properties of registration that the conduit reports, of which `max_bytes` may be registered.
    pub(crate) fn registration(&self, inline: usize, max_bytes: usize) -> RegistrationCaps {
        let cost = |[per_op_ns, per_page_ns]: [f64; 2]| Cost {
            per_op_ns,
            per_page_ns,
        };
        RegistrationCaps {
            page: PAGE,
            register: cost(self.register),
            deregister: cost(self.deregister),
            copy_ns_per_byte: self.copy,
            max_extent: MOST_BYTES,
            max_bytes,
            follows_mapping: false,
            pins_read_only: false,
            local: true,
            inline,
        }
    }
}

/// The costs to report if nothing can be measured, because not even a page can be pinned now.
const UNKNOWN: (Cost, Cost, f64) = (
    Cost {
        per_op_ns: 1000.0,
        per_page_ns: 100.0,
    },
    Cost {
        per_op_ns: 500.0,
        per_page_ns: 50.0,
    },
    0.1,
);

/// Measures the costs of registering, deregistering and copying.
fn measure_all(table: &PinnedTable) -> Option<(Cost, Cost, f64)> {
    let once = |addr: *mut u8, len: usize| {
        let begun = Instant::now();
        // SAFETY: nobody learns the key, so nothing is written to the memory.
        let key = unsafe { table.register(addr.addr(), len, Permission::ReadWrite)? };
        let registered = begun.elapsed();
        let begun = Instant::now();
        table.deregister(key)?;
        Ok([registered, begun.elapsed()])
    };
    let [register, deregister] = measure::registration_costs(once).ok()?;
    Some((register, deregister, measure::copy_cost()))
}
