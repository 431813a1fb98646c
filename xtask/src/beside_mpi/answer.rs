//! Runs a program until its answer.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::{succeeded, typed};
use crate::error::Error;

/// The time that a program may take to its answer. It is only there to end a hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// The time that a launcher has to end after the answer. `MPI_Finalize` of MPICH 4.0.2 over UCX
/// and TCP often does not return: one rank flushes, and the other polls no more.
const END: Duration = Duration::from_secs(2);

/// Returns the program's answer, without the counters that only one side prints, and its seconds.
pub(super) fn answer(mut command: Command, name: &str) -> Result<(String, f64), Error> {
    let text = typed(&command);
    eprintln!("$ {text}");
    let not_run = |source| Error::NotRun {
        command: text.clone(),
        source,
    };
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(not_run)?;
    let found = listen(&mut child, name);
    let status = end(&mut child).map_err(not_run)?;
    if let Some(found) = found {
        return Ok(found);
    }
    succeeded(text, status, vec![])?;
    let what = format!("{name} gave no answer");
    Err(Error::NotRead { what })
}

/// The answer in the output, if there is one in time.
fn listen(child: &mut Child, name: &str) -> Option<(String, f64)> {
    let output = BufReader::new(child.stdout.take()?);
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        // The listener may have gone: nothing is read any more then.
        (output.lines().map_while(Result::ok)).all(|line| sender.send(line).is_ok())
    });
    let last = Instant::now() + PATIENCE;
    loop {
        match lines.recv_timeout(last.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some(found) = parse(&line, name) {
                    return Some(found);
                }
                eprintln!("{line}");
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// The answer and the seconds in a line.
fn parse(line: &str, name: &str) -> Option<(String, f64)> {
    // A launcher may write the rank before each line.
    let (_, line) = line.split_once(name)?;
    let (answer, seconds) = line.strip_prefix(": ")?.rsplit_once(" in ")?;
    let answer = answer.split(',').next()?.to_owned();
    Some((answer, seconds.strip_suffix(" s")?.parse().ok()?))
}

/// Waits for the end, or kills the launcher. The ranks end with it.
fn end(child: &mut Child) -> io::Result<ExitStatus> {
    let last = Instant::now() + END;
    while Instant::now() < last {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn an_answer_is_told_from_counters_and_prefixes() {
        let line = "[0] page_server: 1000 reads, 23 of pages that had gone, in 0.25 s";
        assert_eq!(
            parse(line, "page_server"),
            Some(("1000 reads".into(), 0.25))
        );
        assert_eq!(parse("halo: 28.1 of heat in x s", "halo"), None);
    }

    #[test]
    fn a_launcher_that_hangs_after_the_answer_is_killed() {
        let script = "echo 'halo: 2 of heat in 0.5 s'; exec sleep 600";
        let found = answer(shell(script), "halo").unwrap();
        assert_eq!(found, ("2 of heat".into(), 0.5));
    }

    #[test]
    fn a_program_without_an_answer_is_an_error() {
        let failed = answer(shell("echo no; exit 3"), "halo").unwrap_err();
        assert!(failed.to_string().contains("exit status: 3"), "{failed}");
        let silent = answer(shell("true"), "halo").unwrap_err();
        assert!(silent.to_string().contains("no answer"), "{silent}");
    }
}
