//! The memory that a process may pin.

use std::{fmt::Write, fs, io};

use hydrant_pinning::Size;
use rustix::process::{Resource, getrlimit};

use super::group_limit;

/// Returns the bytes that this process may pin by `RLIMIT_MEMLOCK`. `None` if the limit does not
/// apply, as with `CAP_IPC_LOCK`.
pub fn memlock() -> Option<u64> {
    let limit = getrlimit(Resource::Memlock).current?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    (!may_lock(&status)).then_some(limit)
}

/// Returns the bytes that all ranks of this host together may pin: half of the memory, or half of a
/// tighter control group's limit.
pub fn pinnable() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = kilobytes(&meminfo, "MemTotal:").unwrap_or(1 << 30);
    total.min(group_limit().unwrap_or(u64::MAX)) / 2
}

/// Returns the bytes that the kernel has pinned of this process's memory, for whomever (`VmPin`). RDMA devices and
/// `io_uring` count there what is registered with them. 0 if the kernel does not tell.
pub fn pinned() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    kilobytes(&status, "VmPin:").unwrap_or(0)
}

/// Returns a remedy for the system's refusal: the limits of this process that may have caused it,
/// and the way to raise them. The text follows the system's, and may be empty.
pub fn remedy(cause: &io::Error) -> String {
    let limit = |resource| getrlimit(resource).current;
    let address_space = limit(Resource::As);
    let data = limit(Resource::Data);
    let processes = limit(Resource::Nproc);
    match cause.raw_os_error() {
        Some(libc::ENOMEM) => for_memory(address_space, data),
        Some(libc::EAGAIN) => for_threads(address_space, processes),
        _ => String::new(),
    }
}

fn for_memory(address_space: Option<u64>, data: Option<u64>) -> String {
    let address_space = address_space.map(|bytes| ("the address space", bytes, "-v"));
    let data = data.map(|bytes| ("the private memory", bytes, "-d"));
    let limits: Vec<String> = (address_space.into_iter().chain(data))
        .map(|(what, bytes, option)| {
            format!(
                "{what} of this process is limited to {}: raise that (ulimit {option})",
                Size(bytes)
            )
        })
        .collect();
    match limits.is_empty() {
        true => String::new(),
        false => format!("; {}, or ask for less memory", limits.join("; ")),
    }
}

fn for_threads(address_space: Option<u64>, processes: Option<u64>) -> String {
    let mut limits = Vec::new();
    if let Some(count) = processes {
        limits.push(format!(
            "{count} processes and threads of the user (ulimit -u)"
        ));
    }
    if let Some(bytes) = address_space {
        limits.push(format!("{} of address space (ulimit -v)", Size(bytes)));
    }
    let mut text = String::from("; a limit was reached: raise ");
    for limit in &limits {
        let _ = write!(text, "the {limit}, or ");
    }
    text.push_str("what the control group allows (pids.max)");
    text
}

/// Returns true if `CAP_IPC_LOCK` (14) is among the effective capabilities.
fn may_lock(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 << 14 != 0)
}

/// Returns the bytes of the line that begins with `name`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kilobytes.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri lacks these system calls")]
    fn files_of_the_kernel_are_parsed() {
        assert!(may_lock("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!may_lock("CapEff:\t0000000000000000\n"));
        assert!(!may_lock(""));
        assert_eq!(
            kilobytes("MemTotal:       16384 kB\nMemFree: 1 kB", "MemTotal:"),
            Some(16 << 20)
        );
        let status = "VmLck:\t       4 kB\nVmPin:\t     100 kB\n";
        assert_eq!(kilobytes(status, "VmPin:"), Some(100 << 10));
        assert_eq!(kilobytes("VmPin:\t99999999999999999999 kB", "VmPin:"), None);
        assert_eq!(kilobytes("VmLck: 1 kB", "VmPin:"), None);
        assert!(pinnable() > 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri lacks these system calls")]
    fn limits_that_hold_are_named_with_how_to_raise_them() {
        assert_eq!(for_memory(None, None), "");
        let space = for_memory(Some(7), None);
        assert!(
            space.contains("limited to 7 bytes: raise that (ulimit -v), or ask"),
            "{space}"
        );
        let data = for_memory(None, Some(8));
        assert!(
            data.contains("limited to 8 bytes: raise that (ulimit -d), or ask"),
            "{data}"
        );
        let either = for_memory(Some(7), Some(8));
        assert!(
            either.contains("(ulimit -v); the private memory") && either.contains("(ulimit -d)"),
            "{either}"
        );
        let both = for_threads(Some(7), Some(3));
        assert!(
            both.contains("3 processes and threads of the user (ulimit -u)"),
            "{both}"
        );
        assert!(
            both.contains("7 bytes of address space (ulimit -v)"),
            "{both}"
        );
        let neither = for_threads(None, None);
        assert!(
            !neither.contains("ulimit") && neither.contains("pids.max"),
            "{neither}"
        );
        assert_eq!(remedy(&io::Error::from_raw_os_error(libc::ENOENT)), "");
    }
}
