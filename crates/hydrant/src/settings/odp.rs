//! The choice between memory that is pinned and memory that the NIC pages on demand.

use super::MonitorKind;

/// The use of on-demand paging, on RDMA devices that have it. A registration then follows the mapping and pins nothing.
/// So memory from any allocator may stay registered, and no monitor is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PagingKind {
    /// Where the device has it and the kernel does not tell of changes of memory. Else memory is pinned, because
    /// accesses to it never wait for a page.
    #[default]
    Auto,
    /// Always. It is an error if the device has none.
    On,
    /// Never.
    Off,
}

super::forms::words!(PagingKind {
    Auto => "auto",
    On => "on",
    Off => "off",
});

/// The decision about on-demand paging, before the device is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PagingChoice {
    /// Memory is pinned, for this reason.
    Never(&'static str),
    /// Memory is paged if the device can.
    WherePossible,
    /// Memory is paged. It is an error if the device cannot.
    Required,
}

impl PagingKind {
    /// Decides by the settings. `kernel_tells`: the kernel tells this process of changes of its memory. The
    /// best way comes first: a monitor that hears of all memory, then on-demand paging, then an allocator that tells of
    /// its larger blocks alone.
    pub(crate) fn choose(
        self,
        monitor: MonitorKind,
        kernel_tells: impl FnOnce() -> bool,
    ) -> PagingChoice {
        match (self, monitor) {
            (PagingKind::On, _) => PagingChoice::Required,
            (PagingKind::Off, _) => PagingChoice::Never("HYDRANT_ODP=off"),
            (PagingKind::Auto, MonitorKind::Userfaultfd) => {
                PagingChoice::Never("HYDRANT_MONITOR=userfaultfd")
            }
            (PagingKind::Auto, MonitorKind::Allocator) => {
                PagingChoice::Never("HYDRANT_MONITOR=allocator")
            }
            (PagingKind::Auto, MonitorKind::Auto) if kernel_tells() => {
                PagingChoice::Never("the kernel tells of changes")
            }
            (PagingKind::Auto, MonitorKind::Auto | MonitorKind::Off) => PagingChoice::WherePossible,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nic_pages_where_nobody_else_tells_of_changes() {
        let choose =
            |kind: PagingKind, monitor, kernel_tells| kind.choose(monitor, || kernel_tells);
        for monitor in MonitorKind::ALL {
            for tells in [false, true] {
                assert_eq!(
                    choose(PagingKind::On, monitor, tells),
                    PagingChoice::Required
                );
                let off = choose(PagingKind::Off, monitor, tells);
                assert_eq!(off, PagingChoice::Never("HYDRANT_ODP=off"));
            }
        }
        for (monitor, kernel_tells, pages) in [
            (MonitorKind::Auto, false, true),
            (MonitorKind::Auto, true, false),
            (MonitorKind::Off, false, true),
            (MonitorKind::Off, true, true),
            // A monitor that was asked for is in force.
            (MonitorKind::Userfaultfd, true, false),
            (MonitorKind::Allocator, false, false),
        ] {
            let chosen = choose(PagingKind::Auto, monitor, kernel_tells);
            let found = chosen == PagingChoice::WherePossible;
            assert_eq!(found, pages, "{monitor}, {kernel_tells}: {chosen:?}");
        }
    }

    #[test]
    fn the_kernel_is_asked_only_where_that_decides() {
        for kind in PagingKind::ALL {
            for monitor in MonitorKind::ALL {
                let mut asked = false;
                kind.choose(monitor, || {
                    asked = true;
                    true
                });
                let decides = kind == PagingKind::Auto && monitor == MonitorKind::Auto;
                assert_eq!(asked, decides, "{kind}, {monitor}");
            }
        }
    }
}
