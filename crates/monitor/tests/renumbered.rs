//! A program that closes all descriptors, as daemons do, still finds its own mappings.

#![allow(unsafe_code)] // replaces a descriptor by its number

use std::{
    fs::{self, File},
    os::fd::AsRawFd,
    process::{Command, Stdio},
};

use hydrant_monitor::mapped_ranges;

/// Returns the numbers of the open lists of this process's mappings.
fn descriptors() -> Vec<i32> {
    let name = format!("/proc/{}/maps", std::process::id());
    let is_ours = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy() == name)
    };
    let all = fs::read_dir("/proc/self/fd").expect("the open files");
    (all.flatten().filter(is_ours))
        .map(|entry| entry.file_name().to_string_lossy().parse())
        .collect::<Result<_, _>>()
        .expect("numbers")
}

#[test]
fn another_file_under_the_number_is_not_asked() {
    let here = 7_u64;
    let addr = (&raw const here).addr() as u64;
    let find = || mapped_ranges(addr, addr + 8).next();
    let before = find().expect("the stack");
    let numbers = descriptors();
    assert_eq!(numbers.len(), 1, "one descriptor");
    assert_eq!((find(), descriptors()), (Some(before), numbers.clone()));
    // The other process has no memory at this stack's address, or other memory.
    let mut other = (Command::new("sleep").arg("60"))
        .stdin(Stdio::null())
        .spawn()
        .expect("a process");
    let theirs = File::open(format!("/proc/{}/maps", other.id())).expect("its mappings");
    // SAFETY: both are open. A program that closes all descriptors and opens others does the same.
    let replaced = unsafe { libc::dup2(theirs.as_raw_fd(), numbers[0]) };
    assert_eq!(replaced, numbers[0]);
    assert_eq!(find(), Some(before));
    let now = descriptors();
    assert!(now.len() == 1 && now != numbers, "{now:?}, {numbers:?}");
    other.kill().expect("it lives");
    other.wait().expect("it ends");
}
