//! Published figures of other systems, from the files beside this one: two ranks on two cores of
//! the same kind of machine, in another run. They are for orientation; no ratio is made of them.

use serde::Deserialize;

use crate::row::Row;

/// One figure of a peer.
#[derive(Debug, Deserialize)]
struct PublishedFigure {
    bench: String,
    case: String,
    bytes: Option<u64>,
    unit: String,
    figure: f64,
}

/// A peer on one network.
#[derive(Debug)]
pub(crate) struct PublishedPeer {
    /// The name of the peer.
    pub(crate) name: &'static str,
    figures: Vec<PublishedFigure>,
}

impl PublishedPeer {
    /// The figures of the peer on shared memory.
    pub(crate) fn mapped() -> serde_json::Result<Self> {
        Self::with("GASNet-EX smp", include_str!("peers/smp.json"))
    }

    /// The figures of the peer on a network that needs registration, by its name: on soft-RoCE in
    /// the virtual machine. Other networks have a peer without figures.
    pub(crate) fn registered(network: &str) -> serde_json::Result<Self> {
        match network {
            "verbs" => Self::with("GASNet-EX ibv", include_str!("peers/ibv.json")),
            _ => Self::with("GASNet-EX", "[]"),
        }
    }

    fn with(name: &'static str, figures: &str) -> serde_json::Result<Self> {
        let figures = serde_json::from_str(figures)?;
        Ok(Self { name, figures })
    }

    /// The figure for the same case, if it is known.
    pub(crate) fn beside(&self, row: &Row) -> Option<f64> {
        let same = |figure: &&PublishedFigure| {
            figure.bench == row.bench
                && figure.case == row.case
                && figure.unit == row.unit
                && (figure.bytes.is_none() || figure.bytes == row.bytes)
        };
        self.figures.iter().find(same).map(|figure| figure.figure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_case_size_and_unit() {
        let peer = PublishedPeer::mapped().unwrap();
        let put = |bytes, unit| peer.beside(&Row::new("rma", "put", unit, 1.0).bytes(bytes));
        assert_eq!(put(8, "ns"), Some(3.0));
        assert_eq!(put(16, "ns"), None);
        assert_eq!(put(8, "GB/s"), None);
        let short = Row::new("am", "short round trip", "ns", 1.0).bytes(0);
        assert_eq!(peer.beside(&short), Some(600.0));
    }

    #[test]
    fn each_network_has_its_own() {
        let miss = Row::new("rma", "put, miss", "ns", 1.0).bytes(8);
        let on = |network| PublishedPeer::registered(network).unwrap().beside(&miss);
        assert_eq!(on("verbs"), Some(122_000.0));
        assert_eq!(on("smp+pin"), None);
        assert_eq!(PublishedPeer::mapped().unwrap().beside(&miss), None);
    }
}
