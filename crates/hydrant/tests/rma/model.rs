//! A random mix of every operation, against plain arrays.
//!
//! Rank `w` alone writes to the elements `w × REGION ..` of every rank, so it knows what they
//! hold, while all ranks work at once. At the end each owner sees what the writers think.

use hydrant::{Foreign, GlobalPtr, Job, Pod, PutHandle, Rank, Result, Stride, Symmetric};
use hydrant_base::Random;
use proptest::prelude::*;

use crate::support::{builder, good};

/// Elements that one rank owns in each part; not a power of two, more than a page.
const REGION: usize = 700;

fn data(dice: &mut Random, len: usize) -> Vec<u64> {
    (0..len).map(|_| dice.word()).collect()
}

/// A run within the region: mostly short.
fn run(dice: &mut Random) -> (usize, usize) {
    let most = [1, 2, 9, REGION][dice.below(4)];
    let len = 1 + dice.below(most);
    (dice.below(REGION - len + 1), len)
}

/// One rank's view of the memory it writes to.
struct Writer<'a> {
    job: &'a Job,
    memory: Symmetric<u64>,
    /// The exposed buffer of each rank.
    lent: Vec<GlobalPtr<u64>>,
    /// What the own regions hold, for each rank: of the memory, and of the exposed buffer.
    model: Vec<[Vec<u64>; 2]>,
    /// Puts under way.
    handles: Vec<PutHandle<u64>>,
    dice: Random,
    base: usize,
}

