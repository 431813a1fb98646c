//! Memory of the program that stays registered after its use, while it is unmapped, emptied and moved between uses, on
//! pages that the kernel pinned for real. Each use reaches the pages that are there now.

#![allow(unsafe_code)] // maps memory, and names it by its address

#[path = "support/pinned.rs"]
mod pinned;
#[path = "support/place.rs"]
mod place;

use std::{
    cell::{Cell, RefCell},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use hydrant::{
    ConduitKind, Counters, InterNodeKind, Job, JobBuilder, MonitorKind, Rank, Result, Signal,
    Strategy, Symmetric,
};
use hydrant_conduit::{Conduit, Forward, Message, Sent};
use place::{Place, Renewal};
use rustix::{
    fs::{MemfdFlags, ftruncate, memfd_create},
    mm::{MapFlags, ProtFlags, mmap},
};

/// Returns a builder whose ranks hear of changes, unless this kernel permits no monitor.
fn builder(strategy: Strategy) -> Option<JobBuilder> {
    if let Err(absent) = hydrant_monitor::Monitor::of_process() {
        assert!(
            std::env::var_os("HYDRANT_TEST_REQUIRE").is_none(),
            "{absent}"
        );
        eprintln!("left out: {absent}");
        return None;
    }
    let builder = pinned::builder()
        .m(8 << 20)
        .maxvictim(4 << 20)
        .anywhere(true);
    Some(
        builder
            .registration(strategy)
            .monitor(MonitorKind::Userfaultfd),
    )
}

fn good<T>(ends: Vec<Result<T>>) -> Vec<T> {
    let ends: Result<Vec<T>> = ends.into_iter().collect();
    ends.expect("all ranks succeed")
}

/// Runs the tests of this process one after the other: each hears of the changes of all, and so seldom hits.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The strategies that keep registrations of both sides.
const KEEPING: [Strategy; 3] = [Strategy::Firehose, Strategy::Auto, Strategy::PinDown];

/// Ends the loop of another thread when this one has ended, by a panic or otherwise.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Returns the hits and the registrations so far.
fn hits(job: &Job) -> (u64, u64) {
    let Counters {
        hits,
        registrations,
        ..
    } = job.counters();
    (hits, registrations)
}

/// Asserts that a rank heard of `changes` and that its registrations were used again in between. `auto` copies instead
/// wherever it measured that copies are cheaper, on a busy machine almost always. `pin-down` hits in the engine.
fn assert_kept(strategy: Strategy, counters: &Counters, changes: u64) {
    let changes = if strategy == Strategy::Auto {
        1
    } else {
        changes
    };
    assert!(counters.memory_changes >= changes, "{strategy}: {counters}");
    let keeps = strategy == Strategy::Firehose;
    assert!(
        !keeps || counters.hits > changes / 2,
        "{strategy}: {counters}"
    );
}

#[test]
fn sources_are_what_is_there_now() {
    let _alone = alone();
    const LEN: usize = 20_000;
    for strategy in KEEPING {
        let Some(builder) = builder(strategy) else {
            return;
        };
        let counters = good(builder.run_local(2, |job| {
            let field = job.alloc::<u8>(LEN)?;
            let mut place = Place::new(LEN);
            for round in 0..200_u32 {
                let value = round as u8;
                let how = Renewal::ALL[round as usize % Renewal::ALL.len()];
                let source = &place.renew(how, value)[..LEN];
                for _ in 0..3 {
                    field.put(job.right(), 0, source)?;
                }
                job.barrier()?;
                let mut there = vec![0; LEN];
                field.local()?.read(0, &mut there)?;
                assert!(
                    there.iter().all(|byte| *byte == value),
                    "{how:?}, round {round}"
                );
                job.barrier()?;
                let back = &mut place.renew(how, !value)[..LEN];
                for _ in 0..2 {
                    field.get(job.right(), 0, back)?;
                }
                assert!(
                    back.iter().all(|byte| *byte == value),
                    "{how:?}, round {round}"
                );
                job.barrier()?;
            }
            Ok(job.counters())
        }));
        for counters in counters {
            assert_kept(strategy, &counters, 400);
        }
    }
}

#[test]
fn destinations_are_what_is_there_now() {
    let _alone = alone();
    check_destinations(4096, 20_000);
}

#[test]
fn destinations_in_buckets_of_many_pages_are_what_is_there_now() {
    let _alone = alone();
    check_destinations(32 << 10, 100_000);
}

/// Checks accesses to memory that a peer named by its address, while the peer renews its pages.
fn check_destinations(bucket: usize, len: usize) {
    for strategy in KEEPING {
        let Some(builder) = builder(strategy) else {
            return;
        };
        let counters = good(builder.bucket(bucket).run_local(2, |job| {
            let addresses = job.alloc::<u64>(1)?;
            let mut place = Place::new(len);
            let source = vec![0_u8; len];
            for round in 0..200_u32 {
                let value = round as u8 | 1;
                let how = Renewal::ALL[round as usize % Renewal::ALL.len()];
                place.renew(how, 0);
                addresses.put_value(job.left(), 0, place.address())?;
                job.barrier()?;
                let theirs = addresses.local()?.load(0)?;
                let mut data = source.clone();
                data.fill(value);
                for _ in 0..3 {
                    // SAFETY: the peer does not touch its memory before the next barrier.
                    unsafe { job.put_anywhere(job.right(), theirs, &data)? };
                }
                job.barrier()?;
                let there = &place.bytes()[..len];
                assert!(
                    there.iter().all(|byte| *byte == value),
                    "{how:?}, round {round}"
                );
                place.bytes().fill(!value);
                job.barrier()?;
                for _ in 0..2 {
                    // SAFETY: as above.
                    unsafe { job.get_anywhere(job.right(), theirs, &mut data)? };
                }
                assert!(
                    data.iter().all(|byte| *byte == !value),
                    "{how:?}, round {round}"
                );
                job.barrier()?;
            }
            Ok(job.counters())
        }));
        // In buckets of several pages, accesses by address are copied.
        for counters in counters.iter().filter(|_| bucket == 4096) {
            assert_kept(strategy, counters, 200);
        }
    }
}

/// Rank 0 tells rank 1 of memory, and rank 1 tells rank 2, which reached what was there before.
#[test]
fn a_peer_that_others_tell_reaches_what_is_there_now() {
    let _alone = alone();
    const LEN: usize = 8192;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    good(builder.run_local(3, |job| {
        let mut place = Place::new(LEN);
        let mut word = [0_u64];
        for round in 0..300_u32 {
            let value = round as u8 | 1;
            match job.rank() {
                Rank(0) => {
                    let how = Renewal::ALL[round as usize % 3];
                    place.renew(how, 0);
                    job.send(Rank(1), 1, &[place.address()])?;
                    job.receive(Rank(2), 3, &mut word)?;
                    let there = &place.bytes()[..LEN];
                    assert!(
                        there.iter().all(|byte| *byte == value),
                        "{how:?}, round {round}"
                    );
                }
                Rank(1) => {
                    job.receive(Rank(0), 1, &mut word)?;
                    job.send(Rank(2), 2, &word)?;
                }
                _ => {
                    job.receive(Rank(1), 2, &mut word)?;
                    // SAFETY: rank 0 waits for the message that follows.
                    unsafe { job.put_anywhere(Rank(0), word[0], &[value; LEN])? };
                    job.send(Rank(0), 3, &word)?;
                }
            }
        }
        job.barrier()
    }));
}

/// Puts memory and gets it back, some times, with the value that it has at that time.
fn use_again(field: &Symmetric<u8>, memory: &mut [u8], value: u8) -> Result<()> {
    for round in 0..3 {
        let value = value.wrapping_add(round);
        memory.fill(value);
        field.put(Rank(1), 0, memory)?;
        memory.fill(0);
        field.get(Rank(1), 0, memory)?;
        assert!(memory.iter().all(|byte| *byte == value), "{value}");
    }
    Ok(())
}

/// Stacks of threads that end, memory of threads, initialised statics, memory in huge pages, and pages that were
/// readable alone for a while.
#[test]
fn memory_of_each_kind_is_what_is_there_now() {
    let _alone = alone();
    const HUGE: usize = 2 << 20;
    thread_local! {
        static OWN: RefCell<[u8; 10_000]> = const { RefCell::new([1; 10_000]) };
    }
    static INITIALISED: Mutex<[u8; 10_000]> = Mutex::new([1; 10_000]);
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    good(builder.run_local(2, |job| {
        let field = job.alloc::<u8>(4 * HUGE)?;
        if job.rank() == Rank(0) {
            for round in 0..40_u8 {
                thread::scope(|scope| {
                    let ends = scope.spawn(|| {
                        let mut stack = [0; 30_000];
                        use_again(&field, &mut stack, round)?;
                        OWN.with_borrow_mut(|own| use_again(&field, own, round))
                    });
                    ends.join().expect("no panic")
                })?;
                use_again(&field, &mut *INITIALISED.lock().expect("no panic"), round)?;
            }
            let mut place = Place::new(3 * HUGE);
            let skipped = place.bytes().as_ptr().align_offset(HUGE);
            let pages = &mut place.bytes()[skipped..][..HUGE];
            let advise = |pages: &mut [u8], advice| {
                // SAFETY: the pages are borrowed, and keep their content.
                unsafe { libc::madvise(pages.as_mut_ptr().cast(), pages.len(), advice) }
            };
            for round in 0..8_u8 {
                let advice = [libc::MADV_HUGEPAGE, libc::MADV_NOHUGEPAGE];
                advise(pages, advice[usize::from(round) % 2]);
                use_again(&field, pages, round)?;
                advise(pages, libc::MADV_COLLAPSE);
                use_again(&field, &mut pages[4096 * 5..][..8192], round)?;
                place::empty(&mut pages[..4096 * 7]);
                use_again(&field, &mut pages[4096 * 6..][..HUGE / 2], round)?;
            }
            let mut place = Place::new(64 << 10);
            for round in 0..8_u8 {
                use_again(&field, place.bytes(), round)?;
                place.set_writable(false);
                for _ in 0..3 {
                    field.put(Rank(1), 0, place.bytes())?;
                }
                assert_eq!(field.get_value(Rank(1), 0)?, round + 2);
                place.set_writable(true);
            }
        }
        job.barrier()
    }));
}

/// A network on which messages of one thread of a rank take long to leave.
struct SlowThread(Box<dyn Conduit>);

thread_local! {
    static IS_SLOW: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: every call is handed on to a conduit that keeps the contract.
unsafe impl Forward for SlowThread {
    fn inner(&self) -> &dyn Conduit {
        &*self.0
    }

    fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, hydrant_conduit::Error> {
        if IS_SLOW.get() {
            thread::sleep(Duration::from_millis(2));
        }
        self.0.send(peer, message)
    }
}

/// A function changes memory and answers, while another thread sends what tells the caller of that change.
#[test]
fn an_answer_comes_after_the_news_that_another_thread_sends() {
    let _alone = alone();
    const LEN: usize = 8192;
    const ROUNDS: u64 = 200;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    let slow = builder.through(|inner| Box::new(SlowThread(inner)));
    good(slow.run_local(2, |job| {
        let changing = Mutex::new(Place::new(LEN));
        let renew = job.function(move |_: Rank, value: u64| {
            let mut place = changing.lock().unwrap_or_else(PoisonError::into_inner);
            place.renew(Renewal::Over, value as u8);
            place.address()
        })?;
        let field = job.alloc::<u8>(LEN)?;
        let over = AtomicBool::new(false);
        thread::scope(|scope| -> Result<()> {
            let _over = Over(&over);
            if job.rank() == Rank(0) {
                scope.spawn(|| {
                    IS_SLOW.set(true);
                    let mut own = Place::new(LEN);
                    while !over.load(Relaxed) {
                        field.put(Rank(1), 0, own.bytes()).expect("a peer");
                    }
                });
                return job.barrier();
            }
            for round in 1..=ROUNDS {
                let theirs = job.call(Rank(0), &renew, &round)?;
                for _ in 0..2 {
                    let mut got = [0; 64];
                    // SAFETY: rank 0 changes the memory in the calls of this thread alone.
                    unsafe { job.get_anywhere(Rank(0), theirs, &mut got)? };
                    assert_eq!(got, [round as u8; 64], "round {round}");
                }
            }
            job.barrier()
        })
    }));
}

/// Memory that could only be read when it was used first: it is written to later, or through another mapping, or it
/// shares a bucket with memory that is written to.
#[test]
fn memory_that_could_only_be_read_is_what_is_there_now() {
    let _alone = alone();
    const LEN: usize = 20_480;
    for bucket in [4096, 32 << 10] {
        let Some(builder) = builder(Strategy::Firehose) else {
            return;
        };
        good(builder.bucket(bucket).run_local(2, |job| {
            let field = job.alloc::<u8>(LEN)?;
            let (mut place, mut beside) = (Place::new(LEN), Place::new(LEN));
            let shared = SharedMapping::new(LEN);
            let addresses = job.all_gather(&[place.address()])?;
            let theirs = addresses[job.right().index()];
            let puts = |source: &[u8], value: u8| -> Result<()> {
                let mut back = vec![0; source.len()];
                for _ in 0..3 {
                    field.put(job.right(), 0, source)?;
                    field.get(job.right(), 0, &mut back)?;
                    assert!(back.iter().all(|byte| *byte == value), "{value}");
                }
                Ok(())
            };
            for value in 1..6 {
                place.bytes().fill(value);
                place.set_writable(false);
                puts(place.bytes(), value)?;
                job.barrier()?;
                let mut got = vec![0; LEN];
                for _ in 0..3 {
                    // SAFETY: the peer does not touch its memory before the next barrier.
                    unsafe { job.get_anywhere(job.right(), theirs, &mut got)? };
                    assert!(got.iter().all(|byte| *byte == value), "{value}");
                }
                job.barrier()?;
                place.set_writable(true);
                shared.fill(value);
                puts(shared.view(), value)?;
                beside.bytes().fill(value);
                place::set_writable(&mut beside.bytes()[8192..16_384], false);
                puts(beside.bytes(), value)?;
                beside.bytes()[..8192].fill(!value);
                puts(&beside.bytes()[..8192], !value)?;
                place::set_writable(&mut beside.bytes()[8192..16_384], true);
            }
            job.barrier()
        }));
    }
}

/// Segments of System V shared memory, of whose end the kernel tells nobody, one after the other at the same address.
#[test]
fn system_v_segments_are_what_is_there_now() {
    let _alone = alone();
    const LEN: usize = 20_480;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    good(builder.run_local(2, |job| {
        let field = job.alloc::<u8>(LEN)?;
        if job.rank() == Rank(0) {
            let mut at = std::ptr::null_mut();
            for value in 1..6 {
                let mut segment = SystemVSegment::new(at, LEN);
                at = segment.0;
                use_again(&field, segment.bytes(LEN), value)?;
            }
        }
        job.barrier()
    }));
}

/// A segment of System V shared memory, until it is dropped.
struct SystemVSegment(*mut u8);

impl SystemVSegment {
    /// Attaches a new segment, at an address if it is not null.
    fn new(at: *mut u8, len: usize) -> Self {
        // SAFETY: a new segment, of which nobody else knows.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, len, libc::IPC_CREAT | 0o600) };
        assert!(id >= 0, "a segment");
        // SAFETY: without `SHM_REMAP`, no other mapping is replaced.
        let start = unsafe { libc::shmat(id, at.cast_const().cast(), 0) };
        // SAFETY: the segment is the test's, and goes once it is detached.
        unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
        assert_ne!(start.addr(), usize::MAX, "addresses");
        Self(start.cast())
    }

    fn bytes(&mut self, len: usize) -> &mut [u8] {
        // SAFETY: the segment has as many bytes, and is borrowed through this alone.
        unsafe { std::slice::from_raw_parts_mut(self.0, len) }
    }
}

impl Drop for SystemVSegment {
    fn drop(&mut self) {
        // SAFETY: nobody has borrowed the segment.
        unsafe { libc::shmdt(self.0.cast()) };
    }
}

/// Pages that one mapping writes and another reads. They are never unmapped.
struct SharedMapping {
    written: *mut u8,
    read: *const u8,
    len: usize,
}

impl SharedMapping {
    fn new(len: usize) -> Self {
        let file = memfd_create(c"shared", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&file, len as u64).expect("pages");
        let map = |rights| {
            // SAFETY: a new mapping at an address of the kernel's choice.
            let mapped = unsafe {
                mmap(
                    std::ptr::null_mut(),
                    len,
                    rights,
                    MapFlags::SHARED,
                    &file,
                    0,
                )
            };
            mapped.expect("addresses").cast::<u8>()
        };
        Self {
            written: map(ProtFlags::READ | ProtFlags::WRITE),
            read: map(ProtFlags::READ),
            len,
        }
    }

    fn fill(&self, value: u8) {
        // SAFETY: the mapping has as many bytes, and no reference to the pages is kept beyond a use.
        unsafe { self.written.write_bytes(value, self.len) };
    }

    fn view(&self) -> &[u8] {
        // SAFETY: the mapping has as many bytes, and nothing is written as long as they are borrowed.
        unsafe { std::slice::from_raw_parts(self.read, self.len) }
    }
}

/// Rank 1 tells its mate of new memory by a store, and the mate tells rank 2 on another host, which reached what was there
/// before. In every other round a barrier tells all.
#[test]
fn a_mate_that_tells_another_host_comes_after_the_news() {
    let _alone = alone();
    const LEN: usize = 8192;
    const ROUNDS: u64 = 400;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    let hosts = (builder.conduit(ConduitKind::Auto))
        .inter_node(InterNodeKind::Pinned)
        .pretend_hosts(2);
    let counters = good(hosts.run_local(4, |job| {
        let (flags, mut place) = (job.alloc::<u64>(1)?, Place::new(LEN));
        let mut theirs = [place.address()];
        job.broadcast(Rank(1), &mut theirs)?;
        for round in 1..=ROUNDS {
            let (value, by_signal) = (round as u8 | 1, round % 2 == 0);
            let how = [Renewal::Over, Renewal::Emptied, Renewal::Moved][round as usize % 3];
            if job.rank() == Rank(1) {
                place.renew(how, 0);
            }
            if !by_signal {
                job.barrier()?;
            }
            match job.rank() {
                Rank(1) => {
                    if by_signal {
                        flags.signal(Rank(0), 0, Signal::Set(round))?;
                    }
                    job.receive(Rank(2), 1, &mut [0_u64])?;
                    let there = &place.bytes()[..LEN];
                    assert!(
                        there.iter().all(|byte| *byte == value),
                        "{how:?}, round {round}"
                    );
                }
                Rank(0) if by_signal => {
                    job.wait_until(&flags, 0, |word| word >= round)?;
                    flags.signal(Rank(2), 0, Signal::Set(round))?;
                }
                Rank(2) => {
                    if by_signal {
                        job.wait_until(&flags, 0, |word| word >= round)?;
                    }
                    // SAFETY: rank 1 waits for the message that follows.
                    unsafe { job.put_anywhere(Rank(1), theirs[0], &[value; LEN])? };
                    job.send(Rank(1), 1, &[round])?;
                }
                _ => {}
            }
        }
        job.barrier()?;
        Ok(job.counters())
    }));
    assert!(counters[1].memory_changes > ROUNDS / 2, "{}", counters[1]);
}

/// Long messages, which each rank answers where it handles them, arrive while memory changes that a peer reaches. Nobody
/// waits there for the peer, whose answer could not be handled meanwhile.
#[test]
fn messages_are_handled_while_memory_changes() {
    let _alone = alone();
    const LEN: usize = 8192;
    const LONG: usize = 200_000;
    const ROUNDS: u8 = 250;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    let counters = good(builder.run_local(2, |job| {
        let (mut place, over) = (Place::new(LEN), AtomicBool::new(false));
        let mut theirs = vec![place.address()];
        theirs = job.all_gather(&theirs)?;
        let theirs = theirs[job.right().index()];
        thread::scope(|scope| -> Result<()> {
            let _over = Over(&over);
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    place.renew(Renewal::Over, 0);
                    thread::sleep(Duration::from_micros(100));
                }
            });
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    // SAFETY: nobody looks at the memory, which the peer maps anew at any time.
                    let put = unsafe { job.put_anywhere(job.right(), theirs, &[1_u8; LEN]) };
                    put.expect("memory is always mapped there");
                }
            });
            for round in 0..ROUNDS {
                let mut there = vec![0; LONG];
                let sent = job.send_nb(job.right(), 1, vec![round; LONG])?;
                job.receive(job.left(), 1, &mut there)?;
                assert!(there.iter().all(|byte| *byte == round), "round {round}");
                sent.wait()?;
            }
            Ok(())
        })?;
        job.barrier()?;
        Ok(job.counters())
    }));
    assert!(counters[0].memory_changes > 100, "{}", counters[0]);
}

