//! Tests of messages that no public call can send: for a handler that the target lacks, as from a
//! rank that runs another program.

use crate::{Error, Handler, Job, Rank, Result, message::request, progress::kind};

fn local(body: impl Fn(&Job) -> Result<()> + Sync) {
    let builder = Job::builder().expect("the settings are valid");
    for end in builder.heap(1 << 20).run_local(2, body) {
        end.expect("the rank ends in good order");
    }
}

fn unregistered(job: &Job) -> Handler {
    Handler {
        number: 77,
        job: job.progress().id,
    }
}

fn assert_unknown(outcome: Result<()>, target: Rank) {
    let error = outcome.expect_err("a handler that nobody registered ran");
    let named = matches!(error, Error::UnknownHandler { rank, handler: 77 } if rank == target);
    assert!(named, "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("number 77") && text.contains(&format!("rank {target}")),
        "{text}"
    );
}

#[test]
fn a_request_for_an_unknown_handler_is_reported_and_the_job_goes_on() {
    local(|job| {
        job.request_short(job.right(), unregistered(job), &[1])?;
        assert_unknown(job.am_quiet(), job.right());
        let double = job.function(|_, number: u64| 2 * number)?;
        assert_eq!(job.call(job.right(), &double, &4)?, 8);
        job.am_quiet()?;
        job.barrier()
    });
}

#[test]
fn a_reply_to_an_unknown_handler_fails_where_it_arrives() {
    local(|job| {
        let unknown = unregistered(job);
        let ask = job.handler(move |context, _, _| {
            context.reply_short(unknown, &[]).expect("it is sent");
        })?;
        job.request_short(job.right(), ask, &[])?;
        assert_unknown(job.am_quiet(), job.rank());
        job.barrier()
    });
}

#[test]
fn a_call_of_an_unknown_function_returns_the_error() {
    local(|job| {
        let calls = job.core().messages.calls();
        let result = calls.ask(job.progress(), job.right(), |id| {
            let message = hydrant_conduit::Message {
                kind: kind::CALL,
                tag: 77,
                args: &[id],
                payload: &[],
            };
            request::send(job.progress(), job.right(), &message)
        });
        job.am_quiet()?;
        assert_unknown(result.map(drop), job.right());
        job.barrier()
    });
}
