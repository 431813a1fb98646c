//! A handler may run as long as the job does.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let memory = job.alloc::<u64>(8)?;
        let count = AtomicU64::new(0);
        let handler = job.handler(|_, _, _| count.store(1, SeqCst))?;
        memory.put(job.right(), 0, &[u64::from(handler.number())])
    })
}
