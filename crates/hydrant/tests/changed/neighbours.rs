//! Pages that share a bucket with others, which change or belong to an exposed buffer.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use hydrant::{Rank, Result, Strategy};

use super::{
    Over, alone, builder, good, hits,
    place::{self, Place, Renewal},
    renewed::check_destinations,
};

#[test]
fn destinations_in_buckets_of_many_pages_are_what_is_there_now() {
    let _alone = alone();
    check_destinations(32 << 10, 100_000);
}

/// In a bucket of many pages, a thread empties a page and puts it, while another puts a neighbouring page. The kernel
/// tells of the emptied page before it goes, and the neighbour's registration may pin it in between.
#[test]
fn an_emptied_page_with_a_busy_neighbour_is_put_as_it_is() {
    let _alone = alone();
    const BUCKET: usize = 128 << 10;
    const PAGE: usize = 4096;
    const ROUNDS: u64 = 10_000;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    let counters = good(builder.bucket(BUCKET).run_local(2, |job| {
        let field = job.alloc::<u8>(2 * BUCKET)?;
        if job.rank() == Rank(0) {
            // Whole buckets somewhere in the mapping.
            let mut place = Place::new(3 * BUCKET);
            let skipped = place.bytes().as_ptr().align_offset(BUCKET);
            let bucket = &mut place.bytes()[skipped..skipped + BUCKET];
            bucket.fill(1);
            let (ours, theirs) = bucket.split_at_mut(20 * PAGE);
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let neighbour = scope.spawn(|| {
                    while !over.load(Relaxed) {
                        field.put(Rank(1), 20 * PAGE, &theirs[..2 * PAGE])?;
                    }
                    Ok(())
                });
                let mut own = || -> Result<()> {
                    // Two pages, because one would be copied to a slot.
                    let page = &mut ours[2 * PAGE..4 * PAGE];
                    for round in 1..=ROUNDS {
                        place::empty(page);
                        page[..8].copy_from_slice(&round.to_le_bytes());
                        field.put(Rank(1), 2 * PAGE, page)?;
                        let mut back = [0; 8];
                        field.get(Rank(1), 2 * PAGE, &mut back)?;
                        assert_eq!(u64::from_le_bytes(back), round);
                    }
                    Ok(())
                };
                let outcome = {
                    let _over = Over(&over);
                    own()
                };
                outcome.and(neighbour.join().expect("no panic"))
            })?;
        }
        job.barrier()?;
        Ok(job.counters())
    }));
    let own = counters[0];
    assert!(own.registrations > 10, "{own}");
}

/// A peer holds a firehose on a bucket of several pages for the sake of an exposed buffer. The other pages of the bucket
/// come and go unheard, and the peer names them by their address.
#[test]
fn pages_beside_an_exposed_buffer_are_what_is_there_now() {
    let _alone = alone();
    const BUCKET: usize = 64 << 10;
    const LEN: usize = 4096;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    let shown = Mutex::new(None);
    good(builder.bucket(BUCKET).run_local(2, |job| {
        let mut word = [0_u64];
        if job.rank() == Rank(0) {
            let (buffer, mut place) = beside_a_buffer(BUCKET);
            let buffer = job.expose(buffer)?;
            *shown.lock().expect("nobody panics") = Some(buffer.pointer(0)?);
            job.barrier()?;
            for round in 0..100_u32 {
                job.receive(Rank(1), 1, &mut word)?;
                place.renew(Renewal::ALL[round as usize % Renewal::ALL.len()], 0);
                job.send(Rank(1), 2, &[place.address()])?;
                job.receive(Rank(1), 3, &mut word)?;
                let there = &place.bytes()[..LEN];
                assert!(there.iter().all(|byte| *byte == round as u8 | 1), "{round}");
            }
            job.barrier()?;
            drop(buffer.take_back());
            return Ok(());
        }
        job.barrier()?;
        let exposed = (*shown.lock().expect("nobody panics")).expect("it was shown");
        // The buffer begins with a page that may be the bucket's last. An access to two buckets is no hit.
        let source = &[7_u8; LEN / 2];
        for round in 0..100_u32 {
            for _ in 0..3 {
                job.put_to(exposed, source)?;
            }
            job.send(Rank(0), 1, &word)?;
            job.receive(Rank(0), 2, &mut word)?;
            // SAFETY: rank 0 waits for the message that follows.
            unsafe { job.put_anywhere(Rank(0), word[0], &[round as u8 | 1; LEN])? };
            job.send(Rank(0), 3, &word)?;
        }
        assert!(hits(job).0 > 100, "the exposed buffer stays registered");
        job.barrier()
    }));
}

