//! Jobs that are held by handles, not by a body: clones in threads, the end in good order and not,
//! and what every handle says afterwards.

#![allow(unsafe_code)] // names memory by its address

#[path = "joined/forked.rs"]
mod forked;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
    process::{Command, ExitCode, Output},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use hydrant::{
    AnySource, AnyTag, ConduitKind, Error, GlobalPtr, Job, Op, PackedPtr, Rank, Result, Signal,
    Strategy,
};
use hydrant_conduit::{Conduit, Forward, Message, Sent};
use hydrant_testing::{launcher, roles};

const RANKS: u32 = 3;
const CONDUITS: [&str; 2] = ["smp", "smp+pin"];

fn main() -> ExitCode {
    let tests: Vec<(&str, fn())> = vec![
        ("clones_work_in_threads_of_their_own", clones),
        ("tasks_of_a_runtime_await_operations", awaited),
        ("what_is_under_way_at_the_end_is_completed", completed),
        ("who_came_to_its_end_is_noticed", noticed),
        ("a_job_that_is_dropped_is_a_failure", dropped),
        ("a_failure_that_drops_the_job_is_blamed", blamed),
        ("all_that_communicates_says_that_the_job_is_over", over),
        ("the_end_wakes_who_waits", woken),
        ("a_body_may_finalize_and_move_what_it_captured", moved),
        ("the_last_handle_may_go_in_a_handler", in_handler),
        ("the_last_handle_may_go_with_a_function", with_function),
        ("ranks_that_are_threads_cannot_join", simulated),
        ("a_forked_child_takes_no_part", forked::over_networks),
        ("a_forked_child_takes_no_part_over_rdma", forked::over_rdma),
        (
            "a_forked_child_takes_no_part_over_libfabric",
            forked::over_libfabric,
        ),
        (
            "children_hide_no_death_over_libfabric",
            forked::hide_no_death,
        ),
        ("a_program_and_a_seed_have_one_virtual_time", timed),
    ];
    let tests = tests
        .into_iter()
        .map(|(name, body)| roles::test(name, body));
    roles::main(role, tests.collect())
}

fn role(role: &str, _: &[String]) -> Option<ExitCode> {
    let end = match role {
        "timed" => (0..2).try_for_each(|_| print_virtual_times()),
        "clones" => work_in_threads(),
        "awaits" => await_on_tokio(),
        "completes" => complete_at_the_end(),
        "comes" => come_to_the_end(),
        "dropped" => drop_at(Rank(1)),
        "gives" => give_at(Rank(1)),
        "fails" => fail_at(Rank(1)),
        "forks" => forked::play(),
        "outlived" => forked::outlive(),
        _ => return None,
    };
    Some(match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // In one piece, for the others say the same at the same time.
            let _ = io::stderr().write_all(format!("error {error}\n").as_bytes());
            ExitCode::FAILURE
        }
    })
}

/// The output of a job of ranks in this role.
fn job(role: &str, conduit: &str) -> Output {
    let mut command: Command = launcher::command(RANKS, &[role]);
    command.env("HYDRANT_CONDUIT", conduit);
    command.output().expect("the job starts")
}

fn clones() {
    for conduit in CONDUITS {
        let output = job("clones", conduit);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{conduit}: {text}");
    }
}