/// Keeps the monitor's thread from running, as far as that is possible, until it is dropped.
struct Starved<'a>(&'a AtomicBool);

impl<'a> Starved<'a> {
    fn begin<'scope>(scope: &'scope thread::Scope<'scope, 'a>, over: &'a AtomicBool) -> Self {
        set_policy_of_monitor(libc::SCHED_IDLE);
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(over)
    }
}

impl Drop for Starved<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
        set_policy_of_monitor(libc::SCHED_OTHER);
    }
}

fn set_policy_of_monitor(policy: i32) {
    for task in std::fs::read_dir("/proc/self/task")
        .expect("own threads")
        .flatten()
    {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.trim() == "hydrant-monitor" {
            let number = task
                .file_name()
                .to_string_lossy()
                .parse()
                .expect("a number");
            let priority = libc::sched_param { sched_priority: 0 };
            // SAFETY: the parameter is a local variable.
            let set = unsafe { libc::sched_setscheduler(number, policy, &raw const priority) };
            assert_eq!(set, 0);
        }
    }
}

/// A thread maps the address of memory that another has just unmapped, before that is heard, and lends it. A peer
/// reaches the new memory, although the old is registered.
#[test]
fn lent_memory_is_what_is_there_now() {
    let _alone = alone();
    const LEN: usize = 8192;
    const ROUNDS: u64 = 12;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    let early = good(builder.run_local(2, |job| {
        let field = job.alloc::<u8>(LEN)?;
        let mut early = 0;
        let (over, mut said) = (AtomicBool::new(false), [0_u64]);
        if job.rank() == Rank(1) {
            for round in 1..=ROUNDS {
                job.receive(Rank(0), 1, &mut said)?;
                // SAFETY: rank 0 waits for the message that follows.
                unsafe { job.put_anywhere(Rank(0), said[0], &[round as u8; LEN])? };
                job.send(Rank(0), 2, &[round])?;
            }
            job.barrier()?;
            return Ok(0);
        }
        thread::scope(|scope| -> Result<()> {
            let _starved = Starved::begin(scope, &over);
            for round in 1..=ROUNDS {
                let mut old = Place::new(LEN);
                old.bytes().fill(0xff);
                for _ in 0..3 {
                    field.put(Rank(1), 0, old.bytes())?;
                }
                let (address, unmapped) = (old.address(), AtomicBool::new(false));
                thread::scope(|scope| -> Result<()> {
                    let owner = scope.spawn(|| {
                        drop(old);
                        unmapped.store(true, Relaxed);
                    });
                    let mut new = loop {
                        if let Some(new) = Place::at(address, LEN) {
                            break new;
                        }
                    };
                    early += u64::from(!unmapped.load(Relaxed));
                    // SAFETY: the memory stays mapped until the loan ends, and only the peer writes to it.
                    let loan = unsafe { job.lend_anywhere(new.bytes().as_mut_ptr(), LEN)? };
                    job.send(Rank(1), 1, &[address])?;
                    job.receive(Rank(1), 2, &mut said)?;
                    drop(loan);
                    let there = new.bytes();
                    assert!(
                        there.iter().all(|byte| *byte == round as u8),
                        "round {round}: {}",
                        there[0]
                    );
                    owner.join().expect("no panic");
                    Ok(())
                })?;
            }
            Ok(())
        })?;
        job.barrier()?;
        Ok(early)
    }));
    eprintln!("{} of {ROUNDS} were early", early[0]);
}

