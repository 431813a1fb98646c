//! Lists of runs, and sections by pointer, in a thread's part of each rank.

use hydrant::{IoVector, Rank, Result, Section};

use super::{
    hand::Hand,
    region::{BYTES, WrittenRegion},
};

/// Bytes of the buffer of lists.
const BUFFER: usize = 600;

/// Runs of one length, with their offsets in the region and in the buffer. Some share bytes.
struct RunLists {
    run: usize,
    there: Vec<usize>,
    here: Vec<usize>,
}

impl RunLists {
    fn new(hand: &mut Hand) -> Self {
        let most = 1 << hand.dice.below(8);
        let run = 1 + hand.dice.below(most);
        let count = 1 + hand.dice.below(20);
        // At times close to each other, so that they overlap.
        let within = [BYTES, 1000][hand.dice.below(2)];
        let mut draw = |within: usize| {
            (0..count)
                .map(|_| hand.dice.below(within - run + 1))
                .collect()
        };
        Self {
            run,
            there: draw(within),
            here: draw(BUFFER),
        }
    }

    fn runs(&self) -> impl Iterator<Item = (usize, usize)> {
        self.there.iter().copied().zip(self.here.iter().copied())
    }

    fn vector<'a>(&'a self, remote: &'a [usize]) -> IoVector<'a> {
        IoVector {
            remote,
            local: &self.here,
            run: self.run,
        }
    }

    /// The offsets in the whole memory, or from a pointer to the region.
    fn remote(&self, base: usize) -> Vec<usize> {
        self.there.iter().map(|at| base + at).collect()
    }
}

impl WrittenRegion {
    pub(super) fn put_vector(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let (lists, by_pointer) = (RunLists::new(hand), hand.dice.one_in(2));
        let data = hand.draw_bytes(BUFFER);
        let (there, len) = (&lists.there, lists.run);
        let what = format!("put_vector of {len} bytes at {there:?} of rank {target}");
        let put = hand.must(&what, |job| {
            if by_pointer {
                let to = self.memory.pointer(target, self.base)?;
                job.put_vector_to(to, &[lists.vector(there)], &data)
            } else {
                let remote = lists.remote(self.base);
                self.memory
                    .put_vector(target, &[lists.vector(&remote)], &data)
            }
        })?;
        if put.is_none() {
            return self.reread(hand, target);
        }
        for (there, here) in lists.runs() {
            self.wrote(target, there, &data[here..here + len]);
        }
        Ok(())
    }

    pub(super) fn get_vector(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let (lists, by_pointer) = (RunLists::new(hand), hand.dice.one_in(2));
        let mut data = hand.draw_bytes(BUFFER);
        let mut expected = data.clone();
        let (there, len) = (&lists.there, lists.run);
        let what = format!("get_vector of {len} bytes at {there:?} of rank {target}");
        let got = hand.must(&what, |job| {
            if by_pointer {
                let from = self.memory.pointer(target, self.base)?;
                job.get_vector_from(from, &[lists.vector(there)], &mut data)
            } else {
                let remote = lists.remote(self.base);
                (self.memory).get_vector(target, &[lists.vector(&remote)], &mut data)
            }
        })?;
        if got.is_none() {
            return Ok(());
        }
        for (there, here) in lists.runs() {
            expected[here..here + len].copy_from_slice(self.holds(target, there, len));
        }
        let right = data == expected;
        hand.check(right, || format!("{what}: not what is there"));
        if right {
            Ok(())
        } else {
            self.reread(hand, target)
        }
    }

    /// Puts and gets a tile of rows, packed in the buffer.
    pub(super) fn by_section(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let (rows, len) = (1 + hand.dice.below(20), 1 + hand.dice.below(200));
        let width = len + hand.dice.below(BYTES / rows - len + 1);
        let tile = Section::of(&[rows, width], &[0..rows, width - len..width])?;
        let data = hand.draw_bytes(rows * len);
        let packed = Section::run(0, data.len())?;
        let what = format!("put_section_to {rows} rows of {len} in {width} of rank {target}");
        let put = hand.must(&what, |job| {
            let to = self.memory.pointer(target, self.base)?;
            job.put_section_to(to, &tile, &data, &packed)
        })?;
        for (row, run) in data.chunks(len).enumerate() {
            self.settle(hand, put, target, row * width + width - len, run)?;
        }
        let mut back = vec![0xee; data.len()];
        let what = format!("get_section_from {rows} rows of {len} in {width} of rank {target}");
        let got = hand.must(&what, |job| {
            let from = self.memory.pointer(target, self.base)?;
            job.get_section_from(from, &tile, &mut back, &packed)
        })?;
        if got.is_some() {
            for (row, run) in back.chunks(len).enumerate() {
                self.compare(hand, &what, target, row * width + width - len, run)?;
            }
        }
        Ok(())
    }
}
