//! What other systems measure, from `peers.json` beside this file: two ranks on two cores of the
//! same kind of machine, not the same run. They are for orientation; ratios are never made of them.

use serde::Deserialize;

use super::Network;
use super::row::Row;

/// Whose figures these are.
pub(super) const PEER: &str = "GASNet-EX smp";

/// One figure of a peer.
#[derive(Debug, Deserialize)]
pub(crate) struct Figure {
    bench: String,
    case: String,
    bytes: Option<u64>,
    unit: String,
    figure: f64,
}

/// All of them that were measured on such a network.
pub(crate) fn figures(network: Network) -> serde_json::Result<Vec<Figure>> {
    match network {
        Network::Mapped => serde_json::from_str(include_str!("peers.json")),
        Network::Registered => Ok(Vec::new()),
    }
}

/// The peer's figure for the same case, if it is known.
pub(crate) fn beside(figures: &[Figure], row: &Row) -> Option<f64> {
    let same = |figure: &&Figure| {
        figure.bench == row.bench
            && figure.case == row.case
            && figure.unit == row.unit
            && (figure.bytes.is_none() || figure.bytes == row.bytes)
    };
    figures.iter().find(same).map(|figure| figure.figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_case_size_and_unit() {
        let figures = figures(Network::Mapped).unwrap();
        let put = |bytes, unit| beside(&figures, &Row::new("rma", "put", unit, 1.0).bytes(bytes));
        assert_eq!(put(8, "ns"), Some(3.0));
        assert_eq!(put(16, "ns"), None);
        assert_eq!(put(8, "GB/s"), None);
        let short = Row::new("am", "short round trip", "ns", 1.0).bytes(0);
        assert_eq!(beside(&figures, &short), Some(600.0));
    }
}