/// A thread maps in a loop and puts from what it gets, while another unmaps what it has put from.
#[test]
fn a_thread_that_gets_unmapped_memory_early_puts_its_own_bytes() {
    let _alone = alone();
    const LEN: usize = 8192;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    let reused = good(builder.run_local(2, |job| {
        if job.rank() == Rank(1) {
            job.alloc::<u8>(2 * LEN)?;
            job.barrier()?;
            return Ok(0);
        }
        let field = job.alloc::<u8>(2 * LEN)?;
        let (over, last) = (AtomicBool::new(false), AtomicU64::new(0));
        let reused = AtomicU64::new(0);
        let theft = |value: u8| -> Result<()> {
            let mut place = Place::new(LEN);
            reused.fetch_add(u64::from(place.address() == last.load(Relaxed)), Relaxed);
            place.bytes().fill(value);
            field.put(Rank(1), LEN, place.bytes())?;
            let mut back = vec![0; LEN];
            field.get(Rank(1), LEN, &mut back)?;
            assert!(back.iter().all(|byte| *byte == value), "{value}");
            Ok(())
        };
        thread::scope(|scope| {
            let thief = scope.spawn(|| {
                let mut value = 0_u8;
                while !over.load(Relaxed) {
                    value = value.wrapping_add(2);
                    theft(value)?;
                }
                Ok(())
            });
            let own = || -> Result<()> {
                for _ in 0..4000 {
                    let mut place = Place::new(LEN);
                    place.bytes().fill(1);
                    field.put(Rank(1), 0, place.bytes())?;
                    field.put(Rank(1), 0, place.bytes())?;
                    last.store(place.address(), Relaxed);
                    drop(place);
                }
                Ok(())
            };
            let outcome = {
                let _over = Over(&over);
                own()
            };
            outcome.and(thief.join().expect("no panic"))
        })?;
        job.barrier()?;
        Ok(reused.load(Relaxed))
    }));
    assert!(reused[0] > 0, "no address was ever used again");
}

