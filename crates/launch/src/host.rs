//! Hosts: finds the ranks that share one.

use std::{env, fmt};

use hydrant_base::words::{Fixed, values};

use crate::{Bootstrap, Error};

/// The variable that names the host where the kernel's name for it does not fit.
pub const HOST_ID: &str = "HYDRANT_HOST_ID";

/// The key under which every rank puts the name of its host.
const ID: &str = "host-id";

/// The key under which rank 0 puts the table of hosts.
const TABLE: &str = "hosts";

/// The longest name of a host, in characters.
const MAX_NAME: usize = 256;

/// The place where a process runs, as far as shared memory depends on it.
///
/// A process id is valid only in its own PID namespace, and a socket only in its network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The running kernel.
    kernel: String,
    /// The kernel's names of the namespaces. Empty where the kernel gives none.
    processes: String,
    network: String,
}

impl Site {
    /// Returns the site of this process.
    pub fn here() -> Site {
        let namespace = |name: &str| {
            let link = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
            link.to_string_lossy().into_owned()
        };
        Site {
            kernel: kernel_id(),
            processes: namespace("pid"),
            network: namespace("net"),
        }
    }

    /// Parses the output of [`Display`](fmt::Display).
    pub fn parse(text: &str) -> Option<Site> {
        let mut words = text.split(' ').map(str::to_owned);
        let (kernel, processes, network) = (words.next()?, words.next()?, words.next()?);
        Some(Site {
            kernel,
            processes,
            network,
        })
    }

    /// Returns the reason why processes at the two sites cannot share memory. It completes a
    /// sentence after "they are". Returns `None` if they can.
    pub fn apart(&self, there: &Site) -> Option<&'static str> {
        if self.kernel != there.kernel {
            Some("on different hosts")
        } else if self.processes != there.processes {
            Some("in different PID namespaces of one kernel")
        } else if self.network != there.network {
            Some("in different network namespaces of one kernel")
        } else {
            None
        }
    }
}

impl Site {
    /// As [`apart`](Self::apart), but only for two sites of one kernel.
    fn of_one_kernel(&self, there: &Site) -> Option<&'static str> {
        self.apart(there).filter(|_| self.kernel == there.kernel)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kernel, self.processes, self.network)
    }
}

/// Returns true if `/proc` shows this process's own PID namespace. In another namespace the same
/// process ids name other processes.
///
/// A `/proc` of an enclosing namespace lists two ids for this process. A `/proc` of an unrelated
/// namespace lists none.
pub fn proc_is_own() -> bool {
    let link = std::fs::read_link("/proc/self").unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_named(std::process::id(), &link.to_string_lossy(), &status)
}

/// Returns true if `/proc/self` points to `me`, and the status lists that id alone. A kernel
/// without PID namespaces lists no ids there.
fn is_named(me: u32, link: &str, status: &str) -> bool {
    let me = me.to_string();
    let mut lines = status.lines();
    let numbers = lines.find_map(|line| line.strip_prefix("NSpid:"));
    link == me && numbers.is_none_or(|numbers| numbers.trim() == me)
}

/// Returns the name of this process's host. Two processes get the same name if and only if they can
/// share memory.
///
/// The name is [`HOST_ID`] if that is set, otherwise the [`Site`].
pub fn host_id() -> String {
    named().unwrap_or_else(|| Site::here().to_string())
}

/// Returns the host's name from [`HOST_ID`].
fn named() -> Option<String> {
    let named = env::var(HOST_ID).ok();
    let named = named.map(|name| name.trim().chars().take(MAX_NAME).collect::<String>());
    named.filter(|name| !name.is_empty())
}

/// Returns the name of the running kernel. Two processes get the same name if and only if they
/// share the kernel.
fn kernel_id() -> String {
    let booted = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    booted
        .map(|id| id.trim().to_owned())
        .unwrap_or_else(|_| node_name())
}

