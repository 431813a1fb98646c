//! Memory that may come and go unseen, on a network whose registrations keep pointing at the pages
//! they were made of: what is registered of a program's own buffers is gone when their operation
//! is over, and puts of a few bytes are taken along by the NIC.

#![allow(unsafe_code)] // implements the contract's unsafe methods, and names any address

#[path = "support/kept.rs"]
mod kept;

use hydrant::{Error, GlobalPtr, Job, JobBuilder, Rank, Result, Strategy};
use kept::Kept;

const PAGE: u64 = 4096;

fn network(strategy: Strategy, kept: &Kept) -> JobBuilder {
    let conduit = "sim:ideal".parse().expect("a conduit");
    (Job::builder().expect("no bad settings"))
        .conduit(conduit)
        .registration(strategy)
        .heap(16 << 20)
        .through(kept.layer())
}

/// The results of all ranks, which all succeed.
fn all<R: Send>(
    builder: JobBuilder,
    ranks: u32,
    body: impl Fn(&Job) -> Result<R> + Sync,
) -> Vec<R> {
    let ends = builder.run_local(ranks, body);
    ends.into_iter()
        .map(|end| end.expect("the rank succeeds"))
        .collect()
}

/// Lengths around all that decides how a buffer goes: inline, bounced in small and large slots,
/// registered, cut into pieces.
const LENGTHS: [usize; 9] = [1, 64, 65, 4096, 4097, 65_536, 65_537, 300_000, 1_000_000];

#[test]
fn nothing_of_a_buffer_is_registered_when_its_operation_is_over() {
    for strategy in Strategy::ALL {
        // Limits that hold everything that is allocated, and others that hold hardly anything.
        for pages in [2_000, 64] {
            if strategy == Strategy::Paging || (strategy == Strategy::PinEverything && pages == 64)
            {
                continue;
            }
            let kept = Kept::default();
            let limits = (network(strategy, &kept).m(pages * PAGE)).maxvictim(pages * PAGE / 4);
            all(limits, 2, |job| {
                let field = job.alloc::<u8>(1 << 20)?;
                let seen = |buffer: &[u8], when: &str| {
                    let still = kept.registered(job.rank(), buffer);
                    assert!(still.is_empty(), "{strategy}, {when}: {still:?}");
                };
                for (round, len) in LENGTHS.into_iter().enumerate() {
                    let source: Vec<u8> = (0..len).map(|at| (at * 7 + round) as u8).collect();
                    let mut back = vec![0; len];
                    field.put(job.right(), 3, &source)?;
                    seen(&source, "after a put");
                    job.barrier()?;
                    field.get(job.right(), 3, &mut back)?;
                    seen(&back, "after a get");
                    assert!(back == source, "{strategy}: {len} bytes");
                    job.scope(|scope| {
                        scope.put(&field, job.right(), 3, &source[..len / 2])?;
                        scope.put(&field, job.right(), 3 + len / 2, &source[len / 2..])?;
                        Ok(())
                    })?;
                    seen(&source, "after puts of one page at once");
                    job.barrier()?;
                }
                Ok(())
            });
            assert!(kept.most() <= (pages + pages / 4) * PAGE, "{strategy}");
        }
    }
}

#[test]
fn a_buffer_that_is_worth_it_is_copied_and_hits() {
    let kept = Kept::default();
    let stats = all(network(Strategy::Firehose, &kept), 2, |job| {
        let field = job.alloc::<u64>(64)?;
        for round in 0..100 {
            // Each from another place, too long to go inline.
            let source = vec![round; 20 + round as usize % 7];
            field.put(job.right(), 0, &source)?;
        }
        job.barrier()?;
        Ok((job.counters(), job.registration().expect("it needs it")))
    });
    for (counters, stats) in stats {
        assert!(counters.hits >= 98, "{counters}");
        // The bounce memory, and what a peer asked for.
        assert!(stats.local.registrations <= 4, "{stats:?}");
    }
}

#[test]
fn a_few_bytes_go_along_and_need_no_registration() {
    let kept = Kept::default();
    all(network(Strategy::Firehose, &kept).piggyback(0), 2, |job| {
        let field = job.alloc::<u64>(64)?;
        for round in 0..100 {
            let source = vec![round; 8];
            field.put(job.right(), 0, &source)?;
        }
        job.barrier()?;
        assert_eq!(field.local()?.load(7)?, 99);
        Ok(())
    });
    assert_eq!(kept.inline(), 200);
}

