//! The rows of the table: the case of each side that belongs to them.

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComparedCase {
    /// The case as the programs in C print it.
    pub(super) case: &'static str,
    pub(super) bytes: u64,
    pub(super) ranks: u32,
    /// The bench and the case of `hydrant bench`; it prints rates in megabytes a second.
    pub(super) ours: (&'static str, &'static str),
    pub(super) unit: PeerUnit,
}

/// The unit of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerUnit {
    Nanoseconds,
    MegabytesPerSecond,
}

impl PeerUnit {
    pub(super) fn name(self) -> &'static str {
        match self {
            PeerUnit::Nanoseconds => "ns",
            PeerUnit::MegabytesPerSecond => "MB/s",
        }
    }

    /// The figure with three digits, and the best of its units.
    pub(super) fn show(self, figure: f64) -> String {
        match self {
            PeerUnit::MegabytesPerSecond => format!("{figure:.0} MB/s"),
            PeerUnit::Nanoseconds if figure < 999.5 => format!("{} ns", digits(figure)),
            PeerUnit::Nanoseconds if figure < 999.5e3 => format!("{} µs", digits(figure / 1e3)),
            PeerUnit::Nanoseconds if figure < 999.5e6 => format!("{} ms", digits(figure / 1e6)),
            PeerUnit::Nanoseconds => format!("{} s", digits(figure / 1e9)),
        }
    }
}

const fn time(
    case: &'static str,
    bytes: u64,
    ranks: u32,
    ours: (&'static str, &'static str),
) -> ComparedCase {
    ComparedCase {
        case,
        bytes,
        ranks,
        ours,
        unit: PeerUnit::Nanoseconds,
    }
}

const fn rate(case: &'static str, bytes: u64, ours: &'static str) -> ComparedCase {
    ComparedCase {
        unit: PeerUnit::MegabytesPerSecond,
        ..time(case, bytes, 2, ("rma", ours))
    }
}

const KIB_4: u64 = 4 << 10;
const KIB_64: u64 = 64 << 10;
pub(super) const MIB: u64 = 1 << 20;
const MIB_16: u64 = 16 << 20;

const PUTS: &str = "put bandwidth, hit";
const GETS: &str = "get bandwidth, hit";
const BARRIER: (&str, &str) = ("barrier", "barrier, ");
const ALL_REDUCE: (&str, &str) = ("collectives", "all_reduce");

/// The rows between hosts.
pub(super) const TCP: &[ComparedCase] = &[
    time("put", 8, 2, ("rma", "put, hit")),
    time("get", 8, 2, ("rma", "get, hit")),
    time(
        "puts in a batch, each",
        8,
        2,
        ("rma", "64 puts in a scope, each"),
    ),
    time(
        "put, the peer computes",
        8,
        2,
        ("rma", "put, hit, the peer computes"),
    ),
    time("message there and back", 0, 2, ("am", "short round trip")),
    rate("put bandwidth", KIB_64, PUTS),
    rate("get bandwidth", KIB_64, GETS),
    rate("put bandwidth", MIB, PUTS),
    rate("get bandwidth", MIB, GETS),
    rate("put bandwidth", MIB_16, PUTS),
    rate("get bandwidth", MIB_16, GETS),
    time("barrier", 0, 2, BARRIER),
    time("all-reduce", 8, 2, ALL_REDUCE),
    time("all-reduce", MIB, 2, ALL_REDUCE),
    time("barrier", 0, 4, BARRIER),
    time("all-reduce", 8, 4, ALL_REDUCE),
    time("all-reduce", MIB, 4, ALL_REDUCE),
];

/// The rows on one host.
pub(super) const SMP: &[ComparedCase] = &[
    time("put", 8, 2, ("rma", "put")),
    time("get", 8, 2, ("rma", "get")),
    time("put, known length", 8, 2, ("rma", "put, known length")),
    time("put of a value", 8, 2, ("rma", "put_value")),
    time("puts in a batch, each", 8, 2, ("rma", "put in a scope")),
    time("put", KIB_4, 2, ("rma", "put")),
    time("get", KIB_4, 2, ("rma", "get")),
    time("put", KIB_64, 2, ("rma", "put")),
    time("get", KIB_64, 2, ("rma", "get")),
    time("put", MIB, 2, ("rma", "put")),
    time("get", MIB, 2, ("rma", "get")),
    time("message there and back", 0, 2, ("am", "short round trip")),
    time("barrier", 0, 2, BARRIER),
    time("all-reduce", 8, 2, ALL_REDUCE),
    time("all-reduce", MIB, 2, ALL_REDUCE),
];

fn digits(figure: f64) -> String {
    let behind = if figure < 9.995 {
        2
    } else if figure < 99.95 {
        1
    } else {
        0
    };
    format!("{figure:.behind$}")
}
