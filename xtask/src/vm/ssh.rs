//! A remote shell between the hosts of a cluster: Debian's OpenSSH server, unpacked like the
//! kernel, with keys made for the run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Error;
use super::image::GuestFile;
use super::package::{Packages, Scratch, output};
use crate::command::target_folder;

/// The server, and the one library of it that not every Debian has.
const PACKAGES: [&str; 2] = ["openssh-server", "libwrap0"];

/// The path of the server in its package.
const SERVER: &str = "usr/sbin/sshd";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// The server's settings. The holder of the run's key is the user. The newest key exchanges are
/// left out, because they are slow where processors are emulated.
const SERVER_SETTINGS: &str = "\
HostKey /run/vm/host_key
AuthorizedKeysFile /run/vm/user_key.pub
KexAlgorithms curve25519-sha256
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
UseDNS no
PidFile none
MaxStartups 1000
MaxSessions 1000
LogLevel ERROR
";

/// The client's settings, which replace the user's own.
const CLIENT_SETTINGS: &str = "\
IdentityFile ~/.ssh/user_key
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
BatchMode yes
LogLevel ERROR
";

/// A server to start in each host, and the keys of this run.
pub(crate) struct Ssh {
    /// The server's program.
    pub(crate) server: PathBuf,
    /// The folder of the libraries that came with the server.
    pub(crate) libraries: PathBuf,
    entries: Vec<GuestFile>,
}

impl Ssh {
    /// The server kept from an earlier run, or one fetched now, and fresh keys.
    pub(crate) fn new() -> Result<Ssh, Error> {
        let kept = target_folder().join("vm/openssh");
        if !kept.join(SERVER).is_file() {
            fetch(&kept)?;
        }
        Ok(Ssh {
            server: kept.join(SERVER),
            libraries: kept.join(LIBRARIES),
            entries: entries(&kept)?,
        })
    }

    /// The files that both hosts need.
    pub(crate) fn entries(&self) -> &[GuestFile] {
        &self.entries
    }
}

fn fetch(kept: &Path) -> Result<(), Error> {
    eprintln!("vm: fetching Debian's OpenSSH server, once");
    let scratch = Scratch::new(kept)?;
    for name in PACKAGES {
        Packages::OfThisMachine.fetch(name, scratch.path())?;
    }
    let _ = fs::remove_dir_all(kept);
    let moved = fs::rename(scratch.path().join("all"), kept);
    // A server that another run put there meanwhile is as good.
    match moved {
        Err(error) if !kept.join(SERVER).is_file() => Err(Error::file("make", kept)(error)),
        _ => Ok(()),
    }
}

fn entries(kept: &Path) -> Result<Vec<GuestFile>, Error> {
    let scratch = Scratch::new(&kept.with_extension("keys"))?;
    let mut entries = vec![
        ("vm/sshd_config".to_owned(), SERVER_SETTINGS.into()),
        ("vm/ssh_config".to_owned(), CLIENT_SETTINGS.into()),
    ];
    for name in ["host_key", "user_key"] {
        let file = scratch.path().join(name);
        let mut generate = Command::new("ssh-keygen");
        generate
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&file);
        output(generate)?;
        for name in [name.to_owned(), format!("{name}.pub")] {
            let file = scratch.path().join(&name);
            let bytes = fs::read(&file).map_err(Error::file("read", &file))?;
            entries.push((format!("vm/{name}"), bytes));
        }
    }
    Ok(entries)
}
