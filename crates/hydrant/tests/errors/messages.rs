//! Active messages: limits, handlers that fail, replies that are refused.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use hydrant::Error;

use crate::{errors::fixture::Fixture, support::local};

#[test_on(shared, veiled, pinned)]
fn messages_above_the_limits_are_refused() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let handled = Arc::new(AtomicU64::new(0));
        let handler = job.handler({
            let handled = Arc::clone(&handled);
            move |_, args, payload| {
                handled.fetch_add(1 + (args.len() + payload.len()) as u64, SeqCst);
            }
        })?;
        let (to, limits) = (job.right(), job.limits());
        let payload = vec![0; limits.max_medium + 1];
        let args = vec![0; limits.max_args + 1];
        let long = limits.max_medium + 1;
        refused!(
            job.request_medium(to, handler, &[], &payload),
            Error::MessageTooLong { len, limit } if len == long && limit == limits.max_medium,
            long, limits.max_medium
        );
        refused!(
            job.request_short(to, handler, &args),
            Error::TooManyArgs { count, limit } if count == args.len() && limit == limits.max_args,
            args.len(), limits.max_args
        );
        // The data of a long message must not be put if the message cannot be sent.
        let args_long = &args[..=limits.max_args_long];
        refused!(
            job.request_long(to, handler, args_long, &f.memory, 0, &[1]),
            Error::TooManyArgs { limit, .. } if limit == limits.max_args_long,
            args_long.len(), limits.max_args_long
        );
        refused!(
            job.request_long(to, handler, &[], &f.memory, 16, &[1]),
            Error::OutOfBounds { .. },
            "index 16"
        );
        job.am_quiet()?;
        job.barrier()?;
        assert_eq!(handled.load(SeqCst), 0, "a refused message was sent");
        job.barrier()?;
        // A message at the limit is accepted.
        job.request_medium(to, handler, &args[1..], &payload[1..])?;
        job.am_quiet()?;
        job.barrier()?;
        assert_eq!(
            handled.load(SeqCst) as usize,
            1 + limits.max_args + limits.max_medium
        );
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn a_handler_above_the_limit_is_refused() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let full = loop {
            match job.handler(|_, _, _| {}) {
                Ok(handler) => assert!(handler.number() < 10_000, "there is no limit"),
                Err(error) => break error,
            }
        };
        let Error::TooManyHandlers { limit } = full else {
            panic!("{full:?}")
        };
        assert!(full.to_string().contains(&limit.to_string()), "{full}");
        job.barrier()?;
        drop(f);
        Ok(())
    });
}

