//! Memory beside memory that comes and goes: what lies in the same bucket, or where something lay
//! before, is reached whatever happens to its neighbours.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use hydrant::{Exposed, GlobalPtr, Job, JobBuilder, Rank, Result, Strategy, Symmetric};

const PAGE: usize = 4096;

/// Networks whose memory must be registered.
const NETWORKS: [&str; 2] = ["smp+pin", "sim:ideal"];

fn on(network: &str, strategy: Strategy) -> JobBuilder {
    (Job::builder().expect("no bad settings"))
        .conduit(network.parse().expect("a conduit"))
        .registration(strategy)
        .m(1024 * PAGE as u64)
        .maxvictim(256 * PAGE as u64)
        .heap(4 << 20)
}

/// Runs ranks that all succeed.
fn all(builder: JobBuilder, ranks: u32, body: impl Fn(&Job) -> Result<()> + Sync) {
    for end in builder.run_local(ranks, body) {
        end.expect("the rank succeeds");
    }
}

#[test]
fn memory_allocated_where_other_memory_was_freed_is_reached() {
    for network in NETWORKS {
        for strategy in Strategy::ALL {
            if strategy == Strategy::Paging && network == "smp+pin" {
                continue;
            }
            all(on(network, strategy), 2, |job| {
                let first = job.alloc::<u64>(512)?;
                job.free(first)?;
                let second = job.alloc::<u64>(512)?;
                second.put(job.right(), 0, &[7; 100])?;
                job.barrier()?;
                assert_eq!(second.local()?.to_vec()[..100], [7; 100], "{strategy}");
                job.barrier()
            });
        }
    }
}

#[test]
fn allocations_outlive_those_beside_them() {
    for network in NETWORKS {
        for strategy in Strategy::ALL {
            if strategy == Strategy::Paging && network == "smp+pin" {
                continue;
            }
            for pages in [1, 16] {
                let job = on(network, strategy).bucket(pages * PAGE);
                all(job, 3, |job| come_and_go(job, strategy));
            }
        }
    }
}

/// Allocates and frees, and writes and reads all that there is each time.
fn come_and_go(job: &Job, strategy: Strategy) -> Result<()> {
    const LEN: usize = 3000;
    let mut there: Vec<Symmetric<u8>> = Vec::new();
    for round in 0..12 {
        match round % 4 {
            3 => job.free(there.remove(round % there.len()))?,
            _ => there.push(job.alloc(4000)?),
        }
        let value = |number: usize| (round * 16 + number) as u8;
        for (number, memory) in there.iter().enumerate() {
            memory.put(job.right(), 0, &[value(number); LEN])?;
        }
        job.barrier()?;
        for (number, memory) in there.iter().enumerate() {
            let mut got = [0; LEN];
            memory.get(job.right(), 0, &mut got)?;
            assert!(got.iter().all(|byte| *byte == value(number)), "{round}");
        }
        job.barrier()?;
    }
    // Where memory is registered when it is allocated, it stays so whatever goes beside it.
    if strategy == Strategy::PinEverything {
        let stats = job.registration().expect("it must be registered");
        assert_eq!(stats.remote_hits, stats.pieces, "{stats:?}");
    }
    Ok(())
}

#[test]
fn a_buffer_is_reached_while_its_neighbour_is_lent_and_taken_back() {
    const LEN: usize = 1000;
    for strategy in Strategy::ALL {
        if strategy == Strategy::Paging {
            continue;
        }
        for pages in [1, 16] {
            let shown: Mutex<Option<GlobalPtr<u8>>> = Mutex::new(None);
            let over = AtomicBool::new(false);
            all(on("smp+pin", strategy).bucket(pages * PAGE), 2, |job| {
                if job.rank() == Rank(0) {
                    let (live, mut other) = two_in_a_page(LEN);
                    let live = job.expose(live)?;
                    *shown.lock().expect("nobody panics") = Some(live.pointer(0)?);
                    job.barrier()?;
                    for _ in 0..60 {
                        let lent: Exposed<u8> = job.expose(other)?;
                        std::thread::yield_now();
                        other = lent.take_back().into_vec();
                    }
                    over.store(true, SeqCst);
                    job.barrier()
                } else {
                    job.barrier()?;
                    let to = (shown.lock().expect("nobody panics")).expect("it was shown");
                    while !over.load(SeqCst) {
                        job.put_to(to, &[7_u8; LEN])?;
                    }
                    job.barrier()
                }
            });
        }
    }
}

/// Two buffers, a byte of which lies in the same page.
fn two_in_a_page(len: usize) -> (Vec<u8>, Vec<u8>) {
    let mut buffers: Vec<Vec<u8>> = (0..40).map(|_| vec![1; len]).collect();
    buffers.sort_by_key(|buffer| buffer.as_ptr().addr());
    let page = |addr: usize| addr / PAGE;
    let first = (buffers.windows(2))
        .position(|pair| page(pair[0].as_ptr().addr() + len - 1) == page(pair[1].as_ptr().addr()))
        .expect("small buffers lie close together");
    let second = buffers.remove(first + 1);
    (buffers.remove(first), second)
}
