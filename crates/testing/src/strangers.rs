//! Processes of this host that do not belong to the job and want it to fail. They find its sockets
//! in the system's list, and send to them and connect to them without end.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read},
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt,
        unix::{
            net::{SocketAddr, UnixDatagram, UnixStream},
            process::CommandExt,
        },
    },
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

const STRANGER: &str = "HYDRANT_TEST_STRANGER";
const NOBODY: u32 = 65534;
/// Connections that a stranger keeps open.
const HELD: usize = 300;

/// Strangers at work until dropped.
pub struct Strangers(Vec<Child>);

impl Strangers {
    /// Starts a stranger as this user, and one as another user if permitted.
    ///
    /// # Panics
    /// If the first cannot be started.
    pub fn start() -> Self {
        let mut strangers = Self(vec![start(None).expect("a process")]);
        match start(Some(NOBODY)) {
            Ok(stranger) => strangers.0.push(stranger),
            Err(cause) => eprintln!("no stranger of another user: {cause}"),
        }
        for stranger in &mut strangers.0 {
            let mut line = String::new();
            let output = stranger.stdout.as_mut().expect("piped");
            BufReader::new(output).read_line(&mut line).expect("piped");
            assert_eq!(line, "at work\n");
        }
        strangers
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        for stranger in &mut self.0 {
            let _ = stranger.kill();
            let _ = stranger.wait();
        }
    }
}

fn start(user: Option<u32>) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
        .env(STRANGER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}

/// Plays a stranger until the parent ends, if this process was started as one. The `main` of a test
/// that starts strangers calls this first.
///
/// # Panics
/// If it cannot make a socket.
pub fn be_one() {
    if std::env::var_os(STRANGER).is_none() {
        return;
    }
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let (sender, connections) = std::sync::mpsc::sync_channel(HELD);
    // A connection waits here for room, so that it does not keep the other thread from sending.
    thread::spawn(move || {
        loop {
            for address in sockets() {
                if let Ok(stream) = UnixStream::connect_addr(&address) {
                    let _ = sender.send(OwnedFd::from(stream));
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    let mut held = VecDeque::new();
    for round in 0.. {
        for address in sockets() {
            harass(&address);
        }
        held.extend(connections.try_iter());
        if held.len() > HELD {
            held.pop_front();
        }
        if round == 200 {
            println!("at work");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The sockets of all jobs.
fn sockets() -> Vec<SocketAddr> {
    let list = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names = list.lines().filter_map(|line| line.rsplit_once('@'));
    names
        .filter(|(_, name)| name.starts_with("hydrant-"))
        .filter_map(|(_, name)| SocketAddr::from_abstract_name(name).ok())
        .collect()
}

/// Sends more datagrams than a queue holds.
fn harass(address: &SocketAddr) {
    let socket = UnixDatagram::unbound().expect("a socket");
    let _ = socket.set_nonblocking(true);
    for _ in 0..20 {
        let _ = socket.send_to_addr(b"", address);
        let _ = socket.send_to_addr(&[0x5a; 20], address);
    }
}