/// Returns a buffer, and the pages before it in its first bucket.
fn beside_a_buffer(bucket: usize) -> (Vec<u8>, Place) {
    let mut others = Vec::new();
    for more in 0..100 {
        let buffer = vec![1_u8; (8 << 20) + more * 4096];
        let start = buffer.as_ptr().addr() & !4095;
        let first = start & !(bucket - 1);
        if first < start
            && let Some(place) = Place::at(first as u64, start - first)
        {
            return (buffer, place);
        }
        others.push(buffer);
    }
    panic!("nothing is free before any buffer");
}

/// At the owner, a bucket with an emptied page is not registered until a peer names that page.
#[test]
fn an_emptied_page_is_registered_with_its_neighbours_once_a_peer_names_it() {
    let _alone = alone();
    const BUCKET: usize = 128 << 10;
    const PAGE: u64 = 4096;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    good(builder.bucket(BUCKET).run_local(2, |job| {
        let mut word = [0_u64];
        if job.rank() == Rank(0) {
            // Whole buckets somewhere in the mapping.
            let mut place = Place::new(3 * BUCKET);
            let skipped = place.bytes().as_ptr().align_offset(BUCKET);
            let bucket = &mut place.bytes()[skipped..skipped + BUCKET];
            bucket.fill(1);
            job.send(Rank(1), 1, &[bucket.as_ptr().expose_provenance() as u64])?;
            for round in 1..20 {
                job.receive(Rank(1), 2, &mut word)?;
                let page = &mut bucket[2 * PAGE as usize..3 * PAGE as usize];
                place::empty(page);
                page.fill(round);
                job.send(Rank(1), 3, &word)?;
            }
            return job.barrier();
        }
        job.receive(Rank(0), 1, &mut word)?;
        let bucket = word[0];
        let hits_neighbour = || -> Result<bool> {
            let before = hits(job).0;
            // SAFETY: the owner keeps the bucket until the barrier, and does not touch this page.
            unsafe { job.put_anywhere(Rank(0), bucket + 20 * PAGE, &[2; PAGE as usize])? };
            Ok(hits(job).0 > before)
        };
        // The owner registers the bucket at leisure.
        let hits_in_time = || -> Result<bool> {
            let end = Instant::now() + Duration::from_secs(20);
            while Instant::now() < end {
                if hits_neighbour()? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        assert!(hits_in_time()?);
        for round in 1..20 {
            job.send(Rank(0), 2, &word)?;
            job.receive(Rank(0), 3, &mut word)?;
            for _ in 0..10 {
                assert!(!hits_neighbour()?, "round {round}");
            }
            let mut back = [0; PAGE as usize];
            // SAFETY: as above, and the owner waits for the next message before it touches this page.
            unsafe { job.get_anywhere(Rank(0), bucket + 2 * PAGE, &mut back)? };
            assert_eq!(back, [round; PAGE as usize]);
            assert!(hits_in_time()?, "round {round}");
        }
        job.barrier()
    }));
}

/// The last pages of a bucket are inaccessible while it is registered, and accessible again afterwards. Nobody tells of
/// that.
#[test]
fn pages_that_were_inaccessible_for_a_while_are_reached() {
    let _alone = alone();
    const BUCKET: usize = 64 << 10;
    const PAGE: usize = 4096;
    for strategy in [Strategy::Firehose, Strategy::PinDown] {
        let Some(builder) = builder(strategy) else {
            return;
        };
        good(builder.bucket(BUCKET).run_local(2, |job| {
            let field = job.alloc::<u8>(BUCKET)?;
            let mut word = [0_u64];
            if job.rank() == Rank(0) {
                // A whole bucket somewhere in the mapping.
                let mut place = Place::new(2 * BUCKET);
                let skipped = place.bytes().as_ptr().align_offset(BUCKET);
                let bucket = &mut place.bytes()[skipped..skipped + BUCKET];
                let start = bucket.as_ptr().expose_provenance() as u64;
                let (first, last) = bucket.split_at_mut(BUCKET - 2 * PAGE);
                for round in 1..10 {
                    // All of the bucket is watched.
                    last.fill(round);
                    field.put(Rank(1), 0, last)?;
                    place::set_accessible(last, false);
                    // The bucket is registered anew.
                    place::empty(&mut first[..PAGE]);
                    first.fill(round);
                    for _ in 0..3 {
                        field.put(Rank(1), 0, &first[..2 * PAGE])?;
                    }
                    job.send(Rank(1), 1, &[start])?;
                    job.receive(Rank(1), 2, &mut word)?;
                    place::set_accessible(last, true);
                    last.fill(100 + round);
                    field.put(Rank(1), 0, last)?;
                    let mut back = [0; 2 * PAGE];
                    field.get(Rank(1), 0, &mut back)?;
                    assert_eq!(back, [100 + round; 2 * PAGE]);
                    job.send(Rank(1), 3, &[start + first.len() as u64])?;
                    job.receive(Rank(1), 4, &mut word)?;
                }
                return job.barrier();
            }
            let mut back = [0; PAGE];
            for round in 1..10 {
                job.receive(Rank(0), 1, &mut word)?;
                for page in 0..4 {
                    // SAFETY: the owner waits for the message that follows.
                    unsafe { job.get_anywhere(Rank(0), word[0] + page * PAGE as u64, &mut back)? };
                    assert_eq!(back, [round; PAGE]);
                }
                job.send(Rank(0), 2, &word)?;
                job.receive(Rank(0), 3, &mut word)?;
                for _ in 0..3 {
                    // SAFETY: as above.
                    unsafe { job.get_anywhere(Rank(0), word[0], &mut back)? };
                    assert_eq!(back, [100 + round; PAGE]);
                }
                job.send(Rank(0), 4, &word)?;
            }
            job.barrier()
        }));
    }
}

/// A thread empties pages and puts them, while other memory is registered at its allocation or in the background.
#[test]
fn memory_is_registered_while_other_memory_is_emptied_and_put() {
    let _alone = alone();
    const BUCKET: usize = 64 << 10;
    const LEN: usize = 16 << 20;
    const PAGES: usize = 2 * 4096;
    for strategy in [Strategy::PinEverything, Strategy::Firehose] {
        let Some(builder) = builder(strategy) else {
            return;
        };
        let builder = (builder.bucket(BUCKET).m(48 << 20)).register_chunk(BUCKET);
        good(builder.run_local(2, |job| {
            let field = job.alloc::<u8>(PAGES)?;
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let emptied = scope.spawn(|| {
                    // Whole buckets somewhere in the mapping.
                    let mut place = Place::new(3 * BUCKET);
                    let skipped = place.bytes().as_ptr().align_offset(BUCKET);
                    let pages = &mut place.bytes()[skipped..skipped + PAGES];
                    while !over.load(Relaxed) {
                        place::empty(pages);
                        pages.fill(1);
                        field.put(job.right(), 0, pages)?;
                    }
                    Ok(())
                });
                let own = || -> Result<()> {
                    for _ in 0..30 {
                        let memory = job.alloc::<u8>(LEN)?;
                        let registration = job.register_in_background(&memory)?;
                        assert_eq!(registration.wait()?, LEN as u64, "{strategy}");
                        job.free(memory)?;
                    }
                    Ok(())
                };
                let outcome = {
                    let _over = Over(&over);
                    own()
                };
                outcome.and(emptied.join().expect("no panic"))
            })?;
            job.barrier()
        }));
    }
}
