//! The PMI-1 server, without its sockets: lines go in, what to do comes out.

use std::collections::HashMap;

use crate::pmi1::wire::{Line, VERSION, shorten, unescape};

/// The limits `get_maxes` tells, each counting the zero that ends a C string.
/// They are those of MPICH and Slurm, which clients are known to bear.
const MAX_NAME: usize = 256;
const MAX_KEY: usize = 64;
const MAX_VALUE: usize = 1024;

/// The most characters the ranks together may put, so that one of them cannot take all memory.
const MAX_SPACE: usize = 1 << 30;

/// What the launcher has to do after a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Send a line to a rank.
    Send { rank: u32, line: String },
    /// End the job, as this rank asked.
    Abort {
        rank: u32,
        status: i32,
        why: Option<String>,
    },
    /// End the job, for this rank does not speak PMI-1.
    Misspoke { rank: u32, why: String },
}

/// The key-value space of a job and the barriers of its ranks.
#[derive(Debug)]
pub(super) struct Server {
    name: String,
    space: HashMap<String, String>,
    space_used: usize,
    ranks: Vec<Client>,
    /// How many ranks are in the barrier.
    waiting: usize,
    /// The first rank that ended: no barrier can be complete after it.
    ended: Option<u32>,
}

#[derive(Clone, Debug, Default)]
struct Client {
    in_barrier: bool,
    /// Within the lines of an `mcmd`, until `endcmd`.
    in_multiple: bool,
}

impl Server {
    /// A server for `size` ranks of the job `name`.
    pub(super) fn new(name: String, size: u32) -> Server {
        let processes = format!("(vector,(0,1,{size}))");
        Server {
            name,
            // MPICH asks by this which ranks share a host, and all do.
            space: HashMap::from([("PMI_process_mapping".to_owned(), processes)]),
            space_used: 0,
            ranks: vec![Client::default(); size as usize],
            waiting: 0,
            ended: None,
        }
    }

    /// Takes a line, without its newline, that `rank` sent.
    pub(super) fn line(&mut self, rank: u32, line: &[u8]) -> Vec<Effect> {
        let Ok(text) = std::str::from_utf8(line) else {
            return vec![misspoke(
                rank,
                format!("`{}` is not text", shorten(&String::from_utf8_lossy(line))),
            )];
        };
        if self.ranks[rank as usize].in_multiple {
            return self.within_multiple(rank, text);
        }
        match Line::parse(text) {
            Ok(line) if line.multiple => {
                self.ranks[rank as usize].in_multiple = true;
                Vec::new()
            }
            Ok(line) => self.command(rank, &line),
            Err(why) => vec![misspoke(rank, why)],
        }
    }

    /// Spawning is the one command of several lines; it is read to its end and refused.
    fn within_multiple(&mut self, rank: u32, text: &str) -> Vec<Effect> {
        if text.trim_end() != "endcmd" {
            return Vec::new();
        }
        self.ranks[rank as usize].in_multiple = false;
        vec![send(
            rank,
            "cmd=spawn_result rc=-1 msg=spawn_is_not_supported".into(),
        )]
    }