/// Threads that outlive every borrow of the job put to every rank at once.
fn work_in_threads() -> Result<()> {
    let job = hydrant::join()?;
    let table = job.alloc::<u64>(RANKS as usize * 4)?;
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let (job, table) = (job.clone(), table.clone());
            thread::spawn(move || {
                let at = job.rank().index() * 4 + number;
                for rank in job.ranks() {
                    table.put(rank, at, &[at as u64 + 1])?;
                }
                job.quiet()
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread panics")?;
    }
    job.barrier()?;
    let sum: u64 = table.local()?.to_vec().iter().sum();
    let expected = (1..=u64::from(RANKS) * 4).sum::<u64>();
    assert_eq!(sum, expected);
    let mut sums = [sum];
    job.all_reduce(&mut sums, Op::Sum)?;
    assert_eq!(sums, [expected * u64::from(RANKS)]);
    job.finalize()
}

fn completed() {
    by_processes("completes");
}

fn noticed() {
    by_processes("comes");
}

/// All ranks of a job in this role end in good order.
fn by_processes(role: &str) {
    for conduit in CONDUITS {
        let output = job(role, conduit);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{conduit}: {text}");
    }
}

/// Rank 0 has calls and messages in flight when it comes to the end, and the others have receives.
fn complete_at_the_end() -> Result<()> {
    const COUNT: u64 = 50;
    let job = hydrant::join()?;
    let got = Arc::new(AtomicU64::new(0));
    let theirs = Arc::clone(&got);
    let note = job.function(move |_, bytes: Vec<u8>| {
        theirs.fetch_add(bytes.len() as u64, SeqCst);
    })?;
    let back = job.async_function(|_, bytes: Vec<u8>| async move { bytes })?;
    let (mut sends, mut receives, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    if job.rank() != Rank(0) {
        for tag in 0..COUNT {
            receives.push(job.receive_nb(Rank(0), tag, vec![0_u8; 100_000])?);
        }
    }
    job.barrier()?;
    if job.rank() == Rank(0) {
        let long = vec![7_u8; 100_000];
        for peer in [Rank(1), Rank(2)] {
            for tag in 0..COUNT {
                sends.push(job.send_nb(peer, tag, long.clone())?);
                calls.push(job.call_nb(peer, &back, &long)?);
                job.call_one_way(peer, &note, &long)?;
            }
        }
    }
    job.finalize()?;
    let is_right = |bytes: &[u8]| bytes.len() == 100_000 && bytes.iter().all(|it| *it == 7);
    for send in sends {
        send.wait()?;
    }
    for receive in receives {
        assert!(is_right(&receive.wait()?.0));
    }
    for call in calls {
        assert!(is_right(&call.wait()?));
    }
    let expected = match job.rank() {
        Rank(0) => 0,
        _ => COUNT * 100_000,
    };
    assert_eq!(got.load(SeqCst), expected, "one-way calls have run");
    Ok(())
}

/// Rank 0 waits for the others in all ways after they have come to their ends.
fn come_to_the_end() -> Result<()> {
    hydrant::run(|job| {
        let memory = job.alloc::<u64>(1)?;
        if job.rank() != Rank(0) {
            return Ok(());
        }
        let (one, mut word) = (Rank(1), [0_u8]);
        let waits = [
            job.receive(one, 1, &mut word).map(drop),
            job.receive(AnySource, AnyTag, &mut word).map(drop),
            job.probe(one, 1).map(drop),
            job.send_nb(one, 1, vec![1_u8])?.wait().map(drop),
            job.send(one, 1, &vec![1_u8; 4 << 20]),
            job.wait_until(&memory, 0, |word| word == 1).map(drop),
        ];
        for (number, told) in waits.into_iter().enumerate() {
            let is_told = match number {
                1 | 5 => matches!(told, Err(Error::OthersEnded { .. })),
                _ => matches!(told, Err(Error::PeerEnded { rank: Rank(1), .. })),
            };
            assert!(is_told, "{number}: {told:?}");
        }
        // A thread that has not used the job yet may still do what is waited for.
        thread::scope(|threads| {
            threads.spawn(|| {
                thread::sleep(Duration::from_millis(500));
                memory.local()?.store(0, 5)
            });
            assert_eq!(job.wait_until(&memory, 0, |word| word > 0)?, 5);
            Ok(())
        })
    })
}

fn awaited() {
    for (conduit, foreign) in [("smp", "messages"), ("smp+pin", "auto")] {
        let mut command: Command = launcher::command(RANKS, &["awaits"]);
        command.envs([
            ("HYDRANT_CONDUIT", conduit),
            ("HYDRANT_SMP_FOREIGN", foreign),
        ]);
        let output = command.output().expect("the job starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{conduit}: {text}");
    }
}

/// Tasks of two threads put to what a peer exposes and get it back; some are given up in between.
fn await_on_tokio() -> Result<()> {
    const TASKS: usize = 16;
    const PART: usize = 20_000;
    let job = hydrant::join()?;
    let pointers = job.alloc::<GlobalPtr<u64>>(1)?;
    let exposed = job.expose(vec![0_u64; TASKS * PART])?;
    pointers.put(job.left(), 0, &[exposed.pointer(0)?])?;
    job.barrier()?;
    let theirs = pointers.local()?.load(0)?;

    let runtime = (tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time())
    .build()
    .expect("the runtime starts");
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let job = job.clone();
            runtime.spawn(async move {
                let to = theirs.offset((number * PART) as isize);
                for round in 0..10 {
                    let data = vec![(number * 100 + round) as u64; PART];
                    let data = job.put_to_nb(to, data)?.await?;
                    // Given up at once, or when it has ended.
                    let get = job.get_from_nb(to, vec![0; PART])?;
                    let _ = tokio::time::timeout(Duration::from_micros(round as u64), get).await;
                    let back = job.get_from_nb(to, vec![0; PART])?.await?;
                    assert!(back == data, "task {number}, round {round}");
                }
                Ok(())
            })
        })
        .collect();
    let ends = runtime.block_on(async {
        let mut ends: Vec<Result<()>> = Vec::new();
        for task in tasks {
            ends.push(task.await.expect("no task panics"));
        }
        ends
    });
    ends.into_iter().collect::<Result<Vec<()>>>()?;
    for round in 0..10 {
        // Given up at once, or when it has ended; the others rely on it in any case.
        let begun = job.all_reduce_nb(vec![1_u64; PART], Op::Sum)?;
        let limit = Duration::from_micros(round);
        let given_up = async { tokio::time::timeout(limit, begun).await.is_err() };
        runtime.block_on(given_up);
        let begun = job.all_gather_nb(vec![round])?;
        let all = runtime.block_on(runtime.spawn(begun)).expect("no panic")?;
        assert_eq!(all, vec![round; job.size() as usize]);
    }
    job.barrier()?;
    let mine = exposed.take_back();
    for number in 0..TASKS {
        assert_eq!(mine[number * PART + PART - 1], (number * 100 + 9) as u64);
    }
    job.finalize()
}

