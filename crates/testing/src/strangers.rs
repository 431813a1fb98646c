//! Processes of this host that do not belong to the job and want it to fail: they find its sockets
//! where the system lists them, and send to them and connect with them without an end.

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

/// Strangers at work, until dropped.
pub struct Strangers(Vec<Child>);

impl Strangers {
    /// Starts one of this user, and one of another, if this user may start such.
    ///
    /// # Panics
    /// If the first can't be started.
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

/// Is a stranger until its parent ends, if it was started as one: what the `main` of a test that starts
/// strangers calls first.
///
/// # Panics
/// If there is no socket for it.
pub fn be_one() {
    if std::env::var_os(STRANGER).is_none() {
        return;
    }
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let (sender, connections) = std::sync::mpsc::sync_channel(HELD);
    // A connection waits where there is no room for it, and so does not keep from sending.
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

/// The sockets of jobs.
fn sockets() -> Vec<SocketAddr> {
    let list = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names = list.lines().filter_map(|line| line.rsplit_once('@'));
    names
        .filter(|(_, name)| name.starts_with("hydrant-"))
        .filter_map(|(_, name)| SocketAddr::from_abstract_name(name).ok())
        .collect()
}

/// More datagrams than a queue holds.
fn harass(address: &SocketAddr) {
    let socket = UnixDatagram::unbound().expect("a socket");
    let _ = socket.set_nonblocking(true);
    for _ in 0..20 {
        let _ = socket.send_to_addr(b"", address);
        let _ = socket.send_to_addr(&[0x5a; 20], address);
    }
}
