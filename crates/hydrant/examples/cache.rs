//! A key-value cache in two processes that are killed in turn, and a client that loses nothing.
//!
//! Each process lends a table of slots. The client writes an entry into both tables by one batch, and reads it from
//! either. A process that was killed is started again: it copies the table of the other one, and joins. Each entry has a
//! sum, so that one that was written in part is none.
//!
//! `target/release/examples/cache [ROUNDS]`

use std::{
    env,
    error::Error,
    hash::{DefaultHasher, Hash, Hasher},
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use hydrant::endpoint::{self, Batch, Endpoint, EndpointEvent, HostsOptions, RemoteRegion, Rights};

const SLOTS: u64 = 1024;
/// The bytes of a slot: key, version, value, sum.
const SLOT: usize = 32;
const TABLE: usize = SLOTS as usize * SLOT;
/// The entries that are put in a round.
const PUTS: u64 = 5000;

fn sum(key: u64, version: u64, value: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, version, value).hash(&mut hasher);
    hasher.finish()
}

fn entry(key: u64, version: u64) -> [u8; SLOT] {
    let value = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version;
    let words = [key, version, value, sum(key, version, value)];
    let mut bytes = [0; SLOT];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Returns the version in a slot. `None` if nothing was put, or only a part.
fn version(key: u64, bytes: &[u8; SLOT]) -> Option<u64> {
    let version = u64::from_le_bytes(*bytes[8..].first_chunk()?);
    (entry(key, version) == *bytes).then_some(version)
}

fn listen(name: &str) -> endpoint::Result<Endpoint> {
    let hosts = HostsOptions {
        optional: true,
        ..HostsOptions::from_env()
    };
    Endpoint::builder().name(name).hosts(hosts).listen()
}

/// A process of the cache: lends its table, a copy of that which the words name. Ends with its input.
fn store(name: &str, other: Option<[&str; 2]>) -> Result<(), Box<dyn Error>> {
    let me = listen(name)?;
    let table = me.alloc(TABLE)?;
    if let Some([address, descriptor]) = other {
        let peer = me.connect(&address.parse()?)?;
        let theirs = peer.open(&descriptor.parse()?)?;
        let mut bytes = vec![0; TABLE];
        theirs.read(0, &mut bytes)?;
        table.write(0, &bytes)?;
    }
    let descriptor = table.descriptor(Rights::READ_WRITE);
    println!("{} {descriptor}", me.address());
    std::io::stdout().flush()?;
    std::io::stdin().lines().for_each(drop);
    Ok(())
}

/// A process of the cache, as the client sees it.
struct Store {
    process: Child,
    _input: Option<ChildStdin>,
    words: [String; 2],
    table: RemoteRegion,
}

impl Store {
    fn start(me: &Endpoint, name: &str, other: Option<&Self>) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["store", name]);
        command.args(other.iter().flat_map(|other| &other.words));
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output: ChildStdout = process.stdout.take().ok_or("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let (address, descriptor) = line.trim().split_once(' ').ok_or("no address")?;
        let peer = me.connect(&address.parse()?)?;
        Ok(Self {
            table: peer.open(&descriptor.parse()?)?,
            words: [address.to_owned(), descriptor.to_owned()],
            _input: process.stdin.take(),
            process,
        })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits for the news that a process is lost.
fn hear_loss(me: &Endpoint) -> Result<(), Box<dyn Error>> {
    loop {
        match me.next_event_within(Duration::from_secs(10))? {
            Some(EndpointEvent::Lost { .. }) => return Ok(()),
            Some(_) => {}
            None => return Err("nobody tells of the death".into()),
        }
    }
}

/// Puts entries, kills one process in the middle, and looks whether all are there. Returns the longest time from the end
/// of the puts until the process was back.
fn run(rounds: u64) -> Result<Duration, Box<dyn Error>> {
    let me = listen("client")?;
    let names = ["left", "right"];
    let first = Store::start(&me, names[0], None)?;
    let second = Store::start(&me, names[1], Some(&first))?;
    let mut stores = [first, second];
    let mut versions = vec![0; SLOTS as usize];
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        let victim = (round % 2) as usize;
        let mut is_alone = false;
        for put in 0..PUTS {
            if put == PUTS / 2 {
                stores[victim].process.kill()?;
            }
            let key = (put * 13 + round) % SLOTS;
            let bytes = entry(key, versions[key as usize] + 1);
            let offset = key * SLOT as u64;
            let mut batch = Batch::new();
            for (number, store) in stores.iter().enumerate() {
                if !(is_alone && number == victim) {
                    batch.write(&store.table, offset, &bytes)?;
                }
            }
            match batch.run() {
                Ok(()) => {}
                // The survivor may have got nothing of the batch, so it is written again.
                Err(failure) if matches!(failure.cause(), endpoint::Error::Lost { .. }) => {
                    is_alone = true;
                    stores[1 - victim].table.write(offset, &bytes)?;
                }
                Err(failure) => return Err(failure.into()),
            }
            versions[key as usize] += 1;
        }
        let since = Instant::now();
        hear_loss(&me)?;
        stores[victim] = Store::start(&me, names[victim], Some(&stores[1 - victim]))?;
        longest = longest.max(since.elapsed());
        for (store, name) in stores.iter().zip(names) {
            for key in 0..SLOTS {
                let mut bytes = [0; SLOT];
                store.table.read(key * SLOT as u64, &mut bytes)?;
                let (found, put) = (version(key, &bytes), versions[key as usize]);
                if put > 0 && found != Some(put) {
                    return Err(format!("{name}: key {key} has {found:?} and not {put}").into());
                }
            }
        }
    }
    Ok(longest)
}

/// Does what the words say: a process of the cache, or the client's.
pub(crate) fn play(words: &[&str]) -> Result<(), Box<dyn Error>> {
    match *words {
        ["store", name] => store(name, None),
        ["store", name, address, descriptor] => store(name, Some([address, descriptor])),
        _ => {
            let rounds = words.first().and_then(|text| text.parse().ok());
            let rounds = rounds.unwrap_or(10);
            let longest = run(rounds)?;
            let puts = rounds * PUTS;
            println!("{puts} puts, {rounds} processes killed, no entry lost");
            println!("longest time until a killed process was back: {longest:.1?}");
            Ok(())
        }
    }
}

#[allow(dead_code, reason = "the tests play the program themselves")]
fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match play(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cache: {error}");
            ExitCode::FAILURE
        }
    }
}