fn dropped() {
    rank_1_is_lost("dropped");
}

/// The thread that goes on with a collective, the service thread perhaps, does not wait for itself.
fn with_function() {
    rank_1_is_lost("gives");
}

fn rank_1_is_lost(role: &str) {
    for conduit in CONDUITS {
        let output = job(role, conduit);
        let panicked = String::from_utf8_lossy(&output.stderr).contains("panicked");
        assert!(!panicked, "{conduit}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{conduit}: {text}");
        // Both others are told of it, or of the one that was told first and gave up.
        let told =
            (text.lines()).filter(|line| line.contains("error rank") && line.contains("lost"));
        assert_eq!(told.count(), RANKS as usize - 1, "{conduit}: {text}");
        assert!(text.contains("error rank 1 is lost"), "{conduit}: {text}");
    }
}

/// One rank drops the job and goes on, as a program would that forgot to finalize.
fn drop_at(rank: Rank) -> Result<()> {
    let job = hydrant::join()?;
    job.barrier()?;
    if job.rank() == rank {
        drop(job);
        // What the others are told must not need the end of the process.
        thread::sleep(Duration::from_millis(300));
        return Ok(());
    }
    job.barrier()?;
    job.finalize()
}

/// One rank gives its last handle to a function that reduces, and goes on.
fn give_at(rank: Rank) -> Result<()> {
    let job = hydrant::join()?;
    job.barrier()?;
    let kept = (job.rank() == rank).then(|| job.clone());
    let begun = job.world().all_reduce_with_nb(vec![1_u64], move |a, b| {
        _ = &kept;
        a + b
    })?;
    if job.rank() == rank {
        drop(job);
        // By the service thread alone.
        thread::sleep(Duration::from_millis(300));
        return Ok(());
    }
    assert_eq!(begun.wait()?, [u64::from(RANKS)]);
    job.barrier()?;
    job.finalize()
}

/// The launcher blames the rank whose failure dropped the job, not one that was told of it.
fn blamed() {
    for conduit in CONDUITS {
        let output = job("fails", conduit);
        let text = String::from_utf8_lossy(&output.stderr);
        let first = text.lines().find(|line| line.contains("first to fail"));
        let blamed = first.is_some_and(|line| line.contains("rank 1"));
        assert!(blamed, "{conduit}: {text}");
    }
}

/// One rank fails, which drops the job.
fn fail_at(rank: Rank) -> Result<()> {
    let job = hydrant::join()?;
    job.barrier()?;
    if job.rank() == rank {
        return Err(Error::other("the program's own failure"));
    }
    job.barrier()?;
    job.finalize()
}

