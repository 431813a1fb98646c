//! The rank's side of PMI-1, spoken on the wire.
//!
//! The same lines work under Hydrant's launcher, MPICH's `mpiexec.hydra` and `srun --mpi=pmi2`. No
//! library is needed.

mod channel;
mod inherited;
pub(crate) mod value;
pub(crate) mod wire;

use std::collections::HashSet;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) use inherited::is_open;

use channel::{Channel, SERVICE, broken};
use wire::{MAX_LINE, PmiLine, VERSION, escape_within, shorten};

use crate::{Bootstrap, Error, JoinOptions, check_key, check_rank, check_value, mpi};

/// True once this process has joined. A PMI-1 server takes one `init` from each process.
static JOINED: AtomicBool = AtomicBool::new(false);

/// The characters of a line beside the value: names, the key-value space and the key.
const LINE_OVERHEAD: usize = 64;

/// A rank that speaks PMI-1.
#[derive(Debug)]
pub(crate) struct Pmi1 {
    rank: u32,
    size: u32,
    channel: Channel,
    space: String,
    max_key: usize,
    max_value: usize,
    put: HashSet<String>,
    answer_within: Duration,
    fence_within: Duration,
}

impl Pmi1 {
    /// Joins on an inherited descriptor.
    pub(crate) fn inherited(
        fd: i32,
        rank: u32,
        size: u32,
        options: &JoinOptions,
    ) -> Result<Pmi1, Error> {
        let stream = inherited::open(fd).map_err(|e| Error::LauncherUnusable {
            seen: format!(
                "PMI_FD={fd} says that a launcher started this process as rank {rank} of {size}"
            ),
            why: format!("descriptor {fd} is not an open socket or pipe ({e})"),
            fix: "start this program by the launcher itself and not by one that closes its files, \
                  or unset PMI_FD to run it as a job of one"
                .into(),
        })?;
        join_once()?;
        Pmi1::init(Channel::new(stream), rank, size, options)
    }

    /// Joins over TCP. The server sends the rank and the size.
    pub(crate) fn connect(address: &str, id: u32, options: &JoinOptions) -> Result<Pmi1, Error> {
        let doing = || format!("connecting to PMI_PORT={address}");
        let lost = |source| Error::LauncherLost {
            service: SERVICE,
            doing: doing(),
            source,
        };
        join_once()?;
        let stream = TcpStream::connect(address).map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        let mut channel = Channel::new(OwnedFd::from(stream));
        channel.send(&format!("cmd=initack pmiid={id}\n"), &doing)?;
        receive(
            &mut channel,
            "initack",
            options.answer_within,
            &doing,
            |_| Ok(()),
        )?;
        let mut field = |name: &str| {
            receive(&mut channel, "set", options.answer_within, &doing, |line| {
                line.number::<u32>(name)
                    .ok_or_else(|| broken(format!("cmd=set without {name}"), &doing))
            })
        };
        let size = field("size")?;
        let rank = field("rank")?;
        field("debug")?;
        check_rank(rank, size)?;
        Pmi1::init(channel, rank, size, options)
    }

    fn init(channel: Channel, rank: u32, size: u32, options: &JoinOptions) -> Result<Pmi1, Error> {
        let mut me = Pmi1 {
            rank,
            size,
            channel,
            space: String::new(),
            max_key: 0,
            max_value: 0,
            put: HashSet::new(),
            answer_within: options.answer_within,
            fence_within: options.fence_within,
        };
        let doing = || format!("rank {rank} was joining");
        let (version, subversion) = VERSION;
        let init = format!("cmd=init pmi_version={version} pmi_subversion={subversion}\n");
        me.ask(&init, "response_to_init", &doing, |line| {
            match (line.number::<i32>("rc"), line.field("pmi_version")) {
                (Some(0), _) => Ok(()),
                (_, theirs) => Err(Error::Refused {
                    service: SERVICE,
                    doing: doing(),
                    why: format!(
                        "it speaks PMI version {}, Hydrant speaks {version}.{subversion}",
                        theirs.unwrap_or("unknown")
                    ),
                }),
            }
        })?;
        (me.max_key, me.max_value) = me.ask("cmd=get_maxes\n", "maxes", &doing, |line| {
            match (line.number("keylen_max"), line.number("vallen_max")) {
                (Some(key), Some(value)) => Ok((key, value)),
                _ => Err(broken(
                    "maxes without keylen_max and vallen_max".into(),
                    &doing,
                )),
            }
        })?;
        me.space = me.ask("cmd=get_my_kvsname\n", "my_kvsname", &doing, |line| {
            line.field("kvsname")
                .map(str::to_owned)
                .ok_or_else(|| broken("no kvsname".into(), &doing))
        })?;
        Ok(me)
    }

