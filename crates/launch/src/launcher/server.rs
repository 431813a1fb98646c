//! The PMI-1 server without its sockets: it takes lines and returns effects.

use crate::{BEREFT, FAILING};
use std::collections::HashMap;

use crate::pmi1::wire::{PmiLine, VERSION, shorten, unescape};

/// The limits that `get_maxes` reports. Each counts the zero that ends a C string. They are the
/// limits of MPICH and Slurm, which clients accept.
const MAX_NAME: usize = 256;
const MAX_KEY: usize = 64;
const MAX_VALUE: usize = 1024;

/// The most memory for the keys and values of one rank, and of all ranks. The first limit protects
/// the launcher's memory and the other ranks' share.
const MAX_OF_RANK: usize = 4 << 20;
const MAX_SPACE: usize = 1 << 30;

/// The memory for a key and its value beside their characters: two strings, their slots in the
/// table and in the heap.
const ENTRY: usize = 128;

/// The longest command of several lines, in bytes.
const MAX_MULTIPLE: usize = 1 << 20;

/// An action for the launcher after a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Send a line to a rank.
    Send { rank: u32, line: String },
    /// End the job, as this rank requested.
    Abort {
        rank: u32,
        status: i32,
        why: Option<String>,
    },
    /// End the job, because this rank broke the PMI-1 protocol.
    Misspoke { rank: u32, why: String },
}

/// The key-value space of a job and the barriers of its ranks.
#[derive(Debug)]
pub(super) struct Server {
    name: String,
    space: HashMap<String, String>,
    space_used: usize,
    ranks: Vec<Client>,
    /// The number of ranks in the barrier.
    waiting: usize,
    /// The first rank that ended. No barrier can be complete after that.
    ended: Option<u32>,
    /// The first rank that announced its failure, by putting the key [`FAILING`].
    failing: Option<u32>,
    /// The first rank that ended with status 0 and never said goodbye.
    deserter: Option<u32>,
}

#[derive(Clone, Debug, Default)]
struct Client {
    in_barrier: bool,
    /// The length so far of an `mcmd`, until `endcmd`.
    in_multiple: Option<usize>,
    /// The memory of the rank's keys and values.
    space_used: usize,
    /// True while the rank is in the job.
    joined: bool,
    /// True if the rank announced by the key [`BEREFT`] that it fails for the loss of another.
    bereft: bool,
}

impl Server {
    /// Makes a server for `size` ranks of the job `name`. `by_host` counts the ranks of each host.
    pub(super) fn new(name: String, size: u32, by_host: &[u32]) -> Server {
        let blocks: Vec<String> = (by_host.iter().enumerate())
            .map(|(host, ranks)| format!("({host},1,{ranks})"))
            .collect();
        let processes = format!("(vector,{})", blocks.join(","));
        Server {
            name,
            // MPICH finds the ranks of a host by this key.
            space: HashMap::from([("PMI_process_mapping".to_owned(), processes)]),
            space_used: 0,
            ranks: vec![Client::default(); size as usize],
            waiting: 0,
            ended: None,
            failing: None,
            deserter: None,
        }
    }

    /// Takes a line of `rank`, without its newline.
    pub(super) fn line(&mut self, rank: u32, line: &[u8]) -> Vec<Effect> {
        let Ok(text) = std::str::from_utf8(line) else {
            return vec![misspoke(
                rank,
                format!("`{}` is not text", shorten(&String::from_utf8_lossy(line))),
            )];
        };
        if let Some(length) = self.ranks[rank as usize].in_multiple {
            return self.within_multiple(rank, text, length);
        }
        match PmiLine::parse(text) {
            Ok(line) if line.multiple => {
                self.ranks[rank as usize].in_multiple = Some(text.len());
                Vec::new()
            }
            Ok(line) => self.command(rank, &line),
            Err(why) => vec![misspoke(rank, why)],
        }
    }

    /// Reads a command of several lines to its end and refuses it. Spawning is the only such
    /// command.
    fn within_multiple(&mut self, rank: u32, text: &str, length: usize) -> Vec<Effect> {
        let length = length + text.len() + 1;
        let client = &mut self.ranks[rank as usize];
        if text.trim_end() == "endcmd" {
            client.in_multiple = None;
            let refusal = "cmd=spawn_result rc=-1 msg=spawn_is_not_supported";
            return vec![send(rank, refusal.into())];
        }
        if length > MAX_MULTIPLE {
            return vec![misspoke(
                rank,
                format!("mcmd= and {length} bytes without endcmd"),
            )];
        }
        client.in_multiple = Some(length);
        Vec::new()
    }

