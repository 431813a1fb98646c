//! Endpoints without a job: this process uses the memory that another one lends.
//!
//! The reference of a write is a bare copy of as many bytes by one thread, in turns with it. Over TCP it is a bare stream
//! that the other process acknowledges.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use hydrant::endpoint::{
    Address, Batch, Descriptor, Endpoint, EndpointEvent, HostsOptions, RemoteRegion, Rights,
};

use crate::measure::{MeasurementPlan, Side, median};
use crate::row::{Goal, Row};

const BENCH: &str = "endpoint";
/// The first argument of the process that lends memory.
pub(crate) const OWNER: &str = "endpoint-owner";
/// The bytes that it lends, twice.
const LENT: usize = 128 << 20;
/// The bytes of one transfer.
const SIZES: [usize; 5] = [8, 4 << 10, 64 << 10, 1 << 20, 64 << 20];
/// The runs of a batch, and the bytes from the begin of one to that of the next.
const RUNS: usize = 10_000;
const RUN: usize = 4 << 10;
const STRIDE: usize = 8 << 10;
/// The runs that fit into the lent memory.
const PLACES: usize = LENT / STRIDE;
/// How long a peer may take for anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the processor time of an idle endpoint is measured.
const IDLE: Duration = Duration::from_secs(1);

/// The reason why endpoints could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndpointBenchError {
    /// The process that lends memory could not be started, or said nothing.
    #[error("cannot start the process that lends memory: {0}")]
    Start(#[from] io::Error),
    /// An endpoint failed.
    #[error(transparent)]
    Endpoint(#[from] hydrant::endpoint::Error),
    /// No event came.
    #[error("an endpoint was not told of a peer within {} s", PATIENCE.as_secs())]
    NoEvent,
}

/// The process that lends memory, which is killed when this is dropped.
struct Owner {
    process: Child,
    _input: Option<ChildStdin>,
    address: Address,
    /// Memory that peers map, and memory that they copy.
    lent: [Descriptor; 2],
    /// The port of bare streams.
    port: u16,
}

impl Owner {
    fn start() -> Result<Self, EndpointBenchError> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(OWNER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process
            .stdout
            .take()
            .ok_or(io::Error::from(io::ErrorKind::BrokenPipe))?;
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, mapped, copied, port] = words[..] else {
            let _ = process.kill();
            let _ = process.wait();
            read?;
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        };
        Ok(Self {
            address: address.parse()?,
            lent: [mapped.parse()?, copied.parse()?],
            port: port.parse().map_err(io::Error::other)?,
            _input: process.stdin.take(),
            process,
        })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Lends memory until the standard input ends.
pub(crate) fn lend() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), EndpointBenchError> {
    let endpoint = listen("owner")?;
    let streams = TcpListener::bind("127.0.0.1:0")?;
    let port = streams.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in streams.incoming().flatten() {
            let _ = acknowledge(stream);
        }
    });
    let lent = [endpoint.alloc(LENT)?, endpoint.expose(vec![1; LENT])?];
    let [mapped, copied] = [&lent[0], &lent[1]].map(|it| it.descriptor(Rights::READ_WRITE));
    println!("{} {mapped} {copied} {port}", endpoint.address());
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Makes an endpoint for peers of this host, by memory and by TCP if there is libfabric.
fn listen(name: &str) -> Result<Endpoint, hydrant::endpoint::Error> {
    let hosts = HostsOptions {
        interface: "lo".to_owned(),
        optional: true,
        ..HostsOptions::from_env()
    };
    Endpoint::builder().name(name).hosts(hosts).listen()
}

/// Answers each message of a bare stream by a byte. A message is its length and its bytes.
fn acknowledge(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut length = [0; 8];
    let mut buffer = vec![0; SIZES[SIZES.len() - 1]];
    loop {
        stream.read_exact(&mut length)?;
        let bytes = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        let place = buffer.get_mut(..bytes);
        stream.read_exact(place.ok_or(io::ErrorKind::InvalidInput)?)?;
        stream.write_all(&[1])?;
    }
}

/// Measures. Names each measurement before it begins.
pub(crate) fn measure(
    repetitions: Option<usize>,
    quick: bool,
    name: &dyn Fn(&str),
) -> Result<Vec<Row>, EndpointBenchError> {
    let plan = MeasurementPlan::new(repetitions, quick);
    let few = MeasurementPlan {
        repetitions: plan.repetitions.min(15),
        warm_up: 1,
        ..plan
    };
    let user = listen("user")?;
    let mut rows = Vec::new();
    {
        let owner = Owner::start()?;
        let peer = user.connect(&owner.address)?;
        for (lent, memory) in owner.lent.iter().zip(["mapped memory", "other memory"]) {
            let remote = peer.open(lent)?;
            name(&format!("writes and reads of {memory}"));
            for bytes in SIZES {
                let plan = if bytes > 1 << 20 { few } else { plan };
                rows.extend(transfers(&remote, memory, bytes, &plan)?);
            }
            name(&format!("strided runs of {memory}"));
            rows.push(strided(&remote, memory, &few)?);
            name(&format!("posting to {memory}"));
            rows.push(posting(&user, &remote, memory, &few)?);
        }
    }
    rows.extend(over_tcp(&user, &plan, &few, name)?);
    name("deaths and returns");
    rows.extend(deaths(&user, if quick { 3 } else { 21 })?);
    name("lending");
    rows.extend(lending(&user, &few)?);
    name("an idle endpoint");
    rows.push(idle()?);
    Ok(rows)
}

