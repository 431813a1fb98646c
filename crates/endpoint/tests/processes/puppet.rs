//! An endpoint in a process of its own, which does what the test says, line by line.

#![allow(unsafe_code)] // lends memory by its address

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use hydrant_endpoint::{
    Address, Batch, Endpoint, EndpointEvent, Peer, Region, RemoteRegion, Rights,
};
use hydrant_testing::{HANG, roles::role, running};
use rustix::process::{Pid, Signal, kill_process};

use crate::network::Network;

/// The test's side of a puppet. A puppet that is dropped is killed.
pub(crate) struct Puppet {
    process: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    pub(crate) address: Address,
}

impl Puppet {
    /// Starts an endpoint with this name.
    pub(crate) fn start(network: Network, name: &str) -> Self {
        Self::start_by(&[], network, name)
    }

    /// Starts an endpoint by a command that runs the words after its own.
    pub(crate) fn start_by(before: &[&str], network: Network, name: &str) -> Self {
        let before = before.iter().map(|word| (*word).to_owned());
        let role = role(&["puppet", name, network.name()]);
        let words: Vec<String> = before.chain(role).collect();
        let mut process = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let input = process.stdin.take().expect("piped");
        let lines = read(process.stdout.take().expect("piped"));
        let address = lines.recv_timeout(HANG).expect("an address");
        Self {
            process,
            input,
            lines,
            address: address.parse().expect("an address"),
        }
    }

    /// Gives an order. The answer is to be [heard](Self::hear).
    pub(crate) fn tell(&mut self, order: &str) {
        writeln!(self.input, "{order}").expect("the puppet lives");
    }

    /// Returns the next answer.
    pub(crate) fn hear(&mut self) -> String {
        self.lines.recv_timeout(HANG).expect("an answer in time")
    }

    /// Gives an order, and returns the answer.
    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.hear()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the puppet lives");
    }

    /// Stops all threads of the puppet.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.process.id());
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let path = task.expect("a thread").path().join("stat");
            let stat = std::fs::read_to_string(path).expect("a thread");
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        running::until(|| std::fs::read_dir(&tasks).expect("threads").all(is_stopped));
    }

    /// Kills the puppet, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Returns a number from `/proc/PID/status`, such as `VmRSS`, in KiB.
    pub(crate) fn status(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.process.id());
        let text = std::fs::read_to_string(path).expect("a process");
        let line = text.lines().find(|line| line.starts_with(field));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number
            .and_then(|number| number.parse().ok())
            .expect("a number")
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read(from: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// The memory and the peers of a puppet.
#[derive(Default)]
struct Things {
    regions: HashMap<String, Region>,
    peers: HashMap<String, Peer>,
    remotes: HashMap<String, RemoteRegion>,
    /// The addresses of lent memory.
    memory: HashMap<String, usize>,
}

/// Plays a puppet.
pub(crate) fn play(name: &str, network: &str) -> ExitCode {
    let network = Network::of_name(network);
    let endpoint = network.endpoint(name);
    println!("{}", network.address(&endpoint));
    let mut things = Things::default();
    for line in std::io::stdin().lines() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split_whitespace().collect();
        if words == ["end"] {
            break;
        }
        let answer = obey(&endpoint, &mut things, &words);
        println!(
            "{}",
            answer.unwrap_or_else(|error| format!("error {error}"))
        );
    }
    ExitCode::SUCCESS
}

