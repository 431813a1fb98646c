//! Handlers, calls and their order.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use hydrant::{Error, Rank};

use crate::support::local;

#[test_on(every)]
fn requests_are_answered_in_order() {
    local(3, |job| {
        let seen = Arc::new(AtomicU64::new(0));
        let reply = job.handler({
            let seen = Arc::clone(&seen);
            move |_, args, payload| {
                assert_eq!(payload, vec![args[0] as u8; args[0] as usize % 100]);
                // Replies of a peer arrive in the order of its requests.
                assert_eq!(seen.fetch_add(1, SeqCst), args[0]);
            }
        })?;
        let ask = job.handler(move |context, args, payload| {
            context.reply_medium(reply, args, payload).unwrap();
        })?;
        for number in 0..5_000_u64 {
            let payload = vec![number as u8; number as usize % 100];
            job.request_medium(job.right(), ask, &[number], &payload)?;
        }
        job.am_quiet()?;
        assert_eq!(seen.load(SeqCst), 5_000);
        job.barrier()
    });
}

/// Every rank floods every other with payloads that fill the rings. Each request is answered.
#[test_on(every)]
fn floods_neither_stop_nor_lose_anything() {
    const EACH: u64 = 2_000;
    local(4, |job| {
        let (asked, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let reply = job.handler({
            let answered = Arc::clone(&answered);
            move |_, args, _| {
                answered.fetch_add(args[0], SeqCst);
            }
        })?;
        let ask = job.handler({
            let asked = Arc::clone(&asked);
            move |context, args, payload| {
                asked.fetch_add(args[0], SeqCst);
                context.reply_medium(reply, args, payload).unwrap();
            }
        })?;
        let payload = vec![7; job.limits().max_medium];
        for number in 0..EACH {
            for rank in job.ranks() {
                let len = (number as usize * 37) % payload.len();
                job.request_medium(rank, ask, &[number], &payload[..len])?;
            }
        }
        job.am_quiet()?;
        job.barrier()?;
        let expected = u64::from(job.size()) * EACH * (EACH - 1) / 2;
        assert_eq!(asked.load(SeqCst), expected);
        assert_eq!(answered.load(SeqCst), expected);
        job.barrier()
    });
}

#[test_on(every)]
fn calls_return_values_errors_and_panics() {
    local(2, |job| {
        let double = job.function(|from: Rank, text: String| format!("{text}{text} for {from}"))?;
        let fail = job.function(|_, flag: bool| -> u32 {
            assert!(!flag, "as asked");
            7
        })?;
        let long = job.function(|_, len: usize| vec![1_u8; len])?;
        let peer = job.right();
        let me = job.rank();
        assert_eq!(
            job.call(peer, &double, &"ab".to_owned())?,
            format!("abab for {me}")
        );
        assert_eq!(job.call(peer, &fail, &false)?, 7);
        match job.call(peer, &fail, &true) {
            Err(Error::HandlerPanicked { rank, message, .. }) => {
                assert_eq!(rank, peer);
                assert!(message.contains("as asked"), "{message}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(job.call(peer, &fail, &false)?, 7, "the job lives");
        let limit = job.limits().max_medium;
        assert_eq!(job.call(peer, &long, &1000)?.len(), 1000);
        assert_eq!(job.call(peer, &long, &(limit + 1))?.len(), limit + 1);
        job.barrier()
    });
}

#[test_on(every)]
fn a_computing_rank_is_served() {
    local(2, |job| {
        let ping = job.function(|_, number: u64| number + 1)?;
        if job.rank() == Rank(0) {
            for number in 0..100 {
                assert_eq!(job.call(Rank(1), &ping, &number)?, number + 1);
            }
        } else {
            // This rank computes, and does not poll.
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        job.barrier()
    });
}

#[test_on(every)]
fn long_messages_bring_their_data() {
    local(2, |job| {
        let memory = job.alloc::<u32>(1000)?;
        let sum = Arc::new(AtomicU64::new(0));
        let add = job.handler({
            let (memory, sum) = (memory.clone(), Arc::clone(&sum));
            move |_, args, _| {
                let [scale, index, count] = *args else {
                    panic!("{args:?}")
                };
                let mut data = vec![0; count as usize];
                memory
                    .local()
                    .unwrap()
                    .read(index as usize, &mut data)
                    .unwrap();
                let total: u32 = data.iter().sum();
                sum.fetch_add(scale * u64::from(total), SeqCst);
            }
        })?;
        job.request_long(job.right(), add, &[10], &memory, 500, &[1, 2, 3])?;
        job.am_quiet()?;
        job.barrier()?;
        assert_eq!(sum.load(SeqCst), 60);
        job.free(memory)
    });
}
