//! Buffers that are unmapped and mapped anew between operations, on pages that the kernel pinned
//! for real: what arrives is what the program has there now, not what was there when something
//! was registered.

#![allow(unsafe_code)] // maps memory

#[path = "support/kept.rs"]
mod kept;

use std::{ptr, sync::Mutex};

use hydrant::{Job, JobBuilder, Result, Strategy};
use hydrant_conduit::Conduit;
use hydrant_launch::{Bootstrap, LocalBootstrap};
use hydrant_smp::SmpOptions;
use kept::Kept;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

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
        .through(join)
}

/// Pages at one address, whichever they are.
struct Place {
    start: *mut u8,
    len: usize,
}

impl Place {
    fn new(len: usize) -> Self {
        let private = MapFlags::PRIVATE;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a mapping of its own, at an address of the kernel's choice.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, rights, private) };
        let start = start.expect("memory").cast();
        Self { start, len }
    }

    /// Other pages, full of one value, take the place of those that are there.
    fn renew(&mut self, value: u8) -> &mut [u8] {
        let fixed = MapFlags::PRIVATE | MapFlags::FIXED;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: over the own mapping, which nobody has borrowed, and which goes by that.
        unsafe { mmap_anonymous(self.start.cast(), self.len, rights, fixed) }.expect("memory");
        // SAFETY: mapped just now, and this borrow of it is the only one.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.start, self.len) };
        bytes.fill(value);
        bytes
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: the own mapping, which nobody has borrowed.
        let _ = unsafe { munmap(self.start.cast(), self.len) };
    }
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
            let mut place = Place::new(len.next_multiple_of(4096));
            for round in 1..ROUNDS {
                let source = &place.renew(round)[3 * (len > 4096) as usize..][..len - 3];
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
                let target = &mut place.renew(100)[..len - 3];
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
