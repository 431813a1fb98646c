//! Children that are forked from a rank, and their copies of its handles: each call returns an error, and no other
//! process notices it.

use std::{
    cell::RefCell,
    io::{self, Write},
    panic::{self, AssertUnwindSafe},
    process::{self, Command},
    thread,
    time::{Duration, Instant},
};

use hydrant::{
    AnySource, AnyTag, BackgroundHandle, CallHandle, Error, Exposed, Function, GlobalPtr, Handler,
    Job, Mutexes, Op, Rank, ReceiveHandle, Result, Signal, Symmetric, Team, settings,
};
use hydrant_testing::{forked, launcher};

const RANKS: u32 = 2;
/// The number of elements in each kind of memory.
const LEN: usize = 512;
/// The element that only children write.
const THEIRS: usize = LEN - 1;
/// The tag under which children send.
const CHILDS: u64 = 1;
/// The value that children write.
const WRONG: u64 = 0xdead;

/// The setup of a job: the conduit, the registration strategy, and the number of hosts that the ranks pretend to be
/// on.
const NETWORKS: [(&str, &str, u32); 6] = [
    ("smp", "auto", 1),
    ("smp+pin", "firehose", 1),
    ("smp+pin", "pin-down", 1),
    ("smp+pin", "foresight", 1),
    ("auto", "firehose", 2),
    ("auto", "bounce", 2),
];

pub(crate) fn over_networks() {
    for (conduit, registration, hosts) in NETWORKS {
        let hosts = hosts.to_string();
        passes(&[
            ("HYDRANT_CONDUIT", conduit),
            ("HYDRANT_REGISTRATION", registration),
            ("HYDRANT_PRETEND_HOSTS", &hosts),
            ("HYDRANT_INTER_NODE", "smp+pin"),
        ]);
    }
}

pub(crate) fn over_libfabric() {
    if let Err(why) = settings::fabric_endpoints(&hydrant::Settings::new()) {
        eprintln!("left out: {why}");
        return;
    }
    passes(&[("HYDRANT_CONDUIT", "ofi")]);
}

/// A rank is killed while a forked child and a program that it started live on, with copies of its descriptors.
pub(crate) fn hide_no_death() {
    if let Err(why) = settings::fabric_endpoints(&hydrant::Settings::new()) {
        eprintln!("left out: {why}");
        return;
    }
    let mut command: Command = launcher::command(RANKS, &["outlived"]);
    command.env("HYDRANT_CONDUIT", "ofi");
    let output = command.output().expect("the job starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("rank 1 is lost in time"), "{text}");
}

/// Rank 1 dies and leaves children. Rank 0 must notice before the time of silent ranks is over, which is 10 s.
pub(crate) fn outlive() -> Result<()> {
    let job = hydrant::join()?;
    job.barrier()?;
    let begun = Instant::now();
    if job.rank() == Rank(1) {
        // Sockets are marked at most 50 ms after they were opened.
        thread::sleep(Duration::from_millis(200));
        let program = Command::new("sleep").arg("60").spawn();
        assert!(program.is_ok(), "{program:?}");
        forked::child(|| {
            thread::sleep(Duration::from_secs(60));
            0
        });
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL)
            .map_err(io::Error::from)?;
    }
    let lost = job.barrier();
    let is_in_time = begun.elapsed() < Duration::from_secs(6);
    match lost {
        Err(Error::PeerLost(Rank(1))) if is_in_time => Err(Error::other("rank 1 is lost in time")),
        other => Err(Error::other(format!(
            "{other:?} after {:?}",
            begun.elapsed()
        ))),
    }
}

pub(crate) fn over_rdma() {
    if let Err(why) = settings::rdma_ports(&hydrant::Settings::new()) {
        eprintln!("left out: {why}");
        return;
    }
    for registration in ["firehose", "rendezvous-unpin"] {
        passes(&[
            ("HYDRANT_CONDUIT", "verbs"),
            ("HYDRANT_REGISTRATION", registration),
        ]);
    }
}

fn passes(settings: &[(&str, &str)]) {
    let mut command: Command = launcher::command(RANKS, &["forks"]);
    command.envs(settings.iter().copied());
    let output = command.output().expect("the job starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{settings:?}: {text}");
    // A child that drops its handles is silent.
    assert!(text.is_empty(), "{settings:?}: {text}");
}

/// The handles of a rank when it forks.
struct Held<'a> {
    job: &'a Job,
    memory: Symmetric<u64>,
    /// The part of this rank, and of the next.
    exposed: RefCell<Option<Exposed<'static, u64>>>,
    there: GlobalPtr<u64>,
    handler: Handler,
    function: Function<u64, u64>,
    mutexes: Mutexes,
    team: RefCell<Option<Team>>,
    /// In flight until the job ends: its message or answer never comes.
    receive: RefCell<Option<ReceiveHandle<u64>>>,
    call: RefCell<Option<CallHandle<u64>>>,
    barrier: RefCell<Option<BackgroundHandle<()>>>,
}