fn node_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// Returns the number of each rank's host. Hosts are numbered in the order of their first ranks.
/// Collective, and called once.
///
/// `id` names this rank's host, as [`host_id`] returns it. Rank 0 reads the names of all ranks and
/// puts the table. The others read the table.
pub fn hosts(bootstrap: &mut dyn Bootstrap, id: &str) -> Result<Vec<u32>, Error> {
    let label = named().unwrap_or_else(node_name);
    bootstrap.put(ID, format!("{id}\n{label}").as_bytes())?;
    bootstrap.fence()?;
    let size = bootstrap.size();
    if bootstrap.rank() == 0 {
        let mut ids: Vec<Vec<u8>> = Vec::new();
        let numbers: Result<Vec<u32>, Error> = (0..size)
            .map(|rank| {
                let mut id = bootstrap.get(rank, ID)?;
                id.truncate(
                    id.iter()
                        .position(|byte| *byte == b'\n')
                        .unwrap_or(id.len()),
                );
                let known = ids.iter().position(|known| *known == id);
                Ok(known.unwrap_or_else(|| {
                    ids.push(id);
                    ids.len() - 1
                }) as u32)
            })
            .collect();
        bootstrap.put(TABLE, &pack(&numbers?))?;
    }
    bootstrap.fence()?;
    let packed = bootstrap.get(0, TABLE)?;
    unpack(&packed, size).ok_or_else(|| Error::Protocol {
        service: bootstrap.name(),
        doing: "reading which ranks share a host".into(),
        got: format!("{} bytes that are no table of {size} ranks", packed.len()),
    })
}

/// Describes the ranks on each host that [`hosts`] found: `ranks 0-3 on a, rank 4 on b`. Hosts with
/// the same name are told apart by the rest of their identity. If namespaces of one kernel make two
/// hosts of it, the text says so.
pub fn placement(bootstrap: &mut dyn Bootstrap, hosts: &[u32]) -> String {
    let count = hosts.iter().max().map_or(0, |last| last + 1);
    let said: Vec<(String, String)> = (0..count)
        .map(|host| {
            let first = hosts.iter().position(|one| *one == host).unwrap_or(0) as u32;
            let said = bootstrap.get(first, ID).unwrap_or_default();
            let said = String::from_utf8_lossy(&said).into_owned();
            let (id, label) = said.split_once('\n').unwrap_or((&said, "?"));
            (id.to_owned(), label.to_owned())
        })
        .collect();
    let mut sites = said.iter().filter_map(|(id, _)| Site::parse(id));
    let first = sites.next();
    let reason = first.and_then(|first| sites.find_map(|other| first.of_one_kernel(&other)));
    let places = (0..count).zip(&said).map(|(host, (id, label))| {
        let ranks: Vec<u32> = (0..)
            .zip(hosts)
            .filter(|(_, on)| **on == host)
            .map(|(rank, _)| rank)
            .collect();
        let alike = said.iter().filter(|(_, other)| other == label).count() > 1;
        let more = if alike && reason.is_none() {
            format!(" ({id})")
        } else {
            String::new()
        };
        format!("{} on {label}{more}", Ranks(&ranks))
    });
    let places = places.chain(reason.map(str::to_owned));
    places.collect::<Vec<_>>().join(", ")
}