/// In a bucket of many pages, a thread empties a page and puts it, while another puts a neighbouring page. The kernel
/// tells of the emptied page before it goes, and the neighbour's registration may pin it in between.
#[test]
fn an_emptied_page_with_a_busy_neighbour_is_put_as_it_is() {
    let _alone = alone();
    const BUCKET: usize = 128 << 10;
    const PAGE: usize = 4096;
    const ROUNDS: u64 = 10_000;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    let counters = good(builder.bucket(BUCKET).run_local(2, |job| {
        let field = job.alloc::<u8>(2 * BUCKET)?;
        if job.rank() == Rank(0) {
            // Whole buckets somewhere in the mapping.
            let mut place = Place::new(3 * BUCKET);
            let skipped = place.bytes().as_ptr().align_offset(BUCKET);
            let bucket = &mut place.bytes()[skipped..skipped + BUCKET];
            bucket.fill(1);
            let (ours, theirs) = bucket.split_at_mut(20 * PAGE);
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let neighbour = scope.spawn(|| {
                    while !over.load(Relaxed) {
                        field.put(Rank(1), 20 * PAGE, &theirs[..2 * PAGE])?;
                    }
                    Ok(())
                });
                let mut own = || -> Result<()> {
                    // Two pages, because one would be copied to a slot.
                    let page = &mut ours[2 * PAGE..4 * PAGE];
                    for round in 1..=ROUNDS {
                        place::empty(page);
                        page[..8].copy_from_slice(&round.to_le_bytes());
                        field.put(Rank(1), 2 * PAGE, page)?;
                        let mut back = [0; 8];
                        field.get(Rank(1), 2 * PAGE, &mut back)?;
                        assert_eq!(u64::from_le_bytes(back), round);
                    }
                    Ok(())
                };
                let outcome = {
                    let _over = Over(&over);
                    own()
                };
                outcome.and(neighbour.join().expect("no panic"))
            })?;
        }
        job.barrier()?;
        Ok(job.counters())
    }));
    let own = counters[0];
    assert!(own.registrations > 10, "{own}");
}

