//! Runs jobs whose ranks are threads of this process.

use std::{io, panic, sync::OnceLock, thread};

use parking_lot::Mutex;

use super::{Job, JobBuilder, ending::run_to_end, network::JobNetwork};
use crate::{Error, Result};

/// Runs `n` ranks. Returns the result of each.
pub(super) fn run<R: Send>(
    builder: &JobBuilder,
    n: u32,
    body: impl Fn(&Job) -> Result<R> + Sync,
) -> Vec<Result<R>> {
    let results: Vec<Mutex<Option<R>>> = (0..n).map(|_| Mutex::new(None)).collect();
    let ends = run_keeping(builder, n, &|job| {
        let result = body(job)?;
        *results[job.rank().index()].lock() = Some(result);
        Ok(())
    });
    let results = results.into_iter().map(Mutex::into_inner);
    (ends.into_iter().zip(results))
        .map(|(end, result)| {
            end.map(|()| result.expect("the body of a rank that ended well has returned"))
        })
        .collect()
}

/// As [`run`], for a body that keeps its results itself. So this is compiled once, and not in every
/// program for each body.
fn run_keeping(
    builder: &JobBuilder,
    n: u32,
    body: &(dyn Fn(&Job) -> Result<()> + Sync),
) -> Vec<Result<()>> {
    let refused = |error: &Error| (0..n).map(|_| Err(copy_error(error))).collect();
    let network = match JobNetwork::here(builder, n) {
        Ok(network) => network,
        Err(error) => return refused(&error),
    };
    let run_as_rank = |mut bootstrap| {
        let conduit = network.attach(builder, &mut bootstrap)?;
        let settings = builder.settings.clone();
        run_to_end(
            Job::start(conduit, Box::new(bootstrap), settings)?,
            &mut |job| body(job),
        )
    };
    match all_at_once(hydrant_launch::local(n), run_as_rank) {
        Ok(ends) => (ends.into_iter())
            .map(|end| end.unwrap_or_else(|cause| panic::resume_unwind(cause)))
            .collect(),
        Err(cause) => {
            let doing = "starting the threads of the ranks";
            refused(&hydrant_conduit::Error::system(doing, cause).into())
        }
    }
}

/// Runs `body` for each item in a thread of its own. If not all threads can be started it runs
/// none, because those that were started would wait for the others.
fn all_at_once<T: Send, R: Send>(
    each: Vec<T>,
    body: impl Fn(T) -> R + Sync,
) -> io::Result<Vec<thread::Result<R>>> {
    let (body, complete) = (&body, &OnceLock::<bool>::new());
    thread::scope(|scope| {
        let start = |it: T| {
            let work = move || complete.wait().then(|| body(it));
            thread::Builder::new().spawn_scoped(scope, work)
        };
        let threads: io::Result<Vec<_>> = each.into_iter().map(start).collect();
        let _ = complete.set(threads.is_ok());
        let ends = threads?.into_iter();
        Ok(ends.filter_map(|it| it.join().transpose()).collect())
    })
}

/// Copies an error for another rank.
fn copy_error(error: &Error) -> Error {
    match error {
        Error::Setting {
            name,
            value,
            expected,
        } => Error::Setting {
            name,
            value: value.clone(),
            expected: expected.clone(),
        },
        other => Error::other(other.to_string()),
    }
}
