//! Debian packages that are unpacked into a folder of ours, not installed. apt fetches them from
//! the system's own sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use super::Error;
use crate::command::typed;
use crate::setup;

/// Fetches `package` and unpacks it into `all` below `folder`. Returns its version.
pub(crate) fn fetch(package: &str, folder: &Path) -> Result<String, Error> {
    let debs = folder.join("debs");
    fs::create_dir_all(&debs).map_err(Error::file("make", &debs))?;
    download(package, &debs).or_else(|_| {
        // Old lists name versions that are gone.
        update_lists()?;
        download(package, &debs)
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

/// Updates the package lists, where root allows.
pub(crate) fn update_lists() -> Result<(), Error> {
    setup::apt_update().map_err(|error| Error::Unusable(error.to_string()))
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

fn download(package: &str, folder: &Path) -> Result<(), Error> {
    let mut command = Command::new("apt-get");
    // As root, apt would switch to a user that cannot write here, and print long warnings.
    command.args(["-o", "APT::Sandbox::User=root", "download", package]);
    command.current_dir(folder);
    output(command).map(drop)
}

fn only_file(folder: &Path) -> Result<PathBuf, Error> {
    let entries = fs::read_dir(folder).map_err(Error::file("read", folder))?;
    let mut files = entries.flatten().map(|it| it.path());
    let file = files.next();
    file.ok_or_else(|| Error::Unusable("apt-get fetched nothing".into()))
}