impl Writer<'_> {
    fn step(&mut self) -> Result<()> {
        let rank = Rank(self.dice.below(self.job.size() as usize) as u32);
        match self.dice.below(17) {
            0..=1 => self.put_or_get(rank),
            2 => self.non_blocking(rank),
            3 => self.scope(rank),
            4..=5 => self.strided(rank),
            6..=7 => self.indexed(rank),
            8 => self.fill(rank),
            9..=11 => self.atomic(rank),
            12 => self.pointer(rank),
            _ => self.exposed(rank),
        }
    }

    /// Anything that reads must see the puts under way done.
    fn finish(&mut self) -> Result<()> {
        for handle in self.handles.drain(..) {
            handle.wait()?;
        }
        Ok(())
    }

    fn write(&mut self, rank: Rank, at: usize, data: &[u64]) {
        self.model[rank.index()][0][at..at + data.len()].copy_from_slice(data);
    }

    fn put_or_get(&mut self, rank: Rank) -> Result<()> {
        self.finish()?;
        let (at, len) = run(&mut self.dice);
        let data = data(&mut self.dice, len);
        self.memory.put(rank, self.base + at, &data)?;
        self.write(rank, at, &data);
        let (at, len) = run(&mut self.dice);
        let mut got = vec![0; len];
        self.memory.get(rank, self.base + at, &mut got)?;
        assert_eq!(got, self.model[rank.index()][0][at..at + len]);
        let value = self.dice.word();
        self.memory.put_value(rank, self.base + at, value)?;
        self.write(rank, at, &[value]);
        assert_eq!(self.memory.get_value(rank, self.base + at)?, value);
        Ok(())
    }

    fn non_blocking(&mut self, rank: Rank) -> Result<()> {
        let (at, len) = run(&mut self.dice);
        let data = data(&mut self.dice, len);
        // Puts to one place are not ordered among each other.
        self.finish()?;
        self.write(rank, at, &data);
        let mut handle = self.memory.put_nb(rank, self.base + at, data)?;
        match self.dice.below(3) {
            0 => self.handles.push(handle),
            1 => handle.wait_local()?,
            _ => while !handle.test()? {},
        }
        self.job.quiet()?;
        let (at, len) = run(&mut self.dice);
        let got = self.memory.get_nb(rank, self.base + at, len)?.wait()?;
        assert_eq!(got, self.model[rank.index()][0][at..at + len]);
        Ok(())
    }

    fn scope(&mut self, rank: Rank) -> Result<()> {
        self.finish()?;
        let half = REGION / 2;
        let (put, get) = (data(&mut self.dice, half), self.dice.below(half));
        let mut got = vec![0; half - get];
        self.job.scope(|s| {
            s.put(&self.memory, rank, self.base, &put)?;
            s.get(&self.memory, rank, self.base + half + get, &mut got)?;
            Ok(())
        })?;
        self.write(rank, 0, &put);
        assert_eq!(got, self.model[rank.index()][0][half + get..2 * half]);
        Ok(())
    }

    fn strided(&mut self, rank: Rank) -> Result<()> {
        self.finish()?;
        let run = 1 + self.dice.below(20);
        let stride = run + self.dice.below(20);
        let count = 1 + self.dice.below(REGION / stride - 1);
        let start = self.dice.below(REGION - (count - 1) * stride - run + 1);
        let at = Stride {
            start: self.base + start,
            run,
            stride,
            count,
        };
        let data = data(&mut self.dice, run * count);
        self.memory.put_strided(rank, at, &data)?;
        for (number, run_data) in data.chunks(run).enumerate() {
            self.write(rank, start + number * stride, run_data);
        }
        let mut got = vec![0; run * count];
        self.memory.get_strided(rank, at, &mut got)?;
        assert_eq!(got, data);
        Ok(())
    }

    fn indexed(&mut self, rank: Rank) -> Result<()> {
        self.finish()?;
        let count = self.dice.below(50);
        // Indices may come twice: the later one holds.
        let indices: Vec<usize> = (0..count).map(|_| self.dice.below(REGION)).collect();
        let data = data(&mut self.dice, count);
        let remote: Vec<usize> = indices.iter().map(|index| self.base + index).collect();
        self.memory.put_indexed(rank, &remote, &data)?;
        for (index, value) in indices.iter().zip(&data) {
            self.write(rank, *index, &[*value]);
        }
        let mut got = vec![0; count];
        self.memory.get_indexed(rank, &remote, &mut got)?;
        let model = &self.model[rank.index()][0];
        assert!(
            indices
                .iter()
                .zip(got)
                .all(|(index, value)| model[*index] == value)
        );
        Ok(())
    }

    fn fill(&mut self, rank: Rank) -> Result<()> {
        self.finish()?;
        let (at, len) = run(&mut self.dice);
        // A byte repeated goes another way than a pattern.
        let value = [0, u64::MAX, self.dice.word()][self.dice.below(3)];
        self.memory
            .fill(rank, self.base + at..self.base + at + len, value)?;
        self.write(rank, at, &vec![value; len]);
        Ok(())
    }

    fn atomic(&mut self, rank: Rank) -> Result<()> {
        self.finish()?;
        let at = self.dice.below(REGION);
        let (index, value) = (self.base + at, self.dice.word());
        let old = self.model[rank.index()][0][at];
        let m = &self.memory;
        let (seen, new) = match self.dice.below(12) {
            0 => (m.fetch_add(rank, index, value)?, old.wrapping_add(value)),
            1 => (m.fetch_and(rank, index, value)?, old & value),
            2 => (m.fetch_or(rank, index, value)?, old | value),
            3 => (m.fetch_xor(rank, index, value)?, old ^ value),
            4 => (m.swap(rank, index, value)?, value),
            5 => (m.compare_swap(rank, index, old, value)?, value),
            6 => (m.compare_swap(rank, index, !old, value)?, old),
            7 => (m.atomic_load(rank, index)?, old),
            8 => (
                m.add(rank, index, value).map(|()| old)?,
                old.wrapping_add(value),
            ),
            9 => (m.and(rank, index, value).map(|()| old)?, old & value),
            10 => (m.or(rank, index, value).map(|()| old)?, old | value),
            _ => (m.atomic_store(rank, index, value).map(|()| old)?, value),
        };
        assert_eq!(seen, old);
        self.write(rank, at, &[new]);
        Ok(())
    }

    fn pointer(&mut self, rank: Rank) -> Result<()> {
        self.finish()?;
        let (at, len) = run(&mut self.dice);
        let data = data(&mut self.dice, len);
        let first = self.memory.pointer(rank, 0)?;
        self.job
            .put_to(first.offset((self.base + at) as isize), &data)?;
        self.write(rank, at, &data);
        let mut got = vec![0; len];
        let last = self.memory.pointer(rank, self.memory.len())?;
        let back = self.memory.len() - self.base - at;
        self.job.get_from(last.offset(-(back as isize)), &mut got)?;
        assert_eq!(got, data);
        Ok(())
    }

    fn exposed(&mut self, rank: Rank) -> Result<()> {
        let (at, len) = run(&mut self.dice);
        let data = data(&mut self.dice, len);
        let place = self.lent[rank.index()].offset((self.base + at) as isize);
        let in_scope = self.dice.below(2) == 0;
        let model = &mut self.model[rank.index()][1];
        model[at..at + len].copy_from_slice(&data);
        let (from, count) = run(&mut self.dice);
        let source = self.lent[rank.index()].offset((self.base + from) as isize);
        let mut got = vec![0; count];
        if in_scope {
            self.job.scope(|s| s.put_to(place, &data).map(drop))?;
            self.job.scope(|s| s.get_from(source, &mut got).map(drop))?;
        } else {
            self.job.put_to(place, &data)?;
            self.job.get_from(source, &mut got)?;
        }
        assert_eq!(got, model[from..from + count]);
        Ok(())
    }
}

