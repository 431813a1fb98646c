//! A histogram of latencies in little memory. Each doubling has 64 classes, so that a percentile is
//! right within 1.6 %.

use super::Moment;

const FINE: u32 = 6;

/// A histogram of times.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    longest: Moment,
}

impl Latencies {
    pub(super) fn add(&mut self, time: Moment) {
        let class = class(time);
        if class >= self.counts.len() {
            self.counts.resize(class + 1, 0);
        }
        self.counts[class] += 1;
        self.count += 1;
        self.sum += u128::from(time);
        self.longest = self.longest.max(time);
    }

    pub(super) fn mean(&self) -> Moment {
        (self.sum / u128::from(self.count.max(1))) as Moment
    }

    pub(super) fn longest(&self) -> Moment {
        self.longest
    }

    /// The time that `of_hundred` percent of the samples do not exceed.
    pub(super) fn percentile(&self, of_hundred: u64) -> Moment {
        let rank = (self.count * of_hundred).div_ceil(100);
        let mut before = 0;
        for (class, count) in self.counts.iter().enumerate() {
            before += count;
            if before >= rank {
                return most(class).min(self.longest);
            }
        }
        self.longest
    }
}

fn class(time: Moment) -> usize {
    let octave = time.max(1).ilog2();
    if octave <= FINE {
        return time as usize;
    }
    let shift = octave - FINE;
    (((shift as usize) + 1) << FINE) + ((time >> shift) as usize - (1 << FINE))
}

/// The longest time of a class.
fn most(class: usize) -> Moment {
    if class < 2 << FINE {
        return class as Moment;
    }
    let shift = (class >> FINE) - 1;
    let part = (class & ((1 << FINE) - 1)) + (1 << FINE);
    (((part + 1) as Moment) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_lies_within_its_class() {
        for time in [
            0,
            1,
            63,
            64,
            65,
            127,
            128,
            129,
            255,
            256,
            1_000_003,
            1 << 50,
        ] {
            let most = most(class(time));
            assert!(most >= time, "{time} is in a class up to {most}");
            assert!((most - time) as f64 <= time as f64 / 64.0, "{time} {most}");
        }
        assert_eq!(class(most(300)), 300);
    }

    #[test]
    fn percentiles_match_the_added_times() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|n| latencies.add(n * 1000));
        assert_eq!(latencies.mean(), 500_500);
        let p99 = latencies.percentile(99);
        assert!((990_000..1_010_000).contains(&p99), "{p99}");
        assert_eq!(latencies.percentile(100), 1_000_000);
    }
}