    /// Sends a command, and returns the result of `read` on the `answer` to it.
    fn ask<R>(
        &mut self,
        command: &str,
        answer: &str,
        doing: &dyn Fn() -> String,
        read: impl FnOnce(&PmiLine<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.channel.send(command, doing)?;
        let within = if answer == "barrier_out" {
            self.fence_within
        } else {
            self.answer_within
        };
        receive(&mut self.channel, answer, within, doing, read)
    }

    /// Returns the name of a value's chunk in the key-value space that all ranks share.
    fn key(&self, from: u32, key: &str, chunk: usize) -> Result<String, Error> {
        let name = format!("h.{from}.{key}.{chunk}");
        // The server's limit counts the zero that ends a C string.
        if name.len() >= self.max_key {
            return Err(Error::KeyTooLong {
                key: name,
                len: key.len(),
                limit: self.max_key,
            });
        }
        Ok(name)
    }

    fn put_chunk(&mut self, key: &str, chunk: usize, text: &str) -> Result<(), Error> {
        let name = self.key(self.rank, key, chunk)?;
        let command = format!("cmd=put kvsname={} key={name} value={text}\n", self.space);
        let doing = || format!("putting the key `{key}`");
        self.ask(&command, "put_result", &doing, |line| {
            check_code(line, &doing)
        })
    }

    fn get_chunk(&mut self, from: u32, key: &str, chunk: usize) -> Result<String, Error> {
        let name = self.key(from, key, chunk)?;
        let command = format!("cmd=get kvsname={} key={name}\n", self.space);
        let doing = || format!("getting the key `{key}` of rank {from}");
        self.ask(&command, "get_result", &doing, |line| {
            match (line.number("rc"), line.field("value")) {
                (Some(0), Some(value)) => Ok(value.to_owned()),
                // A server answers any other code for a key that nobody put.
                _ => Err(Error::NoSuchKey {
                    from,
                    key: key.into(),
                }),
            }
        })
    }
}

impl Bootstrap for Pmi1 {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn name(&self) -> &'static str {
        "pmi1"
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        check_key(key)?;
        check_value(key, value)?;
        if self.put.contains(key) {
            return Err(Error::KeyTaken { key: key.into() });
        }
        let taken = LINE_OVERHEAD + self.space.len() + self.max_key;
        let room = MAX_LINE
            .saturating_sub(taken)
            .min(self.max_value.saturating_sub(1));
        if room < value::MIN_ROOM {
            let got = format!("limits that leave {room} characters for a value");
            return Err(broken(got, &|| format!("putting the key `{key}`")));
        }
        for (chunk, text) in value::encode(value, room).iter().enumerate() {
            self.put_chunk(key, chunk, text)?;
        }
        self.put.insert(key.into());
        Ok(())
    }

    fn fence(&mut self) -> Result<(), Error> {
        let rank = self.rank;
        let doing = || format!("rank {rank} was in a fence");
        self.ask(
            "cmd=barrier_in\n",
            "barrier_out",
            &doing,
            |line| match line.number::<i32>("rc") {
                // Hydrant's launcher names the rank that ended. Other launchers send no code.
                None | Some(0) => Ok(()),
                Some(_) => match line.number("ended") {
                    Some(rank) => Err(Error::RankEnded { rank }),
                    None => check_code(line, &doing),
                },
            },
        )
    }

    fn get(&mut self, from: u32, key: &str) -> Result<Vec<u8>, Error> {
        check_key(key)?;
        check_rank(from, self.size)?;
        let doing = || format!("getting the key `{key}` of rank {from}");
        let head = self.get_chunk(from, key, 0)?;
        let (chunks, digits) = value::first(&head).map_err(|got| broken(got, &doing))?;
        let mut all = digits.to_owned();
        for chunk in 1..chunks {
            all.push_str(&self.get_chunk(from, key, chunk)?);
        }
        value::decode(&all).map_err(|got| broken(got, &doing))
    }

    fn abort(&mut self, status: i32, why: &str) {
        let why = escape_within(why, MAX_LINE - LINE_OVERHEAD);
        let line = format!("cmd=abort exitcode={status} error_msg={why}\n");
        // Nobody is left to report a failure to, and the caller exits anyway.
        let _ = self.channel.send(&line, &|| "aborting".into());
    }

    fn finalize(&mut self) -> Result<(), Error> {
        // The launcher takes one goodbye and hangs up. MPI sends it, because the program
        // initialized MPI after it had joined.
        if mpi::speaks_pmi1_itself() {
            return Ok(());
        }
        let rank = self.rank;
        self.ask(
            "cmd=finalize\n",
            "finalize_ack",
            &|| format!("rank {rank} was leaving"),
            |_| Ok(()),
        )
    }
}

fn join_once() -> Result<(), Error> {
    if JOINED.swap(true, Ordering::Relaxed) {
        Err(Error::AlreadyJoined)
    } else {
        Ok(())
    }
}

fn receive<R>(
    channel: &mut Channel,
    answer: &str,
    within: Duration,
    doing: &dyn Fn() -> String,
    read: impl FnOnce(&PmiLine<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    let text = channel.receive(within, doing)?;
    let line = PmiLine::parse(&text).map_err(|got| broken(got, doing))?;
    if line.command != answer {
        return Err(broken(
            format!("`{}` where cmd={answer} was expected", shorten(&text)),
            doing,
        ));
    }
    read(&line)
}

fn check_code(line: &PmiLine<'_>, doing: &dyn Fn() -> String) -> Result<(), Error> {
    match line.number::<i32>("rc") {
        Some(0) => Ok(()),
        _ => Err(Error::Refused {
            service: SERVICE,
            doing: doing(),
            why: line.field("msg").unwrap_or("no reason given").to_owned(),
        }),
    }
}