fn obey(
    endpoint: &Endpoint,
    things: &mut Things,
    words: &[&str],
) -> hydrant_endpoint::Result<String> {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    Ok(match *words {
        // Lends memory that peers map, or that they copy; the answer is its descriptor.
        ["alloc", name, bytes] => {
            let region = endpoint.alloc(number(bytes) as usize)?;
            let descriptor = region.descriptor(Rights::READ_WRITE);
            things.regions.insert(name.into(), region);
            descriptor.to_string()
        }
        ["expose", name, bytes] => {
            let region = endpoint.expose(vec![0; number(bytes) as usize])?;
            let descriptor = region.descriptor(Rights::READ_WRITE);
            things.regions.insert(name.into(), region);
            descriptor.to_string()
        }
        ["fill", name, byte] => {
            let region = &things.regions[name];
            region.write(0, &vec![number(byte) as u8; region.len()])?;
            "filled".into()
        }
        // Answers with the byte that the whole region has, or `mixed`.
        ["look", name] => {
            let region = &things.regions[name];
            let mut bytes = vec![0; region.len()];
            region.read(0, &mut bytes)?;
            match bytes.iter().all(|byte| *byte == bytes[0]) {
                true => bytes[0].to_string(),
                false => "mixed".into(),
            }
        }
        ["revoke", name] => {
            things.regions[name].revoke()?;
            "revoked".into()
        }
        // Lends memory of its own that it can look at when it is revoked.
        ["lend", name, bytes] => {
            let memory = Box::leak(vec![0_u64; number(bytes) as usize / 8].into_boxed_slice());
            let (base, len) = (memory.as_mut_ptr().cast::<u8>(), memory.len() * 8);
            // SAFETY: 1. the memory is initialized. 2. It is leaked, and only looked at after the revocation. 3. It is no
            // matter what it holds.
            let region = unsafe { endpoint.expose_raw(base, len)? };
            let descriptor = region.descriptor(Rights::READ_WRITE);
            things.regions.insert(name.into(), region);
            things.memory.insert(name.into(), base.expose_provenance());
            descriptor.to_string()
        }
        // Revokes, and looks whether the memory still changes.
        ["revoke-and-watch", name] => {
            let region = &things.regions[name];
            region.revoke_within(HANG)?;
            let base = std::ptr::with_exposed_provenance_mut::<u8>(things.memory[name]);
            // SAFETY: the memory is leaked, and nobody else uses it after the revocation.
            let bytes = unsafe { std::slice::from_raw_parts_mut(base, region.len()) };
            bytes.fill(0xee);
            for _ in 0..10 {
                thread::sleep(Duration::from_micros(200));
                if std::hint::black_box(&*bytes)
                    .iter()
                    .any(|byte| *byte != 0xee)
                {
                    return Ok("changed".into());
                }
            }
            "still".into()
        }
        ["connect", name, address] => {
            let peer = endpoint.connect(&address.parse()?)?;
            things.peers.insert(name.into(), peer);
            "connected".into()
        }
        ["open", name, peer, descriptor] => {
            let remote = things.peers[peer].open(&descriptor.parse()?)?;
            things.remotes.insert(name.into(), remote);
            "open".into()
        }
        ["write", name, offset, byte, len] => {
            let bytes = vec![number(byte) as u8; number(len) as usize];
            things.remotes[name].write(number(offset), &bytes)?;
            "written".into()
        }
        // Writes a byte all over a region, from several threads, until that fails; the answer is the error.
        ["hammer", name, byte, threads] => {
            let remote = &things.remotes[name];
            let bytes = vec![number(byte) as u8; remote.len() as usize];
            let errors: Vec<_> = thread::scope(|scope| {
                let hammers: Vec<_> = (0..number(threads))
                    .map(|_| {
                        scope.spawn(|| {
                            loop {
                                if let Err(error) = remote.write(0, &bytes) {
                                    return error;
                                }
                            }
                        })
                    })
                    .collect();
                hammers
                    .into_iter()
                    .map(|it| it.join().expect("no panic"))
                    .collect()
            });
            return Err(errors.into_iter().next().expect("a thread"));
        }
        // Writes a byte all over a region, and sends a message with it.
        ["write-and-tell", name, byte, peer] => {
            let remote = &things.remotes[name];
            let own = endpoint.expose(vec![number(byte) as u8; remote.len() as usize])?;
            let mut batch = Batch::new();
            batch.write_region(remote, 0, &own, 0..remote.len())?;
            batch.message(&things.peers[peer], byte.as_bytes())?;
            std::mem::forget(batch.start()?);
            "started".into()
        }
        ["send", peer, text] => {
            things.peers[peer].send(text.as_bytes())?;
            "sent".into()
        }
        ["peers"] => endpoint.peers().len().to_string(),
        ["event"] => match endpoint.next_event_within(HANG)? {
            None => "none".into(),
            Some(EndpointEvent::Connected(peer)) => {
                let text = format!("connected {}", peer.name());
                things.peers.insert(peer.name().into(), peer);
                text
            }
            Some(EndpointEvent::Returned { peer, .. }) => {
                let text = format!("returned {}", peer.name());
                things.peers.insert(peer.name().into(), peer);
                text
            }
            Some(EndpointEvent::Left(peer)) => format!("left {}", peer.name()),
            Some(EndpointEvent::Lost { peer, cause }) => format!("lost {} {cause}", peer.name()),
            Some(EndpointEvent::Message { peer, bytes }) => {
                format!(
                    "message {} {}",
                    peer.name(),
                    String::from_utf8_lossy(&bytes)
                )
            }
            Some(_) => "another event".into(),
        },
        _ => panic!("no such order: {words:?}"),
    })
}
