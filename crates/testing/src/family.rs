//! Ranks as children of the test. The test is their launcher: they talk to it in lines on their
//! standard input and output.

use std::{
    collections::HashMap,
    env,
    io::Write,
    process::{self, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use hydrant_launch::{Bootstrap, Error};

use crate::{HANG, left_behind::JobRemains, running};

const RANK: &str = "HYDRANT_TEST_RANK";
const SIZE: &str = "HYDRANT_TEST_SIZE";
const ROLE: &str = "HYDRANT_TEST_ROLE";

/// The number of jobs that this process started.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// The launcher's side of a job. Dropping it kills ranks that are still alive.
pub struct Family {
    ranks: Vec<FamilyMember>,
    /// The values put so far, as lines for all ranks.
    put: Vec<String>,
    trace: JobRemains,
}

struct FamilyMember {
    process: process::Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Family {
    /// Starts ranks: this binary again, which [`Child::from_environment`] tells that it is a rank.
    ///
    /// # Panics
    /// If a rank cannot be started.
    pub fn start(role: &str, ranks: usize) -> Self {
        let number = STARTED.fetch_add(1, Relaxed);
        let token = format!("--family-{}-{number}", process::id());
        let program = env::current_exe().expect("a test has a file");
        let start = |rank: usize| {
            let mut process = Command::new(&program)
                .arg(&token)
                .env(RANK, rank.to_string())
                .env(SIZE, ranks.to_string())
                .env(ROLE, role)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a process");
            let input = process.stdin.take().expect("piped");
            let (sender, lines) = channel();
            running::read_lines(process.stdout.take(), sender);
            FamilyMember {
                process,
                input,
                lines,
            }
        };
        Self {
            trace: JobRemains::before(&token),
            ranks: (0..ranks).map(start).collect(),
            put: Vec::new(),
        }
    }

    /// Serves the key-value space until all ranks report "served", or have ended.
    ///
    /// # Panics
    /// If the ranks hang.
    pub fn serve(&mut self) {
        let ranks = self.ranks.len();
        let since = Instant::now();
        let mut fencing = vec![false; ranks];
        let mut serving = vec![true; ranks];
        while serving.contains(&true) {
            let hangs = since.elapsed() > HANG;
            assert!(!hangs, "the ranks hang: {fencing:?}");
            for rank in 0..ranks {
                if !serving[rank] || fencing[rank] {
                    continue;
                }
                let lines = &self.ranks[rank].lines;
                match lines.recv_timeout(Duration::from_millis(1)) {
                    Ok(line) if line == "fence" => fencing[rank] = true,
                    Ok(line) if line == "served" => serving[rank] = false,
                    Ok(line) => self.put.push(line),
                    Err(RecvTimeoutError::Disconnected) => serving[rank] = false,
                    Err(RecvTimeoutError::Timeout) => {}
                }
            }
            if !fencing.contains(&false) {
                let news = self.put.join("\n");
                (0..ranks).for_each(|rank| self.tell(rank, &format!("{news}\nfenced")));
                fencing.fill(false);
            }
        }
        for member in &self.ranks {
            self.trace.note_rank(&member.process.id().to_string());
        }
    }

    /// Sends a line to a rank. Ignores ranks that have ended.
    pub fn tell(&mut self, rank: usize, text: &str) {
        let _ = writeln!(self.ranks[rank].input, "{text}");
    }

    /// Waits for the next line of a rank.
    ///
    /// # Panics
    /// If no line comes, or another line.
    pub fn expect_line(&mut self, rank: usize, line: &str) {
        let said = self.ranks[rank].lines.recv_timeout(HANG);
        assert_eq!(said.as_deref(), Ok(line), "said by rank {rank}");
    }

    /// Kills a rank.
    ///
    /// # Panics
    /// If the rank has been waited for.
    pub fn kill(&mut self, rank: usize) {
        self.ranks[rank].process.kill().expect("SIGKILL");
    }

    /// Waits until a rank has ended.
    ///
    /// # Panics
    /// If the rank does not end.
    pub fn wait(&mut self, rank: usize) -> ExitStatus {
        let mut status = None;
        running::within(HANG, || {
            status = self.ranks[rank].process.try_wait().expect("a child");
            status.is_some()
        });
        status.unwrap_or_else(|| panic!("rank {rank} does not end"))
    }

    /// Waits until these ranks have ended with success.
    ///
    /// # Panics
    /// If a rank does not end, or fails.
    pub fn end_well(&mut self, ranks: impl IntoIterator<Item = usize>) {
        for rank in ranks {
            let status = self.wait(rank);
            assert!(status.success(), "rank {rank}: {status}");
        }
    }

    /// Waits until nothing of the job is left.
    ///
    /// # Panics
    /// If something is left.
    pub fn nothing_left(&self) {
        self.trace.assert_nothing_left();
    }
}

/// Runs a job that must end well and leave nothing.
///
/// # Panics
/// If the job fails or leaves something.
pub fn orderly(role: &str, ranks: usize) {
    let mut family = Family::start(role, ranks);
    family.serve();
    family.end_well(0..ranks);
    family.nothing_left();
}

impl Drop for Family {
    fn drop(&mut self) {
        for member in &mut self.ranks {
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
    }
}

/// A rank's side of a job.
pub struct Child {
    rank: u32,
    size: u32,
    /// The role that the rank plays.
    pub role: String,
    /// The values that all ranks put, by rank and key.
    values: HashMap<(u32, String), Vec<u8>>,
}

impl Child {
    /// Reads the rank from the environment; `None` in the test itself.
    pub fn from_environment() -> Option<Self> {
        let number = |name| env::var(name).ok()?.parse().ok();
        Some(Self {
            rank: number(RANK)?,
            size: number(SIZE)?,
            role: env::var(ROLE).ok()?,
            values: HashMap::new(),
        })
    }

    /// Sends a line to the launcher.
    pub fn say(&self, line: &str) {
        println!("{line}");
    }

    /// Waits for a line of the launcher's.
    ///
    /// # Panics
    /// If the launcher is gone.
    pub fn read_line(&self) -> String {
        let mut line = String::new();
        std::io::stdin()
            .read_line(&mut line)
            .expect("the launcher lives");
        assert!(!line.is_empty(), "the launcher is gone");
        line.trim_end().to_owned()
    }

    /// Exchanges a text among all ranks; returns the texts by rank. Only `meet` may follow the last
    /// exchange.
    ///
    /// # Panics
    /// If the launcher is gone.
    pub fn exchange(&mut self, text: &str) -> Vec<String> {
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

    /// Waits for all ranks, and calls `meanwhile` again and again.
    pub fn meet(&mut self, mut meanwhile: impl FnMut()) {
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

/// A rank that runs a hook after each fence.
pub struct Hooked<'a, F> {
    /// The rank.
    pub child: &'a mut Child,
    /// The number of fences so far.
    pub fences: u32,
    /// The hook, which takes the number of fences so far.
    pub hook: F,
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