#[test_on(shared, veiled, pinned)]
fn handlers_that_panic_in_a_call() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let divide = job.function(|_, (a, b): (u64, u64)| a / b)?;
        let shout = job.function(|from, text: String| -> u64 { panic!("{text} to {from}") })?;
        let to = job.right();
        refused!(
            job.call(to, &divide, &(1, 0)),
            Error::HandlerPanicked { rank, .. } if rank == to,
            "divide by zero", format!("on rank {to}"), "handlers_that_panic_in_a_call", "messages.rs:"
        );
        let text = "Größe ".repeat(1000);
        refused!(
            job.call(to, &shout, &text),
            Error::HandlerPanicked { rank, .. } if rank == to,
            "Größe Größe"
        );
        assert_eq!(job.call(to, &divide, &(6, 3))?, 2);
        // The other rank's calls ran here, and that rank may be slower.
        job.barrier()?;
        assert_eq!(job.counters().panics, 2);
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn handlers_that_panic_in_a_plain_request() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let seen = Arc::new(AtomicU64::new(0));
        let odd = job.handler({
            let seen = Arc::clone(&seen);
            move |_, args, _| {
                assert!(args[0] != 3, "three is odd");
                seen.fetch_add(1, SeqCst);
            }
        })?;
        let to = job.right();
        for number in 0..5 {
            job.request_short(to, odd, &[number])?;
        }
        refused!(
            job.am_quiet(),
            Error::HandlerPanicked { rank, handler, .. } if rank == to && handler == odd.number(),
            "three is odd", format!("rank {to}"), format!("handler number {}", odd.number()),
            "handlers_that_panic_in_a_plain_request", "messages.rs:"
        );
        // The failure is reported once. The requests before and after it were handled.
        job.am_quiet()?;
        job.barrier()?;
        assert_eq!(seen.load(SeqCst), 4);
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn a_panic_in_the_handler_of_a_reply_is_reported() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let reply = job.handler(|_, _, _| panic!("no answer wanted"))?;
        let ask = job.handler(move |context, _, _| context.reply_short(reply, &[]).unwrap())?;
        job.request_short(job.right(), ask, &[])?;
        let me = job.rank();
        refused!(
            job.am_quiet(),
            Error::HandlerPanicked { rank, .. } if rank == me,
            "no answer wanted", format!("rank {me}")
        );
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn invalid_replies_are_refused() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let (replies, checks) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let limits = job.limits();
        let reply = job.handler({
            let (replies, checks) = (Arc::clone(&replies), Arc::clone(&checks));
            move |context, args, _| {
                replies.fetch_add(args[0], SeqCst);
                assert!(!context.may_reply());
                let own = hydrant_handler(args[1]);
                refused!(
                    context.reply_short(own, &[]),
                    Error::ForeignHandle { .. },
                    "another job"
                );
                checks.fetch_add(1, SeqCst);
            }
        })?;
        let memory = f.memory.clone();
        let ask = job.handler({
            let checks = Arc::clone(&checks);
            move |context, _, _| {
                assert!(context.may_reply());
                let long = vec![0; limits.max_medium + 1];
                let args = vec![0; limits.max_args + 1];
                refused!(
                    context.reply_medium(reply, &[], &long),
                    Error::MessageTooLong { .. },
                    limits.max_medium
                );
                refused!(
                    context.reply_short(reply, &args),
                    Error::TooManyArgs { .. },
                    limits.max_args
                );
                refused!(
                    context.reply_long(reply, &[], &memory, 16, &[1]),
                    Error::OutOfBounds { .. },
                    "index 16"
                );
                // None of these refusals used up the reply.
                context.reply_short(reply, &[5, 0]).unwrap();
                refused!(
                    context.reply_short(reply, &[7, 0]),
                    Error::NoReply,
                    "reply once"
                );
                refused!(
                    context.reply_long(reply, &[7, 0], &memory, 0, &[1]),
                    Error::NoReply,
                    "reply once"
                );
                checks.fetch_add(1, SeqCst);
            }
        })?;
        job.request_short(job.right(), ask, &[])?;
        job.am_quiet()?;
        job.barrier()?;
        assert_eq!(replies.load(SeqCst), 5);
        assert_eq!(checks.load(SeqCst), 2, "an assertion in a handler failed");
        f.check(job)
    });
}

/// Returns a handler of a job that is over.
fn hydrant_handler(_: u64) -> hydrant::Handler {
    static STALE: std::sync::OnceLock<hydrant::Handler> = std::sync::OnceLock::new();
    *STALE.get_or_init(|| local(1, |job| job.handler(|_, _, _| {}))[0])
}

/// A reply to a reply is refused for that, not for its handler.
#[test_on(shared, veiled, pinned)]
fn a_reply_to_a_reply_is_refused() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let refusals = Arc::new(AtomicU64::new(0));
        let last = job.handler(|_, _, _| panic!("a reply was answered"))?;
        let reply = job.handler({
            let refusals = Arc::clone(&refusals);
            move |context, _, _| {
                refused!(
                    context.reply_short(last, &[]),
                    Error::NoReply,
                    "only to a request"
                );
                refusals.fetch_add(1, SeqCst);
            }
        })?;
        let ask = job.handler(move |context, _, _| context.reply_short(reply, &[]).unwrap())?;
        job.request_short(job.right(), ask, &[])?;
        job.am_quiet()?;
        assert_eq!(refusals.load(SeqCst), 1);
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn undecodable_arguments_and_results_are_errors() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        // The decoder fails, as with two ranks that run different programs.
        let strict = job.function(|_, small: Small| small.0)?;
        let to = job.right();
        refused!(
            job.call(to, &strict, &Small(200)),
            Error::Codec { .. },
            "argument",
            "Deserialization"
        );
        assert_eq!(job.call(to, &strict, &Small(50))?, 50);
        f.check(job)
    });
}

#[derive(serde::Serialize)]
struct Small(u8);

impl<'de> serde::Deserialize<'de> for Small {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match u8::deserialize(from)? {
            small @ ..=100 => Ok(Self(small)),
            _ => Err(serde::de::Error::custom("at most 100")),
        }
    }
}
