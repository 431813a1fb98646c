//! A filter of system calls permits a userfaultfd, but not the call that tells whether memory changes. There is no monitor
//! then: a thread that cannot ask would end, and whoever changes watched memory would wait for it for ever.

#![allow(unsafe_code)] // sets a filter of system calls

use std::{ptr, thread};

use hydrant_monitor::{Monitor, MonitorAbsent};

/// `UFFDIO_WRITEPROTECT`.
const PROTECT: u32 = 0xc018_aa06;
/// The places of the number of a system call and of its second argument, in what a filter reads.
const NUMBER: u32 = 0;
const SECOND: u32 = 24;

/// Refuses the call, for this thread and those that it starts.
fn refuse() {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let (equal, end) = (
        (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        (libc::BPF_RET | libc::BPF_K) as u16,
    );
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(load, 0, 0, NUMBER),
        step(equal, 0, 3, libc::SYS_ioctl as u32),
        step(load, 0, 0, SECOND),
        step(equal, 0, 1, PROTECT),
        step(end, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(end, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the call takes numbers alone.
    let bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(bound, 0);
    // SAFETY: the program and its steps are local variables, which the kernel copies.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            ptr::from_ref(&program),
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_monitor_that_cannot_ask_is_absent() {
    let answer = thread::spawn(|| {
        refuse();
        Monitor::of_process().map(|_| ())
    });
    match answer.join().expect("no panic") {
        Err(MonitorAbsent::NoProbe { cause }) => {
            assert!(cause.to_string().contains("not permitted"), "{cause}");
        }
        // Other kernels and containers permit no userfaultfd at all.
        Err(other) => hydrant_testing::left_out(other),
        Ok(()) => panic!("the filter refuses the probe"),
    }
}
