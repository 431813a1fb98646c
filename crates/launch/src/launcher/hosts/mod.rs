//! A job on several hosts.
//!
//! On each host an [`agent()`] starts the ranks of that host, as the launcher starts its own. It
//! passes on their lines and their ends. A remote shell starts the agent. The agent and the
//! launcher exchange [frames](frame) over that shell's input and output, so no port must be opened
//! and no stranger can connect. A shell that ends takes its ranks with it. The launcher itself then
//! has no ranks. It keeps the PMI-1 server and the decision how the job ends.
//!
//! The launcher's loop does not know whether ranks are children or behind agents. The launcher
//! acknowledges output when it is written. A slow reader therefore neither fills memory nor looks
//! like silence. Both sides send heartbeats. A side that hears nothing for 20 s by default takes
//! the other for lost.

mod agent;
mod agents;
mod frame;
mod link;
mod printer;
mod shell;

use std::fmt;
use std::str::FromStr;

pub use agent::agent;
pub(super) use agents::Agents;

use super::LaunchError;

/// The default remote shell, which never asks for a password.
pub const DEFAULT_SHELL: &str = "ssh -x -o BatchMode=yes";

/// The end of a sentence about a host that could not be reached. `hydrant info --hosts` itself leaves it out.
pub const ADVICE: &str = "; `hydrant info` with the same --hosts says what to mend";

/// A host of a job: `NAME`, or `NAME:SLOTS` with the most ranks it may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The host's name for the remote shell.
    pub name: String,
    /// The most ranks on this host.
    pub slots: Option<u32>,
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Host, String> {
        if text.parse::<std::net::Ipv6Addr>().is_ok() {
            return Err(format!(
                "the colons of `{text}` may be those of slots: an IPv6 address is written [{text}], or [{text}]:SLOTS"
            ));
        }
        // A colon inside the brackets of an address does not begin the slots.
        let (name, slots) = match text.rsplit_once(':') {
            Some((name, slots)) if !slots.contains(']') => {
                let number = slots.parse().ok().filter(|slots| *slots > 0);
                let number = number.ok_or_else(|| {
                    format!("`{slots}` is no number of slots; a host is NAME or NAME:SLOTS")
                })?;
                (name, Some(number))
            }
            _ => (text, None),
        };
        // A remote shell would take such a name for an option.
        if name.is_empty() || name.starts_with('-') || name.contains(char::is_whitespace) {
            return Err(format!("`{name}` is no name of a host"));
        }
        Ok(Host {
            name: name.to_owned(),
            slots,
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slots {
            Some(slots) => write!(f, "{}:{slots}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Returns the number of ranks on each host. Hosts with slots fill them in order. The others share
/// the rest evenly, and the first ones get one more.
pub(super) fn place(ranks: u32, hosts: &[Host]) -> Result<Vec<u32>, LaunchError> {
    let mut left = ranks;
    let mut counts: Vec<u32> = (hosts.iter())
        .map(|host| {
            let count = host.slots.unwrap_or(0).min(left);
            left -= count;
            count
        })
        .collect();
    let open = hosts.iter().filter(|host| host.slots.is_none()).count() as u32;
    if open == 0 && left > 0 {
        return Err(LaunchError::TooFewSlots {
            ranks,
            slots: ranks - left,
        });
    }
    let shares = (0..open).map(|nth| left / open + u32::from(nth < left % open));
    let of_open = (hosts.iter().zip(&mut counts)).filter(|(host, _)| host.slots.is_none());
    for ((_, count), share) in of_open.zip(shares) {
        *count = share;
    }
    Ok(counts)
}

/// Decodes the bytes as frames to an agent, and as frames from an agent.
#[cfg(feature = "fuzzing")]
pub(super) fn read_frames(bytes: &[u8]) {
    fn all<T: frame::Framed>(mut bytes: &[u8]) {
        while let Ok(Some((_, taken))) = frame::decode::<T>(bytes) {
            bytes = &bytes[taken..];
        }
    }
    all::<frame::AgentOrder>(bytes);
    all::<frame::AgentReport>(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> Vec<Host> {
        text.split(',').map(|host| host.parse().unwrap()).collect()
    }

    #[test]
    fn hosts_are_names_with_and_without_slots() {
        for text in [
            "a",
            "a:3",
            "node-1.cluster:16",
            "user@a",
            "[fe80::1]",
            "[fe80::1]:4",
        ] {
            assert_eq!(text.parse::<Host>().unwrap().to_string(), text);
        }
        assert_eq!("[::1]:4".parse::<Host>().unwrap().slots, Some(4));
        for bad in [
            "",
            ":3",
            "a:0",
            "a:",
            "a:x",
            "-oProxyCommand=x",
            "a b",
            "a:-1",
            "::1",
            "fe80::1",
        ] {
            assert!(bad.parse::<Host>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ranks_are_placed_in_blocks() {
        for (ranks, names, expected) in [
            (4, "a,b", [2, 2, 0]),
            (5, "a,b", [3, 2, 0]),
            (1, "a,b", [1, 0, 0]),
            (8, "a,b,c", [3, 3, 2]),
            (4, "a:3,b:3", [3, 1, 0]),
            (6, "a:4,b,c", [4, 1, 1]),
            (3, "a:4,b,c", [3, 0, 0]),
            (5, "a,b:1,c", [2, 1, 2]),
        ] {
            let placed = place(ranks, &hosts(names)).unwrap();
            assert_eq!(placed, expected[..placed.len()], "{ranks} on {names}");
        }
        let error = place(5, &hosts("a:2,b:2")).unwrap_err().to_string();
        assert!(
            error.contains("5 ranks") && error.contains("slots for 4"),
            "{error}"
        );
    }
}
