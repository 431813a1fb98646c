//! A part of every rank's symmetric memory that only one thread writes to, by every operation, with
//! a serial model of it.

use hydrant::{Rank, Result, Stride, Symmetric};
use hydrant_base::block_on;

use super::hand::Hand;

/// Bytes of a thread's part of each rank.
pub(crate) const BYTES: usize = 20_000;

/// The part of a thread.
pub(crate) struct WrittenRegion {
    pub(crate) memory: Symmetric<u8>,
    pub(super) base: usize,
    /// The expected content on each rank.
    model: Vec<Vec<u8>>,
}

impl WrittenRegion {
    pub(crate) fn new(memory: &Symmetric<u8>, hand: &Hand) -> Self {
        Self {
            memory: memory.clone(),
            base: hand.worker * BYTES,
            model: vec![vec![0; BYTES]; hand.crew.ranks],
        }
    }

    /// Runs one operation, or several at once.
    pub(crate) fn step(&mut self, hand: &mut Hand) -> Result<()> {
        let target = hand.draw_rank();
        match hand.dice.below(24) {
            0..4 => self.put(hand, target),
            4..7 => self.get(hand, target),
            7 => self.put_strided(hand, target),
            8 => self.get_strided(hand, target),
            9 => self.put_indexed(hand, target),
            10 => self.get_indexed(hand, target),
            11 => self.by_value(hand, target),
            12 => self.fill(hand, target),
            13..16 => self.by_handle(hand),
            16..18 => self.scoped(hand),
            18 => self.by_pointer(hand, target),
            19 => self.put_vector(hand, target),
            20 | 21 => self.get_vector(hand, target),
            22 => self.by_section(hand, target),
            _ => self.beyond(hand, target),
        }
    }

    /// A run of random length, short ones as often as long ones, within `within` bytes.
    pub(crate) fn run(hand: &mut Hand, within: usize) -> (usize, usize) {
        let most = 1 << hand.dice.below(within.ilog2() as usize + 1);
        let len = 1 + hand.dice.below(most.min(within));
        (hand.dice.below(within - len + 1), len)
    }

    /// The expected bytes of a range.
    pub(super) fn holds(&self, target: Rank, at: usize, len: usize) -> &[u8] {
        &self.model[target.index()][at..at + len]
    }

    /// Records a successful put in the model.
    pub(crate) fn wrote(&mut self, target: Rank, at: usize, data: &[u8]) {
        self.model[target.index()][at..at + data.len()].copy_from_slice(data);
    }

    fn put(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let (at, len) = Self::run(hand, BYTES);
        let (data, index) = (hand.draw_bytes(len), self.base + at);
        let what = format!("put of {len} bytes at {index} of rank {target}");
        let put = hand.must(&what, |_| self.memory.put(target, index, &data))?;
        self.settle(hand, put, target, at, &data)
    }

    /// Records a successful put; after a failed one, reads the content.
    pub(crate) fn settle(
        &mut self,
        hand: &mut Hand,
        put: Option<()>,
        target: Rank,
        at: usize,
        data: &[u8],
    ) -> Result<()> {
        match put {
            Some(()) => self.wrote(target, at, data),
            None => self.reread(hand, target)?,
        }
        Ok(())
    }

    /// Takes the current content as the model.
    pub(super) fn reread(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let (memory, base) = (&self.memory, self.base);
        let model = &mut self.model[target.index()];
        let _ = hand.must("look", |_| memory.get(target, base, model))?;
        Ok(())
    }

    fn get(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let (at, len) = Self::run(hand, BYTES);
        self.get_at(hand, target, at, len)
    }

    fn get_at(&mut self, hand: &mut Hand, target: Rank, at: usize, len: usize) -> Result<()> {
        let (mut data, index) = (vec![0xee; len], self.base + at);
        let what = format!("get of {len} bytes at {index} of rank {target}");
        match hand.must(&what, |_| self.memory.get(target, index, &mut data))? {
            Some(()) => self.compare(hand, &what, target, at, &data),
            None => Ok(()),
        }
    }

