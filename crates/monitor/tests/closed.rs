//! A program that closes all descriptors, as daemons do, loses the monitor and is told so.

#![allow(unsafe_code)] // maps memory, and closes a descriptor by its number

use std::{
    fs::{self, File},
    io::Read,
    ptr,
    sync::Arc,
    time::{Duration, Instant},
};

use hydrant_monitor::{ChangeListener, MemoryChange, Monitor, MonitorAbsent};

struct Ignore;

impl ChangeListener for Ignore {
    fn begins(&self) {}
    fn cancelled(&self) {}
}

/// Returns the number of the process's userfaultfd.
fn descriptor() -> i32 {
    let is_ours = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().contains("userfaultfd"))
    };
    let mut all = fs::read_dir("/proc/self/fd")
        .expect("the open files")
        .flatten();
    let ours = all.find(is_ours).expect("the monitor is open");
    ours.file_name()
        .to_string_lossy()
        .parse()
        .expect("a number")
}

#[test]
fn a_closed_descriptor_is_told_and_no_other_file_is_read() {
    const BYTES: usize = 4096;
    let monitor = match Monitor::of_process() {
        Ok(monitor) => monitor,
        Err(absent) => {
            hydrant_testing::left_out(absent);
            return;
        }
    };
    let changes = monitor
        .subscribe(Arc::new(Ignore))
        .expect("the first subscriber");
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel chooses the address of new memory.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), BYTES, access, kind, -1, 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    let start = mapped.expose_provenance() as u64;
    monitor
        .watch(start, BYTES as u64)
        .expect("anonymous memory");

    let number = descriptor();
    // SAFETY: what a program does that closes all descriptors. The monitor expects that.
    assert_eq!(unsafe { libc::close(number) }, 0);
    // A pipe has the number now.
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    assert_eq!(ends[0], number, "the lowest free number");
    let written = [7_u8; 32];
    // SAFETY: `written` is readable.
    let sent = unsafe { libc::write(ends[1], written.as_ptr().cast(), written.len()) };
    assert_eq!(sent, 32);

    assert_eq!(monitor.is_quiet(), Err(MonitorAbsent::Ended));
    // The call returns, though nobody reads its event.
    // SAFETY: the page is of this test, which does not use it any more.
    assert_eq!(unsafe { libc::munmap(mapped, BYTES) }, 0);
    let begun = Instant::now();
    let told = loop {
        match changes.take() {
            Some(change) => break change,
            None => assert!(begun.elapsed() < Duration::from_secs(30), "never told"),
        }
    };
    assert_eq!(told, MemoryChange::Anything);
    assert_eq!(Monitor::of_process().err(), Some(MonitorAbsent::Ended));
    assert!(monitor.watch(start, BYTES as u64).is_err());
    // SAFETY: the pipe's end is this test's alone.
    let mut pipe = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(number) };
    let mut read = [0; 32];
    pipe.read_exact(&mut read).expect("what was written");
    assert_eq!(read, written);
}