    fn command(&mut self, rank: u32, line: &PmiLine<'_>) -> Vec<Effect> {
        let size = self.ranks.len();
        let answer = match line.command {
            "init" => {
                self.ranks[rank as usize].joined = true;
                let (version, subversion) = VERSION;
                let known = line.number::<u32>("pmi_version") == Some(version);
                let code = if known { 0 } else { -1 };
                format!(
                    "cmd=response_to_init pmi_version={version} pmi_subversion={subversion} rc={code}"
                )
            }
            "get_maxes" => {
                format!(
                    "cmd=maxes kvsname_max={MAX_NAME} keylen_max={MAX_KEY} vallen_max={MAX_VALUE} rc=0"
                )
            }
            "get_my_kvsname" => format!("cmd=my_kvsname kvsname={} rc=0", self.name),
            "get_appnum" => "cmd=appnum appnum=0 rc=0".into(),
            "get_universe_size" => format!("cmd=universe_size size={size} rc=0"),
            "put" => match self.put(rank, line) {
                Ok(()) => "cmd=put_result rc=0 msg=success".into(),
                Err(why) => format!("cmd=put_result rc=-1 msg={why}"),
            },
            "get" => match self.get(line) {
                Ok(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                Err(why) => format!("cmd=get_result rc=-1 msg={why} value=unknown"),
            },
            "barrier_in" => return self.barrier(rank),
            "finalize" => {
                self.ranks[rank as usize].joined = false;
                "cmd=finalize_ack rc=0".into()
            }
            "abort" => {
                let status = line.number("exitcode").unwrap_or(1);
                let why = line
                    .field("error_msg")
                    .map(unescape)
                    .filter(|why| !why.is_empty());
                return vec![Effect::Abort { rank, status, why }];
            }
            "publish_name" => "cmd=publish_result rc=-1 msg=names_are_not_supported".into(),
            "unpublish_name" => "cmd=unpublish_result rc=-1 msg=names_are_not_supported".into(),
            "lookup_name" => "cmd=lookup_result rc=-1 msg=names_are_not_supported".into(),
            other => format!("cmd={other}_result rc=-1 msg=unknown_command"),
        };
        vec![send(rank, answer)]
    }

    /// Returns the first rank that announced its failure. Other ranks may end earlier in
    /// consequence.
    pub(super) fn failing(&self) -> Option<u32> {
        self.failing
    }

    /// Returns true if a rank announced that it fails for the loss of another.
    pub(super) fn is_bereft(&self, rank: u32) -> bool {
        self.ranks[rank as usize].bereft
    }

    /// Returns the first rank that ended with status 0 while it was still in the job.
    pub(super) fn deserter(&self) -> Option<u32> {
        self.deserter
    }

    /// Notes that a rank ended with status 0. A rank that failed for the loss of another is no
    /// deserter.
    pub(super) fn ended_well(&mut self, rank: u32) {
        let it = &self.ranks[rank as usize];
        if it.joined && !it.bereft {
            self.deserter.get_or_insert(rank);
        }
    }

    fn put(&mut self, rank: u32, line: &PmiLine<'_>) -> Result<(), &'static str> {
        self.check_name(line)?;
        let key = line.field("key").ok_or("no_key")?;
        // An empty value is written as `value=`.
        let value = line.field("value").ok_or("no_value")?;
        if key.len() >= MAX_KEY {
            return Err("key_too_long");
        }
        if value.len() >= MAX_VALUE {
            return Err("value_too_long");
        }
        if self.space.contains_key(key) {
            return Err("duplicate_key");
        }
        let cost = ENTRY + key.len() + value.len();
        let client = &mut self.ranks[rank as usize];
        if client.space_used + cost > MAX_OF_RANK || self.space_used + cost > MAX_SPACE {
            return Err("space_full");
        }
        client.space_used += cost;
        // Keys have the form `h.RANK.KEY.CHUNK`.
        if key.split('.').nth(2) == Some(FAILING) {
            self.failing.get_or_insert(rank);
        }
        if key.split('.').nth(2) == Some(BEREFT) {
            self.ranks[rank as usize].bereft = true;
        }
        self.space_used += cost;
        self.space.insert(key.into(), value.into());
        Ok(())
    }

    fn get(&self, line: &PmiLine<'_>) -> Result<&str, &'static str> {
        self.check_name(line)?;
        let key = line.field("key").ok_or("no_key")?;
        self.space
            .get(key)
            .map(String::as_str)
            .ok_or("key_not_found")
    }

    fn check_name(&self, line: &PmiLine<'_>) -> Result<(), &'static str> {
        if line.field("kvsname") == Some(&self.name) {
            Ok(())
        } else {
            Err("unknown_kvsname")
        }
    }

    fn barrier(&mut self, rank: u32) -> Vec<Effect> {
        let client = &mut self.ranks[rank as usize];
        if client.in_barrier {
            return vec![misspoke(
                rank,
                "cmd=barrier_in from within a barrier".into(),
            )];
        }
        client.in_barrier = true;
        self.waiting += 1;
        if let Some(ended) = self.ended {
            self.release(&format!(
                "cmd=barrier_out rc=-1 msg=a_rank_ended ended={ended}"
            ))
        } else if self.waiting == self.ranks.len() {
            self.release("cmd=barrier_out rc=0")
        } else {
            Vec::new()
        }
    }

    /// Notes that a rank's process ended.
    pub(super) fn ended(&mut self, rank: u32) -> Vec<Effect> {
        let client = &mut self.ranks[rank as usize];
        if client.in_barrier {
            client.in_barrier = false;
            self.waiting -= 1;
        }
        let ended = *self.ended.get_or_insert(rank);
        self.release(&format!(
            "cmd=barrier_out rc=-1 msg=a_rank_ended ended={ended}"
        ))
    }

    /// Sends `line` to every rank in the barrier and ends the barrier.
    fn release(&mut self, line: &str) -> Vec<Effect> {
        self.waiting = 0;
        let waiting = self
            .ranks
            .iter_mut()
            .enumerate()
            .filter(|(_, client)| client.in_barrier);
        waiting
            .map(|(rank, client)| {
                client.in_barrier = false;
                send(rank as u32, line.to_owned())
            })
            .collect()
    }
}

fn send(rank: u32, mut line: String) -> Effect {
    line.push('\n');
    Effect::Send { rank, line }
}

fn misspoke(rank: u32, why: String) -> Effect {
    Effect::Misspoke { rank, why }
}

#[cfg(test)]
mod tests;