    /// Compares data with the model. A fault is reported only once.
    pub(super) fn compare(
        &mut self,
        hand: &mut Hand,
        what: &str,
        target: Rank,
        at: usize,
        got: &[u8],
    ) -> Result<()> {
        let expected = &self.model[target.index()][at..at + got.len()];
        let differing = || (0..got.len()).filter(|byte| got[*byte] != expected[*byte]);
        let first = differing().next();
        hand.check(first.is_none(), || {
            let first = first.unwrap_or_default();
            let end = (first + 8).min(got.len());
            format!(
                "{what}: {} of {} bytes are wrong, the first at {first}: {:02x?} instead of {:02x?}",
                differing().count(),
                got.len(),
                &got[first..end],
                &expected[first..end]
            )
        });
        match first {
            Some(_) => self.reread(hand, target),
            None => Ok(()),
        }
    }

    fn stride(hand: &mut Hand) -> Stride {
        let run = 1 + hand.dice.below(300);
        let stride = run + hand.dice.below(400);
        let count = 1 + hand.dice.below(8);
        let start = hand.dice.below(BYTES - stride * (count - 1) - run + 1);
        Stride {
            start,
            run,
            stride,
            count,
        }
    }

    fn put_strided(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let stride = Self::stride(hand);
        let data = hand.draw_bytes(stride.run * stride.count);
        let to = Stride {
            start: self.base + stride.start,
            ..stride
        };
        let what = format!("put_strided {to:?} of rank {target}");
        match hand.must(&what, |_| self.memory.put_strided(target, to, &data))? {
            None => self.reread(hand, target)?,
            Some(()) => {
                for (number, run) in data.chunks(stride.run).enumerate() {
                    self.wrote(target, stride.start + number * stride.stride, run);
                }
            }
        }
        Ok(())
    }

    fn get_strided(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let stride = Self::stride(hand);
        let mut data = vec![0xee; stride.run * stride.count];
        let from = Stride {
            start: self.base + stride.start,
            ..stride
        };
        let what = format!("get_strided {from:?} of rank {target}");
        let got = hand.must(&what, |_| self.memory.get_strided(target, from, &mut data))?;
        if got.is_some() {
            for (number, run) in data.chunks(stride.run).enumerate() {
                let at = stride.start + number * stride.stride;
                self.compare(hand, &what, target, at, run)?;
            }
        }
        Ok(())
    }

    fn indices(&self, hand: &mut Hand) -> Vec<usize> {
        let count = 1 + hand.dice.below(8);
        let mut draw = |_| self.base + hand.dice.below(BYTES);
        (0..count).map(&mut draw).collect()
    }

    fn put_indexed(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let indices = self.indices(hand);
        let data = hand.draw_bytes(indices.len());
        let what = format!("put_indexed at {indices:?} of rank {target}");
        let put = hand.must(&what, |_| self.memory.put_indexed(target, &indices, &data))?;
        for (index, byte) in indices.iter().zip(&data) {
            let byte = std::slice::from_ref(byte);
            self.settle(hand, put, target, index - self.base, byte)?;
        }
        Ok(())
    }

    fn get_indexed(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let indices = self.indices(hand);
        let mut data = vec![0xee; indices.len()];
        let what = format!("get_indexed at {indices:?} of rank {target}");
        let got = hand.must(&what, |_| {
            self.memory.get_indexed(target, &indices, &mut data)
        })?;
        if got.is_some() {
            for (index, byte) in indices.iter().zip(&data) {
                let byte = std::slice::from_ref(byte);
                self.compare(hand, &what, target, index - self.base, byte)?;
            }
        }
        Ok(())
    }

