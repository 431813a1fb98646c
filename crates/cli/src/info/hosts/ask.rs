//! A question to hosts, as a job of `hydrant run`.

use std::env;
use std::process::{Command, Stdio};

use hydrant_launch::launcher::{ADVICE, Host};
use hydrant_report::remote::{HYDRANT, RemoteArgs};
use serde::de::DeserializeOwned;

use crate::probe::Question;

/// The seconds for ranks to reach each other, unless the environment names others.
const JOIN_TIMEOUT: &str = "10";

/// The seconds for a whole job. Agents have a minute to answer.
const TIMEOUT: &str = "100";

/// The end of the sentence about the places of ranks that no network joins. The cause follows in brackets.
const OF_PLACES: &str = "if HYDRANT_HOST_ID does not say otherwise (";

/// Runs a job with one rank on each host, and returns the answer that it printed.
///
/// The error is the job's, in a sentence that follows the host's name.
pub(super) fn hosts<T: DeserializeOwned>(
    remote: &RemoteArgs,
    hosts: &[String],
    question: Question,
) -> Result<T, String> {
    let own =
        env::current_exe().map_err(|cause| format!("this command cannot find itself: {cause}"))?;
    let mut run = Command::new(own);
    let slots: Vec<Host> = (hosts.iter())
        .map(|name| Host {
            name: name.clone(),
            slots: Some(1),
        })
        .collect();
    let ranks = hosts.len().to_string();
    run.args(["run", "-n", &ranks, "--prefix", "none", "--bind", "none"])
        .args(["--timeout", TIMEOUT])
        .args(remote.words(&slots))
        .arg("--")
        .args(remote.command(HYDRANT))
        .stdin(Stdio::null());
    if env::var_os("HYDRANT_JOIN_TIMEOUT").is_none() {
        run.env("HYDRANT_JOIN_TIMEOUT", JOIN_TIMEOUT);
    }
    let output = (run.args(question.words()).output())
        .map_err(|cause| format!("`hydrant run` could not be started: {cause}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(name_ranks(&cause(&errors), hosts));
    }
    let answer = printed.lines().rfind(|line| line.starts_with('{'));
    let answer = answer.and_then(|line| serde_json::from_str(line).ok());
    answer.ok_or_else(|| {
        "its hydrant does not answer as this one does: every host needs the same build".to_owned()
    })
}

/// Returns the cause of a job's failure from its error output: the sentence of the launcher about a host, else the first
/// error of a rank. Words of the remote shell are its explanation.
fn cause(errors: &str) -> String {
    let lines: Vec<&str> = errors
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let of_host = lines.iter().find_map(|line| {
        let (_, why) = line
            .strip_prefix("hydrant run: host ")?
            .split_once(", of rank")?;
        // The list of ranks has commas, but no blank after its last number.
        let (_, why) = why.split_once(|it: char| it.is_ascii_digit())?;
        Some(why.trim_start_matches(|it: char| it.is_ascii_digit() || ", -".contains(it)))
    });
    let of_rank = || lines.iter().find_map(|line| line.strip_prefix("hydrant: "));
    let of_launcher = || {
        lines
            .iter()
            .find_map(|line| line.strip_prefix("hydrant run: "))
    };
    let Some(cause) = of_host.or_else(of_rank).or_else(of_launcher) else {
        return lines.last().map_or_else(
            || "it failed without a word".to_owned(),
            |line| (*line).to_owned(),
        );
    };
    // Hosts are named here already, so only the cause that ends the sentence about them counts.
    let cause = (cause.split_once(OF_PLACES))
        .and_then(|(_, rest)| rest.strip_suffix(')'))
        .unwrap_or(cause);
    // The advice is to run this command.
    let cause = cause.strip_suffix(ADVICE).unwrap_or(cause);
    let explanation: Vec<&str> = (lines.iter().copied())
        .take_while(|line| !line.starts_with("hydrant"))
        .collect();
    match explanation.as_slice() {
        [] => cause.to_owned(),
        words => format!("{cause} ({})", words.join("; ")),
    }
}

/// Adds the host to each rank that the text names.
fn name_ranks(text: &str, hosts: &[String]) -> String {
    if hosts.len() < 2 {
        return text.to_owned();
    }
    (hosts.iter().enumerate()).fold(text.to_owned(), |text, (rank, host)| {
        text.replace(&format!("rank {rank} "), &format!("rank {rank} ({host}) "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_that_of_the_host_or_of_the_first_rank() {
        let of_host = "ssh: connect to host b port 22: No route to host\n\
                       hydrant run: host b, of rank 0, could not be reached: its remote shell ended with status 255\n";
        assert_eq!(
            cause(of_host),
            "could not be reached: its remote shell ended with status 255 (ssh: connect to host b port 22: No route to \
             host)"
        );
        let advised = of_host.replace("255\n", &format!("255{ADVICE}\n"));
        assert_eq!(cause(&advised), cause(of_host));
        let of_rank = "hydrant: rank 1 at 10.0.0.2:4000 was not reached\n\
                       hydrant run: rank 0 ended with status 1; it was the first to fail\n";
        assert_eq!(cause(of_rank), "rank 1 at 10.0.0.2:4000 was not reached");
        assert_eq!(
            cause("hydrant run: the job took longer than 9 s and is ended\n"),
            "the job took longer than 9 s and is ended"
        );
        let of_places = "hydrant: rank 0 on x, rank 1 on y: ranks of one kernel share memory, \
                         if HYDRANT_HOST_ID does not say otherwise (rank 1 (at z) is gone)\n";
        assert_eq!(cause(of_places), "rank 1 (at z) is gone");
        assert_eq!(cause("Killed\n"), "Killed");
        assert_eq!(cause(""), "it failed without a word");
    }

    #[test]
    fn ranks_have_the_names_of_their_hosts() {
        let hosts = ["a".to_owned(), "b".to_owned()];
        assert_eq!(
            name_ranks("rank 1 at x and rank 10 are", &hosts),
            "rank 1 (b) at x and rank 10 are"
        );
    }
}
