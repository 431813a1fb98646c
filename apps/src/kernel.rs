//! The kernel's count of pinned memory, and its clock.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

/// Nanoseconds since 1970: comparable between the processes of a host.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// Kilobytes that are pinned (`VmPin`) or locked (`VmLck`).
pub(crate) fn pinned() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    read(&status, "VmPin:") + read(&status, "VmLck:")
}

fn read(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kilobytes_are_found_by_name() {
        let status = "VmLck:\t      12 kB\nVmPin:\t     340 kB\nVmHWM: 5 kB\n";
        assert_eq!((read(status, "VmPin:"), read(status, "VmLck:")), (340, 12));
        assert_eq!(read(status, "VmFoo:"), 0);
    }
}
