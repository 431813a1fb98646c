//! Memory that peers name by its address. At times it is lent, so that it may stay registered.

#![allow(unsafe_code)] // names memory by its address

use hydrant::{AnywhereLoan, Job, Rank, Result};

use super::hand::{Crew, Hand};

/// Bytes of a thread's part of each rank.
const BYTES: usize = 3000;
const PAGE: usize = 4096;

/// The addresses of all ranks' memory, which is never freed.
#[derive(Clone)]
pub(crate) struct MemoryAddresses {
    addresses: Vec<u64>,
    bytes: usize,
}

impl MemoryAddresses {
    /// Allocates the memory. Collective.
    pub(crate) fn new(job: &Job, crew: Crew) -> Result<Self> {
        // The memory begins at a page. Pages cost virtual time, so their number must be the same in
        // every run.
        let memory = vec![0_u8; crew.workers() * BYTES + PAGE].leak();
        let skipped = memory.as_ptr().align_offset(PAGE).min(PAGE);
        let address = memory[skipped..].as_mut_ptr().expose_provenance() as u64;
        Ok(Self {
            addresses: job.all_gather(&[address])?,
            bytes: crew.workers() * BYTES,
        })
    }
}

/// A thread's part of the memory.
pub(crate) struct Anywhere {
    places: MemoryAddresses,
    model: Vec<Vec<u8>>,
    loan: Option<AnywhereLoan>,
}

impl Anywhere {
    pub(crate) fn new(places: &MemoryAddresses) -> Self {
        Self {
            places: places.clone(),
            model: vec![vec![0; BYTES]; places.addresses.len()],
            loan: None,
        }
    }

    /// Drops the loan in a forked child, which must not end it.
    pub(crate) fn drop_loan(&mut self) {
        self.loan = None;
    }

    pub(crate) fn step(&mut self, hand: &mut Hand) -> Result<()> {
        match hand.dice.below(8) {
            0 => self.lend(hand),
            1..5 => self.put(hand),
            _ => self.get(hand),
        }
    }

    /// Lends the rank's own memory, or ends the loan; one thread of each rank does so.
    fn lend(&mut self, hand: &mut Hand) -> Result<()> {
        if !hand.worker.is_multiple_of(hand.crew.threads) {
            return Ok(());
        }
        if let Some(loan) = self.loan.take() {
            return hand.attempt("end of lend_anywhere", |_| {
                drop(loan);
                Ok(())
            });
        }
        let address = self.places.addresses[hand.job.rank().index()];
        let pages = std::ptr::with_exposed_provenance_mut(address as usize);
        let bytes = self.places.bytes;
        // SAFETY: 1. the memory was leaked. 2. No reference to it was kept. 3. This is no handler.
        self.loan = hand.must("lend_anywhere", |job| unsafe {
            job.lend_anywhere(pages, bytes)
        })?;
        Ok(())
    }

    fn draw(&self, hand: &mut Hand) -> (Rank, usize, usize, u64) {
        let target = hand.draw_rank();
        let len = 1 + hand.dice.below(BYTES);
        let at = hand.dice.below(BYTES - len + 1);
        let address = self.places.addresses[target.index()] + (hand.worker * BYTES + at) as u64;
        (target, at, len, address)
    }

    fn put(&mut self, hand: &mut Hand) -> Result<()> {
        let (target, at, len, address) = self.draw(hand);
        let data = hand.draw_bytes(len);
        let what = format!("put_anywhere of {len} bytes at {at} of rank {target}");
        // SAFETY: the bytes belong to that rank, nobody has a reference to them, and only this
        // thread uses them.
        let put = hand.must(&what, |job| unsafe {
            job.put_anywhere(target, address, &data)
        })?;
        if put.is_some() {
            self.model[target.index()][at..at + len].copy_from_slice(&data);
        }
        Ok(())
    }

    fn get(&mut self, hand: &mut Hand) -> Result<()> {
        let (target, at, len, address) = self.draw(hand);
        let mut data = vec![0xee; len];
        let what = format!("get_anywhere of {len} bytes at {at} of rank {target}");
        // SAFETY: as in `put`.
        let got = hand.must(&what, |job| unsafe {
            job.get_anywhere(target, address, &mut data)
        })?;
        if got.is_some() {
            let right = data == self.model[target.index()][at..at + len];
            hand.check(right, || format!("{what}: they are wrong"));
            self.model[target.index()][at..at + len].copy_from_slice(&data);
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self) {
        self.loan = None;
    }
}
