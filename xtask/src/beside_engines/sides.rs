//! The sides of the table, and the Python that has the engine of each.

use std::path::PathBuf;

use crate::error::Error;
use crate::nixl_plugin;
use crate::wheels::environment;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct EngineSide {
    /// The name in `tools/engines/sides.py`, in JSON and on the command line.
    pub(super) name: &'static str,
    /// The heading of the column.
    pub(super) label: &'static str,
    pub(super) kind: SideKind,
    source: EngineSource,
}

/// What a side is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideKind {
    /// The machine without an engine.
    Bare,
    /// An engine of others.
    Other,
    /// Hydrant, which is compared with the best of others.
    Ours,
}

#[derive(Clone, Copy, Debug)]
enum EngineSource {
    /// Python with numpy alone.
    Numpy,
    /// NIXL's wheel with our plugin.
    Nixl,
    /// A folder of an environment, and its wheel.
    Wheel(&'static str, &'static str),
}

/// All columns, in their order.
pub(super) const SIDES: [EngineSide; 6] = [
    EngineSide {
        name: "bare",
        label: "bare",
        kind: SideKind::Bare,
        source: EngineSource::Numpy,
    },
    EngineSide {
        name: "nixl-ucx",
        label: "NIXL, UCX",
        kind: SideKind::Other,
        source: EngineSource::Nixl,
    },
    EngineSide {
        name: "mooncake",
        label: "Mooncake",
        kind: SideKind::Other,
        source: EngineSource::Wheel(
            "mooncake",
            "mooncake-transfer-engine-non-cuda==0.3.13.post1",
        ),
    },
    EngineSide {
        name: "connex",
        label: "connex-rs",
        kind: SideKind::Other,
        source: EngineSource::Wheel("connex", "connex-rs==0.1.2"),
    },
    EngineSide {
        name: "nixl-hydrant",
        label: "NIXL, Hydrant",
        kind: SideKind::Ours,
        source: EngineSource::Nixl,
    },
    EngineSide {
        name: "hydrant",
        label: "Hydrant",
        kind: SideKind::Ours,
        source: EngineSource::Numpy,
    },
];

impl EngineSide {
    /// True if the side has peers that can be lost.
    pub(super) fn has_peers(&self) -> bool {
        self.kind != SideKind::Bare
    }

    /// Installs what is not there yet. Returns the Python that has the engine.
    pub(super) fn prepare(&self) -> Result<PathBuf, Error> {
        match self.source {
            EngineSource::Numpy => environment("beside-engines/numpy", None),
            EngineSource::Nixl => nixl_plugin::with_wheel(),
            EngineSource::Wheel(folder, wheel) => {
                environment(&format!("beside-engines/{folder}"), Some(wheel))
            }
        }
    }
}
