//! Tests of limits, and of systems that forbid `io_uring`.

use std::process::ExitCode;

use hydrant_conduit::{Conduit, Error, Membership, Permission, Rank, conformance::Log};
use hydrant_testing::{family::Child, locked::limit_locked_memory};
use rustix::process::{Resource, Rlimit, setrlimit};

use super::{MappedPages, PAGE, format_remote, get, parse_remote, pinned_pages, put};
use crate::options;

/// With few lockable bytes, a registration fails with an error that names the limit.
pub(crate) fn memlock(child: &mut Child) -> ExitCode {
    const LIMIT: usize = 64 << 10;
    limit_locked_memory(LIMIT as u64, 0);
    let conduit = hydrant_pin::attach(child, &options()).expect("a page can be pinned");
    let registration = conduit.caps().registration.expect("it registers");
    let all = registration.max_bytes / PAGE;
    assert!(
        (8..=16).contains(&all),
        "it says that {all} pages may be pinned"
    );
    assert_eq!(pinned_pages(), 0);
    match MappedPages::new(17).register(&conduit, Permission::ReadWrite) {
        Err(Error::Exhausted { limit, remedy, .. }) => {
            assert_eq!(limit, LIMIT as u64);
            assert!(remedy.contains("ulimit -l"), "{remedy}");
        }
        other => panic!("{other:?}"),
    }
    for _ in 0..3 {
        let mut held = Vec::new();
        let refused = loop {
            match MappedPages::new(1).register(&conduit, Permission::ReadWrite) {
                Ok(key) if held.len() <= 16 => held.push(key),
                other => break other,
            }
        };
        assert!(
            matches!(refused, Err(Error::Exhausted { .. })),
            "{refused:?}"
        );
        // The rings lock some of the bytes; how many is the kernel's choice.
        assert!((all..=16).contains(&held.len()), "{} of {all}", held.len());
        assert_eq!(pinned_pages(), held.len());
        for key in held {
            conduit.deregister(key).expect("in force");
        }
        assert_eq!(pinned_pages(), 0);
    }
    conduit.leave(true);
    ExitCode::SUCCESS
}

/// Each rank's process has pinned memory before it joins. The rest is offered, and can be pinned.
pub(crate) fn held(child: &mut Child) -> ExitCode {
    const LIMIT: usize = 128 * PAGE;
    limit_locked_memory(LIMIT as u64, 1);
    let before = MappedPages::new(32);
    before.fill(1);
    let ring = io_uring::IoUring::new(2).expect("a ring");
    let buffer = libc::iovec {
        iov_base: before.base.cast(),
        iov_len: before.len,
    };
    // SAFETY: the pages stay mapped.
    unsafe { ring.submitter().register_buffers(&[buffer]) }.expect("a quarter of the limit");
    assert_eq!(pinned_pages(), 32);
    let conduit = hydrant_pin::attach(child, &options()).expect("a page can be pinned");
    let registration = conduit.caps().registration.expect("it registers");
    let all = registration.max_bytes / PAGE;
    // Half of what is left, less than that by what the rings take.
    assert!((24..=32).contains(&all), "{all} pages are offered");
    let offered = child.exchange(&all.to_string());
    assert!(offered.iter().all(|other| *other == all.to_string()));
    // Rings of the kernel lock pages, too: of each process three, and two of this test's.
    let some = MappedPages::new(all - 4);
    let key = some.register(&conduit, Permission::ReadWrite);
    let key = key.expect("what was offered");
    assert_eq!(pinned_pages(), 32 + all - 4);
    child.meet(|| ());
    conduit.deregister(key).expect("in force");
    conduit.leave(true);
    ExitCode::SUCCESS
}

/// If a container forbids `io_uring`, as most do, the error says so.
pub(crate) fn forbidden(child: &mut Child) -> ExitCode {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut program = [
        // The number of the system call.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            libc::SYS_io_uring_setup as u32,
        ),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: this call takes no pointer.
    let kept = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(kept, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the filter lives until the call returns; the kernel keeps a copy.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    match hydrant_pin::attach(child, &options()).map(drop) {
        Err(Error::Unreachable(why)) => {
            for word in ["io_uring", "kernel.io_uring_disabled", "seccomp"] {
                assert!(why.contains(word), "{why}");
            }
        }
        other => panic!("{other:?}"),
    }
    ExitCode::SUCCESS
}

/// Rank 0 has no descriptors left, neither for the pipes to its peer nor for the peer's pipes. Both
/// ranks get an error that names the limit.
pub(crate) fn descriptors(conduit: &dyn Conduit, child: &mut Child) {
    let log = &mut Log::new();
    let memory = MappedPages::new(1);
    let key = memory
        .register(conduit, Permission::ReadWrite)
        .expect("room");
    let full = (conduit.rank() == Rank(0)).then(take_all_descriptors);
    let places = child.exchange(&format_remote(memory.remote(key)));
    let other = Rank(1 - conduit.rank().0);
    let there = parse_remote(&places[other.index()]);
    // A failed operation does not disturb the next one.
    for _ in 0..3 {
        match put(log, conduit, other, there, memory, key) {
            Err(Error::Exhausted { remedy, limit, .. }) => {
                assert!(remedy.contains("RLIMIT_NOFILE"), "{remedy}");
                assert!(full.as_ref().is_none_or(|full| full.len() as u64 <= limit));
            }
            other => panic!("{other:?}"),
        }
    }
    child.meet(|| _ = conduit.poll(log));
}

/// A rank that accesses all others, and is accessed by them, has five descriptors for each. One
/// watches the peer's process from the start; two pipes serve each direction.
pub(crate) fn few_descriptors(conduit: &dyn Conduit, child: &mut Child) {
    let log = &mut Log::new();
    let memory = MappedPages::new(1);
    let key = memory
        .register(conduit, Permission::ReadWrite)
        .expect("room");
    let places = child.exchange(&format_remote(memory.remote(key)));
    let before = open_pipes();
    child.meet(|| ());
    let peers = || (0..places.len()).filter(|peer| *peer != conduit.rank().index());
    for peer in peers() {
        let (there, peer) = (parse_remote(&places[peer]), Rank(peer as u32));
        put(log, conduit, peer, there, memory, key).expect("a put");
        get(log, conduit, peer, there, memory, key).expect("a get");
    }
    child.meet(|| _ = conduit.poll(log));
    assert_eq!(open_pipes(), before + 4 * peers().count());
    child.meet(|| _ = conduit.poll(log));
}

/// Counts the descriptors of pipes. Other kinds are not counted, because the startup still closes
/// some.
fn open_pipes() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("descriptors are listed");
    let names = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    names
        .filter(|name| name.to_string_lossy().starts_with("pipe:"))
        .count()
}

/// Lowers the limit on descriptors, and opens as many as it allows.
fn take_all_descriptors() -> Vec<std::os::fd::OwnedFd> {
    let limit = Rlimit {
        current: Some(64),
        maximum: Some(64),
    };
    setrlimit(Resource::Nofile, limit).expect("less is always allowed");
    std::iter::from_fn(|| rustix::io::dup(std::io::stdin()).ok()).collect()
}
