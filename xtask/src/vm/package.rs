//! Debian packages that are unpacked into a folder of ours, not installed. apt fetches them from
//! the system's own sources, or from Debian's unstable distribution with lists of our own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use super::Error;
use crate::command::typed;
use crate::setup;

/// The source of packages.
pub(crate) enum Packages {
    /// The sources that this machine has.
    OfThisMachine,
    /// Debian's unstable distribution. The folder keeps its lists, apart from the machine's.
    Sid(PathBuf),
}

/// The source of sid's packages, in the format of sources.list(5).
const SID: &str = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
                   http://deb.debian.org/debian sid main\n";

impl Packages {
    /// Fetches `package` and unpacks it into `all` below `folder`. Returns its version.
    pub(crate) fn fetch(&self, package: &str, folder: &Path) -> Result<String, Error> {
        let debs = folder.join("debs");
        fs::create_dir_all(&debs).map_err(Error::file("make", &debs))?;
        self.download(package, &debs).or_else(|_| {
            // Old lists name versions that are gone.
            self.update_lists()?;
            self.download(package, &debs)
        })?;
        let deb = only_file(&debs)?;

        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(&deb).arg(folder.join("all"));
        output(unpack)?;
        let mut ask = Command::new("dpkg-deb");
        ask.arg("-f").arg(&deb).arg("Version");
        let version = output(ask)?;
        fs::remove_dir_all(&debs).map_err(Error::file("remove", &debs))?;
        Ok(String::from_utf8_lossy(&version).trim().to_owned())
    }

    /// Updates the package lists, where that is allowed.
    pub(crate) fn update_lists(&self) -> Result<(), Error> {
        let Packages::Sid(folder) = self else {
            return setup::apt_update().map_err(|error| Error::Unusable(error.to_string()));
        };
        for folder in [folder.join("lists/partial"), folder.join("cache")] {
            fs::create_dir_all(&folder).map_err(Error::file("make", &folder))?;
        }
        let sources = folder.join("sources.list");
        fs::write(&sources, SID).map_err(Error::file("write", &sources))?;
        let mut update = self.command("apt-get");
        update.arg("update");
        output(update).map(drop)
    }

    /// A program of apt that uses the source.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // As root, apt would switch to a user that cannot write here, and print long warnings.
        command.args(["-o", "APT::Sandbox::User=root"]);
        if let Packages::Sid(folder) = self {
            let mut set = |name: &str, value: &Path| {
                let value = value.display();
                command.arg("-o").arg(format!("{name}={value}"));
            };
            set("Dir::Etc::SourceList", &folder.join("sources.list"));
            set("Dir::Etc::SourceParts", Path::new("-"));
            set("Dir::State::Lists", &folder.join("lists"));
            set("Dir::Cache", &folder.join("cache"));
        }
        command
    }

    fn download(&self, package: &str, folder: &Path) -> Result<(), Error> {
        let mut command = self.command("apt-get");
        command.args(["download", package]).current_dir(folder);
        output(command).map(drop)
    }
}

/// Runs `command` and returns its output. On failure the error has its messages.
pub(crate) fn output(mut command: Command) -> Result<Vec<u8>, Error> {
    let output = command.output();
    let failed = |problem| Error::Helper {
        command: typed(&command),
        problem,
    };
    let output = output.map_err(|error| failed(format!("could not be run: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!(
        "ended with {}\n{}",
        output.status,
        said.trim()
    )))
}

/// A folder that the drop removes.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A temporary folder beside the final path, so that a rename can move its content there.
    pub(crate) fn new(beside: &Path) -> Result<Scratch, Error> {
        let path = beside.with_extension(format!("scratch-{}", process::id()));
        fs::create_dir_all(&path).map_err(Error::file("make", &path))?;
        Ok(Scratch { path })
    }

    /// The path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder left behind takes room and does no harm.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn only_file(folder: &Path) -> Result<PathBuf, Error> {
    let entries = fs::read_dir(folder).map_err(Error::file("read", folder))?;
    let mut files = entries.flatten().map(|it| it.path());
    let file = files.next();
    file.ok_or_else(|| Error::Unusable("apt-get fetched nothing".into()))
}
