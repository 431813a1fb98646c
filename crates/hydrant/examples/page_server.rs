//! A page server: every rank serves pages in memory of its own, which come and go, and reads those
//! of all others.
//!
//! A page is an exposed buffer. Who wants one asks its server where it is, by a call, and gets it by
//! itself, again and again, until the page has gone: then it asks anew.
//!
//! `hydrant run -n 4 target/release/examples/page_server [READS A RANK]`

use std::sync::{Arc, Mutex};

use hydrant::{Error, GlobalPtr, Job, Op, Rank, Result};

/// Words of a page.
const WORDS: usize = 512;
/// Pages of each rank.
const PAGES: usize = 32;

/// What a page says, all over: whose it is, which, and how often it was made anew.
fn content(server: Rank, page: usize, edition: u64) -> u64 {
    u64::from(server.0) << 48 | (page as u64) << 32 | edition
}

/// Has each rank read so many pages of the others, while all make their pages anew: how often a page
/// that was known had gone, with every page checked; and the seconds that took.
pub(crate) fn page_server(job: &Job, reads: usize) -> Result<(u64, f64)> {
    let me = job.rank();
    let print = |page, edition| job.expose(vec![content(me, page, edition); WORDS]);
    let mut pages = (0..PAGES)
        .map(|page| print(page, 0))
        .collect::<Result<Vec<_>>>()?;
    let places = (pages.iter())
        .map(|page| page.pointer(0))
        .collect::<Result<Vec<_>>>()?;
    // What the server tells; it changes when a page does.
    let places = Arc::new(Mutex::new(places));
    let shelf = Arc::clone(&places);
    let find = job.function(move |_, page: usize| -> GlobalPtr<u64> {
        shelf.lock().expect("nobody panics with it")[page]
    })?;

    let mut known = vec![None; PAGES * job.size() as usize];
    let mut read = vec![0; WORDS];
    let (mut gone, mut edition, mut state) = (0, 0, u64::from(me.0) + 1);
    job.barrier()?;
    let start = job.now();
    for number in 0..reads {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let (server, page) = (
            Rank((state >> 40) as u32 % job.size()),
            (state >> 33) as usize % PAGES,
        );
        let place = &mut known[server.index() * PAGES + page];
        loop {
            let there = match *place {
                Some(there) => there,
                None => *place.insert(job.call(server, &find, &page)?),
            };
            match job.get_from(there, &mut read) {
                Ok(()) => break,
                Err(Error::Revoked { .. }) => {
                    gone += 1;
                    *place = None;
                }
                Err(other) => return Err(other),
            }
        }
        let said = read[0];
        if read.iter().any(|word| *word != said) || said >> 32 != content(server, page, 0) >> 32 {
            return Err(Error::other(format!(
                "page {page} of rank {server} says {said:#x}"
            )));
        }
        // Now and then a page is made anew. The old one goes when nobody reads it any more.
        if number % 64 == 63 {
            edition += 1;
            let page = number / 64 % PAGES;
            let fresh = print(page, edition)?;
            places.lock().expect("nobody panics with it")[page] = fresh.pointer(0)?;
            drop(std::mem::replace(&mut pages[page], fresh));
        }
    }
    let seconds = (job.now() - start).as_secs_f64();
    job.barrier()?;
    Ok((gone, seconds))
}

#[allow(dead_code)] // tests call what it calls
fn main() -> Result<()> {
    let reads = std::env::args()
        .nth(1)
        .map_or(50_000, |count| count.parse().expect("a number"));
    hydrant::run_spmd(|job| {
        let (gone, seconds) = page_server(job, reads)?;
        let (mut gone, mut seconds) = ([gone], [seconds]);
        job.all_reduce(&mut gone, Op::Sum)?;
        job.all_reduce(&mut seconds, Op::Max)?;
        if job.rank() == Rank(0) {
            let all = reads * job.size() as usize;
            println!(
                "page_server: {all} reads, {} of pages that had gone, in {:.6} s",
                gone[0], seconds[0]
            );
        }
        Ok(())
    })
}