/// Prints ranks in a sentence, with runs shortened.
pub(crate) struct Ranks<'a>(pub(crate) &'a [u32]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "rank " } else { "ranks " })?;
        let mut first = true;
        for run in self.0.chunk_by(|a, b| a + 1 == *b) {
            f.write_str(if first { "" } else { ", " })?;
            first = false;
            match run {
                [one] => write!(f, "{one}")?,
                [one, .., last] => write!(f, "{one}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

/// Packs equal numbers into runs, each as number and length. Consecutive ranks mostly share a host.
fn pack(numbers: &[u32]) -> Vec<u8> {
    let mut packed = Vec::new();
    for run in numbers.chunk_by(|a, b| a == b) {
        (run[0], run.len() as u32).put(&mut packed);
    }
    packed
}

/// Unpacks exactly `count` numbers that [`pack`] packed. Returns `None` if the bytes do not hold
/// that many.
fn unpack(packed: &[u8], count: u32) -> Option<Vec<u32>> {
    let runs: Result<Vec<[u32; 2]>, _> = values(packed).collect();
    let runs = runs.ok()?;
    let length: u64 = runs.iter().map(|[_, length]| u64::from(*length)).sum();
    let of_run = |[number, length]: [u32; 2]| std::iter::repeat_n(number, length as usize);
    (length == u64::from(count)).then(|| runs.into_iter().flat_map(of_run).collect())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn every_rank_learns_the_hosts() {
        let names = ["b", "b", "a", "b", "c", "c"];
        thread::scope(|scope| {
            for (mut rank, name) in crate::local(6).into_iter().zip(names) {
                scope.spawn(move || {
                    assert_eq!(hosts(&mut rank, name).unwrap(), [0, 0, 1, 0, 2, 2]);
                });
            }
        });
    }

    #[test]
    fn only_the_proc_of_the_own_namespace_counts() {
        let named = |link, status| is_named(12, link, status);
        assert!(proc_is_own());
        assert!(named("12", "Pid:\t12\nNSpid:\t12\nVmPeak: 1 kB\n"));
        // The enclosing namespace happens to use the same id.
        assert!(!named("12", "Pid:\t12\nNSpid:\t12\t12\n"));
        assert!(!named("4012", "Pid:\t4012\nNSpid:\t4012\t12\n"));
        // A `/proc` of a namespace that this process is not in.
        assert!(!named("", ""));
        // A kernel without namespaces.
        assert!(named("12", "Pid:\t12\n"));
    }

    #[test]
    fn sites_differ_by_kernel_and_namespaces() {
        let here = Site::here();
        assert_eq!(Site::parse(&here.to_string()).as_ref(), Some(&here));
        let site = |text| Site::parse(text).unwrap();
        let one = site("k pid:[1] net:[1]");
        assert_eq!(one.apart(&one), None);
        for (other, why) in [
            ("l pid:[1] net:[1]", "hosts"),
            ("k pid:[2] net:[1]", "PID"),
            ("k pid:[1] net:[2]", "network"),
        ] {
            let apart = one.apart(&site(other));
            assert!(apart.is_some_and(|apart| apart.contains(why)), "{other}");
        }
        assert_eq!(Site::parse("short"), None);
    }

    #[test]
    fn placements_name_ranks_and_hosts() {
        let mut job = crate::local(1).remove(0);
        let hosts = hosts(&mut job, "k pid:[1] net:[1]").unwrap();
        let label = named().unwrap_or_else(node_name);
        assert_eq!(placement(&mut job, &hosts), format!("rank 0 on {label}"));
    }

    #[test]
    fn ranks_are_named_in_runs() {
        assert_eq!(Ranks(&[2]).to_string(), "rank 2");
        assert_eq!(
            Ranks(&[0, 1, 2, 3, 7, 9, 10]).to_string(),
            "ranks 0-3, 7, 9-10"
        );
    }

    #[test]
    fn tables_are_small_and_checked() {
        let numbers: Vec<u32> = (0..4096).map(|rank| rank / 64).collect();
        assert_eq!(pack(&numbers).len(), 64 * 8);
        assert_eq!(unpack(&pack(&numbers), 4096), Some(numbers));
        for bad in [
            &[][..],
            &[1, 0, 0, 0],
            &[1, 0, 0, 0, 1, 0, 0, 0, 0],
            &[0xff; 8],
        ] {
            assert_eq!(unpack(bad, 1), None);
        }
        assert_eq!(unpack(&[7, 0, 0, 0, 1, 0, 0, 0], 1), Some(vec![7]));
    }
}
