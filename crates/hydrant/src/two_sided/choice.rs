//! Which way a long message goes: copied in parts, or written into the receiver's buffer, by what each took lately.
//!
//! It is the receiver that chooses and measures, from the match to the end of the receive: that has all that
//! either way costs, the registrations of both sides by the strategy in force among them. Each way is tried a
//! few times for each length, the one first that the conduit's costs speak for, and the other is tried again when
//! a small part of the time since pays for that. Messages under way together share the time, so that what each
//! takes is its part of the whole.

/// Lengths, by powers of two, of peers whose memory is mapped here and of others.
const CLASSES: usize = usize::BITS as usize + 1;
/// How often a way is tried before its time is believed: the first ones touch memory that nothing was in, and wake whom
/// the later ones find awake.
const TRIES: u32 = 4;
/// Of the time that messages take, one part in so many may be spent on trying the way that takes longer.
const TRIALS: u64 = 256;

/// The ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Copied,
    Written,
}

const WAYS: [Way; 2] = [Way::Copied, Way::Written];

/// A message that goes one of the ways, and when that began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Begun {
    pub(super) way: Way,
    class: (usize, usize),
    since: u64,
}

/// What is known of messages of about the same length.
#[derive(Clone, Copy, Default, Debug)]
struct Cell {
    /// Nanoseconds, by way; zero if none has ended.
    took: [u64; 2],
    /// Messages that ended, by way, up to [`TRIES`].
    samples: [u32; 2],
    /// Messages that were to try a way, up to [`TRIES`].
    tried: [u32; 2],
    /// Nanoseconds that may be spent on a trial.
    saved: u64,
}

/// What long messages took here.
#[derive(Debug)]
pub(super) struct Choice {
    /// Most bytes of a message that is copied first, before anything was measured.
    copied_first: usize,
    cells: Box<[[Cell; CLASSES]; 2]>,
    /// Messages under way.
    under_way: u64,
    /// The time when it was last looked at, and by the clock that messages share.
    told: u64,
    shared: u64,
}

impl Choice {
    pub(super) fn new(copied_first: usize) -> Self {
        Self {
            copied_first,
            cells: Box::new([[Cell::default(); CLASSES]; 2]),
            under_way: 0,
            told: 0,
            shared: 0,
        }
    }

    /// A message of so many bytes begins, of a peer whose memory is mapped here or not: which way.
    pub(super) fn begin(&mut self, now: u64, len: usize, mapped: bool) -> Begun {
        self.tell(now);
        self.under_way += 1;
        let class = (
            usize::from(mapped),
            (usize::BITS - len.leading_zeros()) as usize,
        );
        let first = match len <= self.copied_first {
            true => WAYS,
            false => [Way::Written, Way::Copied],
        };
        Begun {
            way: self.cell(class).choose(first),
            class,
            since: self.shared,
        }
    }

    /// It has ended, well or not.
    pub(super) fn end(&mut self, now: u64, begun: Begun, went_well: bool) {
        self.tell(now);
        self.under_way = self.under_way.saturating_sub(1);
        if went_well {
            let took = self.shared.saturating_sub(begun.since).max(1);
            self.cell(begun.class).took(begun.way, took);
        }
    }

    fn tell(&mut self, now: u64) {
        let passed = now.saturating_sub(self.told);
        self.shared += passed / self.under_way.max(1);
        self.told = self.told.max(now);
    }

    fn cell(&mut self, (mapped, size): (usize, usize)) -> &mut Cell {
        &mut self.cells[mapped][size]
    }
}

impl Cell {
    fn choose(&mut self, first: [Way; 2]) -> Way {
        if let Some(way) = first
            .into_iter()
            .find(|way| self.tried[*way as usize] < TRIES)
        {
            self.tried[way as usize] += 1;
            return way;
        }
        let [copied, written] = self.took;
        let (better, worse) = match (copied, written) {
            // Those that try it are under way yet, or failed.
            (0, _) | (_, 0) => return first[0],
            _ if copied < written => (Way::Copied, Way::Written),
            _ => (Way::Written, Way::Copied),
        };
        let more = copied.abs_diff(written).saturating_mul(TRIES.into());
        self.saved = (self.saved).saturating_add(copied.min(written) / TRIALS);
        if self.saved > more {
            self.saved = 0;
            // This one and the next ones.
            self.tried[worse as usize] = 1;
            self.samples[worse as usize] = 0;
            return worse;
        }
        better
    }

    fn took(&mut self, way: Way, nanos: u64) {
        let (took, samples) = (
            &mut self.took[way as usize],
            &mut self.samples[way as usize],
        );
        *took = match *took {
            0 => nanos,
            // The first ones register what stays registered, or waited for the scheduler: none is faster than it
            // can be.
            before if nanos < before && *samples < TRIES => nanos,
            before if nanos < before => before - (before - nanos).div_ceil(8),
            // What takes far longer waited for something else, and counts as twice the mean.
            before => before + (nanos - before).min(before) / 8,
        };
        *samples = (*samples + 1).min(TRIES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs so many messages, one after the other, which take so long each way; how many were copied.
    fn run(choice: &mut Choice, now: &mut u64, count: u32, len: usize, took: [u64; 2]) -> u32 {
        let mut copied = 0;
        for _ in 0..count {
            let begun = choice.begin(*now, len, false);
            *now += took[begun.way as usize];
            choice.end(*now, begun, true);
            copied += u32::from(begun.way == Way::Copied);
        }
        copied
    }

    #[test]
    fn the_faster_way_is_taken_whatever_was_thought_first() {
        for copied_first in [0, usize::MAX] {
            let (mut choice, mut now) = (Choice::new(copied_first), 7);
            let copied = run(&mut choice, &mut now, 100, 1 << 16, [29_000, 62_000]);
            assert_eq!(copied, 100 - TRIES);
            let copied = run(&mut choice, &mut now, 100, 1 << 20, [367_000, 335_000]);
            assert!(copied <= TRIES + 4, "{copied}");
            // Lengths that differ by less than twice know each other's times.
            assert_eq!(run(&mut choice, &mut now, 10, 100_000, [2, 1]), 10);
        }
    }

    #[test]
    fn what_becomes_faster_is_found_within_a_part_of_the_time() {
        let (mut choice, mut now) = (Choice::new(0), 0);
        run(&mut choice, &mut now, 100, 1 << 16, [30_000, 60_000]);
        let copied = run(&mut choice, &mut now, 4000, 1 << 16, [30_000, 10_000]);
        assert!(copied < 2000, "{copied}");
    }

    #[test]
    fn messages_under_way_together_share_the_time() {
        let mut choice = Choice::new(usize::MAX);
        let count = 2 * u64::from(TRIES);
        let all: Vec<Begun> = (0..count)
            .map(|_| choice.begin(0, 1 << 16, false))
            .collect();
        for begun in all {
            choice.end(count * 1000, begun, true);
        }
        let cell = choice.cell((0, 17));
        assert_eq!(cell.took, [1000, 1000]);
    }

    #[test]
    fn what_failed_says_nothing() {
        let mut choice = Choice::new(0);
        for now in 0..20 {
            let begun = choice.begin(now, 1 << 16, true);
            choice.end(now, begun, begun.way == Way::Copied);
        }
        assert_eq!(choice.cell((1, 17)).took[Way::Written as usize], 0);
        assert_eq!(choice.under_way, 0);
    }
}
