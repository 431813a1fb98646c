//! Registration as users meet it: limits, strategies, what is counted and what is refused, on the
//! simulated machine of the Firehose paper.

use hydrant::{Error, Job, JobBuilder, Result, Strategy};

const PAGE: u64 = 4096;

fn gm(strategy: Strategy) -> JobBuilder {
    let conduit = "sim:myrinet-gm".parse().expect("a conduit");
    (Job::builder().expect("no bad settings"))
        .conduit(conduit)
        .registration(strategy)
        .heap(16 << 20)
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

#[test]
fn the_second_put_to_a_bucket_is_one_sided() {
    let counters = all(gm(Strategy::Firehose).piggyback(0), 2, |job| {
        let field = job.alloc::<u64>(1024)?;
        let source = job.alloc::<u64>(8)?;
        let buffer = source.local()?;
        let mut values = [0; 8];
        buffer.read(0, &mut values)?;
        for index in 0..100 {
            field.put(job.right(), index, &values)?;
        }
        job.barrier()?;
        Ok((job.counters(), job.registration().expect("GM needs it")))
    });
    for (counters, stats) in counters {
        assert_eq!(counters.hits + counters.misses, 100);
        assert!(counters.hits >= 98, "{counters}");
        assert!(stats.moves <= 2, "{stats:?}");
    }
}

#[test]
fn the_limit_is_kept_while_everything_is_served() {
    let (m, maxvictim) = (16 * PAGE, 4 * PAGE);
    for strategy in Strategy::ALL {
        if strategy == Strategy::PinEverything {
            continue;
        }
        let job = gm(strategy).m(m).maxvictim(maxvictim);
        let peaks = all(job, 3, |job| {
            let field = job.alloc::<u64>(100 * 512)?;
            for round in 0..3 {
                for page in 0..100_u64 {
                    let value = page * 1000 + u64::from(job.rank().0) + round;
                    field.put(job.right(), (page * 512) as usize, &[value; 3])?;
                }
            }
            job.barrier()?;
            let mut got = [0; 3];
            for page in 0..100_u64 {
                field.get(job.right(), (page * 512) as usize, &mut got)?;
                assert_eq!(got, [page * 1000 + u64::from(job.rank().0) + 2; 3]);
            }
            job.barrier()?;
            Ok(job.registration().expect("GM needs it").local.peak)
        });
        for peak in peaks {
            assert!(peak * PAGE <= m + maxvictim, "{strategy}: {peak} buckets");
        }
    }
}

#[test]
fn the_head_of_a_put_or_get_is_copied_while_its_buckets_move() {
    const WORDS: usize = 8 << 10;
    const PLACES: usize = 37;
    const ALL: usize = PLACES * WORDS;
    let conduit = "sim:connectx".parse().expect("a conduit");
    let job = gm(Strategy::Auto).conduit(conduit).m(8 << 20);
    let word = |rank: u32, at: usize| u64::from(rank) << 32 | at as u64;
    // First one place, often, so that it is known what copies take; then others in no sequence, of which
    // some begin and end amid pages.
    let places = || (0..100 + PLACES).map(|turn| turn.saturating_sub(100) * 15 % PLACES);
    let part = |place: usize| place * WORDS + place..(place + 1) * WORDS - 5;
    let stats = all(job, 2, |job| {
        let (peer, own) = (job.right(), job.rank().0);
        let heads = || job.registration().map_or(0, |stats| stats.heads);
        let (put, got) = (job.alloc::<u64>(ALL)?, job.alloc(ALL)?);
        let all: Vec<u64> = (0..ALL).map(|at| word(own, at)).collect();
        got.local()?.write(0, &all)?;
        job.barrier()?;
        for place in places() {
            put.put(peer, part(place).start, &all[part(place)])?;
        }
        let puts = heads();
        let mut read = vec![0; WORDS];
        for place in places() {
            let part = part(place);
            got.get(peer, part.start, &mut read[..part.len()])?;
            assert!(part.zip(&read).all(|(at, read)| *read == word(peer.0, at)));
        }
        let gets = heads() - puts;
        job.barrier()?;
        let mut here = vec![0; ALL];
        put.local()?.read(0, &mut here)?;
        for place in places() {
            assert!(part(place).all(|at| here[at] == word(peer.0, at)));
        }
        Ok((puts, gets))
    });
    for (puts, gets) in stats {
        assert!(puts > 0 && gets > 0, "{puts} of puts, {gets} of gets");
    }
}

#[test]
fn what_cannot_be_registered_at_the_start_is_said_by_every_rank() {
    let job = gm(Strategy::PinEverything).m(8 * PAGE).maxvictim(PAGE);
    let ends = job.run_local(2, |job| {
        let refused = job.alloc::<u8>(64 << 10).expect_err("more than the limit");
        assert!(matches!(refused, Error::Registration(_)), "{refused}");
        // Nothing was kept of it.
        let small = job.alloc::<u8>(4096)?;
        small.put(job.right(), 0, &[7; 10])?;
        job.barrier()?;
        assert_eq!(small.local()?.load(9)?, 7);
        job.barrier()
    });
    ends.into_iter()
        .for_each(|end| end.expect("the rank succeeds"));
}

#[test]
fn memory_that_is_freed_is_registered_no_more() {
    let kept = all(gm(Strategy::Firehose), 3, |job| {
        for round in 0..5_u64 {
            let field = job.alloc::<u64>(20 * 512)?;
            for page in 0..20 {
                field.put(job.right(), page * 512, &[round])?;
                field.put(job.left(), page * 512 + 1, &[round])?;
            }
            job.barrier()?;
            assert_eq!(field.local()?.load(19 * 512)?, round);
            job.free(field)?;
        }
        Ok(job.registration().expect("GM needs it").local.registered)
    });
    // What is left are sources of puts.
    assert!(kept.iter().all(|buckets| *buckets < 20), "{kept:?}");
}

#[test]
fn an_exposed_buffer_is_taken_back_from_peers() {
    all(gm(Strategy::Firehose), 2, |job| {
        let pointers = job.alloc::<hydrant::GlobalPtr<u64>>(2)?;
        let exposed = job.expose(vec![0_u64; 3000])?;
        let own = exposed.pointer(0)?;
        for rank in job.ranks() {
            pointers.put(rank, job.rank().index(), &[own])?;
        }
        job.barrier()?;
        let theirs = pointers.local()?.load(job.right().index())?;
        job.put_to(theirs, &[1, 2, 3])?;
        let outside = theirs.offset(2_999);
        assert!(matches!(
            job.put_to(outside, &[1, 2]),
            Err(Error::OutOfBounds { len: 3000, .. })
        ));
        job.barrier()?;
        let buffer = exposed.take_back();
        assert_eq!(buffer[..4], [1, 2, 3, 0]);
        drop(buffer);
        job.barrier()?;
        let gone = job.put_to(theirs, &[9]);
        assert!(matches!(gone, Err(Error::Revoked { .. })), "{gone:?}");
        job.barrier()
    });
}

#[test]
fn limits_that_cannot_be_are_errors_that_name_the_setting() {
    let fails = |builder: JobBuilder, setting: &str| {
        for end in builder.run_local(2, |_| Ok(())) {
            let error = end.expect_err("the limits cannot be").to_string();
            assert!(error.contains(setting), "{error}");
        }
    };
    fails(gm(Strategy::Firehose).m(100), "HYDRANT_M");
    fails(gm(Strategy::Firehose).maxvictim(100), "HYDRANT_MAXVICTIM");
    fails(gm(Strategy::Firehose).m(1 << 40), "HYDRANT_M");
    fails(gm(Strategy::Firehose).bucket(5000), "power of two");
}

#[test]
fn what_nobody_set_fits_what_was_set() {
    const KIB: u64 = 1 << 10;
    for strategy in Strategy::ALL {
        if strategy == Strategy::PinEverything {
            continue;
        }
        let few = |m| gm(strategy).m(m);
        for job in [few(16 * KIB), few(256 * KIB).bucket(64 << 10)] {
            all(job, 2, |job| {
                let field = job.alloc::<u64>(512)?;
                field.put(job.right(), 0, &[7; 512])?;
                job.barrier()?;
                assert_eq!(field.local()?.to_vec(), [7; 512]);
                Ok(())
            });
        }
    }
}