    fn by_value(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let at = hand.dice.below(BYTES);
        let (index, value) = (self.base + at, hand.dice.word() as u8);
        let what = format!("put_value at {index} of rank {target}");
        let put = hand.must(&what, |_| self.memory.put_value(target, index, value))?;
        self.settle(hand, put, target, at, &[value])?;
        let what = format!("get_value at {index} of rank {target}");
        match hand.must(&what, |_| self.memory.get_value(target, index))? {
            Some(value) => self.compare(hand, &what, target, at, &[value]),
            None => Ok(()),
        }
    }

    fn fill(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let (at, len) = Self::run(hand, BYTES);
        let (value, start) = (hand.dice.word() as u8, self.base + at);
        let what = format!("fill of {len} bytes at {start} of rank {target}");
        let filled = hand.must(&what, |_| {
            self.memory.fill(target, start..start + len, value)
        })?;
        self.settle(hand, filled, target, at, &vec![value; len])
    }

    /// Three parts of the region, each with a run in it, for operations in flight at once.
    fn three_runs(hand: &mut Hand) -> Vec<(Rank, usize, usize)> {
        let third = BYTES / 3;
        let parts = (0..3).map(|part| {
            let (at, len) = Self::run(hand, third);
            (hand.draw_rank(), part * third + at, len)
        });
        parts.collect()
    }

    /// Puts and gets in flight at once, ended in every possible way.
    fn by_handle(&mut self, hand: &mut Hand) -> Result<()> {
        let (mut puts, mut gets) = (Vec::new(), Vec::new());
        for (target, at, len) in Self::three_runs(hand) {
            let index = self.base + at;
            if hand.dice.one_in(2) {
                let data = hand.draw_bytes(len);
                let what = format!("put_nb of {len} bytes at {index} of rank {target}");
                let sent = data.clone();
                let begun = hand.must(&what, |_| Ok(self.memory.put_nb(target, index, sent)?))?;
                puts.push((what, target, at, data, begun));
            } else {
                let what = format!("get_nb of {len} bytes at {index} of rank {target}");
                let begun = hand.must(&what, |_| self.memory.get_nb(target, index, len))?;
                gets.push((what, target, at, begun));
            }
        }
        for (what, target, at, begun) in gets {
            let Some(mut handle) = begun else { continue };
            let ended = match hand.dice.below(8) {
                // The buffer is leaked, and that must have no other effect.
                0 if hand.crew.leaks => {
                    std::mem::forget(handle);
                    continue;
                }
                0 | 1 => {
                    drop(handle);
                    continue;
                }
                2 | 3 => hand.must(&what, |_| {
                    for _ in 0..20 {
                        if handle.test()? {
                            break;
                        }
                    }
                    handle.wait()
                })?,
                4 => hand.must(&what, |job| job.wait_for(handle)?)?,
                5 => hand.must(&what, |_| block_on(handle))?,
                _ => hand.must(&what, |_| handle.wait())?,
            };
            if let Some(got) = ended {
                self.compare(hand, &what, target, at, &got)?;
            }
        }
        for (what, target, at, data, begun) in puts {
            let Some(mut handle) = begun else {
                self.reread(hand, target)?;
                continue;
            };
            let ended = match hand.dice.below(8) {
                0 if hand.crew.leaks => {
                    std::mem::forget(handle);
                    hand.must("quiet", hydrant::Job::quiet)?
                }
                0 | 1 => {
                    drop(handle);
                    hand.must("quiet", hydrant::Job::quiet)?
                }
                2 | 3 => hand.must(&what, |_| {
                    for _ in 0..20 {
                        if handle.test()? {
                            break;
                        }
                    }
                    handle.wait().map(drop)
                })?,
                4 => hand.must(&what, |_| {
                    handle.wait_local()?;
                    handle.wait().map(drop)
                })?,
                5 => hand.must(&what, |job| job.wait_for(handle)?.map(drop))?,
                6 => hand.must(&what, |_| block_on(handle).map(drop))?,
                _ => {
                    let back = hand.must(&what, |_| handle.wait())?;
                    if let Some(back) = &back {
                        hand.check(*back == data, || format!("{what}: its buffer was changed"));
                    }
                    back.map(drop)
                }
            };
            self.settle(hand, ended, target, at, &data)?;
        }
        Ok(())
    }

