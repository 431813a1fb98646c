//! Ranks as children of the test, which is their launcher: they speak to it in lines on
//! their standard input and output.

#![allow(dead_code, reason = "each test that includes this uses a part of it")]

pub(crate) mod strangers;

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    process::{self, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use hydrant_launch::{Bootstrap, Error};

const RANK: &str = "HYDRANT_TEST_RANK";
const SIZE: &str = "HYDRANT_TEST_SIZE";
const ROLE: &str = "HYDRANT_TEST_ROLE";

/// The launcher's side.
pub(crate) struct Family {
    ranks: Vec<Member>,
    /// What was put, as sent on to everybody.
    put: Vec<String>,
}

struct Member {
    process: process::Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Family {
    pub(crate) fn start(role: &str, ranks: usize) -> Self {
        let program = std::env::current_exe().expect("a test has a file");
        let ranks = (0..ranks)
            .map(|rank| {
                let mut process = Command::new(&program)
                    .env(RANK, rank.to_string())
                    .env(SIZE, ranks.to_string())
                    .env(ROLE, role)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .expect("a process");
                let input = process.stdin.take().expect("piped");
                let output = BufReader::new(process.stdout.take().expect("piped"));
                let (sender, lines) = channel();
                thread::spawn(move || {
                    for line in output.lines().map_while(Result::ok) {
                        let _ = sender.send(line);
                    }
                });
                Member {
                    process,
                    input,
                    lines,
                }
            })
            .collect();
        Self {
            ranks,
            put: Vec::new(),
        }
    }

    /// Serves the key-value space until the ranks wait for something else, or have ended.
    pub(crate) fn serve(&mut self, ranks: usize, guard: Duration) {
        let since = Instant::now();
        let mut fencing = vec![false; ranks];
        let mut serving = vec![true; ranks];
        while serving.contains(&true) {
            assert!(
                since.elapsed() < guard,
                "the ranks do not come along: {fencing:?}"
            );
            for rank in 0..ranks {
                if !serving[rank] || fencing[rank] {
                    continue;
                }
                match self.ranks[rank]
                    .lines
                    .recv_timeout(Duration::from_millis(1))
                {
                    Ok(line) if line == "fence" => fencing[rank] = true,
                    Ok(line) if line == "served" => serving[rank] = false,
                    Ok(line) => self.put.push(line),
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => serving[rank] = false,
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                }
            }
            if !fencing.contains(&false) {
                let news = self.put.join("\n");
                (0..ranks).for_each(|rank| self.tell(rank, &format!("{news}\nfenced")));
                fencing.fill(false);
            }
        }
    }

    pub(crate) fn tell(&mut self, rank: usize, text: &str) {
        // One that has ended hears nothing.
        let _ = writeln!(self.ranks[rank].input, "{text}");
    }

    pub(crate) fn expect_line(&mut self, rank: usize, line: &str, guard: Duration) {
        let said = self.ranks[rank].lines.recv_timeout(guard);
        assert_eq!(said.as_deref(), Ok(line), "said by rank {rank}");
    }

    pub(crate) fn kill(&mut self, rank: usize) {
        self.ranks[rank].process.kill().expect("SIGKILL");
    }

    pub(crate) fn wait(&mut self, rank: usize, guard: Duration) -> ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(status) = self.ranks[rank].process.try_wait().expect("a child") {
                return status;
            }
            assert!(since.elapsed() < guard, "rank {rank} does not end");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Fails if the job's socket or a file of it is still there.
    pub(crate) fn nothing_left(&self) {
        let sockets = std::fs::read_to_string("/proc/net/unix").expect("the list of sockets");
        for name in sockets
            .lines()
            .filter_map(|line| line.rsplit_once("@hydrant-"))
        {
            let ours = self.put.iter().any(|put| put.contains(name.1));
            assert!(!ours, "the socket {} is left", name.1);
        }
        assert!(
            self.put.iter().any(|put| put.contains(" smp ")),
            "no invitation to compare sockets with"
        );
        for file in std::fs::read_dir("/dev/shm")
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = file.file_name().to_string_lossy().into_owned();
            assert!(!name.contains("hydrant"), "/dev/shm/{name} is left");
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        for member in &mut self.ranks {
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
    }
}

/// A rank's side.
pub(crate) struct Child {
    rank: u32,
    size: u32,
    pub(crate) role: String,
    values: HashMap<(u32, String), Vec<u8>>,
}

impl Child {
    /// `None` in the test itself.
    pub(crate) fn from_environment() -> Option<Self> {
        let number = |name| std::env::var(name).ok()?.parse().ok();
        Some(Self {
            rank: number(RANK)?,
            size: number(SIZE)?,
            role: std::env::var(ROLE).ok()?,
            values: HashMap::new(),
        })
    }

    pub(crate) fn say(&self, line: &str) {
        println!("{line}");
    }

    pub(crate) fn read_line(&self) -> String {
        let mut line = String::new();
        std::io::stdin()
            .read_line(&mut line)
            .expect("the launcher lives");
        assert!(!line.is_empty(), "the launcher is gone");
        line.trim_end().to_owned()
    }

    /// What every rank says, by rank. After the last exchange come meetings only.
    pub(crate) fn exchange(&mut self, text: &str) -> Vec<String> {
        self.put("exchange", text.as_bytes()).expect("a launcher");
        self.fence().expect("a launcher");
        let said = (0..self.size)
            .map(|rank| self.get(rank, "exchange").expect("after the fence"))
            .map(|bytes| String::from_utf8(bytes).expect("as put"))
            .collect();
        if !self.role.starts_with("copy") {
            self.say("served");
        }
        said
    }

    /// Waits for all ranks, doing `meanwhile`.
    pub(crate) fn meet(&mut self, mut meanwhile: impl FnMut()) {
        self.say("fence");
        let (sender, heard) = channel();
        thread::scope(|scope| {
            let child = &*self;
            scope.spawn(move || {
                while child.read_line() != "fenced" {}
                let _ = sender.send(());
            });
            while heard.recv_timeout(Duration::from_millis(1)).is_err() {
                meanwhile();
            }
        });
    }
}

impl Bootstrap for Child {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn name(&self) -> &'static str {
        "family"
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        self.say(&format!("{} {key} {hex}", self.rank));
        Ok(())
    }

    fn fence(&mut self) -> Result<(), Error> {
        self.say("fence");
        loop {
            let line = self.read_line();
            if line == "fenced" {
                return Ok(());
            }
            let mut words = line.split(' ');
            let mut word = || words.next().unwrap_or_default();
            let rank = word().parse().expect("a rank");
            let key = word().to_owned();
            let hex = word();
            let bytes = (0..hex.len() / 2)
                .map(|at| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).expect("hex"))
                .collect();
            self.values.insert((rank, key), bytes);
        }
    }

    fn get(&mut self, from: u32, key: &str) -> Result<Vec<u8>, Error> {
        let found = self.values.get(&(from, key.to_owned())).cloned();
        found.ok_or_else(|| Error::NoSuchKey {
            from,
            key: key.to_owned(),
        })
    }

    fn abort(&mut self, status: i32, _: &str) {
        process::exit(status);
    }

    fn finalize(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// A rank that does something whenever a fence is over.
pub(crate) struct Hooked<'a, F> {
    pub(crate) child: &'a mut Child,
    pub(crate) fences: u32,
    /// Is told how many fences are over.
    pub(crate) hook: F,
}

impl<F: FnMut(u32) + Send> Bootstrap for Hooked<'_, F> {
    fn rank(&self) -> u32 {
        self.child.rank
    }

    fn size(&self) -> u32 {
        self.child.size
    }

    fn name(&self) -> &'static str {
        self.child.name()
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.child.put(key, value)
    }

    fn fence(&mut self) -> Result<(), Error> {
        self.child.fence()?;
        self.fences += 1;
        (self.hook)(self.fences);
        Ok(())
    }

    fn get(&mut self, from: u32, key: &str) -> Result<Vec<u8>, Error> {
        self.child.get(from, key)
    }

    fn abort(&mut self, status: i32, why: &str) {
        self.child.abort(status, why);
    }

    fn finalize(&mut self) -> Result<(), Error> {
        self.child.finalize()
    }
}
