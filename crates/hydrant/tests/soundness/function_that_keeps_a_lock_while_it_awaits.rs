//! What takes its time is gone on with by any thread of the rank.

use std::sync::{Arc, Mutex};

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let sum = Arc::new(Mutex::new(0_u64));
        let add = job.async_function(move |_, word: u64| {
            let sum = Arc::clone(&sum);
            async move {
                let mut sum = sum.lock().unwrap();
                std::future::ready(()).await;
                *sum += word;
                *sum
            }
        })?;
        job.call(job.right(), &add, &1).map(drop)
    })
}
