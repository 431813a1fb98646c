//! The harm that a bad network and strangers do to ranks.

use std::fs;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use clap::Subcommand;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::error::Error;

/// An attack, which goes on for some seconds.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Attack {
    /// Shuts TCP connections of these processes down
    #[command(hide = true)]
    Break { seconds: u64, processes: Vec<i32> },
    /// Connects to these addresses, and sends garbage and parts of handshakes
    #[command(hide = true)]
    Intrude {
        seconds: u64,
        addresses: Vec<SocketAddr>,
    },
}

impl Attack {
    /// Attacks, and says how often.
    ///
    /// # Errors
    /// Nothing could be attacked.
    pub(super) fn run(&self) -> Result<Vec<String>, Error> {
        let (seconds, what) = match self {
            Attack::Break { seconds, .. } => (*seconds, "connections broken"),
            Attack::Intrude { seconds, .. } => (*seconds, "connections of a stranger"),
        };
        let since = Instant::now();
        let mut dice = Dice(seconds);
        let mut count = 0;
        while since.elapsed() < Duration::from_secs(seconds) {
            let (done, pause) = match self {
                Attack::Break { processes, .. } => (break_one(processes, &mut dice), 200),
                Attack::Intrude { addresses, .. } => (intrude(addresses, &mut dice), 10),
            };
            count += u32::from(done.is_some());
            thread::sleep(Duration::from_millis(1 + dice.below(pause)));
        }
        if count == 0 {
            return Err(Error::NothingRan {
                command: "hosts".into(),
            });
        }
        Ok(vec![format!("{count} {what}")])
    }
}

/// Random numbers, from a fixed seed (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = (self.0 ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0x2545_f491_4f6c_dd1d);
        self.0 ^= self.0 >> 29;
        (self.0 >> 8) % limit.max(1)
    }

    fn of<'all, T>(&mut self, all: &'all [T]) -> Option<&'all T> {
        all.get(self.below(all.len() as u64) as usize)
    }
}

/// Shuts down one connection of one of these processes, as a router that resets it would. Returns
/// `None` if the process has none.
fn break_one(processes: &[i32], dice: &mut Dice) -> Option<()> {
    let process = *dice.of(processes)?;
    let handle = pidfd_open(Pid::from_raw(process)?, PidfdFlags::empty()).ok()?;
    let folder = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    let names = folder.flatten().map(|entry| entry.file_name());
    let numbers = names.filter_map(|name| name.to_str()?.parse().ok());
    let connection = |number: i32| {
        let socket = pidfd_getfd(&handle, number, PidfdGetfdFlags::empty()).ok()?;
        // Anything but a connected socket of TCP has no such address.
        let stream = TcpStream::from(socket);
        stream.peer_addr().is_ok().then_some(stream)
    };
    let connections: Vec<TcpStream> = numbers.filter_map(connection).collect();
    dice.of(&connections)?.shutdown(Shutdown::Both).ok()
}

/// Connects to one of these addresses as a stranger or a port scan does. Returns `None` if the
/// connection is refused.
fn intrude(addresses: &[SocketAddr], dice: &mut Dice) -> Option<()> {
    let address = dice.of(addresses)?;
    let mut stream = TcpStream::connect_timeout(address, Duration::from_secs(1)).ok()?;
    let len = [0, 1, 15, 300, 5000][dice.below(5) as usize];
    let mut bytes: Vec<u8> = (0..len).map(|_| dice.below(256) as u8).collect();
    if let Some(head) = bytes.first_chunk_mut::<4>()
        && dice.below(2) == 0
    {
        // The beginning of a request of `tcp` for a connection: version, kind, length.
        *head = [3, dice.below(4) as u8, 0, dice.below(256) as u8];
    }
    // The rank may have closed the connection already.
    let _ = stream.write_all(&bytes);
    if dice.below(2) == 0 {
        thread::sleep(Duration::from_millis(dice.below(50)));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_of_another_process_is_broken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_there, _) = listener.accept().unwrap();
        let own = std::process::id() as i32;
        while break_one(&[own], &mut Dice(1)).is_none() {}
        assert_eq!(here.read(&mut [0]).unwrap(), 0, "the end of the stream");
        assert_eq!(break_one(&[], &mut Dice(1)), None);
    }

    #[test]
    fn a_stranger_connects_where_somebody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(intrude(&[address], &mut Dice(1)), Some(()));
        drop(listener);
        assert_eq!(intrude(&[address], &mut Dice(1)), None);
    }
}
