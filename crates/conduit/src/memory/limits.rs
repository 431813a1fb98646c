//! How much memory a process may pin.

use std::fs;

/// The bytes that this process may pin by `RLIMIT_MEMLOCK`; none if the limit does not hold for
/// it, as for one with `CAP_IPC_LOCK`.
pub fn memlock() -> Option<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    (!may_lock(&status)).then_some(limit)
}

/// The bytes that all ranks of this host together may pin: half of the memory.
pub fn pinnable() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    total(&meminfo).unwrap_or(1 << 30) / 2
}

/// Whether `CAP_IPC_LOCK` (14) is among the effective capabilities.
fn may_lock(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 << 14 != 0)
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_understood() {
        assert!(may_lock("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!may_lock("CapEff:\t0000000000000000\n"));
        assert!(!may_lock(""));
        assert_eq!(
            total("MemTotal:       16384 kB\nMemFree: 1 kB"),
            Some(16 << 20)
        );
        assert!(pinnable() > 0);
    }
}
