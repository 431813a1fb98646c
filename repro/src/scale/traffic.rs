//! Traffic patterns: which ranks put to which peers.

use std::fmt;

use hydrant_base::Random;

/// The targets of a rank's puts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// To eight random peers of each rank, with equal weights.
    Uniform,
    /// To the ranks before and after, as stencils do.
    Neighbour,
    /// In groups of sixteen ranks, to the first rank of the group, which puts nothing itself.
    HotSpot,
    /// To eight peers of each rank. Rank r is drawn as a peer with a weight of 1/(r + 1). A rank
    /// puts to its nth peer with a weight of 1/n.
    PowerLaw,
}

/// The number of peers of a rank that draws them.
const PEERS: u32 = 8;
/// Ranks of a group around a hot spot.
const GROUP: u32 = 16;

impl Traffic {
    /// All patterns.
    pub(crate) const ALL: [Traffic; 4] = [
        Traffic::Uniform,
        Traffic::Neighbour,
        Traffic::HotSpot,
        Traffic::PowerLaw,
    ];

    /// The name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Traffic::Uniform => "uniform",
            Traffic::Neighbour => "neighbour",
            Traffic::HotSpot => "hot-spot",
            Traffic::PowerLaw => "power-law",
        }
    }

    /// The peers of a rank, in the order of their weights; none if it puts nothing.
    pub(super) fn peers(self, rank: u32, ranks: u32, random: &mut Random) -> Vec<u32> {
        match self {
            Traffic::Neighbour => {
                let mut peers = vec![(rank + 1) % ranks, (rank + ranks - 1) % ranks];
                peers.dedup();
                peers
            }
            Traffic::HotSpot if rank.is_multiple_of(GROUP) => Vec::new(),
            Traffic::HotSpot => vec![rank - rank % GROUP],
            Traffic::Uniform => distinct(rank, ranks, random, |random| {
                random.word_below(ranks.into()) as u32
            }),
            Traffic::PowerLaw => distinct(rank, ranks, random, |random| {
                // The inverse of the logarithm that the weights sum up to.
                let drawn = f64::from(ranks + 1).powf(part(random)) as u32;
                drawn.clamp(1, ranks) - 1
            }),
        }
    }

    /// Draws the peer of a put: an index below `peers`.
    pub(super) fn choose(self, peers: usize, random: &mut Random) -> usize {
        match self {
            Traffic::PowerLaw => {
                let sum: f64 = (1..=peers).map(|n| 1.0 / n as f64).sum();
                let mut left = part(random) * sum;
                (1..peers)
                    .find(|n| {
                        left -= 1.0 / *n as f64;
                        left < 0.0
                    })
                    .unwrap_or(peers)
                    - 1
            }
            _ => random.below(peers),
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

fn distinct(
    rank: u32,
    ranks: u32,
    random: &mut Random,
    draw: impl Fn(&mut Random) -> u32,
) -> Vec<u32> {
    let wanted = PEERS.min(ranks - 1) as usize;
    let mut peers = Vec::with_capacity(wanted);
    // A power law in a small job draws the same few peers again and again; fewer will do then.
    for _ in 0..64 * PEERS {
        let peer = draw(random);
        if peer != rank && !peers.contains(&peer) {
            peers.push(peer);
        }
        if peers.len() == wanted {
            break;
        }
    }
    peers
}

/// A sequence of its own for each rank.
pub(super) fn random_of(seed: u64, rank: u32) -> Random {
    Random::new(Random::new(seed ^ (u64::from(rank) << 32 | u64::from(rank))).word())
}

/// A uniform number from 0 to below 1.
fn part(random: &mut Random) -> f64 {
    (random.word() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rank_puts_to_itself_or_beyond_the_job() {
        for traffic in Traffic::ALL {
            for ranks in [2, 3, 16, 17, 1000] {
                for rank in 0..ranks {
                    let peers = traffic.peers(rank, ranks, &mut random_of(7, rank));
                    assert!(
                        peers.iter().all(|peer| *peer != rank && *peer < ranks),
                        "{traffic} {rank} of {ranks}: {peers:?}"
                    );
                    let mut once = peers.clone();
                    once.sort_unstable();
                    once.dedup();
                    assert_eq!(once.len(), peers.len(), "{traffic}: {peers:?}");
                    let idle = traffic == Traffic::HotSpot && rank.is_multiple_of(16);
                    assert_eq!(peers.is_empty(), idle, "{traffic} {rank} of {ranks}");
                }
            }
        }
    }

    #[test]
    fn a_power_law_prefers_the_first() {
        let mut talkers = vec![0; 1000];
        for rank in 0..1000 {
            for peer in Traffic::PowerLaw.peers(rank, 1000, &mut random_of(3, rank)) {
                talkers[peer as usize] += 1;
            }
        }
        assert!(talkers[0] > 400, "{}", talkers[0]);
        assert!(talkers[999] < 40, "{}", talkers[999]);
        let mut random = random_of(1, 1);
        let mut counts = [0; 8];
        (0..8000).for_each(|_| counts[Traffic::PowerLaw.choose(8, &mut random)] += 1);
        assert!(counts[0] > 2500 && counts[7] > 200, "{counts:?}");
    }
}