/// The act of a child.
enum Act {
    /// A call that returns the error that the process was forked.
    Refused(fn(&Held<'_>) -> Result<()>),
    /// An act that succeeds, or that has no effect elsewhere. Returns whether it went as expected.
    Silent(fn(&Held<'_>) -> bool),
    /// The child returns from the body.
    Returns(fn() -> Result<()>),
    /// The child ends by itself, with that status.
    Ends(fn(&Held<'_>), i32),
}

use Act::{Ends, Refused, Returns, Silent};

const ACTS: &[(&str, Act)] = &[
    ("nothing", Silent(|_| true)),
    ("exit", Ends(|_| process::exit(0), 0)),
    ("abort", Ends(|it| it.job.abort(3), 3)),
    ("return", Returns(|| Ok(()))),
    ("fail", Returns(|| Err(Error::other("a child's own")))),
    (
        "panic",
        Returns(|| panic::resume_unwind(Box::new("a child's own"))),
    ),
    ("drop exposed", Silent(|it| drop_of(&it.exposed))),
    ("drop a team", Silent(|it| drop_of(&it.team))),
    ("drop a receive", Silent(|it| drop_of(&it.receive))),
    ("drop a call", Silent(|it| drop_of(&it.call))),
    ("drop a collective", Silent(|it| drop_of(&it.barrier))),
    (
        "take back",
        Silent(|it| {
            let exposed = it.exposed.take().expect("it is exposed");
            exposed.take_back().len() == LEN
        }),
    ),
    ("poll", Silent(|it| it.job.poll() == 0)),
    (
        "count",
        Silent(|it| it.job.counters().collectives > 0 && it.job.registration().is_none()),
    ),
    (
        "start a program",
        Silent(|_| Command::new("true").status().is_ok_and(|it| it.success())),
    ),
    (
        "store",
        Silent(|it| {
            // By a view from before the fork, which is memory of its own here.
            let exposed = it.exposed.borrow();
            let stored = exposed.as_ref().map(|it| it.view().store(THEIRS, WRONG));
            matches!(stored, Some(Ok(())))
        }),
    ),
    (
        "run ranks that are threads",
        Silent(|_| {
            let job = Job::builder().map(|it| it.heap(1 << 20).service(false));
            let ends = job.map(|job| {
                job.run_local(2, |job| {
                    let memory = job.alloc::<u64>(1)?;
                    memory.put_value(job.right(), 0, u64::from(job.rank().0))?;
                    job.barrier()?;
                    memory.get_value(job.rank(), 0)
                })
            });
            ends.is_ok_and(|ends| matches!(ends.as_slice(), [Ok(1), Ok(0)]))
        }),
    ),
    (
        "put",
        Refused(|it| it.memory.put(it.job.right(), THEIRS, &[WRONG])),
    ),
    (
        "put here",
        Refused(|it| it.memory.put(it.job.rank(), THEIRS, &[WRONG])),
    ),
    (
        "put a value",
        Refused(|it| it.memory.put_value(it.job.right(), THEIRS, WRONG)),
    ),
    (
        "put in a thread",
        Refused(|it| {
            let (memory, right) = (&it.memory, it.job.right());
            let put = || memory.put_value(right, THEIRS, WRONG);
            thread::scope(|scope| scope.spawn(put).join().expect("it does not panic"))
        }),
    ),
    (
        "put in a grandchild",
        Refused(|it| {
            let put = || it.memory.put_value(it.job.right(), THEIRS, WRONG);
            match forked::ended(forked::child(|| i32::from(!is_refusal(&put())))) {
                Some(0) => put(),
                other => Err(Error::other(format!("the grandchild ended with {other:?}"))),
            }
        }),
    ),
    (
        "fill",
        Refused(|it| it.memory.fill(it.job.right(), THEIRS..LEN, WRONG)),
    ),
    (
        "put indexed",
        Refused(|it| it.memory.put_indexed(it.job.right(), &[THEIRS], &[WRONG])),
    ),
    (
        "put later",
        Refused(|it| {
            let _put = it.memory.put_nb(it.job.right(), THEIRS, vec![WRONG])?;
            Ok(())
        }),
    ),
    (
        "get",
        Refused(|it| it.memory.get(it.job.right(), 0, &mut [0; 2])),
    ),
    (
        "get a value",
        Refused(|it| it.memory.get_value(it.job.right(), 0).map(drop)),
    ),
    (
        "get later",
        Refused(|it| it.memory.get_nb(it.job.right(), 0, 4).map(drop)),
    ),
    ("look", Refused(|it| it.memory.local().map(drop))),
    (
        "add",
        Refused(|it| it.memory.fetch_add(it.job.right(), THEIRS, 1).map(drop)),
    ),
    (
        "accumulate",
        Refused(|it| it.memory.accumulate(it.job.right(), THEIRS, 1, &[1])),
    ),
    (
        "signal",
        Refused(|it| {
            it.memory.put_signal(
                it.job.right(),
                THEIRS,
                &[WRONG],
                &it.memory,
                0,
                Signal::Add(1),
            )
        }),
    ),
    (
        "wait for a signal",
        Refused(|it| it.job.wait_until(&it.memory, 0, |_| false).map(drop)),
    ),
    (
        "put exposed",
        Refused(|it| it.job.put_to(it.there, &[WRONG; LEN])),
    ),
    (
        "get exposed",
        Refused(|it| it.job.get_from(it.there, &mut [0; LEN])),
    ),
    (
        "add exposed",
        Refused(|it| it.job.atomic(it.there)?.fetch_add(1).map(drop)),
    ),
    (
        "put in a scope",
        Refused(|it| {
            it.job.scope(|scope| {
                scope
                    .put(&it.memory, it.job.right(), THEIRS, &[WRONG])
                    .map(drop)
            })
        }),
    ),
    (
        "expose",
        Refused(|it| it.job.expose(vec![0_u64; LEN]).map(drop)),
    ),
    (
        "send",
        Refused(|it| it.job.send(it.job.right(), CHILDS, &[WRONG])),
    ),
    (
        "send a long message",
        Refused(|it| it.job.send(it.job.right(), CHILDS, &vec![WRONG; 1 << 16])),
    ),
    (
        "send later",
        Refused(|it| {
            let _send = it.job.send_nb(it.job.right(), CHILDS, vec![WRONG])?;
            Ok(())
        }),
    ),
    (
        "receive",
        Refused(|it| it.job.receive(AnySource, AnyTag, &mut [0_u64]).map(drop)),
    ),
    (
        "probe",
        Refused(|it| it.job.try_probe(AnySource, AnyTag).map(drop)),
    ),
    (
        "wait for a receive",
        Refused(|it| taken(&it.receive).wait().map(drop)),
    ),
    (
        "ask for a receive",
        Refused(|it| taken(&it.receive).test().map(drop)),
    ),
    (
        "wait for a call",
        Refused(|it| taken(&it.call).wait().map(drop)),
    ),
    (
        "wait for a collective",
        Refused(|it| taken(&it.barrier).wait()),
    ),
    (
        "ask for a collective",
        Refused(|it| taken(&it.barrier).test().map(drop)),
    ),
    (
        "request",
        Refused(|it| it.job.request_short(it.job.right(), it.handler, &[WRONG])),
    ),
    (
        "call",
        Refused(|it| it.job.call(it.job.right(), &it.function, &WRONG).map(drop)),
    ),
    (
        "call one way",
        Refused(|it| it.job.call_one_way(it.job.right(), &it.function, &WRONG)),
    ),
    ("wait for requests", Refused(|it| it.job.am_quiet())),
    ("quiet", Refused(|it| it.job.quiet())),
    ("barrier", Refused(|it| it.job.barrier())),
    (
        "reduce",
        Refused(|it| it.job.all_reduce(&mut [WRONG], Op::Sum)),
    ),
    (
        "split",
        Refused(|it| it.job.world().split(Some(0), 0).map(drop)),
    ),
    ("lock", Refused(|it| it.mutexes.lock(Rank(0), 0).map(drop))),
    ("allocate", Refused(|it| it.job.alloc::<u8>(4).map(drop))),
    ("free", Refused(|it| it.job.free(it.memory.clone()))),
    ("finalize", Refused(|it| it.job.finalize())),
    ("join", Refused(|_| hydrant::join().map(drop))),
    (
        "wait for a future",
        Refused(|it| it.job.wait_for(std::future::ready(()))),
    ),
];

fn drop_of<T>(cell: &RefCell<Option<T>>) -> bool {
    cell.take().map(drop).is_some()
}

fn taken<T>(cell: &RefCell<Option<T>>) -> T {
    cell.take().expect("it is there before the fork")
}

fn is_refusal<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Forked { rank: Rank(0) }))
}

/// Rank 0 forks a child for each act, while the other waits. Afterwards everything works as if it had not.
pub(crate) fn play() -> Result<()> {
    // The act of a child that returns from the body.
    let returned = RefCell::new(None);
    let ran = panic::catch_unwind(AssertUnwindSafe(|| {
        hydrant::run(|job| {
            let held = Held::new(job)?;
            for (round, (name, act)) in (1..).zip(ACTS) {
                if job.rank() == Rank(0) {
                    let pid = forked::fork();
                    if pid == 0 {
                        match act {
                            Returns(how) => {
                                *returned.borrow_mut() = Some(*name);
                                return how();
                            }
                            act => do_it(name, act, &held),
                        }
                    }
                    let expected = if let Ends(_, status) = act {
                        *status
                    } else {
                        0
                    };
                    let end = forked::ended(pid);
                    if end != Some(expected) {
                        let what = format!("{name}: the child ended with {end:?}");
                        return Err(Error::other(what));
                    }
                }
                held.exchange_all(round)
                    .map_err(|cause| Error::other(format!("{name}: {cause}")))?;
            }
            held.close()
        })
    }));
    let Some(name) = returned.take() else {
        return ran.unwrap_or_else(|cause| panic::resume_unwind(cause));
    };
    let is_right = match (name, &ran) {
        ("return", Ok(ended)) => is_refusal(ended),
        ("fail", Ok(Err(cause))) => cause.to_string() == "a child's own",
        ("panic", Err(cause)) => cause.is::<&str>(),
        _ => false,
    };
    forked::end(i32::from(!is_right))
}

/// Does the act of a child, and ends it.
fn do_it(name: &str, act: &Act, held: &Held<'_>) -> ! {
    let is_right = match act {
        Refused(call) => {
            let result = call(held);
            if let Err(cause) = &result
                && !is_refusal(&result)
            {
                let _ = io::stderr().write_all(format!("{name}: {cause}\n").as_bytes());
            }
            is_refusal(&result)
        }
        Silent(act) => act(held),
        Ends(act, _) => {
            act(held);
            false
        }
        Returns(_) => false,
    };
    forked::end(if is_right { 0 } else { 9 })
}

impl<'a> Held<'a> {
    fn new(job: &'a Job) -> Result<Self> {
        let memory = job.alloc::<u64>(LEN)?;
        let exposed = job.expose(vec![0_u64; LEN])?;
        let pointers = job.all_gather(&[job.pack(exposed.pointer(0)?)?])?;
        let there = job.unpack(pointers[job.right().index()])?;
        let handler = job.handler(|_, _, _| panic!("a child has sent a request"))?;
        let function = job.function(|_, it: u64| match it {
            WRONG => panic!("a child has called"),
            it => it,
        })?;
        let never = job.async_function(|_, _: u64| std::future::pending::<u64>())?;
        let held = Self {
            mutexes: job.mutexes(1)?,
            team: RefCell::new(job.world().split(Some(0), 0)?),
            receive: RefCell::new(Some(job.receive_nb(AnySource, 77, vec![0; LEN])?)),
            call: RefCell::new(Some(job.call_nb(job.right(), &never, &0)?)),
            barrier: RefCell::new(match job.rank() {
                Rank(0) => Some(job.world().barrier_nb()?),
                _ => None,
            }),
            exposed: RefCell::new(Some(exposed)),
            job,
            memory,
            there,
            handler,
            function,
        };
        held.exchange_all(0)?;
        Ok(held)
    }

    /// Everything works as if there had been no child.
    fn exchange_all(&self, round: u64) -> Result<()> {
        let (job, right) = (self.job, self.job.right());
        let wrong = |what: &str| Err(Error::other(format!("after a child: {what}")));
        job.send(right, 5, &[round])?;
        job.put_to(self.there, &[round; THEIRS])?;
        self.memory.put(right, 0, &[round; THEIRS])?;
        if job.call(right, &self.function, &round)? != round {
            return wrong("a call");
        }
        let mut got = [0_u64];
        job.receive(job.left(), 5, &mut got)?;
        // Until the other has put: a barrier is in flight at one of them.
        job.send(right, 6, &[round])?;
        job.receive(job.left(), 6, &mut [0_u64])?;
        if got != [round] || job.try_probe(AnySource, CHILDS)?.is_some() {
            return wrong("a message");
        }
        let exposed = self.exposed.borrow();
        let exposed = exposed.as_ref().map(|it| it.view().to_vec());
        let expected = [vec![round; THEIRS], vec![0]].concat();
        if exposed.as_ref() != Some(&expected) {
            return wrong("exposed memory");
        }
        if self.memory.local()?.to_vec() != expected {
            return wrong("symmetric memory");
        }
        drop(self.mutexes.lock(Rank(0), 0)?);
        job.send(right, 6, &[round])?;
        job.receive(job.left(), 6, &mut [0_u64])?;
        job.quiet()
    }

    fn close(self) -> Result<()> {
        let barrier = match self.barrier.take() {
            Some(begun) => begun,
            None => self.job.world().barrier_nb()?,
        };
        barrier.wait()?;
        drop(self.call.take());
        self.job.am_quiet()?;
        let team = self.team.take();
        team.map_or(Ok(()), |team| team.barrier())
    }
}