    /// Puts and gets of borrowed buffers in flight at once.
    fn scoped(&mut self, hand: &mut Hand) -> Result<()> {
        let parts = Self::three_runs(hand);
        let puts: Vec<bool> = parts.iter().map(|_| hand.dice.one_in(2)).collect();
        let mut buffers: Vec<Vec<u8>> = Vec::new();
        for ((.., len), put) in parts.iter().zip(&puts) {
            buffers.push(if *put {
                hand.draw_bytes(*len)
            } else {
                vec![0xee; *len]
            });
        }
        let waits_early = hand.dice.one_in(2);
        let what = format!("scope of {parts:?}, puts {puts:?}, from {}", self.base);
        let done = hand.must(&what, |job| {
            job.scope(|scope| {
                let each = parts.iter().zip(&puts).zip(&mut buffers);
                for (((target, at, _), put), buffer) in each {
                    let index = self.base + at;
                    let operation = if *put {
                        scope.put(&self.memory, *target, index, buffer)?
                    } else {
                        scope.get(&self.memory, *target, index, buffer)?
                    };
                    if waits_early {
                        operation.wait_local()?;
                    }
                }
                Ok(())
            })
        })?;
        for (((target, at, _), put), buffer) in parts.iter().zip(&puts).zip(&buffers) {
            match (put, done) {
                (true, _) => self.settle(hand, done, *target, *at, buffer)?,
                (false, Some(())) => self.compare(hand, &what, *target, *at, buffer)?,
                (false, None) => {}
            }
        }
        Ok(())
    }

    fn by_pointer(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let (at, len) = Self::run(hand, BYTES);
        let (data, index) = (hand.draw_bytes(len), self.base + at);
        let what = format!("put_to of {len} bytes at {index} of rank {target}");
        let by_handle = hand.dice.one_in(2);
        let put = hand.must(&what, |job| {
            let to = self.memory.pointer(target, index)?;
            if by_handle {
                job.put_to_nb(to, data.clone())?.wait().map(drop)
            } else {
                job.put_to(to, &data)
            }
        })?;
        self.settle(hand, put, target, at, &data)?;
        let (mut got, what) = (vec![0xee; len], what.replace("put_to", "get_from"));
        let done = hand.must(&what, |job| {
            let from = self.memory.pointer(target, index)?;
            if by_handle {
                got = job.get_from_nb(from, std::mem::take(&mut got))?.wait()?
            } else {
                job.get_from(from, &mut got)?
            }
            Ok(())
        })?;
        match done {
            Some(()) => self.compare(hand, &what, target, at, &got),
            None => Ok(()),
        }
    }

    /// An access beyond the memory, or beyond the job, must be an error and change nothing.
    fn beyond(&mut self, hand: &mut Hand, target: Rank) -> Result<()> {
        let (len, none) = (self.memory.len(), Rank(hand.crew.ranks as u32));
        let put = hand.attempt("beyond", |_| self.memory.put(target, len - 1, &[1, 2]));
        let named = matches!(put, Err(hydrant::Error::OutOfBounds { .. }));
        hand.check(named, || format!("a put beyond the end: {put:?}"));
        let put = hand.attempt("beyond", |_| self.memory.put(none, 0, &[1, 2]));
        let named = matches!(put, Err(hydrant::Error::RankOutOfRange { .. }));
        hand.check(named, || format!("a put to rank {none}: {put:?}"));
        Ok(())
    }

    /// Compares the whole region.
    pub(crate) fn check_all(&mut self, hand: &mut Hand) -> Result<()> {
        for target in hand.job.ranks() {
            self.get_at(hand, target, 0, BYTES)?;
        }
        Ok(())
    }
}