/// Measures transfers over TCP on one host, if there is libfabric.
fn over_tcp(
    user: &Endpoint,
    plan: &MeasurementPlan,
    few: &MeasurementPlan,
    name: &dyn Fn(&str),
) -> Result<Vec<Row>, EndpointBenchError> {
    let owner = Owner::start()?;
    let Ok(peer) = user.connect(&owner.address.only_far()) else {
        return Ok(Vec::new());
    };
    let remote = peer.open(&owner.lent[1])?;
    let mut stream = TcpStream::connect(("127.0.0.1", owner.port))?;
    stream.set_nodelay(true)?;
    name("writes and reads over TCP");
    let mut rows = Vec::new();
    for bytes in SIZES {
        let plan = if bytes > 1 << 20 { few } else { plan };
        let own = vec![7_u8; bytes];
        let mut back = vec![0_u8; bytes];
        let mut bare = |count| {
            timed(count, || {
                stream.write_all(&(bytes as u64).to_le_bytes())?;
                stream.write_all(&own)?;
                stream.read_exact(&mut [0])
            })
            .map_err(EndpointBenchError::from)
        };
        let mut write = |count| Ok(timed(count, || remote.write(0, &own))?);
        let mut read = |count| Ok(timed(count, || remote.read(0, &mut back))?);
        let mut sides: [Side<'_, EndpointBenchError>; 3] = [&mut bare, &mut write, &mut read];
        let times = plan.alone(&mut sides)?;
        let [bare, write, read] = [0, 1, 2].map(|at| times[at].median());
        let row = |case: &str, median| {
            let row = Row::new(BENCH, format!("{case}, TCP"), "ns", median);
            row.bytes(bytes as u64).against(bare)
        };
        let goal = (bytes == 64 << 20).then_some(Goal::AtMostTimes(1.0 / 0.95));
        rows.extend([row("write", write).goal_if(goal), row("read", read)]);
    }
    name("strided runs over TCP");
    rows.push(strided(&remote, "TCP", few)?);
    name("posting to TCP");
    rows.push(posting(user, &remote, "TCP", few)?);
    Ok(rows)
}

/// Times this many calls.
fn timed<E>(count: u64, mut call: impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
    let begin = Instant::now();
    for _ in 0..count {
        call()?;
    }
    Ok(begin.elapsed())
}

fn transfers(
    remote: &RemoteRegion,
    memory: &str,
    bytes: usize,
    plan: &MeasurementPlan,
) -> Result<Vec<Row>, EndpointBenchError> {
    let own = vec![7_u8; bytes];
    let (mut back, mut other) = (vec![0_u8; bytes], vec![0_u8; bytes]);
    let mut bare = |count| {
        timed(count, || {
            other.copy_from_slice(&own);
            std::hint::black_box(&other);
            Ok(())
        })
    };
    let mut write = |count| timed(count, || remote.write(0, &own));
    let mut read = |count| timed(count, || remote.read(0, &mut back));
    let mut sides: [Side<'_, hydrant::endpoint::Error>; 3] = [&mut bare, &mut write, &mut read];
    let times = plan.alone(&mut sides)?;
    let [bare, write, read] = [0, 1, 2].map(|at| times[at].median());
    let row = |case: &str, median| {
        let row = Row::new(BENCH, format!("{case}, {memory}"), "ns", median);
        row.bytes(bytes as u64).against(bare)
    };
    let goal = (bytes == 64 << 20 && memory == "mapped memory").then_some(Goal::AtMostTimes(1.2));
    Ok(vec![row("write", write).goal_if(goal), row("read", read)])
}

fn strided(
    remote: &RemoteRegion,
    memory: &str,
    plan: &MeasurementPlan,
) -> Result<Row, EndpointBenchError> {
    let own = vec![7_u8; LENT / 2];
    let mut other = vec![0_u8; LENT];
    let places = || (0..RUNS).map(|run| (run * RUN % own.len(), run % PLACES * STRIDE));
    let mut bare = |count| {
        timed(count, || {
            for (from, to) in places() {
                other[to..to + RUN].copy_from_slice(&own[from..from + RUN]);
            }
            std::hint::black_box(&other);
            Ok(())
        })
    };
    let mut ours = |count| {
        timed(count, || {
            let mut batch = Batch::new();
            for (from, to) in places() {
                batch.write(remote, to as u64, &own[from..from + RUN])?;
            }
            batch.run().map_err(hydrant::endpoint::Error::from)
        })
    };
    let mut sides: [Side<'_, hydrant::endpoint::Error>; 2] = [&mut bare, &mut ours];
    let times = plan.alone(&mut sides)?;
    let case = format!("{RUNS} strided runs of 4 KiB, {memory}");
    let row = Row::new(BENCH, case, "ns", times[1].median());
    Ok(row.bytes((RUNS * RUN) as u64).against(times[0].median()))
}

/// The time of the call that starts a write of 64 MiB.
fn posting(
    user: &Endpoint,
    remote: &RemoteRegion,
    memory: &str,
    plan: &MeasurementPlan,
) -> Result<Row, EndpointBenchError> {
    let bytes = 64_u64 << 20;
    let own = user.expose(vec![7; bytes as usize])?;
    let mut times = Vec::new();
    for _ in 0..plan.repetitions {
        let begin = Instant::now();
        let mut batch = Batch::new();
        batch.write_region(remote, 0, &own, 0..bytes)?;
        let handle = batch.start()?;
        times.push(begin.elapsed().as_secs_f64() * 1e9);
        handle.wait().map_err(hydrant::endpoint::Error::from)?;
    }
    let case = format!("call that starts a write, {memory}");
    Ok(Row::new(BENCH, case, "ns", median(&mut times)).bytes(bytes))
}

/// The time to know that a peer was killed, and the time until its successor is written to.
fn deaths(user: &Endpoint, count: usize) -> Result<Vec<Row>, EndpointBenchError> {
    let (mut told, mut back) = (Vec::new(), Vec::new());
    let mut owner = Owner::start()?;
    user.connect(&owner.address)?;
    for _ in 0..count {
        let next = Owner::start()?;
        while user.try_event()?.is_some() {}
        let begin = Instant::now();
        owner.process.kill()?;
        loop {
            match user.next_event_within(PATIENCE)? {
                Some(EndpointEvent::Lost { .. }) => break,
                Some(_) => {}
                None => return Err(EndpointBenchError::NoEvent),
            }
        }
        told.push(begin.elapsed().as_secs_f64() * 1e3);
        let begin = Instant::now();
        let peer = user.connect(&next.address)?;
        peer.open(&next.lent[0])?.write(0, &[1])?;
        back.push(begin.elapsed().as_secs_f64() * 1e6);
        owner = next;
    }
    let most = told.iter().copied().fold(0.0, f64::max);
    Ok(vec![
        Row::new(BENCH, "peer killed, told", "ms", median(&mut told)),
        Row::new(BENCH, "peer killed, told at the latest", "ms", most)
            .goal(Goal::AtMost(10.0, "ms")),
        Row::new(
            BENCH,
            "connect, open and write to a new peer",
            "us",
            median(&mut back),
        ),
    ])
}

/// The time to lend memory of the program and to take it back.
fn lending(user: &Endpoint, plan: &MeasurementPlan) -> Result<Vec<Row>, EndpointBenchError> {
    let mut rows = Vec::new();
    for bytes in [1_usize << 20, 1 << 30] {
        // Pages of zeros are made when they are touched.
        let mut buffer = vec![0; bytes];
        let mut times = Vec::new();
        for _ in 0..plan.repetitions {
            let begin = Instant::now();
            let region = user.expose(buffer)?;
            times.push(begin.elapsed().as_secs_f64() * 1e9);
            buffer = region.take_back()?.unwrap_or_default().into_vec();
        }
        rows.push(Row::new(BENCH, "lend a buffer", "ns", median(&mut times)).bytes(bytes as u64));
    }
    Ok(rows)
}

/// The processor time of an endpoint with a connected peer that does nothing.
fn idle() -> Result<Row, EndpointBenchError> {
    let used = |pid: u32| -> io::Result<f64> {
        let mut nanoseconds = 0_u64;
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            let first = text.split_whitespace().next();
            nanoseconds += first.and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(nanoseconds as f64 / 1e6)
    };
    let owner = Owner::start()?;
    let user = listen("idle")?;
    user.connect(&owner.address)?;
    std::thread::sleep(IDLE / 10);
    let pid = owner.process.id();
    let (before, since) = (used(pid)?, Instant::now());
    std::thread::sleep(IDLE);
    let spent = (used(pid)? - before) / since.elapsed().as_secs_f64();
    let row = Row::new(
        BENCH,
        "processor time of an idle endpoint, a second",
        "ms",
        spent,
    );
    Ok(row.goal(Goal::AtMost(1.0, "ms")))
}