/// What waits for local completion then does not look for the end, for which time would have to pass.
#[test]
fn what_goes_along_leaves_its_source_at_once() {
    let kept = Kept::default();
    all(network(Strategy::Firehose, &kept).piggyback(0), 2, |job| {
        let field = job.alloc::<u64>(64)?;
        for round in 0..10 {
            let source = [round; 8];
            job.scope(|scope| {
                let put = scope.put(&field, job.right(), 0, &source)?;
                assert!(!put.is_immediate(), "it takes time to get there");
                let looked = job.now();
                let posted = job.now();
                put.wait_local()?;
                let waited = job.now() - posted;
                // The first one is a miss, which waits for the peer.
                let at_once = waited <= posted - looked;
                assert_eq!(at_once, round > 0, "round {round}: {waited:?}");
                Ok(())
            })?;
        }
        job.barrier()?;
        assert_eq!(field.local()?.load(7)?, 9);
        Ok(())
    });
}

#[test]
fn all_slots_in_use_leave_the_rest_to_be_registered() {
    let kept = Kept::default();
    all(network(Strategy::Firehose, &kept), 2, |job| {
        let field = job.alloc::<u64>(300 * 16)?;
        let handles: Vec<_> = (0..300_u64)
            .map(|at| field.put_nb(job.right(), at as usize * 16, vec![at; 16]))
            .collect::<Result<_, _>>()?;
        let mut buffers = Vec::new();
        for handle in handles {
            buffers.push(handle.wait()?);
        }
        for buffer in &buffers {
            let still = kept.registered(job.rank(), buffer);
            assert!(still.is_empty(), "{still:?}");
        }
        job.barrier()?;
        for at in 0..300 {
            assert_eq!(field.local()?.load(at * 16 + 15)?, at as u64);
        }
        let gets: Vec<_> = (0..300)
            .map(|at| field.get_nb(job.right(), at * 16, 16))
            .collect::<Result<_>>()?;
        for (at, get) in gets.into_iter().enumerate() {
            assert_eq!(get.wait()?, [at as u64; 16]);
        }
        job.barrier()
    });
}

#[test]
fn memory_that_is_named_by_its_address_is_kept_only_while_it_is_lent() {
    let kept = Kept::default();
    let open = network(Strategy::Firehose, &kept).anywhere(true);
    all(open, 2, |job| {
        let places = job.alloc::<u64>(2)?;
        let mut target = vec![0_u8; 50_000];
        let addr = target.as_mut_ptr();
        for rank in job.ranks() {
            places.put(rank, job.rank().index(), &[addr.expose_provenance() as u64])?;
        }
        job.barrier()?;
        let theirs = places.local()?.load(job.right().index())?;
        let source = vec![5_u8; 40_000];
        let put = |job: &Job| {
            // SAFETY: the peer's buffer, which it looks at after a barrier.
            unsafe { job.put_anywhere(job.right(), theirs + 100, &source) }
        };
        // SAFETY: nobody else uses the buffer, and bytes are bytes.
        let own = || unsafe { std::slice::from_raw_parts(addr, 50_000) };
        put(job)?;
        job.barrier()?;
        assert!(kept.registered(job.rank(), own()).is_empty());
        assert_eq!(own()[40_099], 5);
        job.barrier()?;
        // SAFETY: the buffer outlives the loan and is only looked at after barriers.
        let loan = unsafe { job.lend_anywhere(addr, 50_000)? };
        job.barrier()?;
        put(job)?;
        put(job)?;
        job.barrier()?;
        assert!(!kept.registered(job.rank(), own()).is_empty());
        drop(loan);
        assert!(kept.registered(job.rank(), own()).is_empty());
        job.barrier()?;
        put(job)?;
        job.barrier()?;
        assert!(kept.registered(job.rank(), own()).is_empty());
        drop(target);
        job.barrier()
    });
}

#[test]
fn buckets_of_several_pages_are_shared_with_care() {
    let kept = Kept::default();
    let wide = network(Strategy::Firehose, &kept).bucket(16 * PAGE as usize);
    all(wide, 2, |job| {
        let pointers = job.alloc::<GlobalPtr<u8>>(2)?;
        for round in 0..4_u8 {
            let exposed = job.expose(vec![0_u8; 9_000])?;
            let own = exposed.pointer(0)?;
            for rank in job.ranks() {
                pointers.put(rank, job.rank().index(), &[own])?;
            }
            job.barrier()?;
            let theirs = pointers.local()?.load(job.right().index())?;
            let source = vec![round; 9_000];
            job.put_to(theirs, &source)?;
            let long = vec![round; 200_000];
            let far = job.alloc::<u8>(200_000)?;
            far.put(job.right(), 0, &long)?;
            job.barrier()?;
            assert_eq!(far.local()?.load(199_999)?, round);
            job.free(far)?;
            assert_eq!(exposed.take_back()[8_999], round);
            job.barrier()?;
            let gone = job.put_to(theirs, &source);
            assert!(
                matches!(gone, Err(Error::Revoked { rank: Rank(_) })),
                "{gone:?}"
            );
            job.barrier()?;
        }
        Ok(())
    });
}
