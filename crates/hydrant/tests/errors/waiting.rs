//! What waits may not be called from a handler.

#![allow(unsafe_code)] // gives a handler the job, as a binding to another language would

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use hydrant::{Error, Foreign, GlobalPtr};

use crate::{
    errors::fixture::Fixture,
    support::{builder, good},
};

#[test_on(shared, veiled, pinned)]
fn in_a_handler() {
    good(
        builder()
            .smp_foreign(Foreign::Messages)
            .run_local(2, |job| {
                let f = Fixture::new(job)?;
                let pointers = job.alloc::<GlobalPtr<u64>>(1)?;
                let exposed = job.expose(vec![9_u64; 4])?;
                pointers.put(job.right(), 0, &[exposed.pointer(0)?])?;
                job.barrier()?;
                let theirs = pointers.local()?.load(0)?;
                let inside = job.downgrade();
                let checked = Arc::new(AtomicU64::new(0));
                let quiet = job.handler(|_, _, _| {})?;
                let function = job.function(|_, (): ()| ())?;
                let handler = job.handler({
                    let (checked, memory) = (Arc::clone(&checked), f.memory.clone());
                    move |context, _, _| {
                        let job = inside.upgrade().expect("the job goes on");
                        let to = context.source();
                        refused!(job.barrier(), Error::InHandler { .. }, "barrier");
                        refused!(job.alloc::<u8>(1), Error::InHandler { .. }, "alloc");
                        refused!(job.free(memory.clone()), Error::InHandler { .. }, "free");
                        refused!(
                            job.handler(|_, _, _| {}),
                            Error::InHandler { .. },
                            "handler"
                        );
                        refused!(
                            job.function(|_, (): ()| ()),
                            Error::InHandler { .. },
                            "handler"
                        );
                        refused!(
                            job.request_long(to, quiet, &[], &memory, 0, &[1]),
                            Error::InHandler { .. },
                            "request_long"
                        );
                        refused!(
                            job.call(to, &function, &()),
                            Error::InHandler { .. },
                            "call"
                        );
                        refused!(job.am_quiet(), Error::InHandler { .. }, "am_quiet");
                        refused!(job.quiet(), Error::InHandler { .. }, "quiet");
                        refused!(job.fence(), Error::InHandler { .. }, "fence");
                        refused!(job.scope(|_| Ok(())), Error::InHandler { .. }, "scope");
                        refused!(
                            job.wait_until(&memory, 0, |_| true),
                            Error::InHandler { .. },
                            "wait_until"
                        );
                        refused!(job.put_to(theirs, &[1]), Error::InHandler { .. }, "put");
                        refused!(
                            job.get_from(theirs, &mut [1]),
                            Error::InHandler { .. },
                            "get"
                        );
                        checked.fetch_add(1, SeqCst);
                    }
                })?;
                job.request_short(job.right(), handler, &[])?;
                job.am_quiet()?;
                job.barrier()?;
                assert_eq!(checked.load(SeqCst), 1);
                assert_eq!(exposed.take_back()[..], [9; 4]);
                f.check(job)
            }),
    );
}

/// A handle that reaches a handler may be tested there, but not waited for.
#[test_on(shared, veiled, pinned)]
fn for_a_handle_in_a_handler() {
    good(builder().run_local(2, |job| {
        let f = Fixture::new(job)?;
        let waited = Arc::new(AtomicU64::new(0));
        let kept = Mutex::new(Some(f.memory.put_nb(
            job.rank(),
            0,
            f.memory.local()?.to_vec(),
        )?));
        let handler = job.handler({
            let waited = Arc::clone(&waited);
            move |_, _, _| {
                let mut handle = kept.lock().unwrap().take().expect("sent once");
                assert!(handle.test().unwrap());
                refused!(handle.wait_local(), Error::InHandler { .. }, "wait_local");
                refused!(handle.wait(), Error::InHandler { .. }, "wait");
                waited.fetch_add(1, SeqCst);
            }
        })?;
        job.request_short(job.right(), handler, &[])?;
        job.am_quiet()?;
        job.barrier()?;
        assert_eq!(waited.load(SeqCst), 1);
        f.check(job)
    }));
}
