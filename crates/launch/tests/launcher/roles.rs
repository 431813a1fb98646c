//! The roles of this binary beside the tests.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use hydrant_launch::launcher::{self, Bind, Prefix, Spec};
use hydrant_launch::{BootstrapKind, Error, join};

use crate::support::{self, finish};
use hydrant_testing::{HANG, roles::role};

/// Runs a role of this binary, or one of the shared roles.
pub(crate) fn roles(role: &str, arguments: &[String]) -> Option<ExitCode> {
    Some(match role {
        "launcher" => launcher_role(arguments),
        "agent" => ExitCode::from(launcher::agent()),
        "leave" => finish(leave()),
        "last-words" => last_words(),
        "fail-late" => fail_late(&arguments[0]),
        "say" => say(arguments),
        "flood" => flood(arguments),
        "lying-agent" => lying_agent(arguments),
        _ => return support::roles(role, arguments),
    })
}

/// `[-n N] [--none] [--core] [--grace S] [--timeout S] [--beside D] [--workspace D]
/// [--hosts A,B] [--rsh COMMAND] [--silence S] PROGRAM ARGUMENTS`
pub(crate) fn launcher_role(arguments: &[String]) -> ExitCode {
    let mut spec = Spec::new(2, "");
    let mut rest = arguments.iter();
    let seconds = |text: &String| Duration::from_secs_f64(text.parse().expect("seconds"));
    while let Some(word) = rest.next() {
        let mut value = || rest.next().expect("a value");
        match word.as_str() {
            "-n" => spec.ranks = value().parse().expect("a number"),
            "--none" => spec.prefix = Prefix::None,
            "--core" => spec.bind = Bind::Core,
            "--grace" => spec.grace = seconds(value()),
            "--beside" => spec.beside = Some(value().into()),
            "--workspace" => spec.workspace = Some(value().into()),
            "--timeout" => spec.timeout = Some(seconds(value())),
            "--hosts" => {
                let hosts = value().split(',').map(|host| host.parse().expect("a host"));
                spec.remote.hosts = hosts.collect();
                spec.remote.agent = role(&["agent"]).into_iter().map(Into::into).collect();
            }
            "--name-hosts" => spec.remote.name_hosts = true,
            "--rsh" => spec.remote.shell = value().into(),
            "--silence" => spec.remote.silence = seconds(value()),
            program => {
                spec.program = program.into();
                spec.arguments = rest.by_ref().map(Into::into).collect();
            }
        }
    }
    // One write for each event, because the ranks write to the same stream.
    let mut report = |event| {
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            format!("launcher: {event}\n").as_bytes(),
        );
    };
    match launcher::run(&spec, &mut report) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("launcher: {error}");
            ExitCode::from(error.status())
        }
    }
}

/// Rank 1 ends silently while the others are in a fence.
pub(crate) fn leave() -> Result<String, Error> {
    let mut me = join(BootstrapKind::Auto)?;
    me.fence()?;
    if me.rank() == 1 {
        return Ok("left".into());
    }
    me.fence()?;
    Ok("the fence was complete".into())
}

/// Rank 1 announces its failure and ends late. Rank 0 fails at once in consequence.
pub(crate) fn fail_late(said: &str) -> ExitCode {
    let mut me = join(BootstrapKind::Auto).expect("a launcher");
    if me.rank() == 1 {
        me.put(hydrant_launch::FAILING, b"1").expect("an answer");
        fs::write(said, "").expect("a file");
        thread::sleep(Duration::from_millis(500));
        return ExitCode::from(9);
    }
    while fs::metadata(said).is_err() {
        thread::sleep(Duration::from_millis(1));
    }
    ExitCode::from(1)
}

/// Rank 1 aborts the job, and prints the reason after the launcher has noticed.
fn last_words() -> ExitCode {
    let mut me = join(BootstrapKind::Auto).expect("a launcher");
    if me.rank() == 1 {
        me.abort(41, "in short");
        thread::sleep(Duration::from_millis(50));
        eprint!("Error: ");
        thread::sleep(Duration::from_millis(50));
        eprintln!("at length");
        return ExitCode::from(41);
    }
    thread::sleep(HANG);
    ExitCode::SUCCESS
}

/// Sends the arguments unchanged on PMI_FD, and prints the answer or waits to be ended.
pub(crate) fn say(arguments: &[String]) -> ExitCode {
    let number = env::var("PMI_FD")
        .ok()
        .and_then(|fd| fd.parse().ok())
        .expect("PMI_FD");
    let mut stream = own(number);
    for text in arguments {
        stream
            .write_all(text.replace("\\n", "\n").as_bytes())
            .expect("the launcher reads");
    }
    let mut answer = [0; 4096];
    if let Ok(n @ 1..) = stream.read(&mut answer) {
        print!("{}", String::from_utf8_lossy(&answer[..n]));
        return ExitCode::SUCCESS;
    }
    thread::sleep(HANG);
    ExitCode::SUCCESS
}

/// Sends the first argument once and the second endlessly on PMI_FD, and reads the answers.
fn flood(arguments: &[String]) -> ExitCode {
    let number = env::var("PMI_FD").ok();
    let number = number.and_then(|fd| fd.parse().ok()).expect("PMI_FD");
    let mut stream = own(number);
    let [once, again] = arguments else {
        panic!("two texts");
    };
    let text = |text: &str| text.replace("\\n", "\n");
    let _ = stream.write_all(text(once).as_bytes());
    println!("at it");
    let piece = text(again).repeat(10_000);
    // A command gets answers, and a thread reads them.
    let mut answers = stream.try_clone().expect("a descriptor");
    if arguments[1].contains("cmd=") {
        thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
    }
    while stream.write_all(piece.as_bytes()).is_ok() {}
    // After the launcher hung up, the rank waits to be ended.
    thread::sleep(HANG);
    ExitCode::SUCCESS
}

/// An agent that sends one message endlessly and ignores every order.
fn lying_agent(arguments: &[String]) -> ExitCode {
    let frame = |body: &[u8]| [&(body.len() as u32).to_le_bytes()[..], body, b"\n"].concat();
    let begun = frame(&[0]);
    let again = match arguments[0].as_str() {
        "beats" => frame(&[9]).repeat(10_000),
        // The agent reads no answers to its rank's lines.
        "lines" => frame(&[&[2, 0, 13][..], b"cmd=get_maxes"].concat()).repeat(1000),
        "prints" => frame(&[&[6, 0, 0, 0x80, 0x80, 1][..], &[b'x'; 1 << 14]].concat()).repeat(64),
        "version" => {
            println!("Welcome!\nhydrant agent 0.0.1");
            thread::sleep(HANG);
            return ExitCode::SUCCESS;
        }
        other => panic!("no such lie: {other}"),
    };
    let mut out = std::io::stdout().lock();
    let greeting = concat!("\nhydrant agent ", env!("CARGO_PKG_VERSION"), "\n");
    let _ = out.write_all(greeting.as_bytes());
    let _ = out.write_all(&begun);
    while out.write_all(&again).is_ok() {}
    ExitCode::SUCCESS
}

/// Returns the file of a descriptor.
#[allow(
    unsafe_code,
    reason = "a rank that speaks PMI-1 badly has no library for it"
)]
pub(crate) fn own(number: i32) -> fs::File {
    // SAFETY: the launcher opened the descriptor for this process, which uses it nowhere else.
    unsafe { fs::File::from_raw_fd(number) }
}
