//! Roles and checks that the tests of real jobs share.

use std::env;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{ExitCode, Output};

use hydrant_launch::{BootstrapKind, Error, JoinOptions, join, join_with};

/// Runs a role that all of these tests share.
pub(crate) fn roles(role: &str, _arguments: &[String]) -> Option<ExitCode> {
    Some(match role {
        "exchange" => finish(exchange()),
        "join" => finish(
            join(BootstrapKind::Auto)
                .map(|me| format!("{} {} {}", me.name(), me.rank(), me.size())),
        ),
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

/// Prints a whole line in one write, because ranks share the pipe.
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

/// Every rank reads from every rank: short, empty, binary and the longest values, over several
/// fences.
fn exchange() -> Result<String, Error> {
    let mut me = join(BootstrapKind::Auto)?;
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
        join(BootstrapKind::Pmi1),
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
    let mut me = join(BootstrapKind::Auto)?;
    me.fence()?;
    if me.rank() == 1 {
        me.abort(41, "because the test says so");
        std::process::exit(41);
    }
    me.fence()?;
    Ok("the fence was complete".into())
}

/// Checks that each of the `size` ranks has printed its line, with the same secret.
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

/// Returns the path of a command from a Debian package, or prints the reason to skip.
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

/// Reports that a test is skipped, or fails the test if skipping is not allowed.
pub(crate) fn missing(what: &str, package: &str) {
    let required = env::var("HYDRANT_TEST_REQUIRE").is_ok_and(|v| v == "1");
    assert!(!required, "{what} is missing: apt-get install {package}");
    eprintln!("skipped: {what} is missing (Debian: {package})");
}
