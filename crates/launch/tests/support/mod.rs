//! What the tests that start real jobs share: the test binary started again as
//! `BINARY --role NAME ARGUMENTS` is a rank.

use std::env;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hydrant_launch::{Error, JoinOptions, Kind, join, join_with};
use libtest_mimic::{Arguments, Trial};

/// Longer than anything here takes on a busy machine: only a hang reaches it.
pub(crate) const HANG: Duration = Duration::from_secs(120);

/// Plays the role that the command line names, or runs the tests.
pub(crate) fn main(roles: fn(&str, &[String]) -> Option<ExitCode>, tests: Vec<Trial>) -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [flag, role, rest @ ..] = arguments.as_slice()
        && flag == "--role"
    {
        return shared_role(role, rest)
            .or_else(|| roles(role, rest))
            .unwrap_or_else(|| {
                eprintln!("no role {role}");
                ExitCode::FAILURE
            });
    }
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// A test that passes unless it panics.
pub(crate) fn test(name: &str, body: fn()) -> Trial {
    Trial::test(name, move || {
        body();
        Ok(())
    })
}

/// The command that starts this binary in a role.
pub(crate) fn role(arguments: &[&str]) -> Vec<String> {
    let binary = env::current_exe().expect("the test binary has a path");
    let mut command = vec![
        binary.to_str().expect("and the path is UTF-8").to_owned(),
        "--role".into(),
    ];
    command.extend(arguments.iter().map(|&a| a.to_owned()));
    command
}

fn shared_role(role: &str, _arguments: &[String]) -> Option<ExitCode> {
    Some(match role {
        "exchange" => finish(exchange()),
        "join" => {
            finish(join(Kind::Auto).map(|me| format!("{} {} {}", me.name(), me.rank(), me.size())))
        }
        "no-libpmix" => {
            let options = JoinOptions {
                libpmix: Some("/no/such/libpmix.so".into()),
                ..JoinOptions::default()
            };
            finish(join_with(&options).map(|me| me.name().to_owned()))
        }
        "abort" => finish(abort()),
        _ => return None,
    })
}

/// Prints a whole line in one write, for ranks share the pipe.
pub(crate) fn finish(result: Result<String, Error>) -> ExitCode {
    match result {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Every rank reads from every rank: short, empty, binary and the longest values, over several fences.
fn exchange() -> Result<String, Error> {
    let mut me = join(Kind::Auto)?;
    let size = me.size();
    let secret = me.secret()?;
    me.put("short", &me.rank().to_le_bytes())?;
    me.put("empty", &[])?;
    me.put("binary", &(0..=255).collect::<Vec<u8>>())?;
    me.fence()?;
    me.put("long", &long(me.rank()))?;
    me.fence()?;
    for from in 0..size {
        assert_eq!(me.get(from, "short")?, from.to_le_bytes());
        assert_eq!(me.get(from, "empty")?, []);
        assert_eq!(me.get(from, "binary")?, (0..=255).collect::<Vec<u8>>());
    }
    let right = (me.rank() + 1) % size;
    assert_eq!(me.get(right, "long")?, long(right));
    assert_eq!(
        me.get(right, "secret").ok().map(|s| s == secret),
        (right == 0).then_some(true)
    );
    assert!(matches!(
        me.get(right, "absent"),
        Err(Error::NoSuchKey { .. })
    ));
    assert!(matches!(
        me.get(size, "short"),
        Err(Error::RankOutOfRange { .. })
    ));
    assert!(matches!(
        me.put("short", b"again"),
        Err(Error::KeyTaken { .. })
    ));
    assert!(matches!(
        join(Kind::Pmi1),
        Err(Error::AlreadyJoined | Error::LauncherUnusable { .. })
    ));
    me.fence()?;
    let mut line = format!("{} {} of {size} ", me.name(), me.rank());
    for byte in secret {
        let _ = write!(line, "{byte:02x}");
    }
    me.finalize()?;
    Ok(line)
}

fn long(rank: u32) -> Vec<u8> {
    (0..hydrant_launch::MAX_VALUE)
        .map(|i| (i as u32 * 31 + rank) as u8)
        .collect()
}

/// Rank 1 ends the job while the others wait for it.
fn abort() -> Result<String, Error> {
    let mut me = join(Kind::Auto)?;
    me.fence()?;
    if me.rank() == 1 {
        me.abort(41, "because the test says so");
        std::process::exit(41);
    }
    me.fence()?;
    Ok("the fence was complete".into())
}

/// Whether every one of `size` ranks has printed its line, with one secret.
#[track_caller]
pub(crate) fn check_exchange(output: &Output, service: &str, size: u32) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}: {text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let mut secrets = Vec::new();
    for rank in 0..size {
        let head = format!("{service} {rank} of {size} ");
        let (_, rest) = text
            .split_once(&head)
            .unwrap_or_else(|| panic!("no `{head}` in {text}"));
        secrets.push(rest.lines().next().unwrap_or_default().to_owned());
    }
    assert!(
        secrets.iter().all(|s| *s == secrets[0] && s.len() == 32),
        "{secrets:?}"
    );
}

/// Runs a command to its end, with a guard against hangs.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Output {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let pid = child.id();
    let waiter = thread::spawn(move || child.wait_with_output());
    let begun = Instant::now();
    while !waiter.is_finished() {
        if begun.elapsed() > HANG {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
            panic!("{command:?} hung");
        }
        thread::sleep(Duration::from_millis(5));
    }
    waiter
        .join()
        .expect("the waiter does not panic")
        .expect("a child can be waited for")
}

/// A command that a Debian package brings, or the reason to skip.
pub(crate) fn need(program: &str, package: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|p| p.is_file());
    if found.is_none() {
        missing(program, package);
    }
    found
}

/// Says that a test is skipped, or fails it where skipping is not allowed.
pub(crate) fn missing(what: &str, package: &str) {
    let required = env::var("HYDRANT_TEST_REQUIRE").is_ok_and(|v| v == "1");
    assert!(!required, "{what} is missing: apt-get install {package}");
    eprintln!("skipped: {what} is missing (Debian: {package})");
}