    fn command(&mut self, rank: u32, line: &Line<'_>) -> Vec<Effect> {
        let size = self.ranks.len();
        let answer = match line.command {
            "init" => {
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
            "put" => match self.put(line) {
                Ok(()) => "cmd=put_result rc=0 msg=success".into(),
                Err(why) => format!("cmd=put_result rc=-1 msg={why}"),
            },
            "get" => match self.get(line) {
                Ok(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                Err(why) => format!("cmd=get_result rc=-1 msg={why} value=unknown"),
            },
            "barrier_in" => return self.barrier(rank),
            "finalize" => "cmd=finalize_ack rc=0".into(),
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

    fn put(&mut self, line: &Line<'_>) -> Result<(), &'static str> {
        self.check_name(line)?;
        let key = line.field("key").ok_or("no_key")?;
        // A value may be empty, which the line then has as `value=`.
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
        let cost = key.len() + value.len();
        if self.space_used + cost > MAX_SPACE {
            return Err("space_full");
        }
        self.space_used += cost;
        self.space.insert(key.into(), value.into());
        Ok(())
    }

    fn get(&self, line: &Line<'_>) -> Result<&str, &'static str> {
        self.check_name(line)?;
        let key = line.field("key").ok_or("no_key")?;
        self.space
            .get(key)
            .map(String::as_str)
            .ok_or("key_not_found")
    }

    fn check_name(&self, line: &Line<'_>) -> Result<(), &'static str> {
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

    /// Takes notice that a rank's process ended.
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

    /// Sends `line` to every rank in the barrier, which is over.
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
mod tests {
    use super::*;
    use crate::pmi1::wire::MAX_LINE;

    fn server(size: u32) -> Server {
        Server::new("job".into(), size)
    }

    #[track_caller]
    fn answers(server: &mut Server, rank: u32, line: &str, expected: &str) {
        assert_eq!(
            server.line(rank, line.as_bytes()),
            [send(rank, expected.into())]
        );
    }

    #[test]
    fn a_conversation() {
        let mut s = server(2);
        let hello = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
        answers(&mut s, 0, "cmd=init pmi_version=1 pmi_subversion=1", hello);
        answers(
            &mut s,
            0,
            "cmd=get_my_kvsname",
            "cmd=my_kvsname kvsname=job rc=0",
        );
        answers(
            &mut s,
            0,
            "cmd=get_universe_size",
            "cmd=universe_size size=2 rc=0",
        );
        answers(&mut s, 0, "cmd=get_appnum", "cmd=appnum appnum=0 rc=0");
        answers(
            &mut s,
            0,
            "cmd=put kvsname=job key=k value=v=1",
            "cmd=put_result rc=0 msg=success",
        );
        assert_eq!(s.line(0, b"cmd=barrier_in"), []);
        let out = "cmd=barrier_out rc=0";
        assert_eq!(
            s.line(1, b"cmd=barrier_in"),
            [send(0, out.into()), send(1, out.into())]
        );
        answers(
            &mut s,
            1,
            "cmd=get kvsname=job key=k",
            "cmd=get_result rc=0 msg=success value=v=1",
        );
        answers(&mut s, 1, "cmd=finalize", "cmd=finalize_ack rc=0");
    }

    #[test]
    fn what_is_refused_is_answered() {
        let mut s = server(1);
        let put = |rest: &str| format!("cmd=put kvsname=job {rest}");
        for (line, why) in [
            (
                "cmd=put kvsname=other key=k value=v".to_owned(),
                "unknown_kvsname",
            ),
            (put("value=v"), "no_key"),
            (put("key=k"), "no_value"),
            (
                put(&format!("key={} value=v", "k".repeat(64))),
                "key_too_long",
            ),
            (
                put(&format!("key=k value={}", "v".repeat(1024))),
                "value_too_long",
            ),
            (put("key=PMI_process_mapping value=v"), "duplicate_key"),
        ] {
            answers(&mut s, 0, &line, &format!("cmd=put_result rc=-1 msg={why}"));
        }
        let absent = "cmd=get_result rc=-1 msg=key_not_found value=unknown";
        answers(&mut s, 0, "cmd=get kvsname=job key=k", absent);
        answers(
            &mut s,
            0,
            "cmd=dance",
            "cmd=dance_result rc=-1 msg=unknown_command",
        );
        for line in ["mcmd=spawn", "nprocs=3", "execname=/bin/true"] {
            assert_eq!(s.line(0, line.as_bytes()), []);
        }
        answers(
            &mut s,
            0,
            "endcmd",
            "cmd=spawn_result rc=-1 msg=spawn_is_not_supported",
        );
    }

    #[test]
    fn what_is_malformed_ends_the_job() {
        for line in [
            &b"hello"[..],
            b"",
            b"key=a cmd=put",
            b"cmd=put\xff",
            b"\0\0\0",
        ] {
            let effects = server(1).line(0, line);
            assert!(
                matches!(effects[..], [Effect::Misspoke { rank: 0, .. }]),
                "{effects:?}"
            );
        }
        let mut s = server(2);
        assert_eq!(s.line(0, b"cmd=barrier_in"), []);
        assert!(matches!(
            s.line(0, b"cmd=barrier_in")[..],
            [Effect::Misspoke { rank: 0, .. }]
        ));
    }

    #[test]
    fn an_abort_carries_its_status_and_reason() {
        let abort = |status, why: Option<&str>| {
            vec![Effect::Abort {
                rank: 0,
                status,
                why: why.map(str::to_owned),
            }]
        };
        assert_eq!(server(1).line(0, b"cmd=abort exitcode=9"), abort(9, None));
        assert_eq!(
            server(1).line(0, b"cmd=abort exitcode=-1 error_msg=no%20more"),
            abort(-1, Some("no more"))
        );
    }

    #[test]
    fn a_barrier_fails_when_a_rank_has_ended() {
        let out = "cmd=barrier_out rc=-1 msg=a_rank_ended ended=2";
        let mut s = server(3);
        assert_eq!(s.line(0, b"cmd=barrier_in"), []);
        assert_eq!(s.ended(2), [send(0, out.into())]);
        assert_eq!(s.line(1, b"cmd=barrier_in"), [send(1, out.into())]);
        let mut s = server(3);
        assert_eq!(s.line(2, b"cmd=barrier_in"), []);
        assert_eq!(s.ended(2), []);
        assert_eq!(s.line(0, b"cmd=barrier_in"), [send(0, out.into())]);
    }

    proptest::proptest! {
        /// Whatever ranks send, each barrier lets out exactly those that are in it,
        /// and every other line has at most one answer.
        #[test]
        fn no_line_breaks_the_server(
            lines in proptest::collection::vec((0..3u32, line()), 0..60)
        ) {
            let mut s = server(3);
            let mut inside = Vec::new();
            for (rank, line) in lines {
                let effects = s.line(rank, &line);
                let released = effects.len() > 1;
                if line == b"cmd=barrier_in" && effects.is_empty() && !s.ranks[rank as usize].in_multiple {
                    inside.push(rank);
                }
                if released {
                    inside.push(rank);
                    inside.sort_unstable();
                    let out: Vec<_> = effects.iter().map(|e| match e {
                        Effect::Send { rank, .. } => *rank,
                        other => panic!("{other:?}"),
                    }).collect();
                    assert_eq!(out, std::mem::take(&mut inside));
                }
                for effect in &effects {
                    if let Effect::Send { line, .. } = effect {
                        assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
                        assert!(line.len() <= 2 * MAX_LINE, "{line}");
                    }
                }
                if effects.iter().any(|e| matches!(e, Effect::Abort { .. } | Effect::Misspoke { .. })) {
                    break;
                }
            }
        }
    }

    fn line() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
        use proptest::prelude::*;
        prop_oneof![
            8 => Just(b"cmd=barrier_in".to_vec()),
            2 => "cmd=(put|get) kvsname=job key=[ab]( value=[a-z]{0,3})?".prop_map(String::into_bytes),
            1 => "m?cmd=[a-z_]{0,9}( [a-z]{0,3}=[a-z0-9-]{0,5}){0,3}".prop_map(String::into_bytes),
            1 => Just(b"endcmd".to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..20),
        ]
    }
}
