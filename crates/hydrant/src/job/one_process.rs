//! Jobs in virtual time: the ranks are threads of one process.

use hydrant_launch::Bootstrap;

use super::{Job, JobBuilder, threads};
use crate::{Error, Result};

/// Runs all ranks of a job whose network is inside this process, which a launcher may have started.
/// Returns one result for the job.
pub(super) fn run_as_one_process<R: Send>(
    builder: &JobBuilder,
    bootstrap: &mut dyn Bootstrap,
    body: impl Fn(&Job) -> Result<R> + Sync,
) -> Result<R> {
    let settings = &builder.settings;
    if bootstrap.size() > 1 {
        let error = Error::Setting {
            name: "HYDRANT_CONDUIT",
            value: settings.conduit.to_string(),
            expected: format!(
                "one process, whose threads are the ranks, and the launcher started {0}: use \
                 `hydrant run --conduit {1} -n {0} PROGRAM`, or HYDRANT_SIM_RANKS={0} and one \
                 process",
                bootstrap.size(),
                settings.conduit,
            ),
        };
        bootstrap.abort(1, &error.to_string());
        return Err(error);
    }
    let result = verdict(threads::run(builder, settings.sim_ranks, body));
    if result.is_err() {
        let _ = bootstrap.put(hydrant_launch::FAILING, b"1");
    } else if let Err(cause) = bootstrap.finalize() {
        tracing::warn!(%cause, "the launcher was not told of the end");
    }
    result
}

/// Returns rank 0's result if all succeeded. Otherwise returns the first failure by rank that is
/// not the loss of another rank.
fn verdict<R>(ends: Vec<Result<R>>) -> Result<R> {
    let mut first = None;
    let (mut failure, mut caused) = (None, None);
    for end in ends {
        match end {
            Ok(result) => first = first.or(Some(result)),
            Err(error @ Error::PeerLost(_)) => caused = caused.or(Some(error)),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match failure.or(caused) {
        Some(error) => Err(error),
        None => first.ok_or_else(|| Error::other("a job of no ranks has no result")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConduitKind, Rank, Settings};

    #[test]
    fn a_program_that_joins_as_one_rank_is_told_what_to_call() {
        let builder = JobBuilder::with(Settings::new());
        let joined = builder.conduit(ConduitKind::Sim("foo".to_owned())).join();
        let why = joined.expect_err("there is no such rank").to_string();
        assert!(why.contains("HYDRANT_CONDUIT=sim:foo"), "{why}");
        assert!(
            why.contains("call `run_spmd` in place of `run` or `join`"),
            "{why}"
        );
        assert!(
            why.contains("`hydrant run --conduit sim:foo -n 4 PROGRAM`"),
            "{why}"
        );
    }

    #[test]
    fn the_failure_that_caused_the_others_is_that_of_the_job() {
        assert_eq!(verdict(vec![Ok(7), Ok(8)]).unwrap(), 7);
        let lost = |rank| Err(Error::PeerLost(Rank(rank)));
        let cause = || Err(Error::other("out of ideas"));
        let ends = vec![Ok(7), lost(2), cause(), lost(2)];
        assert_eq!(verdict(ends).unwrap_err().to_string(), "out of ideas");
        let ends = vec![lost(1), Ok(7), lost(0)];
        assert!(matches!(verdict(ends), Err(Error::PeerLost(Rank(1)))));
    }
}
