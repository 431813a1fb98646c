//! Runs commands at the workspace root. Their output goes to standard error, so that standard
//! output holds only the table.

use std::env;
use std::io::{self, BufRead, BufReader, IsTerminal, Write, stderr};
use std::path::{self, Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::error::Error;

/// The cargo that runs this program, with arguments written as in a shell.
pub(crate) fn cargo(arguments: &str) -> Command {
    let mut command = at_root(&cargo_program());
    command.args(arguments.split_whitespace());
    command
}

/// Cargo by its name, since only rustup's proxy understands `+toolchain`.
pub(crate) fn by_rustup(words: &[&str]) -> Command {
    let mut command = at_root("cargo");
    command.args(words);
    command
}

/// The path of the cargo that runs this program.
pub(crate) fn cargo_program() -> String {
    env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

/// The target folder of cargo, which also holds our own files that git does not track.
pub(crate) fn target_folder() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let named = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| workspace.join("target"));
    // An absolute path cannot be made where there is no current folder; the name is used as it is.
    path::absolute(&folder).unwrap_or(folder)
}

/// `program`, to be run in the folder of the workspace's `Cargo.toml`.
pub(crate) fn at_root(program: &str) -> Command {
    let mut command = Command::new(program);
    if let Some(root) = Path::new(env!("CARGO_MANIFEST_DIR")).parent() {
        command.current_dir(root);
    }
    // No check may wait for an answer from a person.
    command.stdin(Stdio::null());
    command
}

/// Runs `command` to its end; anything but success is an error.
pub(crate) fn run(command: Command) -> Result<(), Error> {
    let (name, status) = run_listening(command, |_| {})?;
    succeeded(name, status, vec![]).map(drop)
}

/// The milliseconds that cargo took to compile since [`take_building`].
static BUILDING: AtomicU64 = AtomicU64::new(0);

/// Returns the time that cargo took to compile since the last call, as it reported itself.
pub(crate) fn take_building() -> Duration {
    Duration::from_millis(BUILDING.swap(0, Relaxed))
}

/// Runs `command` to its end, shows its output meanwhile, and passes every line to `listen`.
/// Returns the exit status, success or not.
pub(crate) fn run_listening(
    command: Command,
    listen: impl FnMut(&str),
) -> Result<(String, ExitStatus), Error> {
    let name = announce(&command);
    match listened(command, listen) {
        Ok(status) => Ok((name, status)),
        Err(source) => Err(Error::NotRun {
            command: name,
            source,
        }),
    }
}

/// Runs `command` to its end and returns its standard output. Its standard error is shown.
pub(crate) fn output(mut command: Command) -> Result<Vec<u8>, Error> {
    let name = announce(&command);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|source| Error::NotRun {
        command: name.clone(),
        source,
    })?;
    succeeded(name, output.status, vec![])?;
    Ok(output.stdout)
}

/// True if `command` can be started and succeeds. Its output is thrown away.
pub(crate) fn succeeds(mut command: Command) -> bool {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// The command's summary, or the error that says which command ended how.
pub(crate) fn succeeded(
    command: String,
    status: ExitStatus,
    summary: Vec<String>,
) -> Result<Vec<String>, Error> {
    if status.success() {
        Ok(summary)
    } else {
        Err(Error::Failed {
            command,
            status,
            summary,
        })
    }
}

fn listened(mut command: Command, mut listen: impl FnMut(&str)) -> io::Result<ExitStatus> {
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    if stderr().is_terminal() {
        // Cargo sees a pipe. A person sees the output.
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command.spawn()?;
    // Our own copies of the writing end must close: the reader sees no end of file while one is
    // open.
    drop(command);

    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        stderr().write_all(&line)?;
        let text = String::from_utf8_lossy(&line);
        if let Some(time) = built_in(&text) {
            BUILDING.fetch_add(time.as_millis() as u64, Relaxed);
        }
        listen(text.trim_end());
        line.clear();
    }
    child.wait()
}

/// The time in cargo's line ``Finished `test` profile [optimized] target(s) in 1m 41s``.
fn built_in(line: &str) -> Option<Duration> {
    let (_, time) = line
        .split_once("Finished")
        .and_then(|(_, rest)| rest.split_once(" target(s) in "))?;
    let (minutes, seconds) = time.trim().split_once("m ").unwrap_or(("0", time.trim()));
    let minutes: f64 = minutes.parse().ok()?;
    let seconds: f64 = seconds.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(minutes * 60.0 + seconds).ok()
}

/// Shows the command as a shell would read it, and returns that text.
fn announce(command: &Command) -> String {
    let name = typed(command);
    eprintln!("$ {name}");
    name
}

/// The command as a shell would read it.
pub(crate) fn typed(command: &Command) -> String {
    let mut name = String::new();
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            name += &format!("{}={} ", key.display(), quoted(&value.to_string_lossy()));
        }
    }
    let program = Path::new(command.get_program());
    name += &program.file_name().unwrap_or_default().to_string_lossy();
    for argument in command.get_args() {
        name.push(' ');
        name += &quoted(&argument.to_string_lossy());
    }
    name
}

/// `word` as a shell reads it back.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = at_root("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_are_listened_to_in_order() {
        let mut lines = Vec::new();
        let script = "echo one; echo two >&2; printf three";
        let listen = |line: &str| lines.push(line.to_owned());
        let (_, status) = run_listening(shell(script), listen).unwrap();
        assert!(status.success());
        assert_eq!(lines, ["one", "two", "three"]);
    }

    #[test]
    fn the_time_that_cargo_compiled_is_kept() {
        let of = |text: &str| built_in(text).map(|time| time.as_secs_f64());
        let line = "    Finished `test` profile [optimized] target(s) in 1m 41s\n";
        assert_eq!(of(line), Some(101.0));
        assert_eq!(
            of("\x1b[32m Finished\x1b[0m `dev` profile target(s) in 0.52s"),
            Some(0.52)
        );
        assert_eq!(of("Finished in 3s"), None);
    }

    #[test]
    fn a_failing_command_is_named_with_its_status() {
        let error = run(shell("exit 3")).unwrap_err();
        assert!(!error.could_not_run());
        assert_eq!(
            error.to_string(),
            "`sh -c 'exit 3'` ended with exit status: 3"
        );
    }

    #[test]
    fn a_command_that_does_not_exist_could_not_run() {
        let error = run(at_root("hydrant-has-no-such-program")).unwrap_err();
        assert!(error.could_not_run());
    }

    #[test]
    fn words_a_shell_would_split_are_quoted() {
        assert_eq!(quoted("--workspace"), "--workspace");
        assert_eq!(quoted("test(kill_loop)"), "'test(kill_loop)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