/// What this rank's part holds, by writer.
fn check(job: &Job, here: &[u64], kind: usize, models: &Symmetric<u64>) -> Result<()> {
    for writer in job.ranks() {
        let mut theirs = vec![0; REGION];
        let at = (job.rank().index() * 2 + kind) * REGION;
        models.get(writer, at, &mut theirs)?;
        let region = &here[writer.index() * REGION..][..REGION];
        assert_eq!(
            region,
            theirs,
            "what rank {writer} put to rank {}",
            job.rank()
        );
    }
    Ok(())
}

fn pointers<T: Pod>(job: &Job, own: GlobalPtr<T>) -> Result<Vec<GlobalPtr<T>>> {
    let all = job.alloc::<GlobalPtr<T>>(job.size() as usize)?;
    for rank in job.ranks() {
        all.put(rank, job.rank().index(), &[own])?;
    }
    job.barrier()?;
    Ok(all.local()?.to_vec())
}

fn mix(ranks: u32, seed: u64, foreign: Foreign, steps: usize) {
    good(builder().smp_foreign(foreign).run_local(ranks, |job| {
        let n = job.size() as usize;
        let memory = job.alloc::<u64>(n * REGION)?;
        let exposed = job.expose(vec![0_u64; n * REGION])?;
        let mut writer = Writer {
            job,
            lent: pointers(job, exposed.pointer(0)?)?,
            model: vec![[vec![0; REGION], vec![0; REGION]]; n],
            handles: Vec::new(),
            dice: Random::new(seed ^ u64::from(job.rank().0) << 40),
            base: job.rank().index() * REGION,
            memory: memory.clone(),
        };
        for _ in 0..steps {
            writer.step()?;
        }
        writer.finish()?;
        let models = job.alloc::<u64>(2 * n * REGION)?;
        models.local()?.write(0, &writer.model.concat().concat())?;
        job.barrier()?;
        check(job, &memory.local()?.to_vec(), 0, &models)?;
        check(job, &exposed.view().to_vec(), 1, &models)?;
        job.barrier()?;
        assert_eq!(exposed.take_back().len(), n * REGION);
        Ok(())
    }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test_on(real, native)]
    fn every_operation_by_the_kernel(ranks in 1_u32..6, seed: u64) {
        mix(ranks, seed, Foreign::ProcessVm, 400);
    }

    #[test_on(real, native)]
    fn every_operation_by_messages(ranks in 1_u32..6, seed: u64) {
        mix(ranks, seed, Foreign::Messages, 200);
    }
}