fn alone() -> Job {
    (Job::builder().expect("the settings are valid"))
        .anywhere(true)
        .join()
        .expect("a job of one")
}

fn over() {
    let job = alone();
    let own = job.rank();
    let memory = job.alloc::<u64>(4).unwrap();
    let exposed = job.expose(vec![0_u64; 4]).unwrap();
    let (to_memory, to_exposed) = (memory.pointer(own, 0).unwrap(), exposed.pointer(0).unwrap());
    let handler = job.handler(|_, _, _| {}).unwrap();
    let function = job.function(|_, word: u64| word).unwrap();
    let other = job.clone();
    job.finalize().unwrap();

    let mut word = [0];
    let address = (&raw const word) as u64;
    let outcomes: Vec<(&str, Result<()>)> = vec![
        ("finalize", other.finalize()),
        ("alloc", other.alloc::<u64>(1).map(drop)),
        ("put", memory.put(own, 0, &[1])),
        ("get", memory.get(own, 0, &mut word)),
        (
            "put_nb",
            memory
                .put_nb(own, 0, vec![1])
                .map(drop)
                .map_err(Error::from),
        ),
        ("get_nb", memory.get_nb(own, 0, 1).map(drop)),
        ("local", memory.local().map(drop)),
        ("fetch_add", memory.fetch_add(own, 0, 1).map(drop)),
        ("signal", memory.signal(own, 0, Signal::Add(1))),
        (
            "wait_until",
            other.wait_until(&memory, 0, |_| true).map(drop),
        ),
        ("put_to", other.put_to(to_memory, &[1])),
        ("get_from", other.get_from(to_memory, &mut word)),
        ("put_to exposed", other.put_to(to_exposed, &[1])),
        ("get_from exposed", other.get_from(to_exposed, &mut word)),
        ("expose", other.expose(vec![0_u64]).map(drop)),
        ("scope", other.scope(|_| Ok(()))),
        ("quiet", other.quiet()),
        ("fence", other.fence()),
        ("barrier", other.barrier()),
        ("all_reduce", other.all_reduce(&mut word, Op::Sum)),
        ("request_short", other.request_short(own, handler, &[])),
        ("call", other.call(own, &function, &1).map(drop)),
        ("am_quiet", other.am_quiet()),
        ("context", other.context().map(drop)),
        ("handler", other.handler(|_, _, _| {}).map(drop)),
        ("split", other.world().split(Some(0), 0).map(drop)),
        // SAFETY: it is refused before anything is touched.
        ("get_anywhere", unsafe {
            let mut bytes = [0; 8];
            other.get_anywhere(own, address, &mut bytes)
        }),
        ("free", other.free(memory.clone())),
    ];
    for (what, outcome) in outcomes {
        assert!(
            matches!(outcome, Err(Error::JobOver)),
            "{what}: {outcome:?}"
        );
    }
    // What is no communication goes on.
    assert_eq!((other.rank(), other.size()), (Rank(0), 1));
    assert_eq!(other.poll(), 0);
    other.compute(1);
    let _ = (other.now(), other.counters());
    drop(exposed);
}

fn woken() {
    let job = alone();
    let memory = job.alloc::<u64>(1).unwrap();
    let (own, word) = (job.clone(), memory.clone());
    let waiting = thread::spawn(move || own.wait_until(&word, 0, |value| value == 1));
    // It may sleep by then, or not have begun.
    thread::sleep(Duration::from_millis(50));
    job.finalize().unwrap();
    let ended = waiting.join().expect("it does not panic");
    assert!(matches!(ended, Err(Error::JobOver)), "{ended:?}");
}

fn moved() {
    let text = String::from("captured");
    let back = hydrant::run(move |job| {
        job.finalize()?;
        Ok(text)
    });
    assert_eq!(back.unwrap(), "captured");
}

