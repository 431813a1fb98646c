//! A snapshot as text, one quantity a line. A reader of another version of Hydrant ignores names
//! that it does not know, and takes 0 for those that are missing.

use std::{fmt, str::FromStr};

use super::snapshot::{FirehoseBytes, RankSnapshot, RegisteredMemory};

/// The first word of the first line, with the version of the format.
const HEAD: &str = "hydrant-top 1";
/// The last line, without which the text is cut off.
const END: &str = "end";

/// The text of a snapshot is no such text, or is cut off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer of a rank is unreadable: {0}")]
pub struct UnreadableSnapshot(String);

impl fmt::Display for RankSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        writeln!(f, "job {:x}", self.job)?;
        writeln!(f, "rank {}", self.rank)?;
        writeln!(f, "ranks {}", self.ranks)?;
        writeln!(f, "conduit {}", self.conduit)?;
        for (name, count) in &self.counters {
            writeln!(f, "count {name} {count}")?;
        }
        if let Some(memory) = &self.memory {
            for (name, bytes) in memory.rows() {
                writeln!(f, "memory {name} {bytes}")?;
            }
            for it in &memory.firehoses {
                writeln!(
                    f,
                    "firehoses {} {} {}",
                    it.peer, it.held_here_bytes, it.held_there_bytes
                )?;
            }
        }
        writeln!(f, "{END}")
    }
}

impl FromStr for RankSnapshot {
    type Err = UnreadableSnapshot;

    fn from_str(text: &str) -> Result<Self, UnreadableSnapshot> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            let what = "it begins otherwise, so the rank has another version of Hydrant";
            return Err(UnreadableSnapshot(what.to_owned()));
        }
        let mut snapshot = Self::default();
        for line in lines {
            if line == END {
                return Ok(snapshot);
            }
            if snapshot.take(line).is_none() {
                let line: String = line.chars().take(80).collect();
                return Err(UnreadableSnapshot(format!("{line:?}")));
            }
        }
        Err(UnreadableSnapshot("it is cut off".to_owned()))
    }
}

impl RankSnapshot {
    /// Takes a line, or returns `None` if it is malformed.
    fn take(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        let mut words = rest.split(' ');
        match kind {
            "job" => self.job = u64::from_str_radix(rest, 16).ok()?,
            "rank" => self.rank = rest.parse().ok()?,
            "ranks" => self.ranks = rest.parse().ok()?,
            "conduit" => self.conduit = rest.to_owned(),
            "count" => {
                let name = words.next().filter(|name| is_name(name))?;
                let count = words.next()?.parse().ok()?;
                self.counters.insert(name.to_owned(), count);
            }
            "memory" => {
                let (name, bytes) = (words.next()?, words.next()?.parse().ok()?);
                self.memory.get_or_insert_default().set(name, bytes);
            }
            "firehoses" => {
                let of_peer = FirehoseBytes {
                    peer: words.next()?.parse().ok()?,
                    held_here_bytes: words.next()?.parse().ok()?,
                    held_there_bytes: words.next()?.parse().ok()?,
                };
                let memory: &mut RegisteredMemory = self.memory.get_or_insert_default();
                memory.firehoses.push(of_peer);
            }
            _ => {}
        }
        Some(())
    }
}

/// Returns whether a word may be the name of a counter, which becomes the name of a metric.
fn is_name(word: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    word.starts_with(|first: char| first.is_ascii_lowercase()) && word.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> RankSnapshot {
        let mut memory = RegisteredMemory {
            firehoses: [1, 7]
                .map(|peer| FirehoseBytes {
                    peer,
                    held_here_bytes: 4096 * u64::from(peer),
                    held_there_bytes: 0,
                })
                .to_vec(),
            ..RegisteredMemory::default()
        };
        for (number, (name, _)) in (1..).zip(RegisteredMemory::default().rows()) {
            assert!(memory.set(name, number), "{name}");
        }
        RankSnapshot {
            job: u64::MAX,
            rank: 3,
            ranks: 8,
            conduit: "smp+pin".to_owned(),
            counters: [("hits".to_owned(), 5), ("misses".to_owned(), u64::MAX)].into(),
            memory: Some(memory),
        }
    }

    #[test]
    fn a_snapshot_is_read_as_it_was_written() {
        let without = RankSnapshot {
            memory: None,
            ..sample()
        };
        for snapshot in [sample(), without] {
            assert_eq!(snapshot.to_string().parse(), Ok(snapshot));
        }
        let memory = sample().memory.expect("some");
        let values: Vec<u64> = memory.rows().iter().map(|(_, value)| *value).collect();
        assert_eq!(values, (1..=values.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn names_of_other_versions_are_ignored() {
        let text = sample().to_string();
        let more = text.replace("rank 3\n", "rank 3\ncolour blue\nmemory blue_bytes 7\n");
        assert_eq!(more.parse(), Ok(sample()));
    }

    #[test]
    fn malformed_text_is_refused() {
        let text = sample().to_string();
        for cut in 0..text.len() - 1 {
            let read = text[..cut].parse::<RankSnapshot>();
            assert!(read.is_err(), "{:?}", &text[..cut]);
        }
        for (from, to) in [
            ("rank 3", "rank -3"),
            ("rank 3", "rank"),
            ("job ffff", "job zzzz"),
            ("count hits 5", "count hits 5.5"),
            ("count hits 5", "count hi{}ts 5"),
            ("firehoses 1", "firehoses x"),
            ("hydrant-top 1", "hydrant-top 2"),
        ] {
            let wrong = text.replace(from, to);
            assert_ne!(wrong, text, "{from}");
            assert!(wrong.parse::<RankSnapshot>().is_err(), "{to}");
        }
    }
}
