//! Virtual environments of Python with a wheel of PyPI, below the target folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{at_root, run, target_folder};
use crate::error::Error;

/// The package that our own programs in Python need.
const NEEDED: &str = "numpy";

/// Makes the environment in this folder of the target folder, unless it is there with this wheel. Returns its Python.
///
/// The wheel's own dependencies are left out: they are for GPUs.
///
/// # Errors
/// A machine that cannot have it leaves out what needs it.
pub(crate) fn environment(folder: &str, wheel: Option<&str>) -> Result<PathBuf, Error> {
    let folder = target_folder().join(folder);
    let python = folder.join("bin/python");
    let complete = folder.join("complete");
    let content = wheel.unwrap_or(NEEDED);
    if fs::read_to_string(&complete).is_ok_and(|it| it == content) {
        return Ok(python);
    }
    let mut venv = at_root("python3");
    venv.args(["-m", "venv", "--clear"]).arg(&folder);
    let mut made = run(venv).and_then(|()| run(pip(&python, &[NEEDED])));
    if let Some(wheel) = wheel {
        made = made.and_then(|()| run(pip(&python, &["--no-deps", wheel])));
    }
    made.map_err(|error| Error::not_allowed(format!("no environment with {content}: {error}")))?;
    fs::write(&complete, content).map_err(|source| cannot("write", &complete, source))?;
    Ok(python)
}

fn pip(python: &Path, arguments: &[&str]) -> Command {
    let mut command = at_root(&python.to_string_lossy());
    command.args(["-m", "pip", "install", "--quiet"]);
    command.arg("--disable-pip-version-check").args(arguments);
    command
}

pub(crate) fn cannot(doing: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Install {
        doing,
        path: path.into(),
        source,
    }
}