fn in_handler() {
    let job = alone();
    let memory = job.alloc::<u64>(1).unwrap();
    let kept = std::sync::Arc::new(Mutex::new(Some(job.clone())));
    let theirs = kept.clone();
    let handler = job.handler(move |_, _, _| drop(theirs.lock().unwrap().take()));
    job.request_short(Rank(0), handler.unwrap(), &[]).unwrap();
    drop(job);
    // By the service thread, which goes on until it is over.
    while !matches!(memory.put(Rank(0), 0, &[1]), Err(Error::JobOver)) {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(kept.lock().unwrap().is_none(), "the handler had the last");
}

fn simulated() {
    let builder = || {
        let builder = Job::builder().expect("the settings are valid");
        builder.conduit(ConduitKind::Sim("ideal".to_owned()))
    };
    let refused = builder().join().map(drop).unwrap_err();
    assert!(matches!(refused, Error::Setting { .. }), "{refused}");
    assert!(refused.to_string().contains("run_spmd"), "{refused}");
    let refused = builder().run(|_| Ok(())).unwrap_err();
    assert!(matches!(refused, Error::Setting { .. }), "{refused}");
    assert_eq!(builder().run_spmd(|job| Ok(job.size())).unwrap(), 1);
}

/// Each process has other addresses, and a second job of the same process has another number.
fn timed() {
    let run = || {
        let output = launcher::command(1, &["timed"])
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        output.stdout
    };
    let first = run();
    let text = String::from_utf8_lossy(&first);
    let lines: Vec<_> = text.lines().collect();
    let (one, other) = lines.split_at(lines.len() / 2);
    assert!(!one.is_empty(), "nothing was printed");
    let without_numbers = |all: &[&str]| -> Vec<String> {
        let seen = all.iter().filter(|line| !line.contains("pointer"));
        seen.map(|line| (*line).to_owned()).collect()
    };
    assert_eq!(
        without_numbers(one),
        without_numbers(other),
        "two jobs of a process"
    );
    for _ in 0..5 {
        assert_eq!(String::from_utf8_lossy(&run()), text, "two processes");
    }
}

/// Calls with pointers as arguments and results, and tasks that wait for a peer. The lengths of messages and the
/// times of ranks, on machines and by strategies.
fn print_virtual_times() -> Result<()> {
    for (machine, strategy) in [
        ("ideal", Strategy::Bounce),
        ("myrinet-gm", Strategy::Firehose),
        ("connectx", Strategy::Foresight),
    ] {
        let said = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&said);
        let ends = Job::builder()?
            .conduit(ConduitKind::Sim(machine.to_owned()))
            .registration(strategy)
            .through(move |inner| Box::new(Heard(inner, Arc::clone(&into))))
            .heap(16 << 20)
            .run_local(3, |job| {
                let field = job.alloc::<u64>(100)?;
                let pass = job.function(|_: Rank, it: GlobalPtr<u64>| it.offset(1))?;
                let packed = job.function(|_: Rank, it: PackedPtr<u64>| it)?;
                let exposed = job.expose(vec![0_u64; 10])?;
                job.barrier()?;
                let there = field.pointer(job.right(), 0)?;
                let lent = exposed.pointer(0)?;
                for _ in 0..50 {
                    job.call(job.right(), &pass, &there)?;
                    job.call(job.right(), &pass, &lent)?;
                    let bits = job.call(job.right(), &packed, &job.pack(there)?)?;
                    assert_eq!(job.unpack(bits)?, there);
                }
                job.barrier()?;
                Ok((format!("{:?}", bytemuck::bytes_of(&there)), job.now()))
            });
        for end in ends {
            let (pointer, time) = end?;
            println!("{machine}: pointer {pointer}");
            println!("{machine}: {time:?}");
        }
        let mut said = said.lock().unwrap();
        said.sort_unstable();
        let mut digest = DefaultHasher::new();
        said.hash(&mut digest);
        println!("{machine}: {} messages, {:x}", said.len(), digest.finish());
    }
    Ok(())
}

/// A network that records the lengths and the times of the messages that ranks send.
struct Heard(Box<dyn Conduit>, Arc<Mutex<Vec<(u32, Duration, usize)>>>);

// SAFETY: each call is handed on.
unsafe impl Forward for Heard {
    fn inner(&self) -> &dyn Conduit {
        &*self.0
    }

    fn send(
        &self,
        to: Rank,
        message: &Message<'_>,
    ) -> std::result::Result<Sent, hydrant_conduit::Error> {
        let len = 8 * message.args.len() + message.payload.len();
        // Before the lock: a thread that asks for the time may give its turn away.
        let at = (self.0.rank().0, self.0.now(), len);
        self.1.lock().unwrap().push(at);
        self.0.send(to, message)
    }
}
