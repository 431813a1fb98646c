//! Buffers that are unmapped and mapped anew between operations, on pages that the kernel pinned
//! for real: what arrives is what the program has there now, not what was there when something
//! was registered.

#![allow(unsafe_code)] // maps memory

#[path = "support/kept.rs"]
mod kept;
#[path = "support/place.rs"]
mod place;

use std::sync::Mutex;

use hydrant::{Job, JobBuilder, MonitorKind, Result, Strategy};
use hydrant_conduit::Conduit;
use hydrant_launch::{Bootstrap, LocalBootstrap};
use hydrant_smp::SmpOptions;
use kept::Kept;
use place::{Place, Renewal};

/// A builder whose two ranks are joined by `smp+pin`, which is said to follow what is mapped or
/// not.
fn pinned(strategy: Strategy, kept: &Kept, follows: bool) -> JobBuilder {
    let ranks: Vec<_> = hydrant_launch::local(2).into_iter().map(Some).collect();
    let ranks: Mutex<Vec<Option<LocalBootstrap>>> = Mutex::new(ranks);
    let kept = kept.clone();
    let join = move |plain: Box<dyn Conduit>| {
        let rank = plain.rank();
        let bootstrap = ranks.lock().expect("no rank panics here")[rank.index()].take();
        let mut bootstrap = bootstrap.expect("each rank once");
        assert_eq!(bootstrap.rank(), rank.0);
        let options = SmpOptions {
            segment: plain.caps().segment,
            ..SmpOptions::default()
        };
        let conduit = hydrant_pin::attach(&mut bootstrap, &options);
        kept.around(Box::new(conduit.expect("ranks of one host")), follows)
    };
    (Job::builder().expect("no bad settings"))
        .registration(strategy)
        .heap(4 << 20)
        .m(8 << 20)
        .maxvictim(2 << 20)
        .monitor(MonitorKind::Off)
        .through(join)
}

/// Inline, bounced in either kind of slot, registered, and cut into pieces.
const LENGTHS: [usize; 5] = [8, 300, 20_000, 70_000, 1_500_000];
const ROUNDS: u8 = 4;

/// How many puts and gets moved other bytes than those that were there.
fn wrong(strategy: Strategy, follows: bool) -> usize {
    let kept = Kept::default();
    let ends = pinned(strategy, &kept, follows).run_local(2, |job| {
        let field = job.alloc::<u8>(2 << 20)?;
        let mut wrong = 0;
        for len in LENGTHS {
            let mut place = Place::new(len);
            for round in 1..ROUNDS {
                let source =
                    &place.renew(Renewal::Over, round)[3 * (len > 4096) as usize..][..len - 3];
                field.put(job.right(), 5, source)?;
                if !follows {
                    assert!(
                        kept.registered(job.rank(), source).is_empty(),
                        "{len} bytes"
                    );
                }
                job.barrier()?;
                let mut there = vec![0; len - 3];
                field.local()?.read(5, &mut there)?;
                wrong += usize::from(there != vec![round; len - 3]);
                job.barrier()?;
                let target = &mut place.renew(Renewal::Over, 100)[..len - 3];
                field.get(job.right(), 5, target)?;
                wrong += usize::from(target.iter().any(|byte| *byte != round));
                if !follows {
                    assert!(
                        kept.registered(job.rank(), target).is_empty(),
                        "{len} bytes"
                    );
                }
                job.barrier()?;
            }
        }
        Ok(wrong)
    });
    let ends: Result<Vec<usize>> = ends.into_iter().collect();
    ends.expect("both ranks succeed").into_iter().sum()
}

#[test]
fn what_is_there_now_arrives() {
    for strategy in Strategy::ALL {
        if strategy != Strategy::Paging {
            assert_eq!(wrong(strategy, false), 0, "{strategy}");
        }
    }
}

#[test]
fn what_was_there_arrives_where_it_is_believed_to_be_there_still() {
    assert!(wrong(Strategy::Firehose, true) > 0);
}
