//! A process as the kernel sees it.

use std::fs;

use serde::Serialize;

/// The facts of `/proc/PID/status` that belong beside a rank's own counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ProcessStatus {
    /// The name of the program, of which the kernel keeps 15 bytes.
    pub(super) program: String,
    /// The letter of the state: R, S, D, T, t, Z.
    #[serde(skip)]
    state: char,
    #[serde(skip)]
    parent: u32,
    /// `VmPin`: memory that the kernel has pinned for the process.
    pub(super) pinned_bytes: Option<u64>,
    /// `VmLck`: memory that the process has locked.
    pub(super) locked_bytes: Option<u64>,
    /// `VmRSS`: memory that the process has in use.
    pub(super) resident_bytes: Option<u64>,
}

impl ProcessStatus {
    /// Returns the status of a process, or `None` if there is no such process.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let text = fs::read(format!("/proc/{pid}/status")).ok()?;
        Some(Self::read(&String::from_utf8_lossy(&text)))
    }

    fn read(text: &str) -> Self {
        let mut status = Self::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            let bytes = || {
                let kibibytes: u64 = value.strip_suffix("kB")?.trim().parse().ok()?;
                kibibytes.checked_mul(1024)
            };
            match name {
                "Name" => value.clone_into(&mut status.program),
                "State" => status.state = value.chars().next().unwrap_or_default(),
                "PPid" => status.parent = value.parse().unwrap_or(0),
                "VmPin" => status.pinned_bytes = bytes(),
                "VmLck" => status.locked_bytes = bytes(),
                "VmRSS" => status.resident_bytes = bytes(),
                _ => {}
            }
        }
        status
    }

    /// Returns whether a signal or a debugger has stopped it.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Returns whether it has ended, and its parent does not know yet.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Returns whether a process is `ancestor`, or was started by it, by its children or by theirs.
pub(super) fn descends_from(pid: u32, ancestor: u32) -> bool {
    const GENERATIONS: usize = 8;
    let mut pid = pid;
    for _ in 0..GENERATIONS {
        if pid == ancestor {
            return true;
        }
        match ProcessStatus::of(pid) {
            Some(status) if status.parent > 1 => pid = status.parent,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_read() {
        let text = "Name:\tcannon\nState:\tT (stopped)\nPPid:\t41\nVmLck:\t       8 kB\nVmPin:\t    1024 kB\nVmRSS:\t x kB\n";
        let status = ProcessStatus::read(text);
        assert_eq!(status.program, "cannon");
        assert!(status.is_stopped() && !status.has_ended());
        assert_eq!(status.parent, 41);
        assert_eq!(status.pinned_bytes, Some(1 << 20));
        assert_eq!(status.locked_bytes, Some(8 << 10));
        assert_eq!(status.resident_bytes, None);
        assert_eq!(ProcessStatus::read("").pinned_bytes, None);
    }

    #[test]
    fn a_process_descends_from_its_parent() {
        let own = std::process::id();
        let parent = ProcessStatus::of(own).expect("this process").parent;
        assert!(descends_from(own, own));
        assert!(parent <= 1 || descends_from(own, parent));
        assert!(!descends_from(own, u32::MAX));
    }
}
