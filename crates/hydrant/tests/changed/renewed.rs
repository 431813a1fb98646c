//! Memory that is renewed between its uses, at either side.

use hydrant::MonitorKind;

use super::{
    KEEPING, alone, assert_kept, builder, good, hits, pinned,
    place::{Place, Renewal},
};

#[test]
fn sources_are_what_is_there_now() {
    let _alone = alone();
    const LEN: usize = 20_000;
    for strategy in KEEPING {
        let Some(builder) = builder(strategy) else {
            return;
        };
        let counters = good(builder.run_local(2, |job| {
            let field = job.alloc::<u8>(LEN)?;
            let mut place = Place::new(LEN);
            for round in 0..200_u32 {
                let value = round as u8;
                let how = Renewal::ALL[round as usize % Renewal::ALL.len()];
                let source = &place.renew(how, value)[..LEN];
                for _ in 0..3 {
                    field.put(job.right(), 0, source)?;
                }
                job.barrier()?;
                let mut there = vec![0; LEN];
                field.local()?.read(0, &mut there)?;
                assert!(
                    there.iter().all(|byte| *byte == value),
                    "{how:?}, round {round}"
                );
                job.barrier()?;
                let back = &mut place.renew(how, !value)[..LEN];
                for _ in 0..2 {
                    field.get(job.right(), 0, back)?;
                }
                assert!(
                    back.iter().all(|byte| *byte == value),
                    "{how:?}, round {round}"
                );
                job.barrier()?;
            }
            Ok(job.counters())
        }));
        for counters in counters {
            assert_kept(strategy, &counters, 400);
        }
    }
}

#[test]
fn destinations_are_what_is_there_now() {
    let _alone = alone();
    check_destinations(4096, 20_000);
}

/// Checks accesses to memory that a peer named by its address, while the peer renews its pages.
pub(super) fn check_destinations(bucket: usize, len: usize) {
    for strategy in KEEPING {
        let Some(builder) = builder(strategy) else {
            return;
        };
        let counters = good(builder.bucket(bucket).run_local(2, |job| {
            let addresses = job.alloc::<u64>(1)?;
            let mut place = Place::new(len);
            let source = vec![0_u8; len];
            for round in 0..200_u32 {
                let value = round as u8 | 1;
                let how = Renewal::ALL[round as usize % Renewal::ALL.len()];
                place.renew(how, 0);
                addresses.put_value(job.left(), 0, place.address())?;
                job.barrier()?;
                let theirs = addresses.local()?.load(0)?;
                let mut data = source.clone();
                data.fill(value);
                for _ in 0..3 {
                    // SAFETY: the peer does not touch its memory before the next barrier.
                    unsafe { job.put_anywhere(job.right(), theirs, &data)? };
                }
                job.barrier()?;
                let there = &place.bytes()[..len];
                assert!(
                    there.iter().all(|byte| *byte == value),
                    "{how:?}, round {round}"
                );
                place.bytes().fill(!value);
                job.barrier()?;
                for _ in 0..2 {
                    // SAFETY: as above.
                    unsafe { job.get_anywhere(job.right(), theirs, &mut data)? };
                }
                assert!(
                    data.iter().all(|byte| *byte == !value),
                    "{how:?}, round {round}"
                );
                job.barrier()?;
            }
            Ok(job.counters())
        }));
        for counters in counters {
            assert_kept(strategy, &counters, 200);
        }
    }
}

#[test]
fn without_a_monitor_nothing_of_the_program_stays_registered() {
    let _alone = alone();
    good(
        (pinned::builder().monitor(MonitorKind::Off)).run_local(2, |job| {
            let field = job.alloc::<u8>(20_000)?;
            let source = vec![1; 20_000];
            for _ in 0..10 {
                field.put(job.right(), 0, &source)?;
            }
            job.barrier()?;
            assert_eq!(job.counters().memory_changes, 0);
            assert_eq!(hits(job).0, 0);
            Ok(())
        }),
    );
}
