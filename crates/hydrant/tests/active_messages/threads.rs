//! Messages of several threads of a rank in virtual time. Each thread has its own clock.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
};

use hydrant::Rank;

use crate::{network::simulated::on, support::good};

const MESSAGES: u64 = 8;

/// A thread that was idle for long sends after another thread. Its clock is behind.
#[test_on(simulated)]
fn later_messages_arrive_later_from_any_thread() {
    for profile in ["connectx", "myrinet-gm", "ideal"] {
        let got = good(on(profile).run_local(2, |job| {
            let got: Arc<Mutex<Vec<u64>>> = Arc::default();
            let notes = Arc::clone(&got);
            let handler = job.handler(move |_, args, _| {
                notes.lock().expect("nobody panics").push(args[0]);
            })?;
            job.barrier()?;
            if job.rank() == Rank(0) {
                let data = vec![1_u8; 2000];
                thread::scope(|threads| {
                    let (begin, begun) = mpsc::channel();
                    let (sent, all_sent) = mpsc::channel();
                    let last = threads.spawn(move || {
                        job.poll();
                        begin.send(()).expect("it is awaited");
                        all_sent.recv().expect("it comes");
                        job.request_short(Rank(1), handler, &[MESSAGES])
                    });
                    begun.recv().expect("it comes");
                    for number in 0..MESSAGES {
                        job.request_medium(Rank(1), handler, &[number], &data)?;
                    }
                    sent.send(()).expect("it is awaited");
                    last.join().expect("nobody panics")
                })?;
            }
            job.am_quiet()?;
            job.barrier()?;
            let got = got.lock().expect("nobody panics").clone();
            Ok(got)
        }));
        assert_eq!(got[1], (0..=MESSAGES).collect::<Vec<_>>(), "{profile}");
    }
}