/// A peer holds a firehose on a bucket of several pages for the sake of an exposed buffer. The other pages of the bucket
/// come and go unheard, and the peer names them by their address.
#[test]
fn pages_beside_an_exposed_buffer_are_what_is_there_now() {
    let _alone = alone();
    const BUCKET: usize = 64 << 10;
    const LEN: usize = 4096;
    let Some(builder) = builder(Strategy::Firehose) else {
        return;
    };
    let shown = Mutex::new(None);
    good(builder.bucket(BUCKET).run_local(2, |job| {
        let mut word = [0_u64];
        if job.rank() == Rank(0) {
            let (buffer, mut place) = beside_a_buffer(BUCKET);
            let buffer = job.expose(buffer)?;
            *shown.lock().expect("nobody panics") = Some(buffer.pointer(0)?);
            job.barrier()?;
            for round in 0..100_u32 {
                job.receive(Rank(1), 1, &mut word)?;
                place.renew(Renewal::ALL[round as usize % Renewal::ALL.len()], 0);
                job.send(Rank(1), 2, &[place.address()])?;
                job.receive(Rank(1), 3, &mut word)?;
                let there = &place.bytes()[..LEN];
                assert!(there.iter().all(|byte| *byte == round as u8 | 1), "{round}");
            }
            job.barrier()?;
            drop(buffer.take_back());
            return Ok(());
        }
        job.barrier()?;
        let exposed = (*shown.lock().expect("nobody panics")).expect("it was shown");
        for round in 0..100_u32 {
            for _ in 0..3 {
                job.put_to(exposed, &[7_u8; LEN])?;
            }
            job.send(Rank(0), 1, &word)?;
            job.receive(Rank(0), 2, &mut word)?;
            // SAFETY: rank 0 waits for the message that follows.
            unsafe { job.put_anywhere(Rank(0), word[0], &[round as u8 | 1; LEN])? };
            job.send(Rank(0), 3, &word)?;
        }
        assert!(hits(job).0 > 100, "the exposed buffer stays registered");
        job.barrier()
    }));
}

/// Returns a buffer, and the pages before it in its first bucket.
fn beside_a_buffer(bucket: usize) -> (Vec<u8>, Place) {
    let mut others = Vec::new();
    for more in 0..100 {
        let buffer = vec![1_u8; (8 << 20) + more * 4096];
        let start = buffer.as_ptr().addr() & !4095;
        let first = start & !(bucket - 1);
        if first < start
            && let Some(place) = Place::at(first as u64, start - first)
        {
            return (buffer, place);
        }
        others.push(buffer);
    }
    panic!("nothing is free before any buffer");
}

#[test]
fn without_a_monitor_nothing_of_the_program_stays_registered() {
    let _alone = alone();
    good(
        (pinned::builder().monitor(MonitorKind::Off)).run_local(2, |job| {
            let field = job.alloc::<u8>(20_000)?;
            let source = vec![1; 20_000];
            for _ in 0..10 {
                field.put(job.right(), 0, &source)?;
            }
            job.barrier()?;
            assert_eq!(job.counters().memory_changes, 0);
            assert_eq!(hits(job).0, 0);
            Ok(())
        }),
    );
}
